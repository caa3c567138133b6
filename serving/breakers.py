"""Which workers a router sends nothing to, because their requests failed: its circuit breakers, by its own metrics.

Prefill and decode of a failed request count as failed both, so that one of them that is ill usually has the other shut out
with it. A worker that was shut out gets a request again after a minute (`cb-timeout-duration-secs` of the router).
"""

from collections.abc import Iterable, Mapping

from serving.errors import Broken
from serving.launch import Server
from serving.metrics import Scrape, scrape
from serving.replicas import ANY_ADDRESS

# Of sglang-router 0.3.2, for each worker: 0 closed, 1 open, 2 half open, which lets requests through to see how they fare.
STATE, OPEN = "smg_worker_cb_state", 1


def shut_out(found: Scrape) -> tuple[str, ...]:
    """The URLs of the workers whose breaker is open, as the router was told them."""
    urls = (dict(labels).get("worker", "") for (name, labels), state in found.samples.items() if _open(name, state))
    return tuple(sorted(urls))


def _open(name: str, state: float) -> bool:
    return name == STATE and state == OPEN


def named(workers: Iterable[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """The workers by name, in the order of `names` (URL at which we ask, to name); one that is not there by its URL."""
    asked = [_asked_at(worker) for worker in workers]
    return (*(name for url, name in names.items() if url in asked), *(url for url in asked if url not in names))


def _asked_at(worker: str) -> str:
    scheme, _, place = worker.partition("://")
    host, _, port = place.rpartition(":")
    return f"{scheme}://{ANY_ADDRESS.get(host.strip('[]'), host)}:{port}"


def router_metrics(router_url: str, ports: tuple[int, ...]) -> str | None:
    """Where a router with these ports tells its metrics; None where the stack states no port for them."""
    return f"{router_url.rpartition(':')[0]}:{ports[1]}" if len(ports) > 1 else None


def shut_out_of(server: Server) -> tuple[str, ...]:
    """The names of the parts to which its router sends nothing. Empty without a router, or one that does not tell."""
    names = {part.url: part.name for part in server.parts}
    for part in server.parts:
        place = router_metrics(part.url, part.process.ports) if part.role == "router" else None
        if place is None:
            continue
        try:
            return named(shut_out(scrape(place)), names)
        except Broken:
            return ()
    return ()


def sentence(workers: Iterable[str]) -> str:
    return f"the router sends nothing to {' and '.join(f'`{one}`' for one in workers)}, whose requests failed"


def check_breakers(servers: Iterable[Server]) -> None:
    """Raises Broken, naming the workers, when the router of a server has shut some of them out."""
    for server in servers:
        if workers := shut_out_of(server):
            raise Broken(
                f"{server.name}: {sentence(workers)}", f"see the logs of these roles in {server.log_file.parent}"
            )
