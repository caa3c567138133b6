"""The roles of a srt-slurm recipe, as one shape for both of its layouts, and each of them as a role of a stack."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.arguments import aliases, known_arguments, values_fault
from serving.errors import BadInput
from serving.roles import Role, Value
from serving.setting import canonical
from serving.stack_rules import (
    NEEDED_ARGUMENTS,
    argument_name_fault,
    text_fault,
    variable_name_fault,
    variable_value_fault,
)

# Parts of a recipe to the roles of a stack.
PARTS: dict[str, Role] = {
    "aggregated": "server",
    "agg": "server",
    "encode": "encode",
    "prefill": "prefill",
    "decode": "decode",
}
# They follow from the role or are set by whoever launches it; where they agree with that, nothing is lost.
_IMPLIED = ("disaggregation-mode", "model-path", "model", "port", "encoder-only", "language-only")
# Options of earlier releases under the names of this one.
RENAMED = {
    "nsa-prefill-backend": "dsa-prefill-backend",
    "nsa-decode-backend": "dsa-decode-backend",
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
}
GPU_MEMORY_GB = {"h100": 80, "h200": 141, "b200": 180, "gb200": 186, "b300": 270, "gb300": 277}


@dataclass
class Unmapped:
    """What could not be expressed, by its place in the recipe, and why. `renamed`: options with another name now."""

    kept: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, value: Any, why: str) -> None:
        self.kept[place] = value
        self.reasons[place] = why


@dataclass(frozen=True)
class RecipePart:
    """One role as the recipe states it. `place`: where its options stand in the recipe."""

    role: Role
    place: str
    environment_place: str
    arguments: Mapping[str, Any]
    environment: Mapping[str, Any]
    nodes: int | None
    workers: int
    gpus: int | None


def parts_of(recipe: Mapping[str, Any]) -> list[RecipePart]:
    """Raises BadInput for a recipe without roles that SGLang would run, naming the field."""
    backend, resources = _mapping(recipe, "backend"), _mapping(recipe, "resources")
    engine = backend.get("type") or recipe.get("engine") or "sglang"
    engine = engine.get("type", "sglang") if isinstance(engine, dict) else engine
    if str(engine) != "sglang":
        raise BadInput(f"`backend.type` is `{engine}`", "only recipes for SGLang can be imported")
    stated = _mapping(recipe, "roles")
    found = list(_second_layout(stated, resources) if stated else _first_layout(backend, resources))
    if not found:
        raise BadInput(
            "the recipe has no `backend.sglang_config` with `aggregated`, or with `prefill` and `decode`",
            "give a recipe of srt-slurm for SGLang",
        )
    roles = [part.role for part in found]
    if len(set(roles)) != len(roles):
        raise BadInput("the recipe states one role twice", "keep `agg` or `aggregated`")
    return found


def _first_layout(backend: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[RecipePart]:
    for name, arguments in _mapping(backend, "sglang_config", "backend").items():
        if name not in PARTS:
            continue
        short = "agg" if PARTS[name] == "server" else name
        if arguments is not None and not isinstance(arguments, dict):
            raise BadInput(
                f"`backend.sglang_config.{name}` is no mapping of options to values", "write `option: value` lines"
            )
        place = f"{name}_environment"
        yield RecipePart(
            PARTS[name], f"backend.sglang_config.{name}", f"backend.{place}", arguments or {},
            _mapping(backend, place, "backend"), _count(resources, f"{short}_nodes", "resources"),
            _count(resources, f"{short}_workers", "resources") or 1,
            _count(resources, f"gpus_per_{short}", "resources"),
        )  # fmt: skip


def _second_layout(stated: Mapping[str, Any], resources: Mapping[str, Any]) -> Iterator[RecipePart]:
    for name in stated:
        if name in PARTS:
            role, place = _mapping(stated, name, "roles"), f"roles.{name}"
            yield RecipePart(
                PARTS[name], f"{place}.args", f"{place}.env", _mapping(role, "args", place), _mapping(role, "env", place),
                _count(role, "nodes", place), _count(role, "workers", place) or 1, _count(role, "gpus", place),
            )  # fmt: skip


def stated_arguments(part: RecipePart, unmapped: Unmapped) -> dict[str, Value]:
    """The options that this SGLang has and a stack may state, by their canonical names; the others go to `unmapped`."""
    kept: dict[str, Value] = {}
    options = known_arguments()
    for spelt, value in part.arguments.items():
        name, place = str(spelt).removeprefix("--").replace("_", "-"), f"{part.place}.{spelt}"
        given = _value(value)
        if name in RENAMED and given is not None:
            name = unmapped.renamed[place] = RENAMED[name]
        if given is None or name in _IMPLIED:
            continue
        if refused := argument_name_fault(name):
            unmapped.add(place, value, f"it {refused}")
        elif name not in options:
            unmapped.add(place, value, "this SGLang has no such option")
        elif fault := values_fault(options[name], given) or text_fault(given):
            unmapped.add(place, value, f"it {fault}")
        else:
            kept[name] = given
    for name, (needed, _) in NEEDED_ARGUMENTS.items():
        if part.role != "encode":
            kept[name] = needed
    return canonical(kept, aliases())


def stated_environment(part: RecipePart, unmapped: Unmapped) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in part.environment.items():
        text = "" if value is None else str(value)
        if fault := variable_name_fault(str(name)) or variable_value_fault(text):
            unmapped.add(f"{part.environment_place}.{name}", value, f"it {fault}")
        else:
            kept[str(name)] = text
    return kept


def _value(value: Any) -> Value | None:
    if isinstance(value, list):
        return tuple(part if isinstance(part, bool | int | float | str) else json.dumps(part) for part in value)
    if isinstance(value, dict):
        return json.dumps(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _mapping(part: Mapping[str, Any], name: str, place: str = "") -> Mapping[str, Any]:
    found = part.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadInput(f"`{f'{place}.{name}'.lstrip('.')}` is no mapping", "write `key: value` lines under it")
    return found


def _count(part: Mapping[str, Any], name: str, place: str) -> int | None:
    found = part.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise BadInput(f"`{place}.{name}` is `{found}`", "give a whole number")
    return found
