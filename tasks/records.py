"""What the stages exchange: frozen records, validated when they are built. Findings, verdicts and whole experiments
stand here; what was asked is in tasks/hypothesis.py, what was seen in tasks/evidence.py, and all are imported from here.

Units are in names or in a `unit` field. Unknown is `None` with a reason, never 0 or -1. An id is the digest of what was
asked, so it carries no time, no duration and no measured value.
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tasks.evidence import Arm, Block, Build, Engagement, Environment, Evidence, FileRef, ServiceGain
from tasks.hypothesis import (
    Change,
    CodePatch,
    Digest,
    Hypothesis,
    KernelCandidate,
    KernelTarget,
    Outcome,
    Plan,
    Prediction,
    Question,
    Record,
    RoleEdit,
    Rung,
    Scalar,
    StackEdit,
    StackTarget,
    Step,
    Target,
    Text,
    digest,
)
from tasks.refusal import Refusal, RefusedFor

__all__ = [
    "RECORDS", "Arm", "Block", "Build", "Change", "Check", "CodePatch", "Criterion", "Digest", "Engagement", "Environment",
    "Evidence", "Experiment", "FileRef", "Finding", "Hypothesis", "Interval", "KernelCandidate", "KernelTarget", "Locus",
    "LocusKind", "Outcome", "Plan", "Prediction", "Question", "Record", "Refusal",
    "RefusedFor", "RoleEdit", "Rung", "Scalar", "ServiceGain", "StackEdit",
    "StackTarget", "Step", "Target", "Text", "Verdict", "digest",
]  # fmt: skip


Status = Literal["measured", "inferred", "unknown"]


class LocusKind(StrEnum):
    ENGINE_ARGUMENT = "engine_argument"
    CODE_CHANGE = "code_change"
    KERNEL = "kernel"
    INPUT_CONDITION = "input_condition"
    THREAD = "thread"
    INTERVAL = "interval"
    CODE_PATH = "code_path"


class Locus(Record):
    kind: LocusKind
    name: Text


class Finding(Record):
    locus: Locus
    observable: Text
    unit: Text
    incumbent: float | None
    candidate: float | None
    delta: float | None
    status: Status
    implies: Text
    next_test: str | None = None

    @classmethod
    def at(
        cls, kind: LocusKind, name: str, observable: str, unit: str, incumbent: float | None, candidate: float | None,
        implies: str, next_test: str | None = None, *, status: Status | None = None,
    ) -> Self:  # fmt: skip
        """At one locus, with the delta of the arms; without a `status`, measured if there is a value, else unknown."""
        return cls(
            locus=Locus(kind=kind, name=name),
            observable=observable,
            unit=unit,
            incumbent=incumbent,
            candidate=candidate,
            delta=None if incumbent is None or candidate is None else candidate - incumbent,
            status=status or ("unknown" if incumbent is None and candidate is None else "measured"),
            implies=implies,
            next_test=next_test,
        )

    @model_validator(mode="after")
    def _delta_is_the_difference(self) -> Self:
        if self.incumbent is None or self.candidate is None:
            if self.delta is not None:
                raise ValueError("a delta needs both sides")
        elif self.delta != self.candidate - self.incumbent:
            raise ValueError("delta is candidate minus incumbent")
        if self.status == "measured" and self.candidate is None and self.incumbent is None:
            raise ValueError("a measured finding has a value")
        return self


class Interval(Record):
    """A two-sided interval for `observable`, born in a verdict from raw blocks."""

    observable: Text
    unit: Text
    workload: Text
    estimate: float
    low: float
    high: float
    confidence: Annotated[float, Field(gt=0, lt=1)]
    blocks: Annotated[int, Field(ge=2)]
    method: Text

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.estimate <= self.high:
            raise ValueError("an interval holds its estimate")
        return self


class Criterion(Record):
    """Which line of which file decided."""

    file: Text
    digest: Digest
    key: Text
    value: Scalar | None


class Verdict(Record):
    hypothesis_id: Digest
    outcome: Outcome
    reason: Text
    decided_by: Criterion | None = None
    intervals: tuple[Interval, ...] = ()
    not_run: dict[str, str] = {}
    findings: tuple[Finding, ...] = ()
    evidence_ids: tuple[Digest, ...] = ()
    lost_s: Annotated[float, Field(ge=0)] = 0.0  # wall time of a stage that a fault of ours ended

    def asked(self) -> object:
        return self.model_dump(mode="json", exclude={"lost_s"})

    @model_validator(mode="after")
    def _judgement_rests_on_something(self) -> Self:
        if self.outcome is Outcome.PASSED and not (self.evidence_ids and self.decided_by and self.findings):
            raise ValueError("PASSED needs evidence, the criterion that it met, and a finding that shows the effect")
        return self


class Experiment(Record):
    """A view over the records of one attempt at one hypothesis, in order."""

    hypothesis_id: Digest
    attempt: Text
    hypothesis: Hypothesis
    plan: Plan
    build: Build | None = None
    evidence: tuple[Evidence, ...] = ()
    verdict: Verdict | None = None
    refusal: Refusal | None = None

    def of(self, rung: Rung) -> Evidence | None:
        """The first evidence of a rung."""
        return next((e for e in self.evidence if e.rung is rung), None)

    def confirmation(self, rung: Rung) -> Evidence | None:
        """The fresh run that shows a win again."""
        return next((e for e in self.evidence if e.rung is rung and e.confirms is not None), None)

    def with_record(self, record: Build | Evidence | Verdict) -> "Experiment":
        match record:
            case Build():
                return self.model_copy(update={"build": record})
            case Evidence():
                return self.model_copy(update={"evidence": (*self.evidence, record)})
            case Verdict():
                return self.model_copy(update={"verdict": record})


class Check(Record):
    """The result of one rung alone (`infra-agent check`): its gates only, no comparison."""

    rung: Rung
    target: Text
    outcome: Outcome
    reason: Text
    evidence: Evidence
    findings: tuple[Finding, ...] = ()


RECORDS: dict[str, type[Record]] = {
    r.__name__: r
    for r in (
        Hypothesis,
        Plan,
        Build,
        Evidence,
        Finding,
        Verdict,
        Experiment,
        Check,
        StackEdit,
        KernelCandidate,
        CodePatch,
        Refusal,
    )
}
