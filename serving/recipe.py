"""A srt-slurm recipe, as InferenceX publishes them, read into a stack. What a stack cannot express is kept beside it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from serving.derive import LANGUAGE
from serving.documents import validate
from serving.errors import BadInput
from serving.faults import Fault, warning
from serving.fields import FIELDS
from serving.recipe_rest import note, plain, simulated, trap_note, unread, without_secrets
from serving.recipe_roles import (
    GPU_MEMORY_GB,
    RecipePart,
    Unmapped,
    parts_of,
    stated_arguments,
    stated_environment,
)
from serving.recipe_variants import variant_of
from serving.roles import Role, Value
from serving.stack import StackSpec
from serving.validate import faults_of

FIRST_PORT = {"server": 30000, "router": 30000, "encode": 30100, "prefill": 30200, "decode": 30600}
BOOTSTRAP_PORT, PROMETHEUS_PORT = 31000, 31900
READY_TIMEOUT_S = 3600.0  # weights of hundreds of GB are read, and graphs captured
_SECTIONS = {
    "frontend": "the router of SGLang stands in its place, and may balance differently",
    "benchmark": "traffic is a scenario, not part of a stack",
    "dynamo": "roles are started as SGLang servers, without Dynamo",
}
_OF_MODEL = {
    "container": "the environment that a role runs in is named by `engine`, and holds SGLang 0.5.23",
    "precision": "the format of weights is `quantization.weights`, or the checkpoint's own",
}
_READ = ("name", "model", "resources", "backend", "roles", "engine", "health_check", "schema")
_PARALLELISM = {
    "tp-size": "tp", "ep-size": "ep", "attn-dp-size": "attention_dp", "attn-cp-size": "attention_cp",
    "moe-dense-tp-size": "moe_dense_tp",
}  # fmt: skip


@dataclass(frozen=True)
class Imported:
    """`notes`: a warning for everything that was chosen, added, not expressed, or is a trap of measuring."""

    spec: StackSpec
    notes: tuple[Fault, ...]


def imported(document: Mapping[str, Any], wanted: str | None = None) -> Imported:
    """The stack of a recipe, or of its variant `wanted`. Raises BadInput for what is no recipe, Broken without an engine."""
    variant = variant_of(document, wanted)
    recipe, unmapped = variant.recipe, Unmapped()
    parts = parts_of(recipe)
    roles = {part.role: _role(part, recipe, unmapped) for part in parts}
    if "server" not in roles:
        roles["router"] = {"port": FIRST_PORT["router"], "prometheus_port": PROMETHEUS_PORT}
    _other_sections(recipe, unmapped)
    for place, value in (*variant.beside, *unread(recipe, parts)):
        unmapped.add(place, value, "a stack has no such part")
    body: dict[str, Any] = {
        "name": _slug(recipe.get("name")),
        "model": _model(recipe, unmapped),
        "roles": roles,
        "ready_timeout_s": _ready_timeout_s(recipe),
    }
    places = {part.role: part.place for part in parts}
    if "server" not in roles:
        _lift(body, ("transfer",))
    _take_out_what_cannot_run(body, places, unmapped)
    _lift(body, ("quantization", "moe", "speculative"))
    body["unmapped"] = {
        place: without_secrets(place.rpartition(".")[2], value) for place, value in unmapped.kept.items()
    }
    body["unmapped_why"] = {place: plain(why) for place, why in unmapped.reasons.items()}
    spec = validate(body, StackSpec, "the imported stack")
    trapped = [*simulated(recipe), *simulated(dict(variant.beside))]
    traps = [trap_note(trapped)] if trapped else []
    notes = [note(place, why) for place, why in unmapped.reasons.items() if place not in trapped]
    renamed = [
        warning(place, f"is read as `{name}`, its name in SGLang 0.5.23", "see whether it still means the same")
        for place, name in unmapped.renamed.items()
    ]
    return Imported(spec, (*variant.notes, *renamed, *traps, *notes))


def _role(part: RecipePart, recipe: Mapping[str, Any], unmapped: Unmapped) -> dict[str, Any]:
    arguments = stated_arguments(part, unmapped)
    parallelism: dict[str, Value] = {
        name: arguments.pop(option) for option, name in _PARALLELISM.items() if option in arguments
    }
    if arguments.pop("enable-dp-attention", False) is True and "attention_dp" not in parallelism:
        unmapped.add(f"{part.place}.enable-dp-attention", True, "there is one attention group: it has no effect")
    if arguments.get("enable-dp-lm-head") is True and int(str(parallelism.get("attention_dp", 1))) > 1:
        del arguments["enable-dp-lm-head"]
        parallelism["lm_head"] = "attention_group"
    made: dict[str, Any] = {
        "count": part.workers,
        "port": FIRST_PORT[part.role],
        "parallelism": parallelism,
        "resources": _resources(part, recipe, arguments, parallelism, unmapped),
        "arguments": arguments,
        "environment": stated_environment(part, unmapped),
    }
    if part.role == "prefill":
        made["bootstrap_port"] = BOOTSTRAP_PORT
    if part.role == "server" and part.workers > 1:
        unmapped.add("resources.agg_workers", part.workers, "a stack has one `server`; more of them need a router")
        made["count"] = 1
    return made


def _resources(
    part: RecipePart,
    recipe: Mapping[str, Any],
    arguments: Mapping[str, Value],
    parallelism: Mapping[str, Value],
    unmapped: Unmapped,
) -> dict[str, Any]:
    stated = recipe.get("resources") or {}
    per_node, kind = stated.get("gpus_per_node"), str(stated.get("gpu_type") or "").lower()
    ranks = (
        int(str(parallelism.get("tp", 1)))
        * int(str(arguments.get("pp-size", 1)))
        * int(str(arguments.get("dp-size", 1)))
    )
    if part.gpus is not None and part.gpus != ranks:
        unmapped.add(f"{part.place}.gpus", part.gpus, f"the options ask for {ranks} ranks, each with a GPU")
    made: dict[str, Any] = {"gpus": ranks, "gpus_per_node": per_node if isinstance(per_node, int) else None}
    if re.fullmatch(r"[a-z0-9-]+", kind):
        made |= {"gpu": kind, "gpu_memory_gb": GPU_MEMORY_GB.get(kind)}
    return {name: value for name, value in made.items() if value is not None}


def _take_out_what_cannot_run(body: dict[str, Any], places: Mapping[Role, str], unmapped: Unmapped) -> None:
    """Options that this SGLang refuses or ignores together are kept apart, with its reason."""
    for _ in range(4):
        spec = validate(body, StackSpec, "the imported stack")
        bad = [fault for fault in faults_of(spec) if fault.severity == "error" and ".arguments." in fault.field]
        for fault in bad:
            role, _, name = fault.field.removeprefix("roles.").partition(".arguments.")
            arguments = body["roles"][role]["arguments"]
            if name in arguments:
                unmapped.add(f"{places[role]}.{name}", arguments.pop(name), fault.message)  # type: ignore[index]
        if not bad:
            return


def _lift(body: dict[str, Any], sections: tuple[str, ...]) -> None:
    """Options that are the same in all roles become facts of the stack, in these of its sections."""
    language = [part for role, part in body["roles"].items() if role in LANGUAGE]
    for option, path in FIELDS.items():
        section, _, name = path.partition(".")
        values = [part["arguments"].get(option) for part in language]
        if section not in sections or values[0] is None or any(value != values[0] for value in values):
            continue
        if section == "speculative" and name != "algorithm" and section not in body:
            continue
        body.setdefault(section, {})[name] = values[0]
        for part in language:
            del part["arguments"][option]


def _model(recipe: Mapping[str, Any], unmapped: Unmapped) -> str:
    stated = recipe.get("model")
    stated = {"path": stated} if isinstance(stated, str) else stated
    if not isinstance(stated, dict) or not isinstance(stated.get("path"), str) or not stated["path"].strip():
        raise BadInput("`model.path` is missing", "a recipe names the model that it serves")
    for name, value in stated.items():
        if name != "path":
            unmapped.add(f"model.{name}", value, _OF_MODEL.get(name, "a stack has no such part"))
    return str(stated["path"]).removeprefix("hf:")


def _ready_timeout_s(recipe: Mapping[str, Any]) -> float:
    check = recipe.get("health_check")
    check = check if isinstance(check, dict) else {}
    try:
        seconds = float(check["max_attempts"]) * float(check.get("interval_seconds", 10))
    except (KeyError, TypeError, ValueError):
        return READY_TIMEOUT_S
    return seconds if 0 < seconds < 1e6 else READY_TIMEOUT_S


def _other_sections(recipe: Mapping[str, Any], unmapped: Unmapped) -> None:
    for name, value in recipe.items():
        if name not in _READ and value is not None:
            unmapped.add(name, value, _SECTIONS.get(name, "a stack has no such part"))


def as_yaml(spec: StackSpec, source: str) -> str:
    """The spec as a file that loads again to the same spec."""
    body = spec.model_dump(mode="json", exclude_defaults=True)
    return f"# Imported from {source}; what is under `unmapped` has no effect.\n" + yaml.safe_dump(
        body, sort_keys=False
    )


def _slug(name: object) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(name or "imported").lower()).strip("-") or "imported"
