"""Sends the requests of a block to a running server and keeps one record per request.

One event loop in this process. It watches how late it is itself: a client that is late measures itself, not the server.
Times are from the loop's monotonic clock.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass

import httpx

from serving.endings import EngineEnded, ended_within, while_running
from serving.errors import Broken
from serving.protocol import Answer, Call, call_of, fault_of, words
from serving.request_record import Batch, RequestRecord
from serving.requests import Request, plan_requests
from serving.scenario import Traffic

LOOK_S = 0.01  # between two looks at the lag of the event loop
FLUSH_WITHIN_S = 30.0
LATE_S = 1.0  # from a request that fails to the end of its server being known
LONGEST_LINE = 1 << 24


def send(
    base_url: str,
    traffic: Traffic,
    block: int,
    api_key: str | None = None,
    ended: Callable[[], EngineEnded | None] = lambda: None,
) -> Batch:
    """Sends one block and waits for all its answers. A failed request is a record, not an exception.

    Raises Broken when the prefix cache is to be flushed first and the server does not do it, and what `ended` tells of
    the server's processes within half a second, or a moment after a request has failed.
    """
    planned = [(request, call_of(request)) for request in plan_requests(traffic, block)]
    headers = {"content-type": "application/json"}
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key}"
    if traffic.prefix_cache == "flushed":
        _flush(base_url, headers)
    batch = asyncio.run(while_running(_send_all(base_url, headers, planned, traffic), ended))
    if any(record.error is not None for record in batch.records) and (told := ended_within(ended, LATE_S)) is not None:
        raise told
    return batch


def _flush(base_url: str, headers: dict[str, str]) -> None:
    """A server refuses as long as a request is not quite gone, and a router says 206 where a worker did: so ask again."""
    failed, hint = f"the prefix cache of `{base_url}` was not flushed", "the server must be idle; see its log"
    with httpx.Client(base_url=base_url, headers=headers, timeout=FLUSH_WITHIN_S, trust_env=False) as client:
        until = time.monotonic() + FLUSH_WITHIN_S
        while True:
            try:
                answer = client.post("/flush_cache")
            except httpx.HTTPError as error:
                raise Broken(f"{failed}: {type(error).__name__}: {error}", hint) from error
            if answer.status_code == 200:
                return
            if time.monotonic() > until:
                raise Broken(f"{failed}: status {answer.status_code}: {answer.text[:200]}", hint)
            time.sleep(0.1)


async def _send_all(
    base_url: str, headers: dict[str, str], planned: Sequence[tuple[Request, Call]], traffic: Traffic
) -> Batch:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(
        base_url=base_url, headers=headers, timeout=None, limits=limits, trust_env=False
    ) as client:
        cpu_s, begun, lags = time.process_time(), time.monotonic(), list[float]()
        watching = asyncio.create_task(_watch(lags))
        limit_s = float("inf") if traffic.block_limit_s is None else begun + traffic.block_limit_s
        sender = _Sender(client, begun, traffic.request_timeout_s, limit_s)
        try:
            records = await sender.send(planned, traffic.arrivals.concurrency)
        finally:
            watching.cancel()
        wall_s = time.monotonic() - begun
        return Batch(records, wall_s, 100 * (time.process_time() - cpu_s) / wall_s, tuple(lags))


async def _watch(lags_ms: list[float]) -> None:
    while True:
        due = time.monotonic() + LOOK_S
        await asyncio.sleep(LOOK_S)
        lags_ms.append(max(0.0, 1e3 * (time.monotonic() - due)))


@dataclass(frozen=True)
class _Sender:
    """`begun` and `limit_s`, when the block begins and when what is open is cancelled, are points of the monotonic clock."""

    client: httpx.AsyncClient
    begun: float
    request_timeout_s: float
    limit_s: float

    async def send(self, planned: Sequence[tuple[Request, Call]], concurrency: int | None) -> tuple[RequestRecord, ...]:
        if concurrency is None:
            return tuple(await asyncio.gather(*(self._when_due(request, call) for request, call in planned)))
        queue = iter(planned)
        sent = await asyncio.gather(*(self._one_after_another(queue) for _ in range(concurrency)))
        return tuple(record for records in sent for record in records)

    async def _one_after_another(self, queue: Iterator[tuple[Request, Call]]) -> list[RequestRecord]:
        records, free = [], self.begun
        for request, call in queue:
            records.append(await self._ask(request, call, free))
            free = time.monotonic()
        return records

    async def _when_due(self, request: Request, call: Call) -> RequestRecord:
        due = self.begun + (request.due_s or 0.0)
        await asyncio.sleep(max(0.0, min(due, self.limit_s) - time.monotonic()))
        return await self._ask(request, call, due)

    async def _ask(self, request: Request, call: Call, due: float) -> RequestRecord:
        sent, answer = time.monotonic(), Answer()
        if sent >= self.limit_s:
            return _record(request, answer, cancelled="not sent: the block had reached its time limit")
        schedule = {"sent_s": sent - self.begun, "send_lag_ms": 1e3 * (sent - due)}
        ends = min(sent + self.request_timeout_s, self.limit_s)
        try:
            async with asyncio.timeout_at(ends):
                await self._listen(call, answer)
        except TimeoutError:
            if ends < self.limit_s:
                late = f"no whole answer within {self.request_timeout_s:g} s"
                return _record(request, answer, **schedule, error=late)
            return _record(request, answer, **schedule, cancelled="open when the block reached its time limit")
        except httpx.HTTPError as failure:
            return _record(request, answer, **schedule, error=f"{type(failure).__name__}: {failure}")
        fault = fault_of(answer, request)
        times = _times(answer, sent) if fault is None else {"error": fault}
        return _record(request, answer, **schedule, **times)

    async def _listen(self, call: Call, answer: Answer) -> None:
        async with self.client.stream("POST", call.path, content=call.body) as response:
            if response.status_code != 200:
                said = await anext(response.aiter_bytes(200), b"")  # its beginning: a body need not end
                answer.error = f"status {response.status_code}: {words(said.decode(errors='replace'))}"
                return
            async for line in _lines(response):
                answer.hear(line, time.monotonic())
                if answer.error is not None:
                    return


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Ended by a line feed alone: text of an event may hold what else Python takes for the end of a line.

    Raises httpx.DecodingError for a line without an end.
    """
    rest = b""
    async for chunk in response.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        if len(rest) > LONGEST_LINE:
            raise httpx.DecodingError(f"a line of more than {LONGEST_LINE} bytes")
    if rest:
        yield rest.decode(errors="replace")


def _times(answer: Answer, sent: float) -> dict[str, object]:
    first, last = answer.event_times_s[0], answer.event_times_s[-1]
    return {
        "ttft_ms": 1e3 * (first - sent),
        "itl_ms": tuple(1e3 * (b - a) for a, b in itertools.pairwise(answer.event_times_s)),
        "tpot_ms": 1e3 * (last - first) / (answer.tokens - 1) if answer.tokens > 1 else None,
        "e2e_ms": 1e3 * (time.monotonic() - sent),
    }


def _record(request: Request, answer: Answer, **seen: object) -> RequestRecord:
    told = {
        "id": request.id,
        "class_name": request.class_name,
        "sent_s": None,
        "send_lag_ms": None,
        "prompt_tokens": request.prompt_tokens or answer.prompt_tokens,
        "output_tokens": answer.tokens,
        "cached_tokens": answer.cached_tokens,
        "token_ids": answer.token_ids,
    }
    return RequestRecord.model_validate({**told, **seen})
