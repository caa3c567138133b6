"""Ports of this machine: held by one run at a time from before its server binds, and known by who listens there."""

import errno
import socket
import struct

import psutil

from serving.errors import Broken

LOOPBACK = ("127.0.0.1", "::1")
EVERYWHERE = ("0.0.0.0", "::")
# What an address says that is not one of this machine.
NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether nobody listens there. A port in TIME_WAIT counts as free, as it does for the server, and any elsewhere."""
    return (fault := _cannot_bind(port, host)) is None or fault.errno in NOT_HERE


def _cannot_bind(port: int, host: str) -> OSError | None:
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as fault:
        return fault
    return None


def hold_port(port: int, name: str, host: str = "127.0.0.1") -> socket.socket:
    """A lock on the port until it is closed or this process ends.

    Raises Broken when it is held or taken, or this machine does not have the address `host`.

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
    fault = _cannot_bind(port, host)
    if fault is None:
        return lock
    lock.close()
    if fault.errno in NOT_HERE:
        raise Broken(
            f"this machine has no address `{host}`, so `{name}` cannot listen there",
            "`ip addr` lists those that it has; a role that runs elsewhere is stated by its `url`",
        )
    raise Broken(
        f"port `{port}` on {host} is taken, so `{name}` cannot start",
        f"see who has it with `ss -ltnp 'sport = :{port}'`, or give the stack another port",
    )


def listeners(port: int, host: str = "127.0.0.1") -> set[int | None]:
    """Processes that listen where `host` is answered; None is one that we may not look at."""
    here = host in (*LOOPBACK, *EVERYWHERE)
    answering = (*EVERYWHERE, *(LOOPBACK if here else (host,)), f"::ffff:{'127.0.0.1' if here else host}")
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
        and connection.laddr
        and connection.laddr.port == port
        and connection.laddr.ip in answering
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
