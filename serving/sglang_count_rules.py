"""Options of SGLang 0.5.23 that count something and are worth nothing below 1, though its parser takes any integer.

Not here: those whose 0 or -1 means "none" or "choose", such as `chunked-prefill-size`, and those that count ranks
(sglang_layout_rules.py). The file of the wheel below `sglang/srt/` says what becomes of a smaller one.
"""

from serving.setting import Effect, Rule

_SCHEDULER = "managers/scheduler.py"
_POOLS = "mem_cache/kv_cache_configurator.py"
_GRAPHS = "arg_groups/cuda_graph_hook.py"
_VALIDATION = "arg_groups/validation_hook.py"

# fmt: off
# Option, effect, what happens below 1, where.
_COUNTS: tuple[tuple[str, Effect, str, str], ...] = (
    ("max-total-tokens", "rejected", "the KV pool would hold nothing", _POOLS),
    ("max-running-requests", "ignored", "it becomes 1: one request runs at a time", _POOLS),
    ("max-mamba-cache-size", "rejected", "no request would have a state", _POOLS),
    ("context-length", "rejected", "every request would be too long", "managers/tokenizer_manager.py"),
    ("page-size", "rejected", "a page would hold no token", "mem_cache/common.py"),
    ("max-queued-requests", "rejected", "every request is answered that the queue is full", _SCHEDULER),
    ("prefill-max-requests", "rejected", "no request is ever prefilled", "managers/schedule_policy.py"),
    ("max-prefill-tokens", "ignored", "each prefill batch takes one request", "managers/schedule_policy.py"),
    ("decode-log-interval", "rejected", "it is a number of steps, and divided by",
     "managers/scheduler_components/metrics_reporter.py"),
    ("mamba-track-interval", "rejected", "it is a number of tokens, and divided by", "managers/schedule_batch.py"),
    ("cuda-graph-max-bs-decode", "rejected", "the captured batch would be empty", _GRAPHS),
    ("cuda-graph-prefill-max-context", "rejected", "it must be positive", _GRAPHS),
    ("tokenizer-worker-num", "rejected", "there must be one", _VALIDATION),
    ("detokenizer-worker-num", "rejected", "there must be one", _VALIDATION),
    ("sampling-mask-max-tokens", "rejected", "it must be positive", _VALIDATION),
    ("max-loras-per-batch", "rejected", "it must be positive", "arg_groups/lora_hook.py"),
)
# fmt: on

COUNT_RULES: tuple[Rule, ...] = tuple(
    Rule(name, effect, lambda s, name=name: s.size(name) < 1, why, "state 1 or more, or take it away", source)  # type: ignore[misc]
    for name, effect, why, source in _COUNTS
)
