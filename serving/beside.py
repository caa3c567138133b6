"""A second stack beside one on the same machine: every port that a spec can state is moved, and nothing else changes."""

from serving.addresses import PORT_OPTIONS, listeners_of
from serving.errors import BadInput
from serving.roles import FIRST_PORT, LAST_PORT, PortRange, RoleSpec, Value
from serving.stack import StackSpec

_PORTS = ("port", "bootstrap_port", "prometheus_port")
_ROOM = (*range(1, LAST_PORT), *range(-1, -LAST_PORT, -1))


def beside(spec: StackSpec, other: StackSpec | None = None) -> StackSpec:
    """`spec` on other ports, each as far from its own: it can run beside `other`, by default the same stack.

    A role with a `url` stays where it is. Raises BadInput when there is no room.
    """
    own = _spans(spec)
    taken = {*own, *_spans(other or spec)}
    offset = next((n for n in _ROOM if _is_free([(low + n, high + n) for low, high in own], taken)), None)
    if offset is None:
        raise BadInput(f"the ports of stack `{spec.name}` leave no room for a second one", "put them closer together")
    roles = {role: part if part.url else _shifted(part, offset) for role, part in spec.roles.items()}
    return spec.model_copy(update={"roles": roles})


def _spans(spec: StackSpec) -> set[tuple[int, int]]:
    """First and last port of everything that the roles which we start listen on, on whatever address."""
    ours = [role for role, part in spec.roles.items() if part.url is None]
    return {(listener.low, listener.high) for role in ours for listener in listeners_of(spec, role)}


def _is_free(wanted: list[tuple[int, int]], taken: set[tuple[int, int]]) -> bool:
    return all(
        low >= FIRST_PORT and high <= LAST_PORT and all(high < first or low > last for first, last in taken)
        for low, high in wanted
    )


def _shifted(part: RoleSpec, offset: int) -> RoleSpec:
    stated = {name: port for name in _PORTS if (port := getattr(part, name)) is not None}
    moved: dict[str, object] = {name: port + offset for name, port in stated.items()}
    if part.mooncake_ports is not None:
        moved["mooncake_ports"] = PortRange(
            low=part.mooncake_ports.low + offset, high=part.mooncake_ports.high + offset
        )
    options = {name: _moved(value, offset) for name, value in part.arguments.items() if name in PORT_OPTIONS}
    return part.model_copy(update={**moved, "arguments": {**part.arguments, **options}})


def _moved(port: Value | None, offset: int) -> Value | None:
    """What is no port stays as it is: it is a fault of its own (serving/arguments.py)."""
    if isinstance(port, int) and not isinstance(port, bool):
        return port + offset
    return str(int(port) + offset) if isinstance(port, str) and port.isdecimal() else port
