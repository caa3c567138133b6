"""Where the requests of a block come from. Which requests those are is in serving/requests.py: a function of seed and number.

Paths of data files are relative to the file that names them; in a loaded scenario they are as in a record (serving/home.py).
"""

import hashlib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from serving.home import located, portable
from serving.jsonl import read_jsonl

# Tokens of a request, requests of a block: more of them do not fit into the memory of a client.
Count = Annotated[int, Field(ge=1, le=10_000_000)]
MOST_PIXELS = 8192  # of a side
RECORDED_BLOCK_TOKENS = 512


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


def _placed(file: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    return file if folder is None else portable(Path(folder) / Path(file).expanduser())


DataFile = Annotated[str, Field(min_length=1), AfterValidator(_placed)]


class RequestClass(Part):
    """`requests` of these are sent in each block; lengths, in tokens, are drawn evenly from the spans."""

    requests: Count
    prompt_tokens: Span
    output_tokens: Span


class Classes(Part):
    """Classes of requests by name, in drawn order, of tokens without meaning. No two prompts of a run begin alike."""

    kind: Literal["classes"]
    classes: Annotated[dict[str, RequestClass], Field(min_length=1)]


class RandomLengths(Part):
    """As `bench_serving --random-range-ratio`: a length is drawn evenly from `range_ratio` of the full one up to it."""

    kind: Literal["random"]
    requests: Count
    prompt_tokens: Count
    output_tokens: Count
    range_ratio: Annotated[float, Field(ge=0, le=1)]


class TraceLine(BaseModel):
    """One request of a trace. `timestamp` in ms; `hash_ids`: one per block of the prompt, equal where the tokens are."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    timestamp: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    input_length: Count
    output_length: Count
    hash_ids: tuple[Annotated[int, Field(ge=0)], ...]


class Trace(Part):
    """A trace in the format of Mooncake. Block n of a run is the n-th window of `requests` lines; past the last whole window
    the trace begins again with other tokens.

    A recorded block of `recorded_block_tokens` becomes one of `block_tokens`, and prompts shrink with it, so that what was
    shared stays shared. Answers become `output_scale` as long, and at least one token.
    """

    kind: Literal["trace"]
    file: DataFile
    requests: Count
    block_tokens: Annotated[int, Field(ge=4, le=RECORDED_BLOCK_TOKENS * 64)] = RECORDED_BLOCK_TOKENS
    recorded_block_tokens: Count = RECORDED_BLOCK_TOKENS
    output_scale: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _is_a_trace(self) -> Self:
        for number, line in enumerate(self.lines(), start=1):
            blocks = -(-line.input_length // self.recorded_block_tokens)
            if len(line.hash_ids) != blocks:
                raise ValueError(
                    f"request {number} by time of `{self.file}` has {len(line.hash_ids)} hash ids, but "
                    f"{line.input_length} tokens are {blocks} blocks of {self.recorded_block_tokens}"
                )
        if len(self.lines()) < self.requests:
            raise ValueError(f"`{self.file}` has {len(self.lines())} requests, a block takes {self.requests}")
        return self

    def lines(self) -> tuple[TraceLine, ...]:
        """In order of time. Raises BadInput."""
        return tuple(sorted(read_jsonl(located(self.file), TraceLine), key=lambda line: line.timestamp))


class PromptLine(Part):
    """A prompt as text or as tokens; `output_tokens` where the answer's length is part of the data."""

    text: Annotated[str, Field(min_length=1)] | None = None
    input_ids: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = None
    output_tokens: Count | None = None

    @model_validator(mode="after")
    def _is_one_prompt(self) -> Self:
        if (self.text is None) == (self.input_ids is None):
            raise ValueError("a prompt has `text` or `input_ids`, and not both")
        return self


class Prompts(Part):
    """A file with a prompt per line, sent in its order, `requests` a block; after the last line comes the first."""

    kind: Literal["prompts"]
    file: DataFile
    requests: Count
    output_tokens: Span

    @model_validator(mode="after")
    def _has_prompts(self) -> Self:
        self.lines()
        return self

    def lines(self) -> tuple[PromptLine, ...]:
        """Raises BadInput."""
        return read_jsonl(located(self.file), PromptLine)


class Images(Part):
    """A drawn picture with a question each, through the chat endpoint: every picture passes the encode stage."""

    kind: Literal["images"]
    requests: Count
    width_px: Span
    height_px: Span
    question: Annotated[str, Field(min_length=1)]
    output_tokens: Span

    @model_validator(mode="after")
    def _can_be_drawn(self) -> Self:
        if max(self.width_px.high, self.height_px.high) > MOST_PIXELS:
            raise ValueError(f"a side of a picture has at most {MOST_PIXELS} pixels")
        return self


Source = Annotated[Classes | RandomLengths | Trace | Prompts | Images, Field(discriminator="kind")]


def data_digest(source: Source) -> str | None:
    """sha256, in hex, of the file that a source reads; None for one that reads none."""
    if not isinstance(source, Trace | Prompts):
        return None
    return hashlib.sha256(located(source.file).read_bytes()).hexdigest()
