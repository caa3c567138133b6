"""A model's answer as hypotheses: the tool it must use, and the way from its arguments to the files that people write.

Maps become lists of settings, because a strict schema knows no object with free names. Everything else is read as a
hypothesis file is: nothing that a person could not write gets through.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from serving.documents import validate
from serving.errors import BadInput
from serving.scratch import scratch
from tasks.answer import Answer, read_json
from tasks.hypothesis_file import HypothesisFile, Part, Stated, hypothesis_of
from tasks.one_line import one_line
from tasks.plan import ANSWERS, OF_GPU_KERNELS
from tasks.records import Hypothesis, Question, Record, Scalar, Text
from tasks.subject import KernelSubject, StackSubject, Subject

TOOL = "propose"
MOST_SAID = 600  # characters of a fault: it may name what the model wrote
MOST_TEXT = 2000  # characters of a title, a rationale or a mechanism
SOURCE, DIFF = "proposed.py", "proposed.diff"


class Setting(Part):
    """A launch option."""

    name: Text
    value: Scalar


class RoleSetting(Part):
    """An engine argument or a variable of one role; a value of null takes it away."""

    role: Text
    kind: Text
    name: Text
    value: Scalar | None = None


class Patch(Part):
    """`diff` is a unified diff, with paths relative to the package's folder of site-packages."""

    package: Text
    version: Text
    diff: Text


class KernelProposal(Stated):
    """`source`: a whole Python file with a `run`, or null for the incumbent's own under other launch options.
    `incumbent_launch`: which of the forms of the incumbent to compare with. `parent`: the id of the experiment this builds on.
    """

    source: Text | None = None
    launch: tuple[Setting, ...] = ()
    incumbent_launch: tuple[Setting, ...] = ()
    parent: Text | None = None


class StackProposal(Stated):
    """Either `settings` (`kind` is `argument` or `environment`), or a `patch`. `parent`: the id of the experiment this builds
    on."""

    settings: tuple[RoleSetting, ...] = ()
    patch: Patch | None = None
    parent: Text | None = None


class KernelProposals(Part):
    proposals: tuple[KernelProposal, ...]


class StackProposals(Part):
    proposals: tuple[StackProposal, ...]


class Reading(Record):
    """`faults`: what is wrong with the rest of the answer, one line each."""

    hypotheses: tuple[Hypothesis, ...] = ()
    faults: tuple[str, ...] = ()


def questions_of(subject: Subject) -> list[Question]:
    """Those that some rung answers for what may be changed."""
    kinds = {"kernel_candidate"} if isinstance(subject, KernelSubject) else {"stack_edit", "code_patch"}
    on_cpu = isinstance(subject, KernelSubject) and subject.problem.definition.runs_on == "cpu"
    return [q for q, (_, fitting, _) in ANSWERS.items() if kinds & fitting and not (on_cpu and q in OF_GPU_KERNELS)]


def schema_of(subject: Subject) -> dict[str, Any]:
    """JSON Schema of the tool's arguments, with the questions that can be answered here."""
    schema = (KernelProposals if isinstance(subject, KernelSubject) else StackProposals).model_json_schema()
    schema["$defs"]["Question"]["enum"] = [question.value for question in questions_of(subject)]
    if isinstance(subject, StackSubject):
        schema["$defs"]["RoleSetting"]["properties"]["kind"]["enum"] = ["argument", "environment"]
    return schema


def read_proposals(answer: Answer, subject: Subject, ids: Sequence[str], most: int) -> Reading:
    """The hypotheses in an answer, origin `model`. `ids`: of the experiments that may be a parent. More than `most`
    proposals are not read."""
    if answer.stop_reason == "max_tokens":
        return Reading(faults=("the answer was cut off at the limit of tokens: propose fewer, or a smaller change",))
    arguments = _arguments(answer)
    if arguments is None:
        return Reading(faults=(f"the answer does not use the tool `{TOOL}` with arguments that are JSON",))
    hypotheses: list[Hypothesis] = []
    faults: list[str] = []
    for number, written in enumerate(_listed(arguments, faults), 1):
        if number > most:
            faults.append(f"at most {most} were asked for, and the rest was not read")
            break
        try:
            hypotheses.append(_hypothesis(written, subject, ids, f"proposal {number}"))
        except BadInput as error:
            faults.append(one_line(f"{error.message} ({error.hint})", MOST_SAID))
    return Reading(hypotheses=tuple(hypotheses), faults=tuple(faults))


