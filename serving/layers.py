"""Where the time of a request goes, layer by layer, and what each layer had to do with a change of the whole.

The client's time is cut at the boundaries of the server that answers (`server`, or `decode` behind a router):

    router (or http)   outside of it: network, HTTP and the router, up to the first token and between tokens
    decode             in it, after the first token
    queue, encode, prefill, transfer
                       in it, before the first token, each as the role that does the work counts it itself
    unexplained        in it, before the first token, and counted by nobody: tokenising, polling, handing over

so that layers and `unexplained` add up to the whole exactly. A layer that was not measured is missing, and then there is no
`unexplained`: nobody could tell the two apart.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from serving.metrics import MS_PER_S, Histogram, Scrape, gained, histogram
from serving.roles import Role
from serving.summary import Measured

STAGE = "sglang:per_stage_req_latency_seconds"
TTFT, E2E = "sglang:time_to_first_token_seconds", "sglang:e2e_request_latency_seconds"
PICTURES = "sglang:encoder_requests_received_total"
UNEXPLAINED = "unexplained_ms"
# Schedulers count the requests of health checks, too, each as one that passed: so many more are no doubt about the mean.
MORE = 0.05
UNTIL_TOKEN = "_until_first_token_ms"


@dataclass(frozen=True)
class Span:
    """What the servers of a role exposed before and after a block; `absent`: why one of them exposed nothing."""

    before: Scrape | None = None
    after: Scrape | None = None
    absent: str | None = None


Window = Mapping[Role, Span]


@dataclass(frozen=True)
class Client:
    """Means over the `requests` of a block, in ms. `pictures`: whether each request brought one."""

    requests: int
    ttft_ms: Measured
    e2e_ms: Measured
    pictures: bool = False


@dataclass(frozen=True)
class Counted:
    """A histogram of a role. `each`: every request of a block passes there once, so that fewer are not the whole."""

    role: Role
    metric: str
    stage: str | None = None
    each: bool = True


# Work of encode is counted per picture, and a request may have none.
PARTS: Mapping[str, tuple[Counted, ...]] = {
    "server_queue_ms": (
        Counted("server", "sglang:queue_time_seconds"),
        Counted("prefill", STAGE, "prefill_bootstrap"),
        Counted("prefill", "sglang:queue_time_seconds"),
        Counted("decode", STAGE, "decode_waiting"),
    ),
    "server_encode_ms": (
        Counted("encode", "sglang:encoder_request_e2e_latency_seconds", each=False),
        Counted("encode", "sglang:encoder_transfer_seconds", each=False),
    ),
    "server_prefill_ms": (Counted("server", STAGE, "prefill_forward"), Counted("prefill", STAGE, "prefill_forward")),
    "server_transfer_ms": (Counted("prefill", STAGE, "prefill_transfer_kv_cache"),),
}


def layers(window: Window, client: Client) -> dict[str, Measured]:
    """Mean ms of a request of the block in each layer that the stack has, by the names of serving/observables.py."""
    answering: Role = "decode" if "decode" in window else "server"
    ttft = _mean(window, Counted(answering, TTFT), client.requests)
    e2e = _mean(window, Counted(answering, E2E), client.requests)
    inside = {
        layer: total_of(*found)
        for layer, parts in PARTS.items()
        if (found := [_mean(window, part, client.requests, client.pictures) for part in parts if part.role in window])
    }
    outside = "router" if "router" in window else "http"
    return {
        **inside,
        "server_decode_ms": rest_of(e2e, {"server_ttft_ms": ttft}),
        f"{outside}_ms": rest_of(client.e2e_ms, {"server_e2e_ms": e2e}),
        f"{outside}{UNTIL_TOKEN}": rest_of(client.ttft_ms, {"server_ttft_ms": ttft}),
        UNEXPLAINED: rest_of(ttft, inside),
        "server_ttft_ms": ttft,
        "server_e2e_ms": e2e,
    }


@dataclass(frozen=True)
class Decomposition:
    """A change of a whole, in ms: `change` = sum of `contributions` + `unexplained`, exactly.

    `missing`: layers that were not measured, with the reason. Then `unexplained` is None, for it may be theirs.
    """

    change: float
    contributions: Mapping[str, float]
    unexplained: float | None
    missing: Mapping[str, str]

    @property
    def largest(self) -> str | None:
        """The layer that moved most; None if what nobody explains moved more, or a layer is missing."""
        if self.unexplained is None or not self.contributions:
            return None
        most = max(self.contributions, key=lambda layer: abs(self.contributions[layer]))
        return most if abs(self.contributions[most]) >= abs(self.unexplained) else None


def decompose(
    before: Measured, after: Measured, layers_before: Mapping[str, Measured], layers_after: Mapping[str, Measured]
) -> Decomposition | None:
    """What each layer adds to `after` - `before`, all in ms. None when the whole was not measured on both sides."""
    if before.value is None or after.value is None:
        return None
    change, shifts, missing = after.value - before.value, dict[str, float](), dict[str, str]()
    for layer in dict.fromkeys([*layers_before, *layers_after]):
        sides = [side.get(layer, Measured(None, "not measured on one side")) for side in (layers_before, layers_after)]
        if sides[0].value is None or sides[1].value is None:
            missing[layer] = next(side.reason or "not measured" for side in sides if side.value is None)
        else:
            shifts[layer] = sides[1].value - sides[0].value
    return Decomposition(change, shifts, None if missing else change - sum(shifts.values()), missing)


def total_of(*parts: Measured) -> Measured:
    """The sum, or the first reason why there is none."""
    unknown = next((part for part in parts if part.value is None), None)
    return unknown or Measured(sum(part.value or 0.0 for part in parts))


def rest_of(whole: Measured, parts: Mapping[str, Measured]) -> Measured:
    """What is left of `whole`; without a part nobody can say, and the reason names every one that is missing."""
    if whole.value is None:
        return whole
    missing = [f"`{name}` ({part.reason})" for name, part in parts.items() if part.value is None]
    if missing:
        return Measured(None, f"missing: {', '.join(missing)}")
    return Measured(whole.value - sum(part.value or 0.0 for part in parts.values()))


def _mean(window: Window, counted: Counted, requests: int, pictures: bool = False) -> Measured:
    """Over the requests of the block, whichever of them passed there."""
    name = counted.metric if counted.stage is None else f"{counted.metric}{{stage={counted.stage}}}"
    if requests <= 0:
        return Measured(None, "no request was completed")
    span = window[counted.role]
    if span.before is None or span.after is None:
        return Measured(None, f"{counted.role}: {span.absent or 'not asked'}")
    found = histogram(span.before, span.after, counted.metric, **_labels(counted))
    if found is None:
        # A server exposes a histogram from its first sample on: an encoder that never had a picture shows none.
        if counted.each or pictures or gained(span.before, span.after, PICTURES):
            return Measured(None, f"{counted.role} exposes no `{name}`")
        found = Histogram(0.0, 0.0)
    if not (0 <= found.count < math.inf and 0 <= found.total < math.inf):
        return Measured(
            None, f"{counted.role}: `{name}` went backwards or is no number: the process began anew, or lies"
        )
    if not counted.each:
        return Measured(MS_PER_S * found.total / requests)
    if not requests <= found.count <= requests + max(1.0, MORE * requests):
        return Measured(None, f"{counted.role} counted {found.count:.0f} of {requests} requests in `{name}`")
    return Measured(MS_PER_S * found.total / found.count)


def _labels(counted: Counted) -> dict[str, str]:
    return {} if counted.stage is None else {"stage": counted.stage}
