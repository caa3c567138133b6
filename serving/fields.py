"""Where a stack states what an option of a role follows from, and options that contradict it."""

from collections.abc import Mapping

from serving.derive import CONVOLUTION_DTYPE, derived_arguments, derived_environment
from serving.roles import Role, Value
from serving.stack import StackSpec

# Where a derived option is stated in the spec.
FIELDS = {
    "tp-size": "roles.{role}.parallelism.tp",
    "ep-size": "roles.{role}.parallelism.ep",
    "attn-dp-size": "roles.{role}.parallelism.attention_dp",
    "attn-cp-size": "roles.{role}.parallelism.attention_cp",
    "moe-dense-tp-size": "roles.{role}.parallelism.moe_dense_tp",
    "enable-dp-lm-head": "roles.{role}.parallelism.lm_head",
    "enable-tp-lm-head-all-to-all": "roles.{role}.parallelism.lm_head",
    "disaggregation-mode": "roles.{role}",
    "encoder-only": "roles.encode",
    "language-only": "roles.encode",
    "pd-disaggregation": "roles.router",
    "disaggregation-bootstrap-port": "roles.{role}.bootstrap_port",
    "prometheus-port": "roles.{role}.prometheus_port",
    "prometheus-host": "roles.{role}.host",
    "disaggregation-transfer-backend": "transfer.backend",
    "encoder-transfer-backend": "transfer.encoder",
    "disaggregation-ib-device": "transfer.ib_device",
    "disaggregation-enable-kv-checksum": "transfer.kv_checksum",
    "quantization": "quantization.weights",
    "kv-cache-dtype": "quantization.kv",
    "mamba-ssm-dtype": "quantization.kda_state",
    CONVOLUTION_DTYPE: "quantization.convolution",
    "moe-a2a-backend": "moe.all_to_all",
    "deepep-mode": "moe.mode",
    "moe-runner-backend": "moe.runner",
    "enable-linear-replayssm": "replayssm.phase",
    "enable-linear-replayssm-spec": "replayssm.phase",
    "linear-replayssm-cache-len": "replayssm.length",
    "enable-hierarchical-cache": "hicache",
    "hicache-size": "hicache.size_gb",
    "hicache-ratio": "hicache.ratio",
    "hicache-storage-backend": "hicache.storage",
    "hicache-write-policy": "hicache.write_policy",
    "speculative-algorithm": "speculative.algorithm",
    "speculative-num-steps": "speculative.steps",
    "speculative-eagle-topk": "speculative.topk",
    "speculative-num-draft-tokens": "speculative.draft_tokens",
    "speculative-adaptive": "speculative.adaptive",
}


def field_of(spec: StackSpec, role: Role, name: str) -> str:
    """The path in the spec where option (or variable) `name` of a role is stated, or would be."""
    part = spec.roles[role]
    if name in part.environment:
        return f"roles.{role}.environment.{name}"
    if name not in part.arguments and name in FIELDS and _is_derived(spec, role, name):
        return FIELDS[name].format(role=role)
    return f"roles.{role}.arguments.{name}"


def _is_derived(spec: StackSpec, role: Role, name: str) -> bool:
    return name in derived_arguments(spec, role) or name in derived_environment(spec, role)


def contradictions(
    spec: StackSpec, role: Role, aliases: Mapping[str, str] | None = None
) -> dict[str, tuple[str, Value, Value]]:
    """Options of a role whose stated value is not the derived one: as written, to (name, derived, stated).

    `aliases`: other spellings of options.
    """
    derived, found = derived_arguments(spec, role), {}
    for written, own in spec.roles[role].arguments.items():
        name = (aliases or {}).get(written, written)
        value = derived.get(name)
        if value is not None and own is not None and str(own) != str(value):
            found[written] = (name, value, own)
    return found
