"""The two arms of a service run: made from the hypothesis, checked before the run, and told apart while they run."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving import engagement
from serving.beside import beside
from serving.errors import BadInput, Broken
from serving.home import located
from serving.launch import Server
from serving.roles import Role
from serving.scenario import Scenario, load_scenario
from serving.stack import StackSpec, apply_edit, load_stack
from serving.validate import check_stack
from tasks.records import Arm, Build, Engagement, Hypothesis, RoleEdit, StackEdit
from tasks.service_code import engine_build

# What the servers of one deployment say that they work with, by role.
Resolved = Mapping[Role, Mapping[str, object]]


@dataclass(frozen=True)
class Arms:
    """`edit`: by role of the stack; empty where the arms are one stack, and the candidate runs other code in it."""

    edit: Mapping[Role, RoleEdit]
    incumbent: StackSpec
    candidate: StackSpec
    scenario: Scenario


@dataclass(frozen=True)
class Proof:
    """`fault`: why the edit is none, or None."""

    engagement: tuple[Engagement, ...]
    fault: str | None


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


def prove(arms: Arms, servers: Mapping[str, Server], resolved: Mapping[Arm, Resolved], report: Path) -> Proof:
    """What the running servers say about the edit; all resolved arguments and their differences go to `report`.

    Raises Broken if the edit is not in force or the arms differ in another setting that the stack states.
    """
    found = {
        role: engagement.differences(resolved[Arm.INCUMBENT][role], resolved[Arm.CANDIDATE][role])
        for role in resolved[Arm.INCUMBENT]
    }
    told = {role: {name: [d.incumbent, d.candidate] for name, d in of.items()} for role, of in found.items()}
    whole = {"resolved": resolved, "differences": told}
    report.write_text(json.dumps(whole, default=str, sort_keys=True), encoding="utf-8")
    proofs = [*_arguments(arms, resolved), *_environment(arms, servers), *_counts(arms, servers)]
    for proof in proofs:
        if not proof.proved:
            raise Broken(
                f"`{proof.what}` is not in force: the {proof.arm} was asked for `{proof.expected}` and runs with "
                f"`{proof.seen}`",
                f"see {servers[proof.arm].log_file} for why SGLang changed it",
            )
    for role, differences in found.items():
        edited = set(arms.edit[role].arguments) if role in arms.edit else set()
        stray = engagement.unexpected(differences, edited, set(arms.incumbent.roles[role].arguments))
        if stray:
            named = ", ".join(f"`{role}.{name}`: {d.incumbent} and {d.candidate}" for name, d in stray.items())
            raise Broken(f"the arms differ in more than the edit: {named}", f"see {report}")
    seen: dict[str, set[str]] = {}
    for proof in proofs:
        seen.setdefault(proof.what, set()).add(proof.seen)
    idle = [what for what, values in seen.items() if len(values) == 1]
    return Proof(tuple(proofs), f"the edit changes nothing: `{idle[0]}` is the same in both arms" if idle else None)


def _arguments(arms: Arms, resolved: Mapping[Arm, Resolved]) -> list[Engagement]:
    stated = {Arm.INCUMBENT: arms.incumbent, Arm.CANDIDATE: arms.candidate}
    return [
        _proof(
            arm,
            f"{role}.arguments.{name}",
            stated[arm].roles[role].arguments.get(name),
            engagement.in_force(resolved[arm][role], name),
        )
        for role, change in arms.edit.items()
        for name in change.arguments
        for arm in Arm
    ]


def _environment(arms: Arms, servers: Mapping[str, Server]) -> list[Engagement]:
    stated = {Arm.INCUMBENT: arms.incumbent, Arm.CANDIDATE: arms.candidate}
    return [
        _proof(
            arm,
            f"{role}.environment.{name}",
            stated[arm].roles[role].environment.get(name),
            engagement.environment_in_force(part, name),
        )
        for role, change in arms.edit.items()
        for name in change.environment
        for arm in Arm
        for part in servers[arm].parts
        if part.role == role
    ]


def _counts(arms: Arms, servers: Mapping[str, Server]) -> list[Engagement]:
    stated = {Arm.INCUMBENT: arms.incumbent, Arm.CANDIDATE: arms.candidate}
    return [
        _proof(
            arm,
            f"{role}.count",
            stated[arm].roles[role].count,
            str(sum(part.role == role for part in servers[arm].parts)),
        )
        for role, change in arms.edit.items()
        if change.count is not None
        for arm in Arm
    ]


def _proof(arm: Arm, what: str, stated: object, seen: str) -> Engagement:
    """Where an arm states nothing, SGLang chooses, and the proof is that the other arm has something else."""
    expected = seen if stated is None else engagement.as_text(stated)
    return Engagement(arm=arm, what=what, expected=expected, seen=seen)
