"""What the stages exchange: frozen records, validated when they are built.

Units are in names or in a `unit` field. Unknown is `None` with a reason, never 0 or -1. An id is the digest of what was
asked, so it carries no time, no duration and no measured value.
"""

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Scalar = bool | int | float | str
Text = Annotated[str, Field(min_length=1)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def digest(content: bytes | str | object) -> str:
    """sha256 in hex; anything but text and bytes is first written as JSON with sorted keys."""
    if not isinstance(content, bytes | str):
        content = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def asked(self) -> object:
        """The part of the record that identifies it. Overridden where a record holds measured values."""
        return self.model_dump(mode="json")

    @property
    def id(self) -> str:
        return digest([type(self).__name__, self.asked()])


class Outcome(StrEnum):
    PASSED = "PASSED"
    REJECTED = "REJECTED"
    INCONCLUSIVE = "INCONCLUSIVE"
    BROKEN = "BROKEN"


class Rung(StrEnum):
    """Cheapest first."""

    STATIC = "static"
    NUMERICS = "numerics"
    MICROBENCH = "microbench"
    OVERLAP = "overlap"
    ENGINE = "engine"
    SERVICE = "service"


class Question(StrEnum):
    """What a hypothesis asks. Each is answered by exactly one rung (tasks/plan.py)."""

    LESS_WORK = "less emitted work"
    SAME_RESULTS = "same results"
    FASTER_KERNEL = "faster kernel"
    MORE_OVERLAP = "more overlap"
    SOUND_ENGINE = "sound engine"
    BETTER_SERVICE = "better service"


class Arm(StrEnum):
    INCUMBENT = "incumbent"
    CANDIDATE = "candidate"


class KernelTarget(Record):
    kind: Literal["kernel"] = "kernel"
    problem: Text
    incumbent_digest: Digest


class StackTarget(Record):
    kind: Literal["stack"] = "stack"
    stack: Text
    scenario: Text
    incumbent_digest: Digest


class KernelCandidate(Record):
    """A whole source file, and keyword arguments handed to its `run` (tile sizes, warps)."""

    kind: Literal["kernel_candidate"] = "kernel_candidate"
    source_name: Text
    source: Text
    launch: dict[str, Scalar] = {}


class RoleEdit(Record):
    """Changes to one role of a stack; `None` takes an argument or a variable away."""

    arguments: dict[str, Scalar | None] = {}
    environment: dict[str, str | None] = {}
    count: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.arguments and not self.environment and self.count is None:
            raise ValueError("an edit that changes nothing")
        return self


class StackEdit(Record):
    kind: Literal["stack_edit"] = "stack_edit"
    roles: Annotated[dict[str, RoleEdit], Field(min_length=1)]


class CodePatch(Record):
    kind: Literal["code_patch"] = "code_patch"
    package: Text
    version: Text
    diff: Text


Target = Annotated[KernelTarget | StackTarget, Field(discriminator="kind")]
Change = Annotated[KernelCandidate | StackEdit | CodePatch, Field(discriminator="kind")]


class Prediction(Record):
    observable: Text
    direction: Literal["down", "up", "same"]
    size: Annotated[float, Field(ge=0)]
    unit: Text

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if (self.size == 0) != (self.direction == "same"):
            raise ValueError("a prediction of `down` or `up` needs a size above 0, one of `same` has size 0")
        return self


class Hypothesis(Record):
    title: Text
    rationale: Text
    target: Target
    change: Change
    question: Question
    prediction: Prediction
    mechanism: Text
    origin: Literal["person", "catalogue", "sampler", "model"]
    parent: Digest | None = None

    @model_validator(mode="after")
    def _change_fits_target(self) -> Self:
        if isinstance(self.change, KernelCandidate) != isinstance(self.target, KernelTarget):
            raise ValueError(f"a change of kind `{self.change.kind}` does not fit a target of kind `{self.target.kind}`")
        return self


class Step(Record):
    rung: Rung
    purpose: Literal["answer", "gate"]
    why: Text
    pool: Text


class Plan(Record):
    """The rungs to visit, in order, and why each of the others is left out."""

    hypothesis_id: Digest
    steps: tuple[Step, ...]
    left_out: dict[Rung, str]
    budget_s: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _each_rung_once(self) -> Self:
        if len({step.rung for step in self.steps}) != len(self.steps):
            raise ValueError("a rung stands twice in the plan")
        return self

    def has(self, *rungs: Rung) -> bool:
        return any(step.rung in rungs for step in self.steps)


class Environment(Record):
    """Facts that must be equal before two measurements may be compared: versions, machine, limits, mode."""

    facts: dict[str, str]


class FileRef(Record):
    """`path` is relative to the artifact store of this installation."""

    path: Text
    sha256: Digest
    size_bytes: Annotated[int, Field(ge=0)]


class Build(Record):
    hypothesis_id: Digest
    artifact: str
    artifact_digest: Digest | None
    log: str
    environment: Environment
    cached: bool = False
    wall_s: Annotated[float, Field(ge=0)]
    failure: str | None = None

    @model_validator(mode="after")
    def _built_or_failed(self) -> Self:
        if (self.artifact_digest is None) != (self.failure is not None):
            raise ValueError("a build has an artifact digest or a failure, not both and not neither")
        return self

    def asked(self) -> object:
        return [self.hypothesis_id, self.environment.facts]


class Block(Record):
    """One observed value of one arm. `part` is a piece of the workload, such as one of several kernels."""

    arm: Arm
    observable: Text
    unit: Text
    workload: Text
    value: float | None
    order: Annotated[int, Field(ge=0)]
    part: str | None = None
    started_s: float | None = None
    reason: str | None = None

    @model_validator(mode="after")
    def _absence_has_a_reason(self) -> Self:
        if (self.value is None) != (self.reason is not None):
            raise ValueError("a block has a value or the reason why it has none, not both and not neither")
        return self


class Engagement(Record):
    """Proof that the code or setting that was asked for is the one that ran."""

    arm: Arm
    what: Text
    expected: Text
    seen: Text

    @property
    def proved(self) -> bool:
        return self.expected == self.seen


class Evidence(Record):
    """What one rung observed: raw blocks, no interval and no opinion. `gate` is the evidence that had to hold first."""

    subject: Digest
    rung: Rung
    blocks: tuple[Block, ...] = ()
    engagement: tuple[Engagement, ...] = ()
    environment: Environment
    evaluator_digest: Digest
    seed: int = 0
    files: tuple[FileRef, ...] = ()
    wall_s: Annotated[float, Field(ge=0)] = 0.0
    device_s: Annotated[float, Field(ge=0)] = 0.0
    not_run: str | None = None
    candidate_fault: str | None = None
    gate: Digest | None = None

    @model_validator(mode="after")
    def _ran_or_says_why_not(self) -> Self:
        if self.not_run is not None and (self.blocks or self.engagement):
            raise ValueError("evidence of a rung that did not run holds no blocks and no engagement")
        if self.not_run is None and self.candidate_fault is None and not self.blocks:
            raise ValueError("evidence without blocks: nothing was observed, which is not a result")
        return self

    @model_validator(mode="after")
    def _timing_needs_correctness(self) -> Self:
        if self.rung is Rung.MICROBENCH and self.blocks and self.gate is None:
            raise ValueError("a timing exists only if correctness passed: name the evidence of the gate")
        return self

    def asked(self) -> object:
        return [self.subject, self.rung, self.seed, self.evaluator_digest, self.environment.facts]


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
    status: Literal["measured", "inferred", "unknown"]
    implies: Text
    next_test: str | None = None

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

    def of(self, rung: Rung) -> Evidence | None:
        return next((e for e in self.evidence if e.rung is rung), None)

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
    for r in (Hypothesis, Plan, Build, Evidence, Finding, Verdict, Experiment, Check, StackEdit, KernelCandidate, CodePatch)
}


def schema_of(name: str) -> dict[str, Any]:
    """JSON Schema of a record as it is written. Raises KeyError for an unknown name."""
    return RECORDS[name].model_json_schema(mode="serialization")
