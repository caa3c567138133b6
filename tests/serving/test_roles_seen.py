"""What the processes of a deployment show from outside: replicas together, and why one that shows nothing does not."""

import os
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from fake_engine import FakeEngine, listening

from serving.errors import Broken
from serving.launch import Part, Server
from serving.metrics import Scrape, gained
from serving.roles_seen import DONE, Look, look_again, look_at, rates, use_of, uses, window
from serving.summary import Measured


class Running:
    def alive(self) -> list[psutil.Process]:
        return [psutil.Process()]


def server(*parts: tuple[str, Any, str]) -> Server:
    made = tuple(Part(name, role, url, os.getpid(), Path("x.log"), cast(Any, Running())) for name, role, url in parts)
    return Server(
        "incumbent", made[0].url, 1, Path("x.log"), (), cast(Any, None), 1.0, cast(Any, None), cast(Any, None), made
    )


def test_replicas_of_a_role_are_one_span_and_what_a_role_does_not_tell_has_a_reason() -> None:
    first, second = FakeEngine(), FakeEngine()
    with listening(first), listening(second):
        stack = server(
            ("decode-0", "decode", first.base_url), ("decode-1", "decode", second.base_url), ("router", "router", "")
        )
        before = look_at(stack)
        first.counted["num_requests_total"], second.counted["num_requests_total"] = 2, 3
        seen = window(stack, before, look_again(stack, before, 5))
    span = seen["decode"]
    assert span.before is not None
    assert span.after is not None
    assert gained(span.before, span.after, DONE) == 5
    assert seen["router"].absent == "is not asked for metrics"


def test_a_role_without_metrics_is_a_reason_but_what_answers_clients_must_tell() -> None:
    nobody = "http://127.0.0.1:9"
    with listening(FakeEngine()) as engine:
        look = look_at(server(("decode", "decode", engine.base_url), ("encode", "encode", nobody)))
        assert "ConnectError" in str(look.scrapes["encode"])
    with pytest.raises(Broken, match="ConnectError"):
        look_at(server(("decode", "decode", nobody)))


def test_cpu_memory_and_threads_are_told_by_role() -> None:
    stack = server(("decode-0", "decode", ""), ("decode-1", "decode", ""))
    use = use_of([psutil.Process()])
    assert use.rss_bytes > 0
    looks = [Look({}, {part.name: use for part in stack.parts}) for _ in range(2)]
    told = uses(stack, *looks, wall_s=2.0)
    assert told["decode"]["process_cpu_pct"].value == 0.0
    assert told["decode"]["process_threads"].value == 2 * use.threads


def test_hits_come_from_the_requests_and_drafts_from_the_server_that_decodes() -> None:
    stack = server(("decode", "decode", ""))
    drafting = Scrape("", {("sglang:spec_accept_length", frozenset()): 2.5})
    seen = {"cached_tokens": Measured(25.0), "prompt_tokens": Measured(100.0)}
    assert {name: m.value for name, m in rates(stack, Look({"decode": drafting}, {}), seen).items()} == {
        "cache_hit_pct": 25.0,
        "accepted_tokens_per_step": 2.5,
    }
    unknown = {"cached_tokens": Measured(None, "not reported"), "prompt_tokens": Measured(100.0)}
    plain = rates(stack, Look({"decode": Scrape("", {})}, {}), unknown)
    assert plain["cache_hit_pct"].reason == "not reported"
    assert plain["accepted_tokens_per_step"].reason == "speculation is off"


@pytest.mark.parametrize(
    ("cached", "prompt", "said"),
    [
        (Measured(101.0), Measured(100.0), "101 cached of 100"),
        (Measured(-1.0), Measured(100.0), "-1 cached of 100"),
        (Measured(5.0), Measured(None, "no request came back"), "no request came back"),
        (Measured(0.0), Measured(0.0), "no prompt tokens"),
    ],
)
def test_a_rate_that_cannot_be_is_unknown_with_the_counts_that_do_not_fit(
    cached: Measured, prompt: Measured, said: str
) -> None:
    stack = server(("decode", "decode", ""))
    seen = {"cached_tokens": cached, "prompt_tokens": prompt}
    found = rates(stack, Look({"decode": Scrape("", {})}, {}), seen)["cache_hit_pct"]
    assert found.value is None
    assert said in (found.reason or "")
