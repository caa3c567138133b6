"""What the processes of a running deployment look like from outside, before and after a block: metrics, CPU, memory."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

import psutil

from serving.errors import Broken
from serving.launch import Part, Server
from serving.layers import Span, Window
from serving.metrics import Scrape, gained, scrape, summed
from serving.roles import Role
from serving.summary import Measured

SETTLE_S, POLL_S = 2.0, 0.05
DONE, ACCEPTED = "sglang:num_requests_total", "sglang:spec_accept_length"
LANGUAGE: frozenset[Role] = frozenset({"server", "prefill", "decode"})
NOT_SCRAPED: tuple[Role, ...] = ("router",)  # its duration ends at the first byte; serving/layers.py measures around it


@dataclass(frozen=True)
class Use:
    """Of the processes of one part: CPU time so far, resident memory now (shared pages counted in each), threads now."""

    cpu_s: float
    rss_bytes: int
    threads: int


@dataclass(frozen=True)
class Look:
    """At one moment, by name of the part. `scrapes`: metrics, or why there are none."""

    scrapes: Mapping[str, Scrape | str]
    uses: Mapping[str, Use]


def look_at(server: Server) -> Look:
    """Raises Broken when what answers the clients does not tell its metrics."""
    return Look(
        {part.name: _scrape(part) for part in server.parts},
        {part.name: use_of(part.process.alive()) for part in server.parts},
    )


def look_again(server: Server, before: Look, requests: int) -> Look:
    """Once every language server has counted the `requests` since, or will not: prefill learns of an end after the client."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        after = look_at(server)
        if all(_counted(server, before, after, role) >= requests for role in LANGUAGE & {p.role for p in server.parts}):
            return after
        if time.monotonic() > deadline:
            return after
        time.sleep(POLL_S)


def _counted(server: Server, before: Look, after: Look, role: Role) -> float:
    span = window(server, before, after)[role]
    return 0.0 if span.before is None or span.after is None else gained(span.before, span.after, DONE) or 0.0


def window(server: Server, before: Look, after: Look) -> Window:
    """By role, its replicas together."""
    parts: dict[Role, list[str]] = {}
    for part in server.parts:
        parts.setdefault(part.role, []).append(part.name)
    return {role: _span(names, before, after) for role, names in parts.items()}


def rates(server: Server, after: Look, seen: Mapping[str, Measured]) -> dict[str, Measured]:
    """Prompt tokens found in a cache, by the meta_info of the requests, and tokens a decode step, at the end of the block.

    `seen`: what the client saw (serving/summary.py).
    """
    cached, prompt = seen["cached_tokens"], seen["prompt_tokens"]
    lengths = [
        value
        for part in server.parts
        if part.role in ("server", "decode") and isinstance(found := after.scrapes[part.name], Scrape)
        for (name, _), value in found.samples.items()
        if name == ACCEPTED and value > 0
    ]
    return {
        "cache_hit_pct": _hits(cached, prompt),
        "accepted_tokens_per_step": Measured(fmean(lengths)) if lengths else Measured(None, "speculation is off"),
    }


def _hits(cached: Measured, prompt: Measured) -> Measured:
    """In %; None where the counts do not fit: no more than the whole prompt can be found."""
    if cached.value is None or not prompt.value:
        return cached if cached.value is None else Measured(None, prompt.reason or "no prompt tokens were counted")
    if not 0 <= cached.value <= prompt.value:
        return Measured(None, f"{cached.value:g} cached of {prompt.value:g} prompt tokens: the server miscounts")
    return Measured(100 * cached.value / prompt.value)


def uses(server: Server, before: Look, after: Look, wall_s: float) -> dict[Role, dict[str, Measured]]:
    """By role, summed over its replicas: CPU of the block in % of one core, memory and threads after it."""
    found: dict[Role, dict[str, Measured]] = {}
    for role in dict.fromkeys(part.role for part in server.parts):
        mine = [part.name for part in server.parts if part.role == role]
        cpu_s = sum(after.uses[name].cpu_s - before.uses[name].cpu_s for name in mine)
        found[role] = {
            "process_cpu_pct": Measured(100 * cpu_s / wall_s),
            "process_rss_gb": Measured(sum(after.uses[name].rss_bytes for name in mine) / 1e9),
            "process_threads": Measured(float(sum(after.uses[name].threads for name in mine))),
        }
    return found


def use_of(processes: Iterable[psutil.Process]) -> Use:
    """What has ended meanwhile does not count."""
    cpu_s, rss_bytes, threads = 0.0, 0, 0
    for process in processes:
        try:
            with process.oneshot():
                times, memory, count = process.cpu_times(), process.memory_info(), process.num_threads()
        except psutil.Error:
            continue
        cpu_s, rss_bytes, threads = cpu_s + times.user + times.system, rss_bytes + memory.rss, threads + count
    return Use(cpu_s, rss_bytes, threads)


def _scrape(part: Part) -> Scrape | str:
    if part.role in NOT_SCRAPED:
        return "is not asked for metrics"
    try:
        return scrape(part.url)
    except Broken as broken:
        if part.role in ("server", "decode"):
            raise
        return broken.message


def _span(names: list[str], before: Look, after: Look) -> Span:
    sides = [[look.scrapes[name] for name in names] for look in (before, after)]
    absent = next((found for side in sides for found in side if isinstance(found, str)), None)
    if absent is not None:
        return Span(absent=absent)
    old, new = (summed([found for found in side if isinstance(found, Scrape)]) for side in sides)
    return Span(old, new)


def texts(look: Look) -> Mapping[str, str]:
    """The answers themselves, by name of the part."""
    return {name: found.text for name, found in look.scrapes.items() if isinstance(found, Scrape)}
