"""Everything that can be said against a stack before anything starts, without a GPU: all faults of a file, field by field."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serving.addresses import address_faults
from serving.arguments import aliases, argument_faults
from serving.checkpoint_rules import checkpoint_faults
from serving.combinations import clashes
from serving.derive import arguments_of, derived_environment
from serving.documents import faults, read_mapping, validate
from serving.errors import BadInput
from serving.facts_rules import fact_faults
from serving.faults import Fault, error
from serving.fields import field_of
from serving.fit import memory_text, resource_faults
from serving.model_facts import ModelFacts, facts_of
from serving.roles import Role
from serving.setting import Setting, canonical
from serving.stack import IS_SCENARIO, STACK_WANTED, StackSpec, is_scenario

LANGUAGE_AND_ENCODE: tuple[Role, ...] = ("server", "encode", "prefill", "decode")


def faults_of_file(path: Path) -> list[Fault]:
    """Every fault of a stack file; empty for a clean one. Raises BadInput for a file without a YAML mapping, and Broken
    without an engine. Where a part is malformed, the rest is checked as if that part were not there.
    """
    document = read_mapping(path)
    if is_scenario(document):
        return [error("(whole file)", f"it {IS_SCENARIO}", STACK_WANTED)]
    malformed = faults(document, StackSpec)
    spec = _rest(document)
    rest = faults_of(spec) if spec is not None else ()
    return malformed + [fault for fault in rest if not any(_inside(fault.field, part.field) for part in malformed)]


def faults_of(spec: StackSpec) -> Iterator[Fault]:
    """Every fault of a well-formed stack. Raises Broken without an engine."""
    try:
        model = facts_of(spec.model)
    except BadInput as unreadable:
        model = None
        yield error("model", unreadable.message, unreadable.hint)
    seen: set[str] = set()
    for fault in _all_faults(spec, model):
        said = fault.model_dump_json()  # a fact that two roles share would be named twice
        if said not in seen:
            seen.add(said)
            yield fault


def memory_of_file(path: Path) -> list[str]:
    """A line for each role that runs SGLang: the memory that it needs and may take. Malformed parts are left out.

    Raises BadInput for a file without a YAML mapping, and Broken without an engine.
    """
    spec = _rest(read_mapping(path))
    if spec is None:
        return []
    try:
        model = facts_of(spec.model)
    except BadInput:  # a fault of its own
        model = None
    described = [role for role in LANGUAGE_AND_ENCODE if role in spec.roles and _described(spec, role)]
    return [memory_text(role, setting_of(spec, role, model), spec.roles[role].resources) for role in described]


def check_stack(spec: StackSpec) -> list[Fault]:
    """The warnings about a stack. Raises BadInput, naming the field, for its first error, and Broken without an engine."""
    found = list(faults_of(spec))
    for fault in found:
        if fault.severity == "error":
            raise BadInput(f"`{fault.field}`: {fault.message}", fault.hint)
    return found


def _all_faults(spec: StackSpec, model: ModelFacts | None) -> Iterator[Fault]:
    of_arguments = list(argument_faults(spec))
    refused = {fault.field for fault in of_arguments}
    yield from of_arguments
    yield from address_faults(spec)
    yield from fact_faults(spec, model)
    started = any(part.url is None for role, part in spec.roles.items() if role != "router")
    yield from checkpoint_faults(spec.model, model, spec.quantization.weights, started)
    for role in LANGUAGE_AND_ENCODE:
        if role in spec.roles and _described(spec, role):
            setting = setting_of(spec, role, model)
            # A value that SGLang does not know says nothing of what it goes with.
            yield from (fault for fault in combination_faults(spec, role, setting) if fault.field not in refused)
            yield from resource_faults(spec, role, setting)


def _described(spec: StackSpec, role: Role) -> bool:
    """Whether the role is started here, or what runs elsewhere is described."""
    return spec.roles[role].url is None or bool(spec.roles[role].arguments)


def setting_of(spec: StackSpec, role: Role, model: ModelFacts | None) -> Setting:
    """All options and variables of a role, derived ones included. Raises Broken without an engine."""
    part = spec.roles[role]
    return Setting(
        canonical(arguments_of(spec, role), aliases()),
        {**part.environment, **derived_environment(spec, role)},
        model,
        part.resources.gpu,
    )


def combination_faults(spec: StackSpec, role: Role, setting: Setting) -> Iterator[Fault]:
    """Options of a role that refuse each other or have no effect; what is only doubtful is a warning."""
    written = {aliases().get(name, name): name for name in spec.roles[role].arguments}
    for clash in clashes(setting):
        field = field_of(spec, role, written.get(clash.option, clash.option))
        severity = "warning" if clash.effect == "doubtful" else "error"
        yield Fault(field=field, message=clash.message, hint=clash.hint, severity=severity)


def _inside(field: str, part: str) -> bool:
    """Whether the field is the part or stands in it: what is malformed is not missing, too."""
    return field == part or field.startswith(f"{part}.")


def _rest(document: dict[str, Any]) -> StackSpec | None:
    """The stack without its malformed parts, or None where too little is left."""
    kept = {**document}
    for _ in range(20):
        try:
            return validate(kept, StackSpec, "the stack")
        except BadInput:
            if not _without_faults(kept):
                return None
    return None


def _without_faults(document: dict[str, Any]) -> bool:
    """Takes each malformed part out of the document; whether one was there to be taken."""
    taken = False
    for fault in faults(document, StackSpec):
        taken = _take(document, fault.field.split(".")) or taken
    return taken


def _take(document: dict[str, Any], path: list[str]) -> bool:
    """Deletes the deepest part that the path names, on copies of what lies between."""
    for length in range(len(path), 0, -1):
        name, rest = ".".join(path[:length]), path[length:]
        if name in document:
            inner = document[name]
            if rest and isinstance(inner, dict):
                document[name] = {**inner}
                if _take(document[name], rest):
                    return True
            del document[name]
            return True
    return False