def _arguments(answer: Answer) -> JsonValue:
    """Of the tool, or None. A server without a parser for its model's calls (SGLang without `tool-call-parser`) leaves the
    call in the text, as `[{"name": …, "parameters": …}]`."""
    for call in answer.calls:
        if call.name == TOOL:
            arguments: JsonValue = call.arguments
            return arguments
    written = read_json(answer.text)
    first = written[0] if isinstance(written, list) and written else None
    return first.get("parameters") if isinstance(first, dict) and first.get("name") == TOOL else None


def _listed(arguments: JsonValue, faults: list[str]) -> list[JsonValue]:
    found = arguments.get("proposals") if isinstance(arguments, dict) else None
    if not isinstance(found, list):
        faults.append(f"the arguments of `{TOOL}` are no JSON object with a list `proposals`")
        return []
    if not found:
        faults.append("the list `proposals` is empty")
    return found


def _hypothesis(written: JsonValue, subject: Subject, ids: Sequence[str], name: str) -> Hypothesis:
    """Raises `BadInput`."""
    if not isinstance(written, dict):
        raise BadInput(f"`{name}` is no JSON object", "give each proposal the keys of the schema")
    proposal = (
        validate(written, KernelProposal, name)
        if isinstance(subject, KernelSubject)
        else validate(written, StackProposal, name)
    )
    with scratch() as folder:
        document = {
            **_stated(proposal),
            **_what(proposal, subject, folder, name),
            "parent": _parent(proposal.parent, ids, name),
            "origin": "model",
        }
        try:
            return hypothesis_of(validate(document, HypothesisFile, name), folder)
        except BadInput as error:
            raise BadInput(f"{name}: {error.message.replace(f'{folder}/', '')}", error.hint) from error


def _stated(proposal: Stated) -> dict[str, Any]:
    """What the model says of it, each text as one line: titles and reasons are shown on terminals."""
    texts = {name: one_line(getattr(proposal, name), MOST_TEXT) for name in ("title", "rationale", "mechanism")}
    return proposal.model_dump(include=set(Stated.model_fields)) | texts


def _what(proposal: KernelProposal | StackProposal, subject: Subject, folder: Path, name: str) -> dict[str, Any]:
    """`target` and `change` as a file states them; texts become files of their own in `folder`."""
    match proposal, subject:
        case KernelProposal(), KernelSubject(problem=problem, forms=forms):
            launch = {x.name: x.value for x in proposal.incumbent_launch}
            if launch not in forms:
                raise BadInput(
                    f"{name}: `incumbent_launch` is none of the incumbent's forms", f"use one of {list(forms)}"
                )
            source = problem.incumbent.source if proposal.source is None else proposal.source
            (folder / SOURCE).write_text(source)
            change = {"source": SOURCE, "launch": {x.name: x.value for x in proposal.launch}}
            return {
                "target": {"kind": "kernel", "problem": str(problem.folder), "incumbent_launch": launch},
                "change": {"kind": "kernel_candidate", **change},
            }
        case StackProposal(), StackSubject():
            target = {"kind": "stack", "stack": str(subject.stack), "scenario": str(subject.scenario)}
            return {"target": target, "change": _stack_change(proposal, folder, name)}
    raise BadInput(f"{name} does not fit its target", "give the keys of the schema")


def _stack_change(proposal: StackProposal, folder: Path, name: str) -> dict[str, Any]:
    if (proposal.patch is None) == (not proposal.settings):
        raise BadInput(f"{name} must have either `settings` or a `patch`", "one change at a time")
    if proposal.patch is not None:
        (folder / DIFF).write_text(proposal.patch.diff)
        return {"kind": "code_patch", **proposal.patch.model_dump(exclude={"diff"}), "diff": DIFF}
    roles: dict[str, dict[str, dict[str, Scalar | None]]] = {}
    groups = {"argument": "arguments", "environment": "environment"}
    for setting in proposal.settings:
        if setting.kind not in groups:
            raise BadInput(f"{name}: `{setting.kind}` is no kind of setting", "use `argument` or `environment`")
        roles.setdefault(setting.role, {}).setdefault(groups[setting.kind], {})[setting.name] = setting.value
    return {"kind": "stack_edit", "roles": roles}


def _parent(given: str | None, ids: Sequence[str], name: str) -> str | None:
    if given is None:
        return None
    found = [one for one in ids if len(given) >= 8 and one.startswith(given)]
    if len(found) != 1:
        raise BadInput(f"{name}: `parent` `{given[:64]}` is no experiment that you were shown", "use its id, or null")
    return found[0]
