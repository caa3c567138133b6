"""Ask a model for hypotheses about a target: what comes back is validated, challenged, and counted.

Each ask is one message made from files and the ledger; what was wrong with an answer goes into the next one. There is no
chat history: what was learnt stands in the ledger and in the catalogue.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.errors import BadInput
from tasks.asking import Line
from tasks.challenge import challenge, unchecked
from tasks.endpoint import endpoint_of
from tasks.findings_text import refusal_text
from tasks.ledger import Contents, Ledger
from tasks.model_file import load_model_file
from tasks.one_line import one_line
from tasks.opening import keep_refusal, new_attempt
from tasks.past import Past, past_of
from tasks.prompt import Prompt, prompt_for
from tasks.proposal import TOOL, Reading, read_proposals, schema_of
from tasks.proposals import Ended, Proposals
from tasks.records import Hypothesis, digest
from tasks.refusal import Refusal
from tasks.subject import Subject, read_subject

log = logging.getLogger(__name__)
ASKS = 3  # once, and at most twice more with what was wrong


def ready_to_ask(target: str, environment: Mapping[str, str]) -> tuple[Subject, Line]:
    """What is asked about, and the line to the model that the environment names. Raises `BadInput`; asks nothing."""
    return read_subject(target), Line(endpoint_of(environment), load_model_file())


def ask_for(target: str, n: int, ledger: Ledger, environment: Mapping[str, str]) -> Proposals:
    """Ask the model of the environment about a target. Raises as `propose` does."""
    subject, line = ready_to_ask(target, environment)
    ledger.check_writable()
    return propose(subject, n, ledger, line)


def propose(subject: Subject, n: int, ledger: Ledger, line: Line) -> Proposals:
    """Ask until `n` hypotheses are accepted, or the asks or a cap end. What came of it is in the ledger when this returns,
    or when it is interrupted after a call.

    Raises `BadInput` if the prompt does not fit, or the caps do not allow a first call; `Broken` if the ledger fails.
    """
    contents, heard = ledger.read(), _Heard(past_of(ledger))
    first = prompt_for(subject, contents, n, line.bounds)
    try:
        ended, says = _asked(subject, n, contents, line, heard)
    except BaseException as error:  # Ctrl-C, or a fault of ours: what was spent is spent
        if line.calls:
            keep(_record(subject, n, first, line, heard, Ended.INTERRUPTED, type(error).__name__), ledger)
        raise
    if not line.calls:
        raise BadInput(f"no call may be made: {says}", "raise the cap in the model file, or lower `answer_tokens`")
    proposals = _record(subject, n, first, line, heard, ended, says)
    keep(proposals, ledger)
    return proposals


@dataclass
class _Heard:
    """What the answers so far came to. `past` knows the accepted, so that none is accepted twice."""

    past: Past
    accepted: list[Hypothesis] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def take(self, reading: Reading) -> bool:
        """Challenge what was read; whether all of it was fit."""
        wrong = len(self.faults) + len(self.refused)
        self.faults += reading.faults
        for hypothesis in reading.hypotheses:
            refusal = challenge(hypothesis, self.past)
            if refusal is None:
                self.accepted.append(hypothesis)
                self.past = self.past.with_accepted(hypothesis)
                if (left_open := unchecked(hypothesis)) is not None:
                    log.warning("%s: %s", hypothesis.title, left_open)
            else:
                self.refused.append(refusal)
        return wrong == len(self.faults) + len(self.refused)

    def told(self) -> list[str]:
        """What the next ask says of the answers before."""
        return [
            *dict.fromkeys(self.faults),
            *map(refusal_text, self.refused),
            *(f"accepted: `{x.title}`" for x in self.accepted),
        ]


def _asked(subject: Subject, n: int, contents: Contents, line: Line, heard: _Heard) -> tuple[Ended, str]:
    """Why the asking ended, and what there is to say of it."""
    tool = tool_for(subject)
    for _ in range(ASKS):
        wanted = n - len(heard.accepted)
        prompt = prompt_for(subject, contents, wanted, line.bounds, heard.told())
        answer = line.ask(prompt, tool)
        if answer is None:
            return line.ended, line.says
        if answer.stop_reason == "refusal":
            return Ended.DECLINED, one_line(answer.text, 300)
        fit = heard.take(read_proposals(answer, subject, prompt.ids, wanted))
        if fit or len(heard.accepted) >= n:
            return Ended.FINISHED, ""
    return Ended.ASKED_OUT, ""


def _record(subject: Subject, n: int, first: Prompt, line: Line, heard: _Heard, ended: Ended, says: str) -> Proposals:
    return Proposals(
        target=subject.name,
        model=line.endpoint.model,
        n=n,
        prompt_digest=digest([first.system, first.user]),
        accepted=tuple(heard.accepted),
        refused=tuple(heard.refused),
        faults=tuple(heard.faults),
        left_out=first.left_out,
        ended=ended,
        says=says,
        answered_as=tuple(line.answered_as),
        calls=tuple(line.calls),
        spent=line.spent,
    )


def tool_for(subject: Subject) -> dict[str, Any]:
    """The one tool of a request, with a strict schema of what it takes."""
    from anthropic import transform_schema  # takes seconds, and only those who ask a model need it

    description = "Propose hypotheses; each is checked against the schema and challenged before anything is built."
    schema = in_one_piece(transform_schema(schema_of(subject)))
    return {"name": TOOL, "description": description, "strict": True, "input_schema": schema}


def in_one_piece(schema: dict[str, Any]) -> dict[str, Any]:
    """Without references: SGLang lays the schema into a larger one, in which they would point nowhere."""
    parts = schema.get("$defs", {})

    def whole(node: Any) -> Any:
        if isinstance(node, dict):
            named = parts[node["$ref"].rsplit("/", 1)[-1]] if "$ref" in node else {}
            return {key: whole(x) for key, x in {**named, **node}.items() if key not in ("$ref", "$defs")}
        return [whole(x) for x in node] if isinstance(node, list) else node

    result: dict[str, Any] = whole(schema)
    return result


def keep(proposals: Proposals, ledger: Ledger) -> None:
    """The account of the ask, and each refusal under its hypothesis, into the ledger. Raises `Broken`."""
    ledger.append(proposals.id, new_attempt(), proposals)
    for refusal in proposals.refused:
        keep_refusal(ledger, refusal)
