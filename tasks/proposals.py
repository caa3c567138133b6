"""What came of asking a model: a record of the ledger, with its account."""

from enum import StrEnum

from tasks.plan import ANSWERS
from tasks.records import Digest, Hypothesis, Record, Rung, Text
from tasks.refusal import Refusal
from tasks.spending import Call, Spent

COST = list(Rung)


class Ended(StrEnum):
    FINISHED = "the model answered"
    ASKED_OUT = "asked as often as is allowed"
    DECLINED = "the model declined"
    CAP = "a cap was reached"
    TURNED_DOWN = "the endpoint turned the request down"
    UNAVAILABLE = "the endpoint did not answer"
    INTERRUPTED = "interrupted"


class Proposals(Record):
    """What came of asking. `faults`: what was no hypothesis. `answered_as`: the names under which the model answered.
    `left_out`: what did not fit into the first prompt."""

    target: Text
    model: Text
    n: int
    prompt_digest: Digest
    accepted: tuple[Hypothesis, ...]
    refused: tuple[Refusal, ...]
    faults: tuple[str, ...]
    left_out: tuple[str, ...]
    ended: Ended
    says: str
    answered_as: tuple[str, ...]
    calls: tuple[Call, ...]
    spent: Spent

    def asked(self) -> object:
        return [self.target, self.model, self.n, self.prompt_digest]


def best(proposals: Proposals) -> Hypothesis | None:
    """The accepted hypothesis whose question the cheapest rung answers; among those, the largest predicted effect in %."""

    def dearness(hypothesis: Hypothesis) -> tuple[int, float]:
        said = hypothesis.prediction
        return COST.index(ANSWERS[hypothesis.question][0]), -said.size if said.unit == "%" else 0.0

    return min(proposals.accepted, key=dearness, default=None)
