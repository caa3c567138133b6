"""Which addresses a stack listens on, part by part, which two parts want the same one, and which one is taken already."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from urllib.parse import urlsplit

from serving.derive import arguments_of
from serving.faults import Fault, error, warning
from serving.ports import EVERYWHERE, LOOPBACK, hold_port
from serving.roles import LAST_PORT, Role, RoleSpec
from serving.setting import Setting
from serving.stack import StackSpec

# With attention groups SGLang takes the seven ports from this far above its own (srt/server_args.py, PortArgs).
GROUPS_FROM, GROUPS_PORTS = 233, 7
# Options of SGLang that are a port on which it listens; all that name one another way are refused (stack_rules.py).
PORT_OPTIONS = (
    "nccl-port",
    "encoder-bootstrap-port",
    "grpc-port",
    "smg-http-sidecar-port",
    "grpc-http-sidecar-port",
    "engine-info-bootstrap-port",
)


@dataclass(frozen=True)
class Listener:
    """Ports `low` to `high` on `host`. `what`: in words, for a message; `field`: where the spec says so."""

    field: str
    what: str
    host: str
    low: int
    high: int

    def meets(self, other: "Listener") -> bool:
        near = self.host == other.host or self.host in EVERYWHERE or other.host in EVERYWHERE
        return near and self.low <= other.high and other.low <= self.high


def address_faults(spec: StackSpec) -> Iterator[Fault]:
    """Ports that clash, do not exist, belong to another role or are missing, and addresses beyond this machine."""
    found = [listener for role in spec.roles for listener in listeners_of(spec, role)]
    for one, other in combinations(found, 2):
        if one.meets(other):
            hint = f"give one of the two another address: `{one.field}` is taken by {one.what}"
            yield error(other.field, f"{_ports(other)} of {other.what} is also of {one.what} (`{one.field}`)", hint)
    for listener in found:
        if listener.high > LAST_PORT:
            yield error(listener.field, f"{_ports(listener)} of {listener.what} is beyond {LAST_PORT}", "start lower")
    for role, part in spec.roles.items():
        yield from _misplaced(role, part)
        yield from _missing(role, part)
        yield from _too_few(spec, role, part)
        if part.url is None and part.host not in LOOPBACK and spec.api_key_variable is None:
            message = f"`{part.host}` is reached from outside of this machine, and no `api_key_variable` is stated"
            yield warning(f"roles.{role}.host", message, "name the variable that holds the key")


def check_ports_free(spec: StackSpec) -> None:
    """Raises Broken, naming port and role, when somebody else has a port that the stack will listen on, or where this
    machine does not have its address.

    To be asked before the first process starts: those of the last role are bound a minute later.
    """
    for role, part in spec.roles.items():
        for listener in listeners_of(spec, role) if part.url is None else ():
            if listener.field.endswith(".mooncake_ports"):
                continue  # it takes what is free in its range
            for port in range(listener.low, listener.high + 1):
                hold_port(port, role, listener.host).close()


def listeners_of(spec: StackSpec, role: Role) -> list[Listener]:
    """Everything that the replicas of a role listen on, of which the spec decides the address."""
    part = spec.roles[role]
    if part.url is not None:
        return [_attached(role, part.url)]
    found: list[Listener] = []
    last = part.count - 1

    def add(name: str, what: str, low: int | None, high: int | None) -> None:
        if low is not None and high is not None:
            found.append(Listener(f"roles.{role}.{name}", f"the {what} of `{role}`", part.host, low, high))

    add("port", "HTTP server", part.port, part.port and part.port + last)
    add("bootstrap_port", "bootstrap server", part.bootstrap_port, part.bootstrap_port and part.bootstrap_port + last)
    add("prometheus_port", "metrics", part.prometheus_port, part.prometheus_port and part.prometheus_port + last)
    if part.mooncake_ports is not None:
        add("mooncake_ports", "transfer engine", part.mooncake_ports.low, part.mooncake_ports.high)
    setting = Setting(arguments_of(spec, role))
    if part.port is not None and setting.size("attn-dp-size") > 1:
        first = part.port + GROUPS_FROM
        add("port", "attention groups", first, first + GROUPS_PORTS - 1 + last)
    for option in PORT_OPTIONS:
        if setting.on(option):
            port = setting.size(option)
            add(f"arguments.{option}", f"option `{option}`", port, port)
    return found


def _attached(role: Role, url: str) -> Listener:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Listener(f"roles.{role}.url", f"the running `{role}`", parts.hostname or "", port, port)


def _ports(listener: Listener) -> str:
    span = str(listener.low) if listener.low == listener.high else f"{listener.low}-{listener.high}"
    return f"`{listener.host}:{span}`"


_BELONGS: dict[str, tuple[Role, ...]] = {
    "bootstrap_port": ("prefill",),
    "prometheus_port": ("router",),
    "mooncake_ports": ("encode", "prefill", "decode"),
}


def _misplaced(role: Role, part: RoleSpec) -> Iterator[Fault]:
    for name, owners in _BELONGS.items():
        if getattr(part, name) is not None and role not in owners:
            owned = " and ".join(f"`{owner}`" for owner in owners)
            yield error(f"roles.{role}.{name}", f"`{role}` has none: it is ignored", f"it belongs to {owned}")


def _missing(role: Role, part: RoleSpec) -> Iterator[Fault]:
    if role == "prefill" and part.bootstrap_port is None:
        message = "is missing: decode would not find prefill, which listens on SGLang's own choice"
        yield error("roles.prefill.bootstrap_port", message, "state a free port")
    if role == "router" and part.prometheus_port is None and part.url is None:
        message = "is missing: the router's metrics would take a port that nobody looked after"
        yield error("roles.router.prometheus_port", message, "state a free port")


def _too_few(spec: StackSpec, role: Role, part: RoleSpec) -> Iterator[Fault]:
    ports = part.mooncake_ports
    ranks = Setting(arguments_of(spec, role)).size("tp-size") * part.count
    if ports is not None and ports.high - ports.low + 1 < ranks:
        message = f"{ports.high - ports.low + 1} ports for {ranks} transfer engines: each rank has one"
        yield error(f"roles.{role}.mooncake_ports", message, "widen the range")
