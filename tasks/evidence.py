"""What was seen: builds, and the raw observations of a rung. No interval and no opinion: those depend on criteria."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from tasks.hypothesis import Digest, Record, Rung, Text
from tasks.noise import Noise


class Arm(StrEnum):
    INCUMBENT = "incumbent"
    CANDIDATE = "candidate"


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
    """One observed value of one arm. `part` is a piece of the workload, such as one of several kernels.

    `arch` is set where machine code was looked at that was compiled for another architecture than the environment's.
    """

    arm: Arm
    observable: Text
    unit: Text
    workload: Text
    value: float | None
    order: Annotated[int, Field(ge=0)]
    part: str | None = None
    arch: str | None = None
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


class ServiceGain(Record):
    """What a kernel's gain by itself predicts for `observable` of the service, by Amdahl's law, before it was measured there.

    Relative changes in percent, negative is less. `alone_pct` and `share_pct` (of the service's time) are low, estimate
    and high; `timing` is the shape that the kernel was timed at by itself.
    """

    observable: Text
    estimate_pct: float
    low_pct: float
    high_pct: float
    timing: Text
    alone_pct: tuple[float, float, float]
    share_pct: tuple[float, float, float]


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
    device_s: Annotated[float, Field(ge=0)] | None = 0.0  # of GPUs held; 0 on a CPU rung, None if not known
    not_run: str | None = None
    candidate_fault: str | None = None
    unchecked: str | None = None  # what is claimed and was not observed; no fault, and no proof either
    gate: Digest | None = None
    noise: Noise | None = None
    predicted: ServiceGain | None = None
    confirms: Digest | None = None  # the evidence whose win this run shows again, on fresh seeds

    @model_validator(mode="after")
    def _ran_or_says_why_not(self) -> Self:
        if self.not_run is not None and (self.blocks or self.engagement):
            raise ValueError("evidence of a rung that did not run holds no blocks and no engagement")
        if self.not_run is None and self.candidate_fault is None and self.unchecked is None and not self.blocks:
            raise ValueError("evidence without blocks: nothing was observed, which is not a result")
        return self

    @model_validator(mode="after")
    def _timing_needs_correctness(self) -> Self:
        if self.rung is Rung.MICROBENCH and self.blocks and self.gate is None:
            raise ValueError("a timing exists only if correctness passed: name the evidence of the gate")
        return self

    def asked(self) -> object:
        return [self.subject, self.rung, self.seed, self.evaluator_digest, self.environment.facts]
