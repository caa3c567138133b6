"""What a client saw of its requests: one record each, and all those of a block."""

from dataclasses import dataclass
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class RequestRecord(BaseModel):
    """What the client saw of one request. Times are None unless it was completed: otherwise `error` says how it failed, or
    `cancelled` why the client gave it up.

    `itl_ms`: gaps between successive events of the stream; an event may carry several tokens. `tpot_ms`: time after the
    first token over the tokens after it; None for a single token. `sent_s` is since the block began, and `send_lag_ms` is
    how late the client was against its own schedule; both are None for a request that was never sent. `prompt_tokens` is
    None where only the server could have told it, and did not. `token_ids`: the answer, where its stream carries ids; they
    are not written down with the rest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    class_name: str
    sent_s: float | None
    send_lag_ms: float | None
    prompt_tokens: int | None
    output_tokens: int
    cached_tokens: int | None = None
    ttft_ms: float | None = None
    itl_ms: tuple[float, ...] = ()
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    error: str | None = None
    cancelled: str | None = None
    token_ids: tuple[int, ...] = Field(default=(), exclude=True)

    @property
    def completed(self) -> bool:
        return self.error is None and self.cancelled is None

    @model_validator(mode="after")
    def _times_are_in_order(self) -> Self:
        known = [self.ttft_ms, self.tpot_ms, self.e2e_ms, *self.itl_ms]
        if any(time_ms is not None and time_ms < 0 for time_ms in known):
            raise ValueError("a negative time: events were paired wrongly")
        if self.ttft_ms is not None and self.e2e_ms is not None and self.ttft_ms > self.e2e_ms:
            raise ValueError("the first token came after the last: events were paired wrongly")
        if self.error is not None and self.cancelled is not None:
            raise ValueError("a request either failed or was given up")
        if self.completed and (self.ttft_ms is None or self.sent_s is None):
            raise ValueError("a request that was completed was sent and has a first token")
        if not self.completed and any(time_ms is not None for time_ms in known):
            raise ValueError("a request that was not completed has no times")
        return self


@dataclass(frozen=True)
class Batch:
    """All records of one block. `client_cpu_pct`: CPU time of this process over wall time.

    `loop_lags_ms`: how late the client's event loop was each time it looked; every event was seen at most so late.
    """

    records: tuple[RequestRecord, ...]
    wall_s: float
    client_cpu_pct: float
    loop_lags_ms: tuple[float, ...] = ()
