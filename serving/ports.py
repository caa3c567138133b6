"""Ports on 127.0.0.1: held by one run at a time from before its server binds, and known by who listens there."""

import socket
import struct

import psutil

from serving.errors import Broken

ANSWERS_LOOPBACK = ("127.0.0.1", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1")


def port_is_free(port: int) -> bool:
    """Whether 127.0.0.1 lets us listen there. A port in TIME_WAIT counts as free, as it does for the server."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def hold_port(port: int, name: str) -> socket.socket:
    """A lock on the port until it is closed or this process ends. Raises Broken when it is held or taken.

    SGLang binds its port half a minute after it starts, so that a free port says nothing about the runs of others. The
    lock is an abstract socket: it lives in the same network namespace as the port, and no crash leaves it behind.
    """
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(_address(port))
        lock.listen()
    except OSError as error:
        lock.close()
        raise Broken(
            f"port `{port}` is held by another run of infra-agent (process {_holder(port)}), so `{name}` cannot start",
            "wait until that run has ended, or give the stack another port",
        ) from error
    if not port_is_free(port):
        lock.close()
        raise Broken(
            f"port `{port}` on 127.0.0.1 is taken, so `{name}` cannot start",
            f"see who has it with `ss -ltnp 'sport = :{port}'`, or give the stack another port",
        )
    return lock


def listeners(port: int) -> set[int | None]:
    """Processes that listen where 127.0.0.1 is answered; None is one that we may not look at."""
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == port
        and connection.laddr.ip in ANSWERS_LOOPBACK
    }


def listening(pids: set[int]) -> list[tuple[int, str, int]]:
    """(pid, address, port) of every TCP port on which one of these processes listens."""
    return [
        (connection.pid, connection.laddr.ip, connection.laddr.port)
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.pid in pids
    ]


def _address(port: int) -> str:
    return f"\0infra-agent-port-{port}"


def _holder(port: int) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        try:
            caller.connect(_address(port))
            credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return "unknown"
    return str(struct.unpack("3i", credentials)[0])
