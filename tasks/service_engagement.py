"""The proof that the edit of a stack is in force, and that it is all that tells the running arms apart.

From the options that the servers resolved, the variables of their processes, and the files of the model that they serve.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving import engagement
from serving.engagement import Difference
from serving.engine_env import WITHOUT_GPU
from serving.errors import Broken
from serving.launch import Server
from serving.roles import Role
from serving.stack import StackSpec
from tasks.records import Arm, Engagement, RoleEdit
from tasks.service_arms import Arms

# What the servers of one deployment say that they work with, by role.
Resolved = Mapping[Role, Mapping[str, object]]


@dataclass(frozen=True)
class Proof:
    """`fault`: why the edit is none, or None."""

    engagement: tuple[Engagement, ...]
    fault: str | None


def prove(arms: Arms, servers: Mapping[str, Server], resolved: Mapping[Arm, Resolved], report: Path) -> Proof:
    """What the running servers say about the edit; all resolved arguments and their differences go to `report`.

    Raises Broken if the edit is not in force, or the arms differ in another setting that the stack states, in another
    variable of their processes, or in the files of the model.
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
    stray = {**_stray_arguments(arms, found), **_stray_variables(arms, servers), **_stray_files(servers)}
    if stray:
        named = ", ".join(f"`{what}`: {d.incumbent} and {d.candidate}" for what, d in stray.items())
        raise Broken(f"the arms differ in more than the edit: {named}", f"see {report}")
    seen: dict[str, set[str]] = {}
    for proof in proofs:
        seen.setdefault(proof.what, set()).add(proof.seen)
    idle = [what for what, values in seen.items() if len(values) == 1]
    return Proof(tuple(proofs), f"the edit changes nothing: `{idle[0]}` is the same in both arms" if idle else None)


def _stray_arguments(arms: Arms, found: Mapping[Role, Mapping[str, Difference]]) -> dict[str, Difference]:
    return {
        f"{role}.{name}": difference
        for role, differences in found.items()
        for name, difference in engagement.unexpected(
            differences,
            set(arms.edit[role].arguments) if role in arms.edit else set(),
            set(arms.incumbent.roles[role].arguments),
        ).items()
    }


def _stray_variables(arms: Arms, servers: Mapping[str, Server]) -> dict[str, Difference]:
    """Of the processes that run, whoever set them; only the edited ones and those of an arm alone may differ."""
    return {
        f"{role}.environment.{name}": difference
        for role in arms.incumbent.roles
        for name, difference in engagement.variable_differences(
            servers[Arm.INCUMBENT],
            servers[Arm.CANDIDATE],
            role,
            _edited_variables(arms.edit[role]) if role in arms.edit else frozenset(),
        ).items()
    }


def _edited_variables(edit: RoleEdit) -> frozenset[str]:
    """With those that the launcher sets for a device."""
    return frozenset({*edit.environment, *(WITHOUT_GPU if "device" in edit.arguments else ())})


def _stray_files(servers: Mapping[str, Server]) -> dict[str, Difference]:
    """An edit names no other model, so that only files that changed between the two starts give another digest."""
    ours, theirs = (servers[arm].checkpoint.digest for arm in Arm)
    return {} if ours == theirs else {"model files": Difference(ours[:12], theirs[:12])}


def _stated(arms: Arms) -> dict[Arm, StackSpec]:
    return {Arm.INCUMBENT: arms.incumbent, Arm.CANDIDATE: arms.candidate}


def _arguments(arms: Arms, resolved: Mapping[Arm, Resolved]) -> list[Engagement]:
    stated = _stated(arms)
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
    stated = _stated(arms)
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
    stated = _stated(arms)
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
