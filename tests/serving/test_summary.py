"""From request records to numbers: failures are counted and averaged into nothing."""

import pytest

from serving.observables import CLIENT, CONTEXT
from serving.request_record import Batch, RequestRecord
from serving.scenario import Objectives
from serving.summary import late_client, meets, percentile, summarise, summarise_batch

OBJECTIVES = Objectives(ttft_ms=100, tpot_ms=10)


def record(ttft_ms: float = 50, tpot_ms: float = 5, gaps: tuple[float, ...] = (4, 6), **other: object) -> RequestRecord:
    return RequestRecord(
        id="x",
        class_name="chat",
        sent_s=0,
        send_lag_ms=1,
        prompt_tokens=10,
        output_tokens=3,
        cached_tokens=0,
        ttft_ms=ttft_ms,
        itl_ms=gaps,
        tpot_ms=tpot_ms,
        e2e_ms=ttft_ms + sum(gaps),
    ).model_copy(update=other)


def failed() -> RequestRecord:
    return RequestRecord(
        id="y", class_name="chat", sent_s=0, send_lag_ms=1, prompt_tokens=10, output_tokens=1, error="status 500"
    )


def cancelled() -> RequestRecord:
    return RequestRecord(
        id="z",
        class_name="chat",
        sent_s=None,
        send_lag_ms=None,
        prompt_tokens=10,
        output_tokens=0,
        cancelled="time limit",
    )


@pytest.mark.parametrize(("other", "share"), [(failed(), "failed_pct"), (cancelled(), "cancelled_pct")])
def test_a_request_that_failed_or_was_cancelled_enters_no_average(other: RequestRecord, share: str) -> None:
    alone, beside = summarise([record()]), summarise([record(), other])
    assert {k: v for k, v in alone.items() if k != share} == {k: v for k, v in beside.items() if k != share}
    assert (alone[share].value, beside[share].value) == (0, 50)


def test_the_longest_gap_is_averaged_over_requests() -> None:
    assert summarise([record(gaps=(1, 9)), record(gaps=(3, 2))])["itl_max_ms"].value == 6


def test_without_requests_every_value_is_unknown_with_a_reason() -> None:
    assert all(m.value is None and m.reason for m in summarise([]).values())


def test_goodput_counts_only_requests_within_both_objectives() -> None:
    records = (record(), record(ttft_ms=101), record(tpot_ms=11), failed(), cancelled())
    found = summarise_batch(Batch(records, 2.0, 12.0), OBJECTIVES, devices=4)
    assert found["goodput_per_s"].value == 0.5
    assert found["goodput_per_device_per_s"].value == 0.125
    assert found["requests_per_s"].value == 1.5
    assert found["output_tokens_per_s"].value == 4.5
    assert found["client_cpu_pct"].value == 12


def test_a_single_token_has_no_tpot_to_miss() -> None:
    assert meets(record(tpot_ms=None), OBJECTIVES)
    assert not meets(failed(), OBJECTIVES)


def test_what_is_summarised_is_what_the_table_of_observables_promises() -> None:
    found = summarise_batch(Batch((record(),), 1.0, 0.0), OBJECTIVES, devices=1)
    assert found.keys() == (CLIENT | CONTEXT).keys() - {"machine_cpu_pct"}


@pytest.mark.parametrize(("values", "share", "expected"), [([1, 2, 3], 50, 2), ([7], 95, 7), (range(101), 95, 95)])
def test_percentiles_lie_between_the_nearest_ranks(values: list[float], share: int, expected: float) -> None:
    assert percentile(list(values), share).value == pytest.approx(expected)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch((record(),), 1.0, 0.0, (1.0, 2.0)), None),
        (Batch((record(send_lag_ms=90),), 1.0, 0.0), "send_lag_p95_ms"),
        (Batch((record(),), 1.0, 0.0, (90.0,) * 20), "loop_lag_p95_ms"),
    ],
    ids=["in time", "sends late", "sees answers late"],
)
def test_a_client_is_late_when_it_sends_late_or_looks_late(batch: Batch, said: str | None) -> None:
    why = late_client(summarise_batch(batch, OBJECTIVES, devices=1), greatest_lag_ms=50)
    assert (why is None) if said is None else (why is not None and said in why)


def test_what_nobody_counted_of_prompts_is_unknown_and_not_zero() -> None:
    found = summarise_batch(Batch((record(prompt_tokens=None), record()), 1.0, 0.0), OBJECTIVES, devices=1)
    assert found["prompt_tokens"].value is None
    assert "1 requests" in (found["prompt_tokens"].reason or "")


@pytest.mark.parametrize("cached", [11, -1])
def test_one_request_that_cannot_have_found_so_much_leaves_the_block_without_cached_tokens(cached: int) -> None:
    odd = Batch((record(cached_tokens=10), record(cached_tokens=cached)), 1.0, 0.0)
    found = summarise_batch(odd, OBJECTIVES, devices=1)["cached_tokens"]
    assert found.value is None
    assert f"of 10 prompt tokens reported {cached} as cached" in (found.reason or "")
    whole = summarise_batch(Batch((record(cached_tokens=10),), 1.0, 0.0), OBJECTIVES, devices=1)
    assert whole["cached_tokens"].value == 10
