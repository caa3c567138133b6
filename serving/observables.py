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

# Mean time of a request of a block in each layer that the stack has (serving/layers.py), from its servers' own counts. `queue`
# to `unexplained` add up to the client's mean end-to-end time; without what comes after the first token, to its mean TTFT.
LAYERS = {
    "server_queue_ms": Observable("ms", "down"),
    "server_encode_ms": Observable("ms", "down"),
    "server_prefill_ms": Observable("ms", "down"),
    "server_transfer_ms": Observable("ms", "down"),
    "server_decode_ms": Observable("ms", "down"),
    "router_ms": Observable("ms", "down"),
    "http_ms": Observable("ms", "down"),
    "unexplained_ms": Observable("ms", "down"),
}
SERVER = {
    **LAYERS,
    "router_until_first_token_ms": Observable("ms", "down"),
    "http_until_first_token_ms": Observable("ms", "down"),
    "server_ttft_ms": Observable("ms", "down"),
    "server_e2e_ms": Observable("ms", "down"),
}

# Of the engine as a whole, and of the processes of each role; the name of the role stands before those.
RATES = {
    "cache_hit_pct": Observable("%", "up"),
    "accepted_tokens_per_step": Observable("tokens", "up"),
}
PROCESSES = {
    "process_cpu_pct": Observable("%", "down"),
    "process_rss_gb": Observable("GB", "down"),
    "process_threads": Observable("1", "down"),
}
# Of the GPUs under the processes of each role (serving/nvml.py), named as those: `held_back` is by heat or a power brake.
DEVICES = {
    "gpu_memory_gb": Observable("GB", "down"),
    "gpu_utilisation_pct": Observable("%", "up"),
    "gpu_power_w": Observable("W", "down"),
    "gpu_temperature_c": Observable("°C", "down"),
    "gpu_power_capped_pct": Observable("%", "down"),
    "gpu_held_back_pct": Observable("%", "down"),
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

# Of an answer to the traffic (serving/answers.py): how far its worst token is below the incumbent's likeliest one.
ANSWERS = {"answer_deficit": Observable("nats", "down")}

# Of the functions whose calls are counted where an arm runs other code: calls of a block, mean time of a call, and the
# share of the block's time that a server spends in them.
CODE = {
    "code_calls": Observable("calls", "down"),
    "code_us": Observable("us", "down"),
    "code_share_pct": Observable("%", "down"),
}

OBSERVABLES = {**CLIENT, **SERVER, **RATES, **PROCESSES, **DEVICES, **CONTEXT, **ANSWERS, **CODE}
