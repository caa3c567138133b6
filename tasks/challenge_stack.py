"""What is wrong with a stack edit before a server starts: options that SGLang lacks, refuses or ignores, idle parts, and
whatever else `stack validate` would say of the edited stack."""

import json
from collections.abc import Mapping

from serving.arguments import Option, check_arguments
from serving.combinations import Clash, clashes
from serving.derive import arguments_of
from serving.effective import canonical, in_effect, options_or_why
from serving.engagement import ABSENT, as_text
from serving.errors import BadInput
from serving.home import located
from serving.model_facts import ModelFacts, facts_of
from serving.setting import Setting
from serving.setting import canonical as first_spelling
from serving.stack import Role, StackSpec, apply_edit, load_stack
from serving.validate import faults_of
from tasks.records import RoleEdit, StackEdit, StackTarget
from tasks.refusal import Objection, RefusedFor

Options = Mapping[str, Option]


def object_to_edit(target: StackTarget, edit: StackEdit) -> Objection | None:
    """The first objection to the edit of the stack as it is now. Raises BadInput for a stack that is none."""
    stack = load_stack(located(target.stack))
    known = options_or_why()
    options: Options = {} if isinstance(known, str) else known
    try:
        edited = apply_edit(stack, edit.roles)
        if options:
            check_arguments(edited)
    except BadInput as error:
        return Objection(reason=RefusedFor.UNKNOWN_ARGUMENT, says=error.message, hint=error.hint)
    return _clash(stack, edited, edit, options) or _idle(stack, edited, edit, options) or _fault(stack, edited, options)


def unchecked_edit() -> str | None:
    """What the rules could not look at on this machine, or None."""
    known = options_or_why()
    if not isinstance(known, str):
        return None
    return f"the edit was not held against SGLang's own options, nor against their defaults: {known}"


def _clash(stack: StackSpec, edited: StackSpec, edit: StackEdit, options: Options) -> Objection | None:
    """An option that the edit makes refused or ignored; what is so in the stack already is not the edit's fault."""
    try:
        model = facts_of(stack.model)
    except BadInput:
        model = None  # its facts are not known here, so no rule about them fires
    for role in stack.roles:
        if role not in edit.roles:
            continue
        before = _clashes(stack, role, options, model)
        found = [clash for clash in _clashes(edited, role, options, model) if clash not in before]
        if found:
            return Objection(
                reason=RefusedFor.IGNORED_ARGUMENT, says=f"SGLang's {found[0].message}", hint=found[0].hint
            )
    return None


def _fault(stack: StackSpec, edited: StackSpec, options: Options) -> Objection | None:
    """An error of the edited stack in a field that has none in the stack itself: ports that clash, pools that do not fit."""
    if not options:
        return None
    before = {fault.field for fault in faults_of(stack) if fault.severity == "error"}
    found = [fault for fault in faults_of(edited) if fault.severity == "error" and fault.field not in before]
    if not found:
        return None
    says = f"`{found[0].field}` of the edited stack: {found[0].message}"
    return Objection(reason=RefusedFor.UNSERVABLE, says=says, hint=found[0].hint)


def _clashes(spec: StackSpec, role: Role, options: Options, model: ModelFacts | None) -> list[Clash]:
    """What is only doubtful is left to whoever runs it."""
    names = {name: option.dest.replace("_", "-") for name, option in options.items()}
    part = spec.roles[role]
    arguments = first_spelling(arguments_of(spec, role), names)
    return [
        x for x in clashes(Setting(arguments, part.environment, model, part.resources.gpu)) if x.effect != "doubtful"
    ]


def _idle(stack: StackSpec, edited: StackSpec, edit: StackEdit, options: Options) -> Objection | None:
    """The first part of the edit that leaves what runs as it is."""
    for role, change in edit.roles.items():
        before, after = _arguments(stack, role), _arguments(edited, role)
        was, now = in_effect(before, options), in_effect(after, options)
        for name in change.arguments:
            setting = next(iter(canonical({name: True}, options)))
            if was.get(setting) == now.get(setting):
                return _no_change(role, name, change.arguments[name], was.get(setting) is None)
        for name in change.environment:
            held = [as_text(_environment(spec, role).get(name)) for spec in (stack, edited)]
            if held[0] == held[1]:
                return _no_change(role, name, change.environment[name], held[0] == ABSENT)
        if _only_count(change) and stack.model_dump() == edited.model_dump():
            return _no_change(role, "count", change.count, False)
    return None


def _only_count(change: RoleEdit) -> bool:
    return change.count is not None and not change.arguments and not change.environment


def _no_change(role: str, name: str, value: object, by_default: bool) -> Objection:
    shown = "its absence" if value is None else f"`{json.dumps(value)}`"
    why = "what SGLang does by default" if by_default else f"what role `{role}` of the stack has already"
    return Objection(
        reason=RefusedFor.NO_CHANGE,
        says=f"`{name}` of role `{role}`: {shown} is {why}",
        hint=f"leave `{name}` out of the edit, or give it another value",
    )


def _arguments(spec: StackSpec, role: str) -> dict[str, object]:
    return next((dict(part.arguments) for name, part in spec.roles.items() if name == role), {})


def _environment(spec: StackSpec, role: str) -> dict[str, str]:
    return next((dict(part.environment) for name, part in spec.roles.items() if name == role), {})
