"""Ask a model for hypotheses about a target: what comes back is validated, challenged, and counted.

Each ask is one message made from files and the ledger; what was wrong with an answer goes into the next one. There is no
chat history: what was learnt stands in the ledger and in the catalogue.
"""

from collections.abc import Mapping
from typing import Any

from serving.errors import BadInput
from tasks.asking import Line
from tasks.challenge import challenge
from tasks.endpoint import endpoint_of
from tasks.findings_text import refusal_text
from tasks.ledger import Ledger
from tasks.model_file import load_model_file
from tasks.opening import keep_refusal, new_attempt
from tasks.past import past_of
from tasks.prompt import prompt_for
from tasks.proposal import TOOL, read_proposals, schema_of
from tasks.proposals import Ended, Proposals
from tasks.records import Hypothesis, digest
from tasks.refusal import Refusal
from tasks.subject import Subject, read_subject

ASKS = 3  # once, and at most twice more with what was wrong


def ready_to_ask(target: str, environment: Mapping[str, str]) -> tuple[Subject, Line]:
    """What is asked about, and the line to the model that the environment names. Raises `BadInput`; asks nothing."""
    return read_subject(target), Line(endpoint_of(environment), load_model_file())


def ask_for(target: str, n: int, ledger: Ledger, environment: Mapping[str, str]) -> Proposals:
    """Ask about a target and keep what came of it. Raises `BadInput`, or `Broken` if the ledger fails."""
    subject, line = ready_to_ask(target, environment)
    ledger.check_writable()
    proposals = propose(subject, n, ledger, line)
    keep(proposals, ledger)
    return proposals


def propose(subject: Subject, n: int, ledger: Ledger, line: Line) -> Proposals:
    """Ask until `n` hypotheses are accepted, or the asks or a cap end. Reads the ledger and writes nothing.

    Raises `BadInput` if the prompt does not fit, or the caps do not allow a first call.
    """
    past, contents = past_of(ledger), ledger.read()
    accepted: list[Hypothesis] = []
    refused: list[Refusal] = []
    faults: list[str] = []
    tool = tool_for(subject)
    first = prompt = prompt_for(subject, contents, n, line.bounds)
    ended, says = Ended.ASKED_OUT, ""
    for ask in range(ASKS):
        if ask:
            told = [*faults, *map(refusal_text, refused), *(f"accepted: `{x.title}`" for x in accepted)]
            prompt = prompt_for(subject, contents, n - len(accepted), line.bounds, told)
        answer = line.ask(prompt, tool)
        if answer is None:
            ended, says = line.ended, line.says
            break
        if answer.stop_reason == "refusal":
            ended, says = Ended.DECLINED, " ".join(answer.text.split())[:300]
            break
        reading = read_proposals(answer, subject, prompt.ids, n - len(accepted))
        before = len(faults) + len(refused)
        faults += reading.faults
        for hypothesis in reading.hypotheses:
            refusal = challenge(hypothesis, past)
            if refusal is None:
                accepted.append(hypothesis)
                past = past.with_accepted(hypothesis)
            else:
                refused.append(refusal)
        if len(accepted) >= n or len(faults) + len(refused) == before:
            ended = Ended.FINISHED
            break
    if not line.calls:
        raise BadInput(f"no call may be made: {says}", "raise the cap in the model file, or lower `answer_tokens`")
    return Proposals(
        target=subject.name,
        model=line.endpoint.model,
        n=n,
        prompt_digest=digest([first.system, first.user]),
        accepted=tuple(accepted),
        refused=tuple(refused),
        faults=tuple(faults),
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
