"""A block of traffic under the names that SGLang's `bench_serving` writes, so that what reads its files reads ours.

Differences: a gap of the stream is one `itl` even if it brought several tokens; `tpot` ends at the last token, not at the
end of the HTTP answer; what was not measured is null. A key that `bench_serving` does not have says what was not completed.
"""

import statistics
from collections.abc import Iterator, Sequence

from serving.request_record import Batch, RequestRecord
from serving.scenario import Objectives, Traffic
from serving.sources import Images, RandomLengths
from serving.summary import meets, miscounts, percentile

DATASETS = {"trace": "mooncake", "random": "random-ids", "images": "image", "prompts": "custom", "classes": "classes"}
Summary = dict[str, object]


def bench_summary(batch: Batch, traffic: Traffic, objectives: Objectives) -> Summary:
    """One flat object; lengths in tokens, rates per s of wall time, times in ms as the names say, `duration` in s."""
    good = [r for r in batch.records if r.completed]
    tokens_in = sum(r.prompt_tokens or 0 for r in good)
    tokens_out = sum(r.output_tokens for r in good)
    return {
        **_asked(traffic),
        "duration": batch.wall_s,
        "completed": len(good),
        "failed": sum(r.error is not None for r in batch.records),
        "cancelled": sum(r.cancelled is not None for r in batch.records),
        "total_input_tokens": tokens_in,
        "total_input_text_tokens": None if isinstance(traffic.source, Images) else tokens_in,
        "total_input_vision_tokens": None if isinstance(traffic.source, Images) else 0,
        "total_output_tokens": tokens_out,
        "total_output_tokens_retokenized": None,
        "request_throughput": len(good) / batch.wall_s,
        "input_throughput": tokens_in / batch.wall_s,
        "output_throughput": tokens_out / batch.wall_s,
        "total_throughput": (tokens_in + tokens_out) / batch.wall_s,
        **_spread("e2e_latency", [r.e2e_ms for r in good if r.e2e_ms is not None]),
        **_spread("ttft", [r.ttft_ms for r in good if r.ttft_ms is not None]),
        **_spread("tpot", [r.tpot_ms for r in good if r.tpot_ms is not None]),
        **_spread("itl", [gap for r in good for gap in r.itl_ms]),
        "concurrency": sum(r.e2e_ms or 0.0 for r in good) / 1e3 / batch.wall_s,
        "accept_length": None,
        "max_output_tokens_per_s": _most_in_a_second(s for r in good for s in _event_times_s(r)),
        "max_concurrent_requests": _most_in_a_second(s for r in good for s in _open_seconds(r)),
        **_goodput(batch, objectives),
        "cache_report": _cache_report(good),
    }


def _asked(traffic: Traffic) -> Summary:
    source, arrivals = traffic.source, traffic.arrivals
    drawn = source if isinstance(source, RandomLengths) else None
    return {
        "tag": None,
        "backend": "sglang-oai-chat" if isinstance(source, Images) else "sglang",
        "dataset_name": DATASETS[source.kind],
        "request_rate": "trace" if arrivals.kind == "trace" else arrivals.rate_per_s,
        "max_concurrency": arrivals.concurrency,
        "sharegpt_output_len": None,
        "random_input_len": drawn and drawn.prompt_tokens,
        "random_output_len": drawn and drawn.output_tokens,
        "random_range_ratio": drawn and drawn.range_ratio,
        "server_info": None,
    }


def _spread(name: str, values: Sequence[float]) -> Summary:
    found: Summary = {
        f"mean_{name}_ms": statistics.fmean(values) if values else None,
        f"median_{name}_ms": statistics.median(values) if values else None,
        f"std_{name}_ms": statistics.pstdev(values) if values else None,
    }
    return found | {f"p{share}_{name}_ms": percentile(values, share).value for share in (90, 95, 99)}


def _event_times_s(record: RequestRecord) -> Iterator[float]:
    """Since the block began, one for each event of the stream."""
    now = (record.sent_s or 0.0) + (record.ttft_ms or 0.0) / 1e3
    yield now
    for gap in record.itl_ms:
        now += gap / 1e3
        yield now


def _open_seconds(record: RequestRecord) -> range:
    begun = record.sent_s or 0.0
    return range(int(begun), int(begun + (record.e2e_ms or 0.0) / 1e3) + 1)


def _most_in_a_second(times_s: Iterator[float]) -> int:
    counts: dict[int, int] = {}
    for time_s in times_s:
        counts[int(time_s)] = counts.get(int(time_s), 0) + 1
    return max(counts.values(), default=0)


def _goodput(batch: Batch, objectives: Objectives) -> Summary:
    good, sent = sum(meets(r, objectives) for r in batch.records), len(batch.records)
    within = {
        "ttft": sum(r.ttft_ms is not None and r.ttft_ms <= objectives.ttft_ms for r in batch.records),
        "tpot": sum(r.completed and (r.tpot_ms or 0.0) <= objectives.tpot_ms for r in batch.records),
    }
    return {
        "goodput_slos_ms": {"ttft": objectives.ttft_ms, "tpot": objectives.tpot_ms},
        "request_goodput": good / batch.wall_s,
        "slo_attainment": good / sent if sent else None,
        "slo_attainment_by_metric": {name: count / sent if sent else None for name, count in within.items()},
    }


def _cache_report(good: Sequence[RequestRecord]) -> Summary:
    told = [r for r in good if r.cached_tokens is not None and r.prompt_tokens is not None]
    prompts, cached = sum(r.prompt_tokens or 0 for r in told), sum(r.cached_tokens or 0 for r in told)
    return {
        "total_prompt_tokens": prompts if told else None,
        "total_cached_tokens": cached if told else None,
        "cache_hit_rate_pct": 100 * cached / prompts if prompts and not any(map(miscounts, told)) else None,
    }
