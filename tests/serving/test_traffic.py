"""What a client sees of a server, and that the same plan gives the same requests."""

from pathlib import Path

import pytest
from fake_engine import FakeEngine, listening
from pydantic import ValidationError

from serving.scenario import Arrivals, RequestClass, Span, Traffic
from serving.traffic import RequestRecord, arrival_times_s, plan_requests, send, write_jsonl

CLOSED = Arrivals(kind="closed", concurrency=2)
POISSON = Arrivals(kind="poisson", rate_per_s=200.0)


def traffic(arrivals: Arrivals = CLOSED) -> Traffic:
    classes = {
        "chat": RequestClass(requests=4, prompt_tokens=Span(low=3, high=9), output_tokens=Span(low=2, high=5)),
        "document": RequestClass(requests=2, prompt_tokens=Span(low=40, high=50), output_tokens=Span(low=1, high=1)),
    }
    return Traffic(
        seed=7,
        pairs=2,
        noise_pairs=4,
        warmup_blocks=1,
        arrivals=arrivals,
        token_ids=Span(low=300, high=400),
        classes=classes,
        request_timeout_s=10,
    )


def test_the_same_block_is_the_same_requests_and_another_block_is_not() -> None:
    assert plan_requests(traffic(), 3) == plan_requests(traffic(), 3)
    assert plan_requests(traffic(), 3) != plan_requests(traffic(), 4)


def test_no_two_prompts_of_a_run_share_their_first_two_tokens() -> None:
    heads = [r.input_ids[:2] for block in range(50) for r in plan_requests(traffic(), block)]
    assert len(set(heads)) == len(heads)


def test_every_block_has_the_same_mix_and_lengths_within_their_spans() -> None:
    for block in range(20):
        planned = plan_requests(traffic(), block)
        assert sorted(r.class_name for r in planned) == ["chat"] * 4 + ["document"] * 2
        for r in planned:
            spec = traffic().classes[r.class_name]
            assert spec.prompt_tokens.low <= len(r.input_ids) <= spec.prompt_tokens.high
            assert spec.output_tokens.low <= r.output_tokens <= spec.output_tokens.high
            assert all(300 <= token <= 400 for token in r.input_ids)


@pytest.mark.parametrize("arrivals", [CLOSED, POISSON])
def test_each_request_is_sent_once_and_its_tokens_are_counted(arrivals: Arrivals) -> None:
    with listening(FakeEngine()) as engine:
        batch = send(engine.base_url, traffic(arrivals), 0)
    planned = {r.id: r for r in plan_requests(traffic(arrivals), 0)}
    assert {r.id for r in batch.records} == planned.keys()
    assert sorted(tuple(body["input_ids"]) for body in engine.seen) == sorted(r.input_ids for r in planned.values())
    for record in batch.records:
        assert record.error is None
        assert record.output_tokens == planned[record.id].output_tokens
        assert len(record.itl_ms) == record.output_tokens - 1
        assert (record.tpot_ms is None) == (record.output_tokens == 1)
        assert record.ttft_ms is not None
        assert record.e2e_ms is not None
        assert 0 < record.ttft_ms <= record.e2e_ms
        assert record.cached_tokens == 0


def test_a_closed_loop_never_has_more_requests_open_than_clients() -> None:
    with listening(FakeEngine()) as engine:
        send(engine.base_url, traffic(), 0)
    assert engine.most_at_once == 2


def test_a_refused_request_is_a_record_with_its_error_and_no_times() -> None:
    with listening(FakeEngine(fail_every=3)) as engine:
        batch = send(engine.base_url, traffic(), 0)
    failed = [r for r in batch.records if r.error is not None]
    assert len(failed) == 2
    assert all("500" in (r.error or "") and r.ttft_ms is None and not r.itl_ms for r in failed)


def test_an_answer_that_is_too_short_is_a_failure() -> None:
    with listening(FakeEngine(short_by=1)) as engine:
        batch = send(engine.base_url, traffic(), 0)
    assert all("tokens instead of" in (r.error or "") for r in batch.records)


def test_a_server_that_is_gone_fails_every_request_and_raises_nothing() -> None:
    with listening(FakeEngine()) as engine:
        pass
    batch = send(engine.base_url, traffic(), 0)
    assert all("ConnectError" in (r.error or "") for r in batch.records)


def test_poisson_arrivals_are_seeded_and_start_at_once() -> None:
    assert arrival_times_s(POISSON, 5, 1) == arrival_times_s(POISSON, 5, 1) != arrival_times_s(POISSON, 5, 2)
    times = arrival_times_s(POISSON, 2000, 1)
    assert times[0] == 0.0
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx(10.0, rel=0.2)


def test_records_go_to_a_file_one_a_line_and_come_back(tmp_path: Path) -> None:
    record = RequestRecord(
        id="0-0", class_name="chat", sent_s=0, send_lag_ms=0, prompt_tokens=3, output_tokens=2, ttft_ms=1
    )
    write_jsonl(tmp_path / "r.jsonl", [record, record])
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert [RequestRecord.model_validate_json(line) for line in lines] == [record, record]


@pytest.mark.parametrize(
    "wrong",
    [{"ttft_ms": -1.0}, {"ttft_ms": 20.0, "e2e_ms": 10.0}, {"ttft_ms": 1.0, "itl_ms": (-0.5,)}, {"ttft_ms": None}],
    ids=["before it was sent", "first after last", "gap below zero", "no first token"],
)
def test_times_that_contradict_each_other_are_no_record(wrong: dict[str, object]) -> None:
    fields = {
        "id": "0-0",
        "class_name": "chat",
        "sent_s": 0.0,
        "send_lag_ms": 0.0,
        "prompt_tokens": 4,
        "output_tokens": 4,
    }
    RequestRecord.model_validate(fields | {"ttft_ms": 1.0, "e2e_ms": 2.0})
    with pytest.raises(ValidationError):
        RequestRecord.model_validate(fields | {"ttft_ms": 1.0, "e2e_ms": 2.0} | wrong)
