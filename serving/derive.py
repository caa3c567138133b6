"""From the facts of a stack to the options, variables and addresses of each role: each fact is stated once.

Pure functions of the spec. The launcher adds what only it knows: the checkpoint's folder, `host` and `port`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from serving.roles import Parallelism, Role, RoleSpec, Value

if TYPE_CHECKING:
    from serving.stack import StackSpec

CONVOLUTION_DTYPE = "SGLANG_MAMBA_CONV_DTYPE"
LANGUAGE: tuple[Role, ...] = ("server", "prefill", "decode")


def arguments_of(spec: "StackSpec", role: Role, replica: int = 0) -> dict[str, Value]:
    """Every option of one replica of a role, as SGLang spells them: the derived ones, then the role's own.

    An own one that says something else than the derived one wins here, and is a fault for `contradictions`.
    """
    stated = {name: value for name, value in spec.roles[role].arguments.items() if value is not None}
    return {**derived_arguments(spec, role, replica), **stated}


def derived_arguments(spec: "StackSpec", role: Role, replica: int = 0) -> dict[str, Value]:
    """The options that follow from the spec's facts; those that it leaves to SGLang are absent."""
    part = spec.roles[role]
    if role == "router":
        port = None if part.prometheus_port is None else part.prometheus_port + replica
        return _stated({"pd-disaggregation": True, "prometheus-host": part.host, "prometheus-port": port})
    if role == "encode":
        coder = {"encoder-only": True, "encoder-transfer-backend": spec.transfer.encoder}
        return _stated({**coder, "tp-size": _beyond_one(part.parallelism.tp)})
    return _stated(
        {
            **_disaggregation(spec, role, part, replica),
            **_parallelism(part.parallelism),
            "quantization": spec.quantization.weights,
            "kv-cache-dtype": spec.quantization.kv,
            "mamba-ssm-dtype": spec.quantization.kda_state,
            **_moe(spec),
            **_replayssm(spec, role),
            **_hicache(spec, role),
            **_speculative(spec),
        }
    )


def derived_environment(spec: "StackSpec", role: Role) -> dict[str, str]:
    """The variables that follow from the spec's facts. They go over everything else, as the launcher's own do."""
    part = spec.roles[role]
    if role == "router":
        return {}
    found = {"SGLANG_HOST_IP": part.host}
    if role in LANGUAGE and spec.quantization.convolution is not None:
        found[CONVOLUTION_DTYPE] = spec.quantization.convolution
    if role != "server":
        found["MC_TCP_BIND_ADDRESS"] = part.host
    if part.mooncake_ports is not None:
        found["MC_MIN_RPC_PORT"] = str(part.mooncake_ports.low)
        found["MC_MAX_RPC_PORT"] = str(part.mooncake_ports.high)
    return found


def peers_of(spec: "StackSpec", role: Role) -> tuple[str, ...]:
    """The words that tell a role where the others are: encoders to prefill, workers to the router."""
    if role == "prefill" and "encode" in spec.roles:
        return ("--encoder-urls", *urls_of(spec, "encode"))
    if role != "router":
        return ()
    words: list[str] = []
    boot = spec.roles["prefill"].bootstrap_port
    for replica, url in enumerate(urls_of(spec, "prefill")):
        words += ["--prefill", url, *([] if boot is None else [str(boot + replica)])]
    for url in urls_of(spec, "decode"):
        words += ["--decode", url]
    return tuple(words)


def urls_of(spec: "StackSpec", role: Role) -> tuple[str, ...]:
    """Where the replicas of a role answer."""
    part = spec.roles[role]
    if part.url is not None:
        return (part.url,)
    assert part.port is not None, "a role has a port or a url"
    host = f"[{part.host}]" if ":" in part.host else part.host
    return tuple(f"http://{host}:{part.port + replica}" for replica in range(part.count))


def words_of(arguments: Mapping[str, Value | None]) -> tuple[str, ...]:
    """As on a command line: `True` is a bare flag, `False` and `None` are absent, several values follow their option."""
    words: list[str] = []
    for name, value in arguments.items():
        if value is True:
            words.append(f"--{name}")
        elif isinstance(value, tuple):
            words += [f"--{name}", *(str(part) for part in value)]
        elif value is not None and value is not False:
            words.append(f"--{name}={value}")
    return tuple(words)


def _disaggregation(spec: "StackSpec", role: Role, part: RoleSpec, replica: int) -> dict[str, Value | None]:
    if role == "server":
        return {}
    boot = None if role == "decode" or part.bootstrap_port is None else part.bootstrap_port + replica
    encoder: dict[str, Value | None] = {}
    # Decode never needs the embeddings; told of an encoder, it has every picture encoded a second time.
    if role == "prefill" and "encode" in spec.roles:
        encoder = {"language-only": True, "encoder-transfer-backend": spec.transfer.encoder}
    return {
        "disaggregation-mode": role,
        "disaggregation-transfer-backend": spec.transfer.backend,
        "disaggregation-bootstrap-port": boot,
        "disaggregation-ib-device": spec.transfer.ib_device,
        "disaggregation-enable-kv-checksum": spec.transfer.kv_checksum or None,
        **encoder,
    }


def _parallelism(part: Parallelism) -> dict[str, Value | None]:
    return {
        "tp-size": _beyond_one(part.tp),
        "ep-size": _beyond_one(part.ep),
        "attn-dp-size": _beyond_one(part.attention_dp),
        "attn-cp-size": _beyond_one(part.attention_cp),
        "moe-dense-tp-size": part.moe_dense_tp,
        "enable-dp-lm-head": part.lm_head == "attention_group" or None,
        "enable-tp-lm-head-all-to-all": part.lm_head == "all_to_all" or None,
    }


def _moe(spec: "StackSpec") -> dict[str, Value | None]:
    moe = spec.moe
    all_to_all = None if moe.all_to_all == "none" else moe.all_to_all
    return {"moe-a2a-backend": all_to_all, "deepep-mode": moe.mode, "moe-runner-backend": moe.runner}


def _replayssm(spec: "StackSpec", role: Role) -> dict[str, Value | None]:
    if spec.replayssm is None or role == "prefill":
        return {}
    flag = "enable-linear-replayssm" if spec.replayssm.phase == "decode" else "enable-linear-replayssm-spec"
    return {flag: True, "linear-replayssm-cache-len": spec.replayssm.length}


def _hicache(spec: "StackSpec", role: Role) -> dict[str, Value | None]:
    if spec.hicache is None or role == "decode":
        return {}
    return {
        "enable-hierarchical-cache": True,
        "hicache-size": spec.hicache.size_gb,
        "hicache-ratio": spec.hicache.ratio,
        "hicache-storage-backend": spec.hicache.storage,
        "hicache-write-policy": spec.hicache.write_policy,
    }


def _speculative(spec: "StackSpec") -> dict[str, Value | None]:
    if spec.speculative is None:
        return {}
    return {
        "speculative-algorithm": spec.speculative.algorithm,
        "speculative-num-steps": spec.speculative.steps,
        "speculative-eagle-topk": spec.speculative.topk,
        "speculative-num-draft-tokens": spec.speculative.draft_tokens,
        "speculative-adaptive": spec.speculative.adaptive or None,
    }


def _beyond_one(size: int) -> int | None:
    return None if size == 1 else size


def _stated(arguments: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in arguments.items() if value is not None}
