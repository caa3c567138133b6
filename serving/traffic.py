"""Sends token-id prompts to a running server, measures what a client sees, and keeps one record per request.

Every prompt of a run is different from its second token on, so that no request profits from an earlier one by accident.
Times are from a monotonic clock of this process.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx
from pydantic import BaseModel, ConfigDict, model_validator

from serving.scenario import Arrivals, Traffic


@dataclass(frozen=True)
class Request:
    id: str
    class_name: str
    input_ids: tuple[int, ...]
    output_tokens: int


class RequestRecord(BaseModel):
    """What the client saw of one request. Times are None when it failed, and then `error` says how.

    `itl_ms`: gaps between successive events of the stream; an event may carry several tokens. `tpot_ms`: time after the
    first token over the tokens after it; None for a single token. `sent_s` is since the block began. `send_lag_ms` is
    how late the client was against its own schedule.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    class_name: str
    sent_s: float
    send_lag_ms: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    ttft_ms: float | None = None
    itl_ms: tuple[float, ...] = ()
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    error: str | None = None

    @model_validator(mode="after")
    def _times_are_in_order(self) -> Self:
        known = [self.ttft_ms, self.tpot_ms, self.e2e_ms, *self.itl_ms]
        if any(time_ms is not None and time_ms < 0 for time_ms in known):
            raise ValueError("a negative time: events were paired wrongly")
        if self.ttft_ms is not None and self.e2e_ms is not None and self.ttft_ms > self.e2e_ms:
            raise ValueError("the first token came after the last: events were paired wrongly")
        if self.error is None and self.ttft_ms is None:
            raise ValueError("a request without an error has a first token")
        return self


@dataclass(frozen=True)
class Batch:
    """All records of one block. `client_cpu_pct`: CPU time of this process over wall time."""

    records: tuple[RequestRecord, ...]
    wall_s: float
    client_cpu_pct: float


def plan_requests(traffic: Traffic, block: int) -> tuple[Request, ...]:
    """The requests of block number `block`, in sending order: a function of the seed and the number alone."""
    size = sum(c.requests for c in traffic.classes.values())
    rng = random.Random(f"{traffic.seed}:{block}")
    classes = [name for name, c in traffic.classes.items() for _ in range(c.requests)]
    rng.shuffle(classes)
    low, span = traffic.token_ids.low, traffic.token_ids.high - traffic.token_ids.low + 1
    planned = []
    for place, name in enumerate(classes):
        chosen, ordinal = traffic.classes[name], block * size + place
        length = rng.randint(chosen.prompt_tokens.low, chosen.prompt_tokens.high)
        head = (low + ordinal % span, low + ordinal // span % span)
        ids = (*head, *rng.choices(range(low, low + span), k=max(length - 2, 0)))[:length]
        output = rng.randint(chosen.output_tokens.low, chosen.output_tokens.high)
        planned.append(Request(f"{block}-{place}", name, ids, output))
    return tuple(planned)


def send(base_url: str, traffic: Traffic, block: int) -> Batch:
    """Sends one block and waits for all its answers. A failed request is a record, not an exception."""
    requests = plan_requests(traffic, block)
    cpu, begun = time.process_time(), time.monotonic()
    records = asyncio.run(_send_all(base_url, requests, traffic, begun))
    wall_s = time.monotonic() - begun
    return Batch(records, wall_s, 100 * (time.process_time() - cpu) / wall_s)


async def _send_all(
    base_url: str, requests: Sequence[Request], traffic: Traffic, begun: float
) -> tuple[RequestRecord, ...]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(
        base_url=base_url, timeout=traffic.request_timeout_s, limits=limits, trust_env=False
    ) as client:
        if traffic.arrivals.concurrency is not None:
            queue = iter(requests)
            sent = await asyncio.gather(
                *(_one_after_another(client, queue, begun) for _ in range(traffic.arrivals.concurrency))
            )
            return tuple(record for records in sent for record in records)
        due = arrival_times_s(traffic.arrivals, len(requests), traffic.seed)
        return tuple(await asyncio.gather(*(_at(client, r, begun, d) for r, d in zip(requests, due, strict=True))))


def arrival_times_s(arrivals: Arrivals, count: int, seed: int) -> tuple[float, ...]:
    """Seconds after the start of a block; the first request arrives at once. Only for `poisson`."""
    if arrivals.rate_per_s is None:
        raise ValueError("closed-loop traffic has no arrival times")
    rng, now, times = random.Random(f"arrivals:{seed}"), 0.0, []
    for _ in range(count):
        times.append(now)
        now += rng.expovariate(arrivals.rate_per_s)
    return tuple(times)


async def _one_after_another(client: httpx.AsyncClient, queue: Iterable[Request], begun: float) -> list[RequestRecord]:
    records = []
    for request in queue:
        records.append(await _ask(client, request, begun, time.monotonic()))
    return records


async def _at(client: httpx.AsyncClient, request: Request, begun: float, due_s: float) -> RequestRecord:
    await asyncio.sleep(max(0.0, begun + due_s - time.monotonic()))
    return await _ask(client, request, begun, begun + due_s)


async def _ask(client: httpx.AsyncClient, request: Request, begun: float, due: float) -> RequestRecord:
    sent = time.monotonic()
    events: list[float] = []
    tokens, cached, error = 0, None, None
    body = {
        "input_ids": list(request.input_ids),
        "sampling_params": {"max_new_tokens": request.output_tokens, "temperature": 0, "ignore_eos": True},
        "stream": True,
    }
    try:
        async with client.stream("POST", "/generate", json=body) as answer:
            if answer.status_code != 200:
                raise httpx.HTTPStatusError(f"status {answer.status_code}", request=answer.request, response=answer)
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                now = time.monotonic()
                if "error" in event:
                    error = f"server: {event['error']}"
                    break
                if event["meta_info"]["completion_tokens"] > tokens:
                    events.append(now)
                    tokens = event["meta_info"]["completion_tokens"]
                cached = event["meta_info"].get("cached_tokens")
    except httpx.HTTPError as failure:
        error = f"{type(failure).__name__}: {failure}"
    ended = time.monotonic()
    if error is None and tokens != request.output_tokens:
        error = f"{tokens} tokens instead of {request.output_tokens}"
    return _record(request, begun, due, sent, ended, events, tokens, cached, error)


def _record(
    request: Request,
    begun: float,
    due: float,
    sent: float,
    ended: float,
    events: Sequence[float],
    tokens: int,
    cached: int | None,
    error: str | None,
) -> RequestRecord:
    times: dict[str, object] = {}
    if error is None:
        times = {
            "ttft_ms": 1e3 * (events[0] - sent),
            "itl_ms": tuple(1e3 * (b - a) for a, b in itertools.pairwise(events)),
            "tpot_ms": 1e3 * (events[-1] - events[0]) / (tokens - 1) if tokens > 1 else None,
            "e2e_ms": 1e3 * (ended - sent),
        }
    return RequestRecord.model_validate(
        {
            "id": request.id,
            "class_name": request.class_name,
            "sent_s": sent - begun,
            "send_lag_ms": 1e3 * (sent - due),
            "prompt_tokens": len(request.input_ids),
            "output_tokens": tokens,
            "cached_tokens": cached,
            "error": error,
            **times,
        }
    )


def write_jsonl(path: Path, records: Iterable[BaseModel]) -> None:
    """One JSON object per line."""
    path.write_text("".join(record.model_dump_json() + "\n" for record in records), encoding="utf-8")
