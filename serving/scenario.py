"""A scenario: the traffic that a stack must serve, and the criteria by which people accept a change."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from serving.documents import read_mapping, validate
from serving.errors import BadInput
from serving.observables import OBSERVABLES
from serving.sources import Count, Part, Source, Span, Trace, data_digest

Percent = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Milliseconds = Positive


class Arrivals(Part):
    """`closed`: `concurrency` clients, each sends its next request when the last is answered.

    The others send when a request is due, whatever the server does. `poisson`: `rate_per_s` on average. `trace`: at the
    times of the trace, `speed` times as fast as recorded.
    """

    kind: Literal["closed", "poisson", "trace"]
    concurrency: Count | None = None
    rate_per_s: Positive | None = None
    speed: Positive | None = None

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Self:
        for kind, name in (("closed", "concurrency"), ("poisson", "rate_per_s"), ("trace", "speed")):
            if (self.kind == kind) != (getattr(self, name) is not None):
                raise ValueError(f"`{name}` goes with `kind: {kind}` and only with it")
        return self


class Traffic(Part):
    """`pairs`: at most so many pairs of blocks, one block on each arm, in an order that is drawn.

    `noise_pairs`: pairs of the incumbent against itself, measured first where no earlier run has. `classes` is short for
    a `source` of that kind. `prefix_cache`: what a block finds of the blocks before it. `token_ids`: what prompts without
    meaning are made of, those of the guard included. What is still open `block_limit_s` after a block began is cancelled.
    """

    seed: int
    pairs: Annotated[int, Field(ge=2)]
    noise_pairs: Annotated[int, Field(ge=4)]
    warmup_blocks: Count
    arrivals: Arrivals
    token_ids: Span
    source: Source
    prefix_cache: Literal["kept", "flushed"] = "kept"
    request_timeout_s: Positive
    block_limit_s: Positive | None = None

    @model_validator(mode="before")
    @classmethod
    def _classes_are_a_source(cls, written: Any) -> Any:
        if not isinstance(written, dict) or "classes" not in written:
            return written
        if "source" in written:
            raise ValueError("`classes` is short for a `source` of that kind: give one of the two")
        rest = {name: value for name, value in written.items() if name != "classes"}
        return {**rest, "source": {"kind": "classes", "classes": written["classes"]}}

    @model_validator(mode="after")
    def _times_come_from_a_trace(self) -> Self:
        if self.arrivals.kind == "trace" and not isinstance(self.source, Trace):
            raise ValueError(f"`arrivals.kind: trace` needs a `source` of that kind, not `{self.source.kind}`")
        return self


class Objectives(Part):
    """A request counts as good when its TTFT and its TPOT are within both.

    In a sweep a rate counts when at least `attained_pct` of its requests are good.
    """

    ttft_ms: Milliseconds
    tpot_ms: Milliseconds
    attained_pct: Annotated[float, Field(ge=0, le=100)] = 90


class Guard(Part):
    """Prompts whose log-probabilities both arms must agree on before any traffic.

    `answers_per_block`: so many answers to the traffic of each block are scored afterwards; 0 looks at none.
    """

    prompt_tokens: Annotated[tuple[Count, ...], Field(min_length=1)]
    greedy_tokens: Count
    greatest_logprob_drift: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    answers_per_block: Annotated[int, Field(ge=0, le=1000)] = 2


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
    smallest_effect_of_interest_pct: Positive
    vetoes: dict[str, Percent]
    error_limit_pct: Percent
    greatest_send_lag_ms: Milliseconds
    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    budget_s: Positive
    required_evidence: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    approvers: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]

    @property
    def digest(self) -> str:
        """sha256 of everything in the scenario and of the file that its requests come from, in hex."""
        whole = [self.model_dump(mode="json"), data_digest(self.traffic.source)]
        content = json.dumps(whole, sort_keys=True, separators=(",", ":"))
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
    document = read_mapping(path)
    if "roles" in document and "traffic" not in document:
        raise BadInput(
            f"`{path}` looks like a stack (it has `roles` and no `traffic`), and a scenario is wanted",
            "name the file of a scenario; `infra-agent schema Scenario` shows what is in one",
        )
    return validate(document, Scenario, str(path), path.parent)
