"""Facts of a stack that have no effect, cannot be had, or must be the same for prefill and decode."""

from collections.abc import Iterator
from pathlib import Path

from serving.derive import CONVOLUTION_DTYPE, arguments_of, derived_environment
from serving.faults import Fault, error, warning
from serving.fields import field_of
from serving.model_facts import ModelFacts
from serving.stack import StackSpec

# SGLang holds the indexer's keys so, whatever is asked for (srt/mem_cache/index_key_cache.py).
INDEX_DTYPE = "fp8_e4m3"
# What is written by prefill is read by decode as it lies in memory.
SAME_ON_BOTH = (
    "disaggregation-transfer-backend",
    "disaggregation-decode-allocation-policy",
    "dtype",
    "kv-cache-dtype",
    "mamba-ssm-dtype",
    "page-size",
)


def fact_faults(spec: StackSpec, model: ModelFacts | None) -> Iterator[Fault]:
    """Faults of the facts of a stack as a whole."""
    yield from _without_effect(spec)
    yield from _caches(spec, model)
    for role, part in spec.roles.items():
        if part.engine is not None and part.url is None and not _has_python(part.engine):
            yield error(f"roles.{role}.engine", f"`{part.engine}` has no bin/python", "name a virtual environment")
    if "prefill" in spec.roles and "decode" in spec.roles:
        yield from _not_the_same(spec)
    if spec.unmapped:
        yield _not_expressed(spec)


def _not_expressed(spec: StackSpec) -> Fault:
    """One warning for all that an import left, by its reasons."""
    by_reason: dict[str, list[str]] = {}
    for place in spec.unmapped:
        by_reason.setdefault(spec.unmapped_why.get(place, "no reason is given"), []).append(f"`{place}`")
    listed = "; ".join(f"{', '.join(places)} ({why})" for why, places in by_reason.items())
    count = f"{len(spec.unmapped)} part{'' if len(spec.unmapped) == 1 else 's'} of the recipe"
    hint = "state by hand what matters of it, and take the rest out of `unmapped`"
    return warning("unmapped", f"nothing runs by {count}: {listed}", hint)


def _has_python(engine: str) -> bool:
    try:
        return (Path(engine).expanduser() / "bin" / "python").exists()
    except (OSError, RuntimeError, ValueError):  # no name that a folder can have
        return False


def _without_effect(spec: StackSpec) -> Iterator[Fault]:
    if "server" in spec.roles and "transfer" in spec.model_fields_set:
        yield error("transfer", "one server transfers nothing: it is ignored", "take it away")
    if "encode" not in spec.roles and spec.transfer.encoder is not None:
        yield error("transfer.encoder", "there is no role `encode`: it is ignored", "take it away")
    if "encode" in spec.roles and spec.transfer.backend == "fake":
        yield warning("transfer.backend", "`fake` moves nothing", "never compare answers under it")


def _caches(spec: StackSpec, model: ModelFacts | None) -> Iterator[Fault]:
    quantization = spec.quantization
    if quantization.index is not None and quantization.index != INDEX_DTYPE:
        message = (
            f"`{quantization.index}`: SGLang 0.5.23 keeps keys of the indexer in `{INDEX_DTYPE}`, and has no option"
        )
        yield error("quantization.index", message, f"state `{INDEX_DTYPE}`, or take it away")
    if model is None:
        return
    if quantization.index is not None and model.index_topk is None:
        yield error("quantization.index", "the model has no sparse attention: it is ignored", "take it away")
    if model.linear_layers == 0:
        for name in ("kda_state", "convolution"):
            if getattr(quantization, name) is not None:
                message = "the model has no linear attention: it is ignored"
                yield error(f"quantization.{name}", message, "take it away")
        if spec.replayssm is not None:
            yield error("replayssm", "the model has no linear attention: it is ignored", "take it away")


def _not_the_same(spec: StackSpec) -> Iterator[Fault]:
    prefill, decode = arguments_of(spec, "prefill"), arguments_of(spec, "decode")
    for name in SAME_ON_BOTH:
        one, other = prefill.get(name), decode.get(name)
        if one is not None and other is not None and str(one) != str(other):
            message = f"`{other}` for decode and `{one}` for prefill: what one writes the other reads"
            yield error(field_of(spec, "decode", name), message, "state the same for both")
    checked = [arguments.get("disaggregation-enable-kv-checksum", False) for arguments in (prefill, decode)]
    if checked[0] != checked[1]:
        field = field_of(spec, "decode", "disaggregation-enable-kv-checksum")
        yield error(field, "one side writes checksums and the other does not read them", "state `transfer.kv_checksum`")
    one, other = (
        {**spec.roles[role].environment, **derived_environment(spec, role)}.get(CONVOLUTION_DTYPE)
        for role in ("prefill", "decode")
    )
    if one != other:
        message = f"`{other}` for decode and `{one}` for prefill: what one writes the other reads"
        yield error(f"roles.decode.environment.{CONVOLUTION_DTYPE}", message, "state `quantization.convolution`")
