"""Does each role have the GPUs and the memory that it needs, and do its parts stay on one node?"""

from collections.abc import Iterator

from serving.derive import CONVOLUTION_DTYPE
from serving.faults import Fault, error, warning
from serving.memory_fit import Footprint, capacity_bytes, footprint, size_text
from serving.roles import Resources, Role
from serving.setting import Setting
from serving.stack import StackSpec


def resource_faults(spec: StackSpec, role: Role, setting: Setting) -> Iterator[Fault]:
    """Faults of `resources` and `parallelism` of a role that runs SGLang."""
    resources = spec.roles[role].resources
    if not setting.on_cpu:
        yield from _gpus(role, setting, resources)
    yield from _inside_node(spec, role, setting)
    yield from _memory(role, setting, resources)


def _gpus(role: Role, setting: Setting, resources: Resources) -> Iterator[Fault]:
    ranks = setting.ranks("tp-size") * setting.ranks("pp-size") * setting.ranks("dp-size")
    field = f"roles.{role}.resources.gpus"
    if resources.gpus != ranks:
        message = f"`{resources.gpus}` GPU{_s(resources.gpus)} for {ranks} rank{_s(ranks)}: each rank has one"
        yield error(field, message, "make `gpus` the number of ranks, or `device: cpu`")
    nodes = -(-resources.gpus // resources.gpus_per_node) if resources.gpus_per_node else 1
    if nodes > 1:
        message = f"one replica needs {nodes} nodes, and the `local` launcher has one"
        yield warning(field, message, "start it by other means and attach it by its `url`")


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _inside_node(spec: StackSpec, role: Role, setting: Setting) -> Iterator[Fault]:
    part = spec.roles[role]
    per_node = part.resources.gpus_per_node
    if not part.parallelism.inside_node:
        return
    field = f"roles.{role}.parallelism.inside_node"
    if per_node is None:
        yield error(field, f"`roles.{role}.resources.gpus_per_node` is missing: it cannot be checked", "state it")
        return
    head = setting.attention_tp if setting.on("enable-dp-lm-head") else setting.ranks("tp-size")
    for name, ranks in (("linear_attention", setting.attention_tp), ("lm_head", head)):
        if name in part.parallelism.inside_node and ranks > per_node:
            message = f"`{name}` is split over {ranks} ranks, and a node has {per_node} GPUs"
            yield error(field, message, "use more attention groups, or fewer ranks")


def memory_text(role: Role, setting: Setting, resources: Resources) -> str:
    """One line: what a rank of the role needs at least, and what it may take; for each that is not known, why."""
    needed, room = _needed(setting), _room(setting, resources)
    if needed is None:
        return f"memory of `{role}`: not known: {_why_unknown(setting)}"
    limit = (
        f"may take {size_text(max(0.0, room))}"
        if room is not None
        else f"its limit is not known: `{_limit(setting)}` is not stated"
    )
    return f"memory of `{role}`: a rank needs at least {size_text(needed.total)} ({needed}), and {limit}"


def _why_unknown(setting: Setting) -> str:
    if setting.on("encoder-only"):
        return "an encoder is not counted"
    return "the model's sizes are not" if setting.model is None else "the model's configuration lacks its sizes"


def _needed(setting: Setting) -> Footprint | None:
    return footprint(setting, setting.environment.get(CONVOLUTION_DTYPE, "bfloat16"))


def _limit(setting: Setting) -> str:
    return "memory_gb" if setting.on_cpu else "gpu_memory_gb"


def _room(setting: Setting, resources: Resources) -> float | None:
    """Bytes that a rank may take, or None where the memory is not stated."""
    memory = resources.memory_gb if setting.on_cpu else resources.gpu_memory_gb
    if memory is None:
        return None
    ranks = setting.ranks("tp-size") * setting.ranks("pp-size")
    return capacity_bytes(setting, memory / ranks if setting.on_cpu else memory, not setting.on_cpu)


def _memory(role: Role, setting: Setting, resources: Resources) -> Iterator[Fault]:
    needed, room = _needed(setting), _room(setting, resources)
    if needed is None or room is None:
        if not setting.on_cpu and not setting.on("encoder-only") and setting.model is not None:
            message = "`gpu_memory_gb` is missing: whether the role fits is not checked"
            yield warning(f"roles.{role}.resources.gpu_memory_gb", message, "state the memory of one GPU")
        return
    if needed.total > room:
        limit = resources.memory_gb if setting.on_cpu else resources.gpu_memory_gb
        may = f"may take {size_text(max(0.0, room))} of the {limit:g} GB of `{_limit(setting)}`"
        message = f"a rank needs {size_text(needed.total)} and {may}: {needed}"
        yield error(_largest(role, setting, needed, room), message, "more ranks, or smaller pools or weights")


def _largest(role: Role, setting: Setting, needed: Footprint, room: float) -> str:
    """The field to change: ranks where the weights alone do not fit, else the pool that takes more."""
    if needed.weights > room:
        return f"roles.{role}.parallelism.tp"
    if needed.kv_token_bytes * needed.tokens > needed.state_bytes * needed.states:
        name = "max-total-tokens" if setting.on("max-total-tokens") else "context-length"
    else:
        name = "max-mamba-cache-size" if setting.on("max-mamba-cache-size") else "max-running-requests"
    return f"roles.{role}.arguments.{name}"
