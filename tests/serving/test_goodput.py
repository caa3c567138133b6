"""Goodput per device from a sweep: the rates that count, the denominator, and runs that say nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_engine import FakeEngine, listening
from hypothesis import given
from hypothesis import strategies as st
from traffic_examples import CLOSED, POISSON, traffic

from serving.devices import devices_of
from serving.errors import BadInput
from serving.goodput import Point, at_rate, best, point_of, sweep
from serving.request_record import Batch, RequestRecord
from serving.requests import plan_requests
from serving.scenario import Arrivals, Scenario, Traffic, load_scenario
from serving.sources import Trace
from serving.traffic import send

SCENARIOS = Path(__file__).parents[2] / "serving" / "scenarios"
MOONCAKE = load_scenario(SCENARIOS / "mooncake-conversation-cpu.yaml")
SCENARIO = MOONCAKE.model_copy(update={"traffic": traffic(POISSON)})


def answered(ttft_ms: float = 10.0, lag_ms: float = 1.0) -> RequestRecord:
    return RequestRecord(
        id="x",
        class_name="chat",
        sent_s=0,
        send_lag_ms=lag_ms,
        prompt_tokens=9,
        output_tokens=1,
        ttft_ms=ttft_ms,
        e2e_ms=ttft_ms,
    )


LATE = answered(ttft_ms=60_000)
FAILED = RequestRecord(
    id="x", class_name="chat", sent_s=0, send_lag_ms=0, prompt_tokens=9, output_tokens=0, error="status 500"
)


def point(*records: RequestRecord, rate: float = 2.0, devices: int = 1, lags: tuple[float, ...] = ()) -> Point:
    return point_of(Batch(records, 2.0, 0.0, lags), SCENARIO, rate, devices)


def test_another_rate_brings_the_same_requests_at_other_times() -> None:
    planned = [plan_requests(at_rate(traffic(POISSON), rate), 0) for rate in (1.0, 4.0)]
    assert [r.input_ids for r in planned[0]] == [r.input_ids for r in planned[1]]
    assert [(r.due_s or 0) / 4 for r in planned[0]] == pytest.approx([r.due_s for r in planned[1]])


@given(rate=st.floats(0.1, 100))
def test_a_trace_at_a_rate_keeps_its_pattern_and_has_that_rate_on_average(rate: float) -> None:
    source = MOONCAKE.traffic.source
    assert isinstance(source, Trace)
    whole = MOONCAKE.traffic.model_copy(update={"source": source.model_copy(update={"requests": 200})})
    due = [r.due_s or 0.0 for r in plan_requests(at_rate(whole, rate), 0)]
    assert 199 / due[-1] == pytest.approx(rate)
    assert due == pytest.approx([t * due[-1] / 72 for t in (line.timestamp / 1e3 for line in source.lines())])


def test_clients_that_wait_have_no_rate_to_sweep() -> None:
    with pytest.raises(BadInput, match=r"`arrivals\.kind` is `closed`"):
        at_rate(traffic(CLOSED), 1.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_is_a_number_above_zero(rate: float) -> None:
    with pytest.raises(BadInput, match="is no rate"):
        at_rate(traffic(POISSON), rate)


def test_goodput_is_of_what_was_good_over_time_and_devices_with_the_counts_beside_it() -> None:
    found = point(answered(), answered(), LATE, FAILED, devices=8)
    assert found.goodput_per_device_per_s == 2 / 2.0 / 8
    assert (found.requests, found.completed, found.failed, found.within, found.attainment_pct) == (4, 3, 1, 2, 50)


def test_the_best_rate_is_one_at_which_enough_requests_are_good() -> None:
    relaxed = point(*[answered()] * 9, LATE, rate=1)
    overloaded = point(*[answered()] * 20, *[LATE] * 20, rate=20)
    assert best([relaxed, overloaded], 90) is relaxed
    assert best([relaxed, overloaded], 50) is overloaded
    assert best([relaxed, overloaded], 99) is None


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (lambda: point(answered(), FAILED), "1 of 2 requests failed"),
        (lambda: point(answered(lag_ms=900)), "send_lag_p95_ms"),
        (lambda: point(answered(), lags=(900.0,)), "loop_lag_p95_ms"),
    ],
    ids=["failures", "sends late", "looks late"],
)
def test_a_rate_that_was_not_measured_is_never_the_best(bad: Callable[[], Point], said: str) -> None:
    assert said in (bad().doubt or "")
    assert best([bad()], 0) is None


def test_a_sweep_sends_one_block_at_each_rate_in_order() -> None:
    with listening(FakeEngine()) as engine:
        found = list(sweep(SCENARIO, (50.0, 200.0), 2, lambda t: send(engine.base_url, t, 0)))
    assert [p.rate_per_s for p, _ in found] == [50, 200]
    assert all(p.completed == p.requests == len(batch.records) == 6 for p, batch in found)
    assert all(p.devices == 2 for p, _ in found)


def test_a_sweep_gives_what_it_has_before_the_next_rate_is_sent() -> None:
    sent: list[Traffic] = []

    def record(asked: Traffic) -> Batch:
        sent.append(asked)
        return Batch((answered(),), 1.0, 0.0)

    points = sweep(SCENARIO, (1.0, 2.0), 1, record)
    next(points)
    assert [t.arrivals for t in sent] == [Arrivals(kind="poisson", rate_per_s=1.0)]


@pytest.mark.parametrize(
    ("servers", "devices"),
    [
        ([{}], 1),
        ([{"tp_size": 8}], 8),
        ([{"tp_size": 8, "pp_size": 2}], 16),
        ([{"tp_size": 4, "dp_size": 2}], 8),
        ([{"tp_size": 8, "dp_size": 8, "enable_dp_attention": True}], 8),
        ([{"tp_size": 8, "ep_size": 8}], 8),
        ([{"encoder_only": True, "tp_size": 1}, {"tp_size": 8}, {"tp_size": 8}, {"tp_size": 8}], 25),
    ],
)
def test_v9_devices_are_counted_from_what_every_server_runs_with(servers: list[dict], devices: int) -> None:
    assert devices_of(servers) == devices


def test_a_scenario_says_how_many_requests_must_be_good() -> None:
    assert Scenario.model_validate(MOONCAKE.model_dump()).objectives.attained_pct == 90
