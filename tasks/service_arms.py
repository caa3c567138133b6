"""The two arms of a service run: made from the hypothesis, and checked before the run."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from serving import engagement
from serving.beside import beside
from serving.errors import BadInput
from serving.home import located
from serving.roles import Role
from serving.scenario import Scenario, load_scenario
from serving.stack import StackSpec, apply_edit, load_stack
from serving.validate import check_stack
from tasks.records import Build, Hypothesis, RoleEdit, StackEdit
from tasks.service_code import engine_build


@dataclass(frozen=True)
class Arms:
    """`edit`: by role of the stack; empty where the arms are one stack, and the candidate runs other code in it."""

    edit: Mapping[Role, RoleEdit]
    incumbent: StackSpec
    candidate: StackSpec
    scenario: Scenario


def arms_of(hypothesis: Hypothesis) -> Arms:
    """Reads the files of the hypothesis. Raises BadInput if they or the edit do not fit, or the stack has changed."""
    stack, edit, scenario = _asked(hypothesis)
    _must_be_ours(stack)
    candidate = beside(apply_edit(stack, edit), stack)
    return Arms({role: edit[role] for role in stack.roles if role in edit}, stack, candidate, scenario)


def _must_be_ours(stack: StackSpec) -> None:
    attached = [role for role, part in stack.roles.items() if part.url is not None]
    if attached:
        raise BadInput(
            f"`roles.{attached[0]}` of stack `{stack.name}` is attached by its `url`",
            "a comparison starts both stacks itself, so give every role a `port`",
        )
    if stack.api_key_variable is not None:
        raise BadInput(
            f"stack `{stack.name}` is locked by `api_key_variable`, and the requests of a comparison carry no key",
            "leave it out of the stack that is compared, and its roles on loopback",
        )


def _asked(hypothesis: Hypothesis) -> tuple[StackSpec, Mapping[str, RoleEdit], Scenario]:
    target, change = hypothesis.deployed, hypothesis.change
    if target is None:
        raise BadInput("the hypothesis names no stack", "give its target a `stack` and a `scenario`")
    stack = load_stack(located(target.stack))
    if stack.digest != target.incumbent_digest:
        raise BadInput(
            f"`{target.stack}` is no longer the stack that this hypothesis is about",
            "load the hypothesis again, so that it takes the stack as it is now",
        )
    return stack, change.roles if isinstance(change, StackEdit) else {}, load_scenario(located(target.scenario))


def check_edit(hypothesis: Hypothesis) -> None:
    """Raises BadInput for a stack with an error of `stack validate`, as it is or edited. Other changes pass."""
    if hypothesis.deployed is not None:
        arms = arms_of(hypothesis)
        check_stack(arms.incumbent)
        check_stack(arms.candidate)


def build_stack(hypothesis: Hypothesis) -> Build:
    """The edited stack, kept as a file. An edit that SGLang or we would not take, or that is none, is a `failure`.

    Raises BadInput for files that do not fit, Broken without an engine.
    """
    began = time.monotonic()
    incumbent, _, _ = _asked(hypothesis)
    check_stack(incumbent)
    made: StackSpec | None = None
    try:
        arms = arms_of(hypothesis)
        made = arms.candidate
        check_stack(made)
        failure = _changes_nothing(arms)
    except BadInput as refused:
        failure = refused.message
    return engine_build(hypothesis, (made or hypothesis.change).model_dump(mode="json"), failure, began)


def _changes_nothing(arms: Arms) -> str | None:
    """The first part of the edit that leaves what the stack states as it is, or None."""
    ours, theirs = arms.incumbent.roles, arms.candidate.roles
    same = [
        f"{role}.{part}.{name}` is `{engagement.as_text(getattr(ours[role], part).get(name))}"
        for role, change in arms.edit.items()
        for part in ("arguments", "environment")
        for name in sorted(getattr(change, part))
        if engagement.as_text(getattr(ours[role], part).get(name))
        == engagement.as_text(getattr(theirs[role], part).get(name))
    ]
    counts = [role for role, change in arms.edit.items() if change.count is not None]
    same += [f"{role}.count` is `{ours[role].count}" for role in counts if ours[role].count == theirs[role].count]
    return f"the edit changes nothing: `{same[0]}` in the stack already" if same else None
