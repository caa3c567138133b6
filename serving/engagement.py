"""Is the edited setting in force, and is it all that tells the arms apart? From the arguments the servers resolved."""

from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from serving.arguments import known_arguments
from serving.errors import Broken
from serving.launch import Server
from serving.stack import Scalar

# Measured or per process, so they differ between any two servers.
ALWAYS_DIFFERENT = frozenset({"port", "nccl_port", "launch_command", "startup_time", "internal_states"})
ABSENT = "absent"


@dataclass(frozen=True)
class Difference:
    incumbent: str
    candidate: str


def in_force(resolved: Mapping[str, object], name: str) -> str:
    """The value of option `name` (as in a stack) that the server works with, as text."""
    option = known_arguments()[name]
    return as_text(resolved.get(option.dest))


def as_text(value: Scalar | object | None) -> str:
    """One spelling for a value of a spec and the resolved one; an absent switch is resolved to false."""
    if value is None or value is False:
        return ABSENT
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def environment_in_force(server: Server, name: str) -> str:
    """The variable as the running server process has it, or `absent`."""
    try:
        return psutil.Process(server.pid).environ().get(name, ABSENT)
    except psutil.Error as error:
        raise Broken(f"cannot read the environment of `{server.name}`: {error}", "see its log") from error


def differences(incumbent: Mapping[str, object], candidate: Mapping[str, object]) -> dict[str, Difference]:
    """Resolved arguments that are not equal, apart from those that always differ."""
    names = (incumbent.keys() | candidate.keys()) - ALWAYS_DIFFERENT
    return {
        name: Difference(as_text(incumbent.get(name)), as_text(candidate.get(name)))
        for name in sorted(names)
        if incumbent.get(name) != candidate.get(name)
    }


def unexpected(found: Mapping[str, Difference], edited: set[str], stated: set[str]) -> dict[str, Difference]:
    """Differences that nobody asked for in options that the stack states itself; names are of the spec's options.

    What is left of `found` follows from the edit inside the engine, such as batch sizes derived from a chunk size.
    """
    options = known_arguments()
    ours = {options[name].dest for name in stated - edited}
    return {name: difference for name, difference in found.items() if name in ours}
