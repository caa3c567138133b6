"""Which workers a router has shut out, by the metrics of sglang-router 0.3.2 as a running one wrote them."""

import os
from pathlib import Path
from typing import Any, cast

import pytest
from fake_engine import FakeEngine, listening

from serving.breakers import check_breakers, named, router_metrics, shut_out, shut_out_of
from serving.errors import Broken
from serving.launch import Part, Server
from serving.metrics import parse

# After ten failed requests of a pair whose prefill was gone.
TOLD = """# TYPE smg_worker_cb_transitions_total counter
smg_worker_cb_transitions_total{worker="http://127.0.0.1:49773",from="closed",to="open"} 1
smg_worker_cb_transitions_total{worker="http://127.0.0.1:60005",from="closed",to="open"} 1
# TYPE smg_worker_cb_state gauge
smg_worker_cb_state{worker="http://127.0.0.1:60005"} 1
smg_worker_cb_state{worker="http://127.0.0.1:49773"} 1

# TYPE smg_worker_health gauge
smg_worker_health{worker="http://127.0.0.1:49773"} 1
smg_worker_health{worker="http://127.0.0.1:60005"} 1

# TYPE smg_worker_cb_consecutive_failures gauge
smg_worker_cb_consecutive_failures{worker="http://127.0.0.1:49773"} 10
smg_worker_cb_consecutive_failures{worker="http://127.0.0.1:60005"} 10
"""
BOTH = ("http://127.0.0.1:49773", "http://127.0.0.1:60005")


@pytest.mark.parametrize(("state", "found"), [(1, BOTH), (0, ()), (2, ())])
def test_a_worker_is_shut_out_while_its_breaker_is_open_and_not_while_it_is_tried_again(
    state: int, found: tuple[str, ...]
) -> None:
    text = "".join(
        f"{line[:-1]}{state}\n" if line.startswith("smg_worker_cb_state") else f"{line}\n" for line in TOLD.splitlines()
    )
    assert shut_out(parse(text)) == found


def test_workers_have_the_names_of_their_roles_and_one_that_is_not_ours_keeps_its_url() -> None:
    names = {"http://127.0.0.1:60005": "prefill", "http://127.0.0.1:49773": "decode"}
    assert named(shut_out(parse(TOLD)), names) == ("prefill", "decode")
    assert named(["http://elsewhere:30000", "http://0.0.0.0:60005"], names) == ("prefill", "http://elsewhere:30000")


def test_a_router_without_a_port_for_metrics_tells_nothing() -> None:
    assert router_metrics("http://[::1]:31303", (31303, 31304)) == "http://[::1]:31304"
    assert router_metrics("http://127.0.0.1:31303", (31303,)) is None


class WithPorts:
    def __init__(self, *ports: int) -> None:
        self.ports = ports


def server(router: FakeEngine) -> Server:
    port = int(router.base_url.rpartition(":")[2])
    parts = tuple(
        Part(role, cast(Any, role), url, os.getpid(), Path(f"{role}.log"), cast(Any, WithPorts(port, port)))
        for role, url in (("prefill", BOTH[1]), ("decode", BOTH[0]), ("router", router.base_url))
    )
    nothing: Any = None
    return Server("incumbent", router.base_url, 1, Path("run/router.log"), (), nothing, 1.0, nothing, nothing, parts)


def test_a_stack_whose_router_has_shut_workers_out_is_broken_by_their_names() -> None:
    with listening(FakeEngine()) as router:
        assert shut_out_of(server(router)) == ()
        check_breakers([server(router)])
        router.breakers = dict.fromkeys(BOTH, 1)
        with pytest.raises(Broken, match="incumbent: the router sends nothing to `prefill` and `decode`"):
            check_breakers([server(router)])
