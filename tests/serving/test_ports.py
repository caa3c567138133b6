"""Ports are those of an address: every one of 127.0.0.0/8 is this machine's own, and another is another."""

import os
import socket
from collections.abc import Iterator

import pytest

from serving.errors import Broken
from serving.ports import hold_port, listeners, port_is_free

NOT_OURS = "203.0.113.9"  # kept free for documentation by RFC 5737


@pytest.fixture(params=["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def listener(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Address and port of a socket that listens."""
    with socket.socket() as server:
        server.bind((request.param, 0))
        server.listen()
        yield request.param, server.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_who_listens_is_known_by_address(host: str, listener: tuple[str, int]) -> None:
    where, port = listener
    assert listeners(port, host) == ({os.getpid()} if where in (host, "0.0.0.0") else set())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_port_is_taken_by_who_listens_on_its_address_or_on_all(host: str, listener: tuple[str, int]) -> None:
    where, port = listener
    if where not in (host, "0.0.0.0"):
        assert port_is_free(port, host)
        return
    with pytest.raises(Broken, match=rf"port `{port}` on {host} is taken, so `decode`"):
        hold_port(port, "decode", host)


def test_an_address_of_another_machine_is_named_and_nothing_stays_held(listener: tuple[str, int]) -> None:
    port = listener[1]
    with pytest.raises(Broken, match=f"no address `{NOT_OURS}`, so `decode` cannot listen") as broken:
        hold_port(port, "decode", NOT_OURS)
    assert "`url`" in broken.value.hint
    assert port_is_free(port, NOT_OURS)
    with pytest.raises(Broken, match="no address"):  # and not held by the first call
        hold_port(port, "decode", NOT_OURS)
