"""A scenario: the traffic that a stack must serve, and the criteria by which people accept a change."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.documents import read_document
from serving.observables import OBSERVABLES

Count = Annotated[int, Field(ge=1)]
Percent = Annotated[float, Field(ge=0)]
Milliseconds = Annotated[float, Field(gt=0)]


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Span(Part):
    """Both ends included."""

    low: Count
    high: Count

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"`low` {self.low} is above `high` {self.high}")
        return self


class RequestClass(Part):
    """`requests` of these are sent in each block; lengths, in tokens, are drawn evenly from the spans."""

    requests: Count
    prompt_tokens: Span
    output_tokens: Span


class Arrivals(Part):
    """`closed`: `concurrency` clients, each sends its next request when the last is answered.

    `poisson`: requests arrive at `rate_per_s` on average, whatever the server does.
    """

    kind: Literal["closed", "poisson"]
    concurrency: Count | None = None
    rate_per_s: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        if (self.kind == "closed") != (self.concurrency is not None):
            raise ValueError("`concurrency` goes with `kind: closed` and only with it")
        if (self.kind == "poisson") != (self.rate_per_s is not None):
            raise ValueError("`rate_per_s` goes with `kind: poisson` and only with it")
        return self


class Traffic(Part):
    """`pairs`: at most so many pairs of blocks, one block on each arm, in an order that is drawn.

    `noise_pairs`: pairs of the incumbent against itself, measured first where no earlier run has.
    """

    seed: int
    pairs: Annotated[int, Field(ge=2)]
    noise_pairs: Annotated[int, Field(ge=4)]
    warmup_blocks: Count
    arrivals: Arrivals
    token_ids: Span
    classes: Annotated[dict[str, RequestClass], Field(min_length=1)]
    request_timeout_s: Annotated[float, Field(gt=0)]


class Objectives(Part):
    """A request counts as good when its TTFT and its TPOT are within both."""

    ttft_ms: Milliseconds
    tpot_ms: Milliseconds


class Guard(Part):
    """Prompts whose log-probabilities both arms must agree on before any traffic."""

    prompt_tokens: Annotated[tuple[Count, ...], Field(min_length=1)]
    greedy_tokens: Count
    greatest_logprob_drift: Annotated[float, Field(ge=0)]


class Scenario(Part):
    """Percentages are of the incumbent's value; `vetoes` are the largest allowed regressions by observable.

    `required_evidence`: observables without which there is no verdict. `approvers`: who must agree to a promotion.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    traffic: Traffic
    objectives: Objectives
    guard: Guard
    primary: Annotated[str, Field(min_length=1)]
    direction: Literal["down", "up"]
    smallest_effect_of_interest_pct: Annotated[float, Field(gt=0)]
    vetoes: dict[str, Percent]
    error_limit_pct: Percent
    greatest_send_lag_ms: Milliseconds
    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    budget_s: Annotated[float, Field(gt=0)]
    required_evidence: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    approvers: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]

    @property
    def digest(self) -> str:
        """sha256 of everything in the scenario, in hex."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    @model_validator(mode="after")
    def _observables_exist(self) -> Self:
        for name in (self.primary, *self.vetoes, *self.required_evidence):
            if name not in OBSERVABLES:
                raise ValueError(f"`{name}` is not observed; observables are {', '.join(OBSERVABLES)}")
        if self.primary in self.vetoes:
            raise ValueError(f"`{self.primary}` is the primary observable, so it cannot be a veto as well")
        return self


def load_scenario(path: Path) -> Scenario:
    """Raises BadInput, naming the field, for a file that is not a scenario."""
    return read_document(path, Scenario)
