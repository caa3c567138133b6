"""What a client sees of a server: answers, failures, requests that were given up, and its own lateness."""

import asyncio
import json
import time
from pathlib import Path

import httpx
import pytest
from fake_engine import FakeEngine, listening
from pydantic import ValidationError
from traffic_examples import CLOSED, IMAGES, POISSON, traffic

from serving import traffic as sending
from serving.endings import EngineEnded
from serving.errors import BadInput, Broken
from serving.jsonl import read_jsonl, write_jsonl
from serving.request_record import RequestRecord
from serving.requests import plan_requests
from serving.scenario import Arrivals
from serving.sources import Classes, RandomLengths, RequestClass, Span
from serving.traffic import send


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


def test_traffic_stops_as_soon_as_a_process_of_the_server_has_ended() -> None:
    gone = EngineEnded("`decode` was ended from outside, by SIGKILL", "see its log", "decode")
    with listening(FakeEngine(hang=True)) as engine, pytest.raises(EngineEnded, match="`decode`"):
        send(engine.base_url, traffic(), 0, ended=lambda: gone if engine.seen else None)


def test_a_request_that_failed_a_moment_before_its_server_was_known_to_have_ended_is_no_record() -> None:
    gone, looks = EngineEnded("`decode` ended with status 1", "see its log", "decode"), list[None]()

    def ended() -> EngineEnded | None:
        looks.append(None)
        return gone if len(looks) > 3 else None

    with listening(FakeEngine(fail_every=1)) as engine, pytest.raises(EngineEnded, match="`decode`"):
        send(engine.base_url, traffic(), 0, ended=ended)


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


def test_a_picture_is_answered_through_the_chat_endpoint_and_the_server_counts_its_prompt() -> None:
    with listening(FakeEngine()) as engine:
        batch = send(engine.base_url, traffic(source=IMAGES), 0)
    assert set(engine.paths) == {"/v1/chat/completions"}
    assert [(r.error, r.prompt_tokens, r.output_tokens, len(r.itl_ms)) for r in batch.records] == [(None, 31, 3, 2)] * 2


def test_a_stream_that_is_cut_is_a_failure() -> None:
    with listening(FakeEngine(cut_after=1)) as engine:
        batch = send(engine.base_url, traffic(), 0)
    cut = [r for r in batch.records if r.class_name == "chat"]
    assert all("ended early, after 1 of" in (r.error or "") and r.output_tokens == 1 for r in cut)
    assert all(r.completed for r in batch.records if r.class_name == "document")


@pytest.mark.parametrize("says", ["data: {nonsense", 'data: {"error": {"message": "no memory"}}'])
def test_words_that_are_no_answer_are_a_failure_and_no_traceback(says: str) -> None:
    with listening(FakeEngine(says=(says,))) as engine:
        batch = send(engine.base_url, traffic(), 0)
    assert all("none of SGLang's" in (r.error or "") or "no memory" in (r.error or "") for r in batch.records)


def told(**meta: object) -> str:
    return f"data: {json.dumps({'meta_info': meta})}"


@pytest.mark.parametrize(
    "says",
    [
        'data: {"meta_info": {"completion_tokens": Infinity}}',
        told(completion_tokens=-3),
        told(completion_tokens=True),
        told(completion_tokens="3"),
        told(completion_tokens=10**30),
        told(completion_tokens=1, cached_tokens="many"),
        told(completion_tokens=1, cached_tokens=-5),
        told(completion_tokens=1, prompt_tokens=[1]),
        f"data: {'[' * 100_000}",
        'data: {"choices": [], "usage": {"completion_tokens": 1e400}}',
    ],
    ids=lambda says: says[:60],
)
@pytest.mark.parametrize("source", ["tokens", "pictures"])
def test_counts_that_are_none_are_a_failure_and_end_no_run(says: str, source: str) -> None:
    changes = {"source": IMAGES} if source == "pictures" else {}
    with listening(FakeEngine(says=(says, "data: [DONE]"))) as engine:
        batch = send(engine.base_url, traffic(**changes), 0)
    assert all("none of SGLang's" in (r.error or "") for r in batch.records)


def test_what_a_server_says_of_a_fault_can_be_printed_and_written_down(tmp_path: Path) -> None:
    aborted = told(completion_tokens=1, finish_reason={"type": "abort", "message": "\ud800\x1b[31mred"})
    with listening(FakeEngine(says=(aborted,))) as engine:
        batch = send(engine.base_url, traffic(), 0)
    write_jsonl(tmp_path / "r.jsonl", batch.records)
    assert {r.error for r in batch.records} == {"the server aborted it: ??[31mred"}


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0c"])
def test_text_with_what_else_ends_a_line_is_no_failure(end: str) -> None:
    event = json.dumps({"text": f"a{end}b", "meta_info": {"completion_tokens": 1}}, ensure_ascii=end == "\x0c")
    one = Classes(
        kind="classes",
        classes={"c": RequestClass(requests=2, prompt_tokens=Span(low=3, high=3), output_tokens=Span(low=1, high=1))},
    )
    with listening(FakeEngine(says=(f"data: {event}", "data: [DONE]"))) as engine:
        batch = send(engine.base_url, traffic(source=one), 0)
    assert [r.error for r in batch.records] == [None, None]


