"""From request records to numbers: failures are counted and averaged into nothing."""

import pytest

from serving.observables import CLIENT, CONTEXT
from serving.scenario import Objectives
from serving.summary import meets, percentile, summarise, summarise_batch
from serving.traffic import Batch, RequestRecord

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


def test_a_failed_request_enters_no_average() -> None:
    alone, beside = summarise([record()]), summarise([record(), failed()])
    assert {k: v for k, v in alone.items() if k != "failed_pct"} == {
        k: v for k, v in beside.items() if k != "failed_pct"
    }
    assert beside["failed_pct"].value == 50


def test_the_longest_gap_is_averaged_over_requests() -> None:
    assert summarise([record(gaps=(1, 9)), record(gaps=(3, 2))])["itl_max_ms"].value == 6


def test_without_requests_every_value_is_unknown_with_a_reason() -> None:
    assert all(m.value is None and m.reason for m in summarise([]).values())


def test_goodput_counts_only_requests_within_both_objectives() -> None:
    records = (record(), record(ttft_ms=101), record(tpot_ms=11), failed())
    found = summarise_batch(Batch(records, 2.0, 12.0), OBJECTIVES)
    assert found["goodput_per_s"].value == 0.5
    assert found["requests_per_s"].value == 1.5
    assert found["output_tokens_per_s"].value == 4.5
    assert found["client_cpu_pct"].value == 12


def test_a_single_token_has_no_tpot_to_miss() -> None:
    assert meets(record(tpot_ms=None), OBJECTIVES)
    assert not meets(failed(), OBJECTIVES)


def test_what_is_summarised_is_what_the_table_of_observables_promises() -> None:
    found = summarise_batch(Batch((record(),), 1.0, 0.0), OBJECTIVES)
    assert found.keys() == (CLIENT | CONTEXT).keys() - {"machine_cpu_pct"}


@pytest.mark.parametrize(("values", "share", "expected"), [([1, 2, 3], 50, 2), ([7], 95, 7), (range(101), 95, 95)])
def test_percentiles_lie_between_the_nearest_ranks(values: list[float], share: int, expected: float) -> None:
    assert percentile(list(values), share).value == pytest.approx(expected)
