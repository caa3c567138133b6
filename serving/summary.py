"""From the records of one block to numbers. A request that failed or was cancelled is counted, and enters no average."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.request_record import Batch, RequestRecord
from serving.scenario import Objectives


@dataclass(frozen=True)
class Measured:
    """A value in the unit that serving/observables.py gives the name, or the reason why there is none."""

    value: float | None
    reason: str | None = None


def summarise(records: Sequence[RequestRecord]) -> dict[str, Measured]:
    """Latencies over the requests that were completed, and the shares that failed and that were cancelled."""
    good = [r for r in records if r.completed]
    ttft = [r.ttft_ms for r in good if r.ttft_ms is not None]
    tpot = [r.tpot_ms for r in good if r.tpot_ms is not None]
    e2e = [r.e2e_ms for r in good if r.e2e_ms is not None]
    gaps = [gap for r in good for gap in r.itl_ms]
    longest = [max(r.itl_ms) for r in good if r.itl_ms]
    return {
        "ttft_mean_ms": mean(ttft),
        "ttft_p50_ms": percentile(ttft, 50),
        "ttft_p95_ms": percentile(ttft, 95),
        "itl_mean_ms": mean(gaps),
        "itl_p95_ms": percentile(gaps, 95),
        "itl_max_ms": mean(longest),
        "tpot_mean_ms": mean(tpot),
        "tpot_p95_ms": percentile(tpot, 95),
        "e2e_mean_ms": mean(e2e),
        "e2e_p95_ms": percentile(e2e, 95),
        "failed_pct": _share_pct(sum(r.error is not None for r in records), len(records)),
        "cancelled_pct": _share_pct(sum(r.cancelled is not None for r in records), len(records)),
    }


def summarise_batch(batch: Batch, objectives: Objectives, devices: int) -> dict[str, Measured]:
    """`summarise`, rates over the wall time of the block, and what tells whether the block can be trusted.

    `devices`: those of the whole deployment (serving/devices.py).
    """
    good = [r for r in batch.records if r.completed]
    goodput_per_s = sum(meets(r, objectives) for r in good) / batch.wall_s
    return {
        **summarise(batch.records),
        "output_tokens_per_s": Measured(sum(r.output_tokens for r in good) / batch.wall_s),
        "requests_per_s": Measured(len(good) / batch.wall_s),
        "goodput_per_s": Measured(goodput_per_s),
        "goodput_per_device_per_s": Measured(goodput_per_s / devices),
        "cached_tokens": _cached(good),
        "prompt_tokens": _sum_of_all([r.prompt_tokens for r in batch.records]),
        "client_cpu_pct": Measured(batch.client_cpu_pct),
        "send_lag_p95_ms": percentile([r.send_lag_ms for r in batch.records if r.send_lag_ms is not None], 95),
        "loop_lag_p95_ms": percentile(batch.loop_lags_ms, 95),
    }


def _cached(good: Sequence[RequestRecord]) -> Measured:
    """Unknown as soon as one request reported what cannot be: then the others are no better known."""
    odd = next((r for r in good if miscounts(r)), None)
    if odd is not None:
        return Measured(None, f"a request of {odd.prompt_tokens} prompt tokens reported {odd.cached_tokens} as cached")
    return _sum_of_known([r.cached_tokens for r in good], "no request reported cached tokens")


def miscounts(record: RequestRecord) -> bool:
    """Whether more of the prompt was found in a cache than there is, or less than nothing."""
    cached, prompt = record.cached_tokens, record.prompt_tokens
    return cached is not None and (cached < 0 or (prompt is not None and cached > prompt))


def late_client(found: Mapping[str, Measured], greatest_lag_ms: float) -> str | None:
    """Why the numbers of a block are the client's own, or None."""
    for name in ("send_lag_p95_ms", "loop_lag_p95_ms"):
        value = found[name].value
        if value is not None and value > greatest_lag_ms:
            return f"the client was late: `{name}` is {value:.1f} ms, the limit is {greatest_lag_ms:g} ms"
    return None


def meets(record: RequestRecord, objectives: Objectives) -> bool:
    """Whether the request was completed within the objectives; a single-token answer has no TPOT to miss."""
    if record.ttft_ms is None:
        return False
    return record.ttft_ms <= objectives.ttft_ms and (record.tpot_ms is None or record.tpot_ms <= objectives.tpot_ms)


def mean(values: Sequence[float]) -> Measured:
    return Measured(statistics.fmean(values)) if values else Measured(None, "no request has a value")


def percentile(values: Sequence[float], share: int) -> Measured:
    """Linear between the two nearest ranks; `share` from 1 to 99."""
    if not values:
        return Measured(None, "no request has a value")
    if len(values) == 1:
        return Measured(values[0])
    return Measured(statistics.quantiles(values, n=100, method="inclusive")[share - 1])


def _share_pct(part: int, whole: int) -> Measured:
    return Measured(100 * part / whole) if whole else Measured(None, "no request was sent")


def _sum_of_known(values: Sequence[int | None], otherwise: str) -> Measured:
    known = [value for value in values if value is not None]
    return Measured(float(sum(known))) if known else Measured(None, otherwise)


def _sum_of_all(values: Sequence[int | None]) -> Measured:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return Measured(None, f"of {len(values) - len(known)} requests nobody counted the prompt")
    return Measured(float(sum(known)))
