"""The servers' own account: two scrapes of `/metrics`, and what grew between them. What it says of layers is in layers.py."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from serving.errors import Broken
from serving.request_record import RequestRecord

TIMEOUT_S = 30.0
MS_PER_S = 1e3


@dataclass(frozen=True)
class Scrape:
    """Samples by metric name and labels, as the server exposed them; `text` is the answer itself."""

    text: str
    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True)
class Histogram:
    """What a histogram gained between two scrapes; `total` in the unit of the metric."""

    count: float
    total: float


def scrape(base_url: str) -> Scrape:
    """Raises Broken when the server does not answer with metrics."""
    text = _get(base_url, "/metrics").text
    try:
        return parse(text)
    except (ValueError, LookupError) as error:  # whatever the parser makes of text that is none
        hint = "is this an SGLang server with `enable-metrics: true`?"
        raise Broken(f"`{base_url}/metrics` are no metrics: {str(error)[:100]}", hint) from error


def parse(text: str) -> Scrape:
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name, frozenset(sample.labels.items())] = sample.value
    return Scrape(text, samples)


def summed(scrapes: Sequence[Scrape]) -> Scrape:
    """Replicas of one role as if they were one server; of gauges that is the sum, too."""
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for one in scrapes:
        for key, value in one.samples.items():
            samples[key] = samples.get(key, 0.0) + value
    return Scrape("\n".join(one.text for one in scrapes), samples)


def gained(before: Scrape, after: Scrape, name: str, **labels: str) -> float | None:
    """Growth of a counter, summed over all label sets that contain `labels`; None if the metric is not there."""
    wanted = labels.items()
    found = [
        value - before.samples.get((sample, have), 0.0)
        for (sample, have), value in after.samples.items()
        if sample == name and wanted <= dict(have).items()
    ]
    return sum(found) if found else None


def histogram(before: Scrape, after: Scrape, name: str, **labels: str) -> Histogram | None:
    count = gained(before, after, f"{name}_count", **labels)
    total = gained(before, after, f"{name}_sum", **labels)
    return None if count is None or total is None else Histogram(count, total)


def disagreement(before: Scrape, after: Scrape, records: tuple[RequestRecord, ...]) -> str | None:
    """How the server's count of work differs from the client's, or None. Requests that were not completed leave it open."""
    if not all(record.completed for record in records):
        return "requests failed or were cancelled, so the server's and the client's counts cannot be compared"
    for what, name, ours in (
        ("requests", "sglang:num_requests_total", len(records)),
        ("prompt tokens", "sglang:prompt_tokens_total", sum(r.prompt_tokens or 0 for r in records)),
        ("output tokens", "sglang:generation_tokens_total", sum(r.output_tokens for r in records)),
    ):
        theirs = gained(before, after, name)
        if theirs != ours:
            return f"the server counted {'no' if theirs is None else f'{theirs:.0f}'} {what}, the client {ours}"
    return None


def resolved_arguments(base_url: str) -> dict[str, object]:
    """The arguments that the running server works with, by name with underscores. Raises Broken without an answer."""
    try:
        answer = _get(base_url, "/server_info").json()
    except (ValueError, RecursionError) as error:
        raise Broken(f"`{base_url}/server_info` is no JSON", "is this an SGLang server?") from error
    if not isinstance(answer, dict):
        raise Broken(f"`{base_url}/server_info` is not an object", "is this an SGLang server?")
    return answer


def _get(base_url: str, path: str) -> httpx.Response:
    try:
        return httpx.get(base_url + path, timeout=TIMEOUT_S, trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        hint = "see the server's log; `/metrics` needs `enable-metrics: true` in the stack"
        raise Broken(f"`{base_url}{path}`: {type(error).__name__}: {error}", hint) from error
