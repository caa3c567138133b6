"""What is asked: the base of all records, the hypothesis with its target and change, and the plan of rungs."""

import hashlib
import json
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator


def writable(text: str) -> str:
    """`text`, if it can be written as UTF-8: lone surrogates cannot. Raises ValueError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("holds characters that cannot be written as UTF-8") from error
    return text


Plain = Annotated[str, AfterValidator(writable)]
Text = Annotated[str, Field(min_length=1), AfterValidator(writable)]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Scalar = bool | Whole | Annotated[float, Field(allow_inf_nan=False)] | Plain
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


TIMED = (Rung.MICROBENCH, Rung.SERVICE)


class Question(StrEnum):
    """What a hypothesis asks. Each is answered by exactly one rung (tasks/plan.py)."""

    LESS_WORK = "less emitted work"
    FEWER_BYTES = "fewer bytes moved"
    SAME_RESULTS = "same results"
    FASTER_KERNEL = "faster kernel"
    MORE_OVERLAP = "more overlap"
    SOUND_ENGINE = "sound engine"
    BETTER_SERVICE = "better service"


class StackTarget(Record):
    kind: Literal["stack"] = "stack"
    stack: Text
    scenario: Text
    incumbent_digest: Digest


class KernelTarget(Record):
    """`incumbent_launch`: launch options of the incumbent, where it is held in another form than its default.
    `runs_on`: where the kernels of the problem run; a time is only ever taken there.
    `service`: the stack and traffic in which a kernel must show its gain; `timing` names the production shape that it
    has there, whose gain by itself predicts it (by default the production mix).
    """

    kind: Literal["kernel"] = "kernel"
    problem: Text
    incumbent_digest: Digest
    incumbent_launch: dict[str, Scalar] = {}
    runs_on: Literal["gpu", "cpu"] = "gpu"
    service: StackTarget | None = None
    timing: Text | None = None


class KernelCandidate(Record):
    """A whole source file, and keyword arguments handed to its `run` (tile sizes, warps)."""

    kind: Literal["kernel_candidate"] = "kernel_candidate"
    source_name: Text
    source: Text
    launch: dict[str, Scalar] = {}


def _is_whole_text(value: object) -> object:
    """Neither NUL nor half a surrogate pair: no process can be given those, and no digest made of them."""
    if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("a NUL or half a surrogate pair in a text")
    return value


WholeText = AfterValidator(_is_whole_text)
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class RoleEdit(Record):
    """Changes to one role of a stack; `None` takes an argument or a variable away."""

    arguments: dict[Annotated[str, WholeText], Annotated[Scalar | None, WholeText]] = {}
    environment: dict[Variable, Annotated[str | None, WholeText]] = {}
    count: Annotated[int, Field(ge=1, strict=True)] | None = None

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
    size: Annotated[float, Field(ge=0, strict=True)]
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

    @property
    def deployed(self) -> StackTarget | None:
        """The stack and scenario that the service rung tries it in; None for a kernel by itself."""
        return self.target if isinstance(self.target, StackTarget) else self.target.service

    @model_validator(mode="after")
    def _change_fits_target(self) -> Self:
        if isinstance(self.change, KernelCandidate) != isinstance(self.target, KernelTarget):
            raise ValueError(
                f"a change of kind `{self.change.kind}` does not fit a target of kind `{self.target.kind}`"
            )
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
    tried: Annotated[int, Field(ge=1)] = 1  # hypotheses timed at this target, this one included

    @property
    def confirms(self) -> bool:
        """Whether a win must be shown again: the best of several is better than it is."""
        return self.tried > 1 and any(s.purpose == "answer" and s.rung in TIMED for s in self.steps)

    @model_validator(mode="after")
    def _each_rung_once(self) -> Self:
        if len({step.rung for step in self.steps}) != len(self.steps):
            raise ValueError("a rung stands twice in the plan")
        return self
