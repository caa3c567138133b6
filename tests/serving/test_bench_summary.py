"""Our summary under the names of `bench_serving`: what reads its files finds what it looks for."""

import pytest
from traffic_examples import POISSON, traffic

from serving.bench_summary import bench_summary
from serving.request_record import Batch, RequestRecord
from serving.scenario import Arrivals, Objectives
from serving.sources import RandomLengths

OBJECTIVES = Objectives(ttft_ms=100, tpot_ms=10)
# The numbers that its result file holds, without those that need a tokenizer or speculation.
NAMES = {
    "duration completed total_input_tokens total_output_tokens request_throughput input_throughput output_throughput "
    "total_throughput concurrency max_output_tokens_per_s max_concurrent_requests"
}
SPREADS = [
    f"{part}_{name}_ms"
    for name in ("ttft", "tpot", "itl", "e2e_latency")
    for part in ("mean", "median", "std", "p90", "p95", "p99")
]


def record(number: int, **changes: object) -> RequestRecord:
    fields = {
        "id": f"0-{number}",
        "class_name": "chat",
        "sent_s": float(number),
        "send_lag_ms": 0.0,
        "prompt_tokens": 100,
        "output_tokens": 3,
        "cached_tokens": 25,
        "ttft_ms": 50.0 + 100 * number,
        "itl_ms": (4.0, 8.0),
        "tpot_ms": 6.0,
        "e2e_ms": 62.0 + 100 * number,
    }
    return RequestRecord.model_validate(fields | changes)


FAILED = record(8, ttft_ms=None, itl_ms=(), tpot_ms=None, e2e_ms=None, output_tokens=1, error="status 500")
GIVEN_UP = record(9, ttft_ms=None, itl_ms=(), tpot_ms=None, e2e_ms=None, output_tokens=0, cancelled="time limit")
BATCH = Batch((record(0), record(1), FAILED, GIVEN_UP), 4.0, 1.0)


def test_every_number_of_a_result_file_is_there() -> None:
    found = bench_summary(BATCH, traffic(), OBJECTIVES)
    for name in [*" ".join(NAMES).split(), *SPREADS]:
        assert isinstance(found[name], int | float), name


def test_only_completed_requests_are_counted_and_the_others_stand_apart() -> None:
    found = bench_summary(BATCH, traffic(), OBJECTIVES)
    assert (found["completed"], found["failed"], found["cancelled"]) == (2, 1, 1)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (200, 6)
    assert (found["request_throughput"], found["output_throughput"], found["total_throughput"]) == (0.5, 1.5, 51.5)
    assert (found["mean_ttft_ms"], found["median_ttft_ms"], found["std_ttft_ms"]) == (100, 100, 50)
    assert found["mean_itl_ms"] == 6
    assert found["concurrency"] == pytest.approx(0.224 / 4)


def test_peaks_are_of_one_second_of_the_block() -> None:
    together = Batch((record(0), record(1, sent_s=0.0), record(2, sent_s=2.0)), 4.0, 1.0)
    found = bench_summary(together, traffic(), OBJECTIVES)
    assert found["max_concurrent_requests"] == 2
    assert found["max_output_tokens_per_s"] == 6


def test_goodput_and_attainment_are_over_all_that_were_sent() -> None:
    found = bench_summary(BATCH, traffic(), OBJECTIVES)
    assert found["request_goodput"] == 0.25
    assert found["slo_attainment"] == 0.25
    assert found["slo_attainment_by_metric"] == {"ttft": 0.25, "tpot": 0.5}


def test_the_cache_report_is_of_what_the_server_told() -> None:
    told = bench_summary(BATCH, traffic(), OBJECTIVES)["cache_report"]
    assert told == {"total_prompt_tokens": 200, "total_cached_tokens": 50, "cache_hit_rate_pct": 25}
    silent = Batch((record(0, cached_tokens=None),), 1.0, 0.0)
    assert set(bench_summary(silent, traffic(), OBJECTIVES)["cache_report"].values()) == {None}  # type: ignore[attr-defined]


def test_a_server_that_counts_more_cached_than_there_is_has_no_hit_rate() -> None:
    odd = Batch((record(0), record(1, cached_tokens=101)), 1.0, 0.0)
    assert bench_summary(odd, traffic(), OBJECTIVES)["cache_report"]["cache_hit_rate_pct"] is None  # type: ignore[index]


def test_without_a_completed_request_times_are_unknown_and_not_zero() -> None:
    found = bench_summary(Batch((FAILED,), 1.0, 0.0), traffic(), OBJECTIVES)
    assert {found[name] for name in SPREADS} == {None}
    assert found["completed"] == 0


@pytest.mark.parametrize(
    ("arrivals", "rate", "clients"),
    [(POISSON, 200.0, None), (Arrivals(kind="closed", concurrency=2), None, 2)],
)
def test_it_says_how_requests_were_sent(arrivals: Arrivals, rate: float | None, clients: int | None) -> None:
    found = bench_summary(BATCH, traffic(arrivals), OBJECTIVES)
    assert (found["request_rate"], found["max_concurrency"]) == (rate, clients)


def test_random_lengths_are_named_as_they_were_asked_for() -> None:
    source = RandomLengths(kind="random", requests=2, prompt_tokens=64, output_tokens=8, range_ratio=0.5)
    found = bench_summary(BATCH, traffic(source=source), OBJECTIVES)
    assert (found["random_input_len"], found["random_output_len"], found["random_range_ratio"]) == (64, 8, 0.5)
