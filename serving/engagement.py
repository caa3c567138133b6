"""Is the edited setting in force, and is it all that tells the arms apart? From the arguments the servers resolved."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psutil

from serving.addresses import PORT_OPTIONS
from serving.arguments import known_arguments
from serving.engine_env import MEETING
from serving.errors import Broken
from serving.launch import Part, Server
from serving.metrics import resolved_arguments
from serving.roles import Role
from serving.stack import Scalar
from serving.stack_rules import variable_name_fault

# Measured or per process, so they differ between any two servers.
ALWAYS_DIFFERENT = frozenset({"port", "nccl_port", "launch_command", "startup_time", "internal_states"})
# Of arms that run side by side: where their own roles are.
ADDRESSES = frozenset(
    {"encoder_urls", "disaggregation_bootstrap_port", "prefill", "decode", "prometheus_port"}
    | {option.replace("-", "_") for option in PORT_OPTIONS}
)
# Of each arm alone, by name, and why. Every other variable of two processes of a role must be equal.
OWN_VARIABLES = {
    "INFRA_AGENT_WATCH": "a file in the folder of the arm",
    MEETING: "a file in the folder of the arm",
    "MC_MIN_RPC_PORT": "ports of the arm",
    "MC_MAX_RPC_PORT": "ports of the arm",
    "TMPDIR": "a folder that goes with the process",
    "PWD": "the folder that the process starts in, where the engine's Python is a script of a shell",
    "OLDPWD": "the folder that the process starts in, where the engine's Python is a script of a shell",
}
ABSENT = "absent"
NOT_SHOWN = "not shown"


@dataclass(frozen=True)
class Difference:
    incumbent: str
    candidate: str


def in_force(resolved: Mapping[str, object], name: str) -> str:
    """The value of option `name` (as in a stack) that the server works with, as text."""
    option = known_arguments().get(name)
    return as_text(resolved.get(name.replace("-", "_") if option is None else option.dest))


def as_text(value: Scalar | object | None) -> str:
    """One spelling for a value of a spec and the resolved one; an absent switch is resolved to false."""
    if value is None or value is False:
        return ABSENT
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def environment_in_force(part: Part, name: str) -> str:
    """The variable as the running process has it, or `absent`."""
    return _variables(part).get(name, ABSENT)


def variable_differences(
    incumbent: Server, candidate: Server, role: Role, edited: frozenset[str]
) -> dict[str, Difference]:
    """Variables that the processes of a role have otherwise in one server than in the other, apart from the edited ones.

    Replicas count together. Only a value that a stack may state is told: of any other it is not known to be no secret.
    Raises Broken for a process that cannot be looked at.
    """
    ours, theirs = _variables_of(incumbent, role), _variables_of(candidate, role)
    names = {name for variables in (*ours, *theirs) for name in variables} - edited - OWN_VARIABLES.keys()
    found = {}
    for name in sorted(names):
        values = [{variables.get(name, ABSENT) for variables in side} for side in (ours, theirs)]
        if values[0] != values[1]:
            found[name] = Difference(*(_told(name, side) for side in values))
    return found


def _variables_of(server: Server, role: Role) -> list[dict[str, str]]:
    """Of each process of the role, without the folder of the code that an arm alone runs: that is proved by itself."""
    own = str(server.witness.folder.parent / "overlay")
    found = [dict(_variables(part)) for part in server.parts if part.role == role]
    for variables in found:
        if "PYTHONPATH" in variables:
            variables["PYTHONPATH"] = ":".join(p for p in variables["PYTHONPATH"].split(":") if p != own)
    return found


def _variables(part: Part) -> dict[str, str]:
    try:
        return psutil.Process(part.pid).environ()
    except psutil.Error as error:
        raise Broken(f"cannot read the environment of `{part.name}`: {error}", "see its log") from error


def _told(name: str, values: set[str]) -> str:
    shown = variable_name_fault(name) is None
    return " or ".join(sorted({value if shown or value == ABSENT else NOT_SHOWN for value in values}))


def resolved_by(part: Part) -> Mapping[str, object]:
    """The options that a process works with, by name with underscores.

    The encoder and the router do not tell theirs: what they were started with is all that is known of them.
    """
    if part.role not in ("encode", "router"):
        return resolved_arguments(part.url)
    try:
        return options_of(psutil.Process(part.pid).cmdline())
    except psutil.Error as error:
        raise Broken(f"cannot read the command line of `{part.name}`: {error}", "see its log") from error


def options_of(words: Sequence[str]) -> dict[str, object]:
    """Options of a command line by name with underscores; several values are one text, a bare switch is True."""
    found: dict[str, list[str]] = {}
    name: str | None = None
    for word in words:
        if word.startswith("--"):
            option, given, value = word[2:].partition("=")
            name = option.replace("-", "_")
            found[name] = [value] if given else []
        elif name is not None:
            found[name].append(word)
    return {option: " ".join(values) if values else True for option, values in found.items()}


def differences(incumbent: Mapping[str, object], candidate: Mapping[str, object]) -> dict[str, Difference]:
    """Resolved arguments that are not equal, apart from those that always differ."""
    names = (incumbent.keys() | candidate.keys()) - ALWAYS_DIFFERENT - ADDRESSES
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
    ours = {options[name].dest if name in options else name.replace("-", "_") for name in stated - edited}
    return {name: difference for name, difference in found.items() if name in ours}
