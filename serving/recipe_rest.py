"""What of a srt-slurm recipe nothing was made of, without its secrets, where it simulates, and how both are said."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from serving.faults import Fault, warning
from serving.recipe_roles import PARTS, RecipePart

_TRAP = re.compile("SIMULATE_ACC", re.IGNORECASE)
_SECRET = re.compile(r"(key|token|passwd|credentials?)$|secret|password", re.IGNORECASE)
_SECRET_IN_TEXT = re.compile(r"(?i)\b([\w-]*(?:key|token|secret|password|passwd))(\s*[=:]\s*|\s+)(?=\S)[^\s\"']+")
_NOT_KEPT = "(not kept)"
_SIMULATED = (
    "acceptance of drafts is simulated in this recipe: its published throughput is no evidence of accuracy, "
    "nor of the speed with real drafts"
)


def unread(recipe: Mapping[str, Any], parts: Sequence[RecipePart]) -> Iterator[tuple[str, Any]]:
    """Place and value of whatever stands in a section that is read and was not read itself."""
    second = any(part.place.startswith("roles.") for part in parts)
    environments = {part.environment_place.removeprefix("backend.") for part in parts}
    yield from _beyond(recipe, "backend", {"type"} if second else {"type", "sglang_config", *environments})
    if not second:
        yield from _beyond(recipe["backend"], "sglang_config", set(PARTS), "backend.")
    yield from _beyond(recipe, "roles", set(PARTS))
    for name, role in _section(recipe, "roles").items():
        if name in PARTS and isinstance(role, dict):
            yield from _beyond(recipe["roles"], name, {"nodes", "workers", "gpus", "args", "env"}, "roles.")
    own = {key for part in parts for key in _resources_of(part, second)}
    yield from _beyond(recipe, "resources", {"gpu_type", "gpus_per_node", *own})
    yield from _beyond(recipe, "engine", {"type"})
    yield from _beyond(recipe, "health_check", {"max_attempts", "interval_seconds"})


def simulated(part: Any, place: str = "") -> Iterator[str]:
    """Every place at which a name or a text simulates the acceptance of drafts, in whatever spelling."""
    if isinstance(part, dict):
        for name, value in part.items():
            inner = f"{place}.{name}".lstrip(".")
            if _TRAP.search(str(name)):
                yield inner
            else:
                yield from simulated(value, inner)
    elif isinstance(part, list):
        for number, value in enumerate(part):
            yield from simulated(value, f"{place}.{number}")
    elif isinstance(part, str) and _TRAP.search(part):
        yield place


def without_secrets(name: str, value: Any) -> Any:
    """The value as it may be written down; `name` is the key that it stands under."""
    if isinstance(value, dict):
        return {key: without_secrets(str(key), inner) for key, inner in value.items()}
    if _SECRET.search(name) and value is not None:
        return _NOT_KEPT
    if isinstance(value, list):
        return [without_secrets("", inner) for inner in value]
    return _SECRET_IN_TEXT.sub(rf"\1\2{_NOT_KEPT}", value) if isinstance(value, str) else value


def trap_note(places: list[str]) -> Fault:
    """One warning for all places at which the recipe simulates."""
    others = ", ".join(f"`{place}`" for place in places[1:])
    message = f"{_SIMULATED}{f' (also by {others})' if others else ''}"
    return warning(f"unmapped.{places[0]}", message, "no claim about accuracy may use its numbers")


def note(place: str, why: str) -> Fault:
    """A warning that a part of the recipe was not expressed."""
    return warning(f"unmapped.{place}", f"not expressed: {plain(why)}", "nothing runs by it")


def plain(why: str) -> str:
    """The reason without the list of names that would be taken."""
    return why.partition(": its name")[0]


def _resources_of(part: RecipePart, second: bool) -> tuple[str, ...]:
    short = "agg" if part.role == "server" else part.role
    return () if second else (f"{short}_nodes", f"{short}_workers", f"gpus_per_{short}")


def _section(part: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = part.get(name)
    return found if isinstance(found, dict) else {}


def _beyond(part: Mapping[str, Any], name: str, read: set[str], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in _section(part, name).items():
        if key not in read and value is not None:
            yield f"{above}{name}.{key}", value
