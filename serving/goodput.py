"""Goodput per device from a sweep of rates: how many requests a second a deployment answers within the objectives.

At one rate goodput is at most that rate, so only a sweep finds what a deployment can do. Every ratio has its counts beside it.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from serving.errors import BadInput
from serving.request_record import Batch
from serving.scenario import Arrivals, Scenario, Traffic
from serving.sources import Trace
from serving.summary import Measured, late_client, meets, summarise_batch
from serving.trace import recorded_rate_per_s


@dataclass(frozen=True)
class Point:
    """What one rate gave. `doubt`: why the point says nothing about the deployment, or None.

    `requests` is all that were planned, `within` those completed within both objectives; times are None where nothing was
    completed.
    """

    rate_per_s: float
    requests: int
    completed: int
    failed: int
    cancelled: int
    within: int
    wall_s: float
    devices: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tpot_p95_ms: float | None
    output_tokens_per_s: float | None
    send_lag_p95_ms: float | None
    loop_lag_p95_ms: float | None
    doubt: str | None

    @property
    def goodput_per_device_per_s(self) -> float:
        return self.within / self.wall_s / self.devices

    @property
    def attainment_pct(self) -> float:
        return 100 * self.within / self.requests


def at_rate(traffic: Traffic, rate_per_s: float) -> Traffic:
    """The same requests arriving at another mean rate; a trace keeps its pattern. Raises BadInput for what has no rate."""
    if not 0 < rate_per_s < math.inf:
        raise BadInput(f"`{rate_per_s:g}` is no rate", "requests a second, above 0")
    if traffic.arrivals.kind == "poisson":
        arrivals = Arrivals(kind="poisson", rate_per_s=rate_per_s)
    elif isinstance(traffic.source, Trace) and traffic.arrivals.kind == "trace":
        recorded = recorded_rate_per_s(traffic.source)
        if recorded is None:
            raise BadInput(f"`{traffic.source.file}` has all requests at one time, so it has no rate", "use `poisson`")
        arrivals = Arrivals(kind="trace", speed=rate_per_s / recorded)
    else:
        raise BadInput(
            f"`arrivals.kind` is `{traffic.arrivals.kind}`: its clients wait for the server, so there is no rate to set",
            "a sweep of rates needs `poisson` or `trace`",
        )
    return traffic.model_copy(update={"arrivals": arrivals})


def sweep(
    scenario: Scenario, rates_per_s: Iterable[float], devices: int, send: Callable[[Traffic], Batch]
) -> Iterator[tuple[Point, Batch]]:
    """One block at each rate, in the order given. Raises BadInput for traffic that has no rate."""
    for rate in rates_per_s:
        batch = send(at_rate(scenario.traffic, rate))
        yield point_of(batch, scenario, rate, devices), batch


def point_of(batch: Batch, scenario: Scenario, rate_per_s: float, devices: int) -> Point:
    """Raises BadInput for a block without requests or a rate that is none."""
    found = summarise_batch(batch, scenario.objectives, devices)
    return Point(
        rate_per_s=rate_per_s,
        requests=len(batch.records),
        completed=sum(r.completed for r in batch.records),
        failed=sum(r.error is not None for r in batch.records),
        cancelled=sum(r.cancelled is not None for r in batch.records),
        within=sum(meets(r, scenario.objectives) for r in batch.records),
        wall_s=batch.wall_s,
        devices=devices,
        ttft_p50_ms=found["ttft_p50_ms"].value,
        ttft_p95_ms=found["ttft_p95_ms"].value,
        tpot_p95_ms=found["tpot_p95_ms"].value,
        output_tokens_per_s=found["output_tokens_per_s"].value,
        send_lag_p95_ms=found["send_lag_p95_ms"].value,
        loop_lag_p95_ms=found["loop_lag_p95_ms"].value,
        doubt=doubt_of(batch, found, scenario),
    )


def doubt_of(batch: Batch, found: Mapping[str, Measured], scenario: Scenario) -> str | None:
    """Why a block says nothing about the deployment, or None. `found`: its summary."""
    failed = sum(r.error is not None for r in batch.records)
    late = late_client(found, scenario.greatest_send_lag_ms)
    if late is not None or 100 * failed <= scenario.error_limit_pct * len(batch.records):
        return late
    return f"{failed} of {len(batch.records)} requests failed; the limit is {scenario.error_limit_pct:g} %"


def best(points: Iterable[Point], attained_pct: float) -> Point | None:
    """The highest goodput per device among the points without a doubt of whose requests enough were good, or None."""
    counting = (p for p in points if p.doubt is None and p.attainment_pct >= attained_pct)
    return max(counting, key=lambda p: p.goodput_per_device_per_s, default=None)
