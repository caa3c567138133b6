"""Everything that a block of traffic is observed by: name, unit, and which way is better."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Observable:
    unit: str
    better: Literal["down", "up"]


# Seen by the client. Means and percentiles are over requests; `itl_p95_ms` is over all gaps of all requests, and
# `itl_max_ms` is the mean over requests of the longest gap, which is how long a reader sees the text stand still.
CLIENT = {
    "ttft_mean_ms": Observable("ms", "down"),
    "ttft_p50_ms": Observable("ms", "down"),
    "ttft_p95_ms": Observable("ms", "down"),
    "itl_mean_ms": Observable("ms", "down"),
    "itl_p95_ms": Observable("ms", "down"),
    "itl_max_ms": Observable("ms", "down"),
    "tpot_mean_ms": Observable("ms", "down"),
    "tpot_p95_ms": Observable("ms", "down"),
    "e2e_mean_ms": Observable("ms", "down"),
    "e2e_p95_ms": Observable("ms", "down"),
    "output_tokens_per_s": Observable("tokens/s", "up"),
    "requests_per_s": Observable("requests/s", "up"),
    "goodput_per_s": Observable("requests/s", "up"),
    "goodput_per_device_per_s": Observable("requests/s", "up"),
    "failed_pct": Observable("%", "down"),
    "cancelled_pct": Observable("%", "down"),
}

# Means over the requests of a block, from the server's own histograms. Queue, prefill and first_token_rest add up to
# the server's TTFT; with decode they add up to its end-to-end time.
SERVER = {
    "server_queue_ms": Observable("ms", "down"),
    "server_prefill_ms": Observable("ms", "down"),
    "server_first_token_rest_ms": Observable("ms", "down"),
    "server_decode_ms": Observable("ms", "down"),
    "server_ttft_ms": Observable("ms", "down"),
    "server_itl_ms": Observable("ms", "down"),
    "server_e2e_ms": Observable("ms", "down"),
}

# Whether the block can be trusted: cache hits, and a client or a machine too busy to measure.
CONTEXT = {
    "prompt_tokens": Observable("tokens", "up"),
    "cached_tokens": Observable("tokens", "down"),
    "client_cpu_pct": Observable("%", "down"),
    "send_lag_p95_ms": Observable("ms", "down"),
    "loop_lag_p95_ms": Observable("ms", "down"),
    "machine_cpu_pct": Observable("%", "down"),
}

# Of the functions whose calls are counted where an arm runs other code: calls of a block, mean time of a call, and the
# share of the block's time that a server spends in them.
CODE = {
    "code_calls": Observable("calls", "down"),
    "code_us": Observable("us", "down"),
    "code_share_pct": Observable("%", "down"),
}

OBSERVABLES = {**CLIENT, **SERVER, **CONTEXT, **CODE}
