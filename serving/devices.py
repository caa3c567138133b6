"""How many devices a deployment takes: the denominator of goodput, counted from what the servers say they run with."""

from collections.abc import Iterable, Mapping


def devices_of(servers: Iterable[Mapping[str, object]]) -> int:
    """Devices of a deployment, from the resolved arguments of each of its servers, encoders included: their ranks.

    On a machine without a GPU a rank counts as one. Data-parallel attention shares the ranks of the tensor group; plain
    data parallelism has ranks of its own.
    """
    return sum(_ranks(resolved) for resolved in servers)


def _ranks(resolved: Mapping[str, object]) -> int:
    ranks = _size(resolved, "tp_size") * _size(resolved, "pp_size")
    return ranks if resolved.get("enable_dp_attention") else ranks * _size(resolved, "dp_size")


def _size(resolved: Mapping[str, object], name: str) -> int:
    value = resolved.get(name)
    return value if isinstance(value, int) else 1
