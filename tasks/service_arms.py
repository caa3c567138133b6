"""The two arms of a service run: made from the hypothesis, checked before the run, and told apart while they run."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving import engagement
from serving.arguments import check_arguments
from serving.engine_env import engine
from serving.errors import BadInput, Broken
from serving.home import located
from serving.launch import Server
from serving.scenario import Scenario, load_scenario
from serving.stack import StackSpec, apply_edit, load_stack
from tasks.artifacts import keep_json
from tasks.records import Arm, Build, Engagement, Environment, Hypothesis, RoleEdit, StackEdit

CANDIDATE_PORT_OFFSET = 1


@dataclass(frozen=True)
class Arms:
    """`edit`: by role; empty where the arms are one stack, and the candidate runs other code in it."""

    edit: Mapping[str, RoleEdit]
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
    candidate = apply_edit(stack, edit)
    candidate = candidate.on_port("server", stack.port_of("server") + CANDIDATE_PORT_OFFSET)
    return Arms(edit, stack, candidate, scenario)


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
    """Raises BadInput for a stack or an edit with an option or value that SGLang would not take; others pass."""
    if hypothesis.deployed is not None:
        arms = arms_of(hypothesis)
        check_arguments(arms.incumbent)
        check_arguments(arms.candidate)


def build_stack(hypothesis: Hypothesis) -> Build:
    """The edited stack, kept as a file. An edit that SGLang or we would not take, or that is none, is a `failure`.

    Raises BadInput for files that do not fit, Broken without an engine.
    """
    began = time.monotonic()
    incumbent, edit, _ = _asked(hypothesis)
    check_arguments(incumbent)
    made: StackSpec | None = None
    try:
        made = arms_of(hypothesis).candidate
        check_arguments(made)
        failure = _changes_nothing(incumbent, made, edit)
    except BadInput as refused:
        failure = refused.message
    kept = keep_json((made or hypothesis.change).model_dump(mode="json"))
    return Build(
        hypothesis_id=hypothesis.id,
        artifact=kept.path,
        artifact_digest=None if failure else kept.sha256,
        log="",
        environment=Environment(facts=dict(engine().versions)),
        wall_s=time.monotonic() - began,
        failure=failure,
    )


def _changes_nothing(incumbent: StackSpec, candidate: StackSpec, edit: Mapping[str, RoleEdit]) -> str | None:
    """The first part of the edit that leaves what the stack states as it is, or None."""
    ours, theirs = incumbent.roles["server"], candidate.roles["server"]
    same = [
        f"server.{part}.{name}` is `{engagement.as_text(before.get(name))}"
        for part, before, after in (
            ("arguments", ours.arguments, theirs.arguments),
            ("environment", ours.environment, theirs.environment),
        )
        for name in sorted({name for change in edit.values() for name in getattr(change, part)})
        if engagement.as_text(before.get(name)) == engagement.as_text(after.get(name))
    ]
    if not same and ours.model_dump(exclude={"port"}) == theirs.model_dump(exclude={"port"}):
        same = ["server.count` is `1"]
    return f"the edit changes nothing: `{same[0]}` in the stack already" if same else None


def prove(
    arms: Arms, servers: Mapping[str, Server], resolved: Mapping[Arm, Mapping[str, object]], report: Path
) -> Proof:
    """What the running servers say about the edit; all resolved arguments and their differences go to `report`.

    Raises Broken if the edit is not in force or the arms differ in another setting that the stack states.
    """
    found = engagement.differences(resolved[Arm.INCUMBENT], resolved[Arm.CANDIDATE])
    told = {"resolved": resolved, "differences": {name: [d.incumbent, d.candidate] for name, d in found.items()}}
    report.write_text(json.dumps(told, default=str, sort_keys=True), encoding="utf-8")
    proofs = [*_arguments(arms, resolved), *_environment(arms, servers)]
    for proof in proofs:
        if not proof.proved:
            raise Broken(
                f"`{proof.what}` is not in force: the {proof.arm} was asked for `{proof.expected}` and runs with "
                f"`{proof.seen}`",
                f"see {servers[proof.arm].log_file} for why SGLang changed it",
            )
    edited = {name for change in arms.edit.values() for name in change.arguments}
    stray = engagement.unexpected(found, edited, set(arms.incumbent.roles["server"].arguments))
    if stray:
        named = ", ".join(f"`{name}`: {d.incumbent} and {d.candidate}" for name, d in stray.items())
        raise Broken(f"the arms differ in more than the edit: {named}", f"see {report}")
    seen: dict[str, set[str]] = {}
    for proof in proofs:
        seen.setdefault(proof.what, set()).add(proof.seen)
    idle = [what for what, values in seen.items() if len(values) == 1]
    return Proof(tuple(proofs), f"the edit changes nothing: `{idle[0]}` is the same in both arms" if idle else None)


def _arguments(arms: Arms, resolved: Mapping[Arm, Mapping[str, object]]) -> list[Engagement]:
    stated = {Arm.INCUMBENT: arms.incumbent, Arm.CANDIDATE: arms.candidate}
    return [
        _proof(
            arm,
            f"{role}.arguments.{name}",
            stated[arm].roles["server"].arguments.get(name),
            engagement.in_force(resolved[arm], name),
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
            stated[arm].roles["server"].environment.get(name),
            engagement.environment_in_force(servers[arm], name),
        )
        for role, change in arms.edit.items()
        for name in change.environment
        for arm in Arm
    ]


def _proof(arm: Arm, what: str, stated: object, seen: str) -> Engagement:
    """Where an arm states nothing, SGLang chooses, and the proof is that the other arm has something else."""
    expected = seen if stated is None else engagement.as_text(stated)
    return Engagement(arm=arm, what=what, expected=expected, seen=seen)