def test_a_line_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heard(content: bytes) -> list[str]:
        return [line async for line in sending._lines(httpx.Response(200, content=content))]

    monkeypatch.setattr("serving.traffic.LONGEST_LINE", 1000)
    assert asyncio.run(heard(b"x" * 999 + b"\n\ny")) == ["x" * 999, "", "y"]
    with pytest.raises(httpx.DecodingError, match="more than 1000 bytes"):
        asyncio.run(heard(b"x" * 1001))


def test_a_request_that_is_not_answered_in_time_is_a_failure() -> None:
    with listening(FakeEngine(hang=True)) as engine:
        batch = send(engine.base_url, traffic(POISSON, request_timeout_s=0.2), 0)
    assert {r.error for r in batch.records} == {"no whole answer within 0.2 s"}


@pytest.mark.parametrize(("arrivals", "open_ones"), [(CLOSED, 2), (POISSON, 6)])
def test_what_is_open_at_the_time_limit_of_a_block_is_cancelled_and_no_failure(
    arrivals: Arrivals, open_ones: int
) -> None:
    with listening(FakeEngine(hang=True)) as engine:
        batch = send(engine.base_url, traffic(arrivals, block_limit_s=1.0), 0)
    assert len(batch.records) == 6
    assert all(r.error is None and r.cancelled is not None and not r.completed for r in batch.records)
    sent = [r for r in batch.records if r.sent_s is not None]
    assert len(sent) == open_ones == len(engine.seen)
    assert all("not sent" in (r.cancelled or "") and r.send_lag_ms is None for r in batch.records if r.sent_s is None)


def test_what_is_due_after_the_time_limit_is_not_waited_for() -> None:
    slowly = Arrivals(kind="poisson", rate_per_s=0.01)
    with listening(FakeEngine()) as engine:
        batch = send(engine.base_url, traffic(slowly, block_limit_s=3.0), 0)
    assert sum(r.completed for r in batch.records) == 1
    assert sum(r.cancelled is not None for r in batch.records) == 5
    assert batch.wall_s < 50


def test_a_client_that_is_kept_from_its_work_reports_how_late_it_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else in the process holds the event loop for 0.3 s while the first requests are due."""

    async def busy(lags: list[float]) -> None:
        time.sleep(0.3)
        await watch(lags)

    watch = sending._watch
    many = RandomLengths(kind="random", requests=60, prompt_tokens=9, output_tokens=2, range_ratio=1)
    with listening(FakeEngine()) as engine:
        monkeypatch.setattr(sending, "_watch", busy)
        late = send(engine.base_url, traffic(POISSON, source=many), 0)
    assert max(r.send_lag_ms or 0 for r in late.records) > 200


def test_the_event_loop_is_watched_whichever_way_requests_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    hear = sending.Answer.hear

    def slowly(answer: sending.Answer, line: str, now_s: float) -> None:
        time.sleep(0.03)
        hear(answer, line, now_s)

    monkeypatch.setattr(sending.Answer, "hear", slowly)
    for arrivals in (CLOSED, POISSON):
        with listening(FakeEngine(gap_s=0.01)) as engine:
            batch = send(engine.base_url, traffic(arrivals), 0)
        assert max(batch.loop_lags_ms) > 15


def test_the_prefix_cache_is_flushed_before_the_block_where_the_scenario_says_so() -> None:
    with listening(FakeEngine()) as engine:
        send(engine.base_url, traffic(), 0)
        assert not [path for path in engine.paths if path.startswith("/flush_cache")]
        engine.paths.clear()
        send(engine.base_url, traffic(prefix_cache="flushed"), 0)
    assert [path.startswith("/flush_cache") for path in engine.paths] == [True] + [False] * 6


def test_a_prefix_cache_that_cannot_be_flushed_is_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.traffic.FLUSH_WITHIN_S", 0.3)
    with listening(FakeEngine(flushes=False)) as engine, pytest.raises(Broken, match="was not flushed: status 400"):
        send(engine.base_url, traffic(prefix_cache="flushed"), 0)
    assert engine.seen == []
    assert set(engine.paths) == {"/flush_cache"}


def test_an_api_key_goes_with_every_request_and_into_no_record() -> None:
    with listening(FakeEngine(fail_every=2)) as engine:
        batch = send(engine.base_url, traffic(prefix_cache="flushed"), 0, api_key="k-secret")
    assert all("authorization: Bearer k-secret" in head for head in engine.heads)
    assert "k-secret" not in "".join(record.model_dump_json() for record in batch.records)


def test_records_go_to_a_file_one_a_line_and_come_back(tmp_path: Path) -> None:
    record = RequestRecord(
        id="0-0", class_name="chat", sent_s=0, send_lag_ms=0, prompt_tokens=3, output_tokens=2, ttft_ms=1
    )
    write_jsonl(tmp_path / "r.jsonl", [record, record])
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 2
    assert read_jsonl(tmp_path / "r.jsonl", RequestRecord) == (record, record)


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("{}\n")
    with pytest.raises(BadInput, match="line 1"):
        read_jsonl(tmp_path / "r.jsonl", RequestRecord)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttft_ms": -1.0},
        {"ttft_ms": 20.0, "e2e_ms": 10.0},
        {"ttft_ms": 1.0, "itl_ms": (-0.5,)},
        {"ttft_ms": None},
        {"error": "status 500"},
        {"ttft_ms": None, "e2e_ms": None, "error": "status 500", "cancelled": "time limit"},
        {"sent_s": None},
    ],
    ids=[
        "before it was sent",
        "first after last",
        "gap below zero",
        "no first token",
        "failed with times",
        "two ends",
        "never sent",
    ],
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
