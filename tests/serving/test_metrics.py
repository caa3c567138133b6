"""Two scrapes of a server and what happened between them."""

import httpx
import pytest

from serving.errors import Broken
from serving.metrics import disagreement, gained, histogram, parse, resolved_arguments, scrape, summed
from serving.request_record import RequestRecord


def exposition(requests: int, queue_s: float, prefill_s: float, ttft_s: float, e2e_s: float) -> str:
    """As SGLang 0.5.23 writes it, with `requests` answered; times are sums."""
    common = 'engine_type="unified",model_name="m"'
    return "\n".join(
        [
            "# TYPE sglang:queue_time_seconds histogram",
            f'sglang:queue_time_seconds_bucket{{{common},le="+Inf"}} {requests}',
            f"sglang:queue_time_seconds_sum{{{common}}} {queue_s}",
            f"sglang:queue_time_seconds_count{{{common}}} {requests}",
            "# TYPE sglang:per_stage_req_latency_seconds histogram",
            f'sglang:per_stage_req_latency_seconds_sum{{{common},stage="prefill_forward"}} {prefill_s}',
            f'sglang:per_stage_req_latency_seconds_count{{{common},stage="prefill_forward"}} {requests}',
            f'sglang:per_stage_req_latency_seconds_sum{{{common},stage="request_process"}} 99.0',
            f'sglang:per_stage_req_latency_seconds_count{{{common},stage="request_process"}} {requests}',
            "# TYPE sglang:time_to_first_token_seconds histogram",
            f'sglang:time_to_first_token_seconds_sum{{{common},is_streaming="true"}} {ttft_s}',
            f'sglang:time_to_first_token_seconds_count{{{common},is_streaming="true"}} {requests}',
            'sglang:time_to_first_token_seconds_sum{model_name="m",is_streaming="false"} 5.0',
            'sglang:time_to_first_token_seconds_count{model_name="m",is_streaming="false"} 1.0',
            "# TYPE sglang:e2e_request_latency_seconds histogram",
            f"sglang:e2e_request_latency_seconds_sum{{{common}}} {e2e_s}",
            f"sglang:e2e_request_latency_seconds_count{{{common}}} {requests}",
            "# TYPE sglang:num_requests_total counter",
            f"sglang:num_requests_total{{{common}}} {requests}",
            "# TYPE sglang:prompt_tokens_total counter",
            f"sglang:prompt_tokens_total{{{common}}} {10 * requests}",
            "# TYPE sglang:generation_tokens_total counter",
            f"sglang:generation_tokens_total{{{common}}} {3 * requests}",
            "",
        ]
    )


BEFORE = parse(exposition(10, 1.0, 2.0, 4.0, 8.0))
AFTER = parse(exposition(14, 1.2, 2.8, 5.6, 12.0))


def records(count: int, **other: object) -> tuple[RequestRecord, ...]:
    times = {"ttft_ms": 1.0, "e2e_ms": 2.0}
    one = RequestRecord(id="x", class_name="chat", sent_s=0, send_lag_ms=0, prompt_tokens=10, output_tokens=3, **times)
    return tuple(one.model_copy(update=other) for _ in range(count))


def test_a_counter_that_is_not_there_is_unknown_and_no_zero() -> None:
    assert gained(BEFORE, AFTER, "sglang:nothing") is None


def test_replicas_of_a_role_count_together() -> None:
    both = summed([BEFORE, AFTER])
    assert gained(BEFORE, both, "sglang:num_requests_total") == 14


def test_a_histogram_is_summed_over_labels_and_can_be_narrowed_to_one() -> None:
    stage = histogram(BEFORE, AFTER, "sglang:per_stage_req_latency_seconds", stage="prefill_forward")
    both = histogram(BEFORE, AFTER, "sglang:per_stage_req_latency_seconds")
    assert stage is not None
    assert both is not None
    assert (stage.count, both.count) == (4, 8)


def test_server_and_client_agree_on_the_work_or_the_difference_is_named() -> None:
    assert disagreement(BEFORE, AFTER, records(4)) is None
    assert "4 requests, the client 3" in (disagreement(BEFORE, AFTER, records(3)) or "")
    assert "12 output tokens, the client 8" in (disagreement(BEFORE, AFTER, records(4, output_tokens=2)) or "")
    assert "failed" in (disagreement(BEFORE, AFTER, records(4, error="status 500")) or "")


@pytest.mark.parametrize("text", ["<html>no</html>", "a{b", "sglang:x one", "{"])
def test_what_is_no_metrics_or_no_json_is_broken_and_no_traceback(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = httpx.Request("GET", "http://127.0.0.1:1")
    monkeypatch.setattr("serving.metrics.httpx.get", lambda *_, **__: httpx.Response(200, text=text, request=asked))
    for ask in (scrape, resolved_arguments):
        with pytest.raises(Broken, match=r"no metrics|no JSON"):
            ask("http://127.0.0.1:1")
