"""Options that SGLang 0.5.23 refuses or silently ignores beside others, each with the place that says so, as data.

Rules see the options of one role by SGLang's name, as stated or derived, and what is known of the model. A value that
nobody states is taken for its default; a fact of the model that is not known fires no rule.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

Arguments = Mapping[str, object]


@dataclass(frozen=True)
class Model:
    """`linear_attention`: it has such layers. `bounded_gate`: they have a lower bound. None: not known."""

    linear_attention: bool | None = None
    bounded_gate: bool | None = None


@dataclass(frozen=True)
class Rule:
    """`option` is refused or does nothing where `when` holds. `others`: what one would change to make it work."""

    option: str
    ends: Literal["refused", "ignored"]
    when: Callable[[Arguments, Model], bool]
    why: str
    others: tuple[str, ...] = ()
    source: str = ""


def stated(arguments: Arguments, option: str) -> bool:
    return arguments.get(option) not in (None, False)


def _unless(*enabling: str) -> Callable[[Arguments, Model], bool]:
    return lambda arguments, model: not any(stated(arguments, name) for name in enabling)


def _is(option: str, *values: object) -> Callable[[Arguments, Model], bool]:
    return lambda arguments, model: arguments.get(option) in values


def _disaggregated(arguments: Arguments, model: Model) -> bool:
    return arguments.get("disaggregation-mode") not in (None, "null")


def _decodes_with(*backends: str) -> Callable[[Arguments, Model], bool]:
    """Whether the decode backend is stated and none of these. FlashKDA for all phases decodes with Triton."""

    def other(arguments: Arguments, model: Model) -> bool:
        base = arguments.get("linear-attn-backend")
        chosen = arguments.get("linear-attn-decode-backend") or ("triton" if base == "flashkda" else base) or "triton"
        return chosen not in backends

    return other


def _more_than_one(option: str) -> Callable[[Arguments, Model], bool]:
    return lambda arguments, model: arguments.get(option) not in (None, 1, "1")


REPLAY, REPLAY_SPEC = "enable-linear-replayssm", "enable-linear-replayssm-spec"
BACKENDS = ("linear-attn-backend", "linear-attn-decode-backend")
DP_HEAD, TP_HEAD = "enable-dp-lm-head", "enable-tp-lm-head-all-to-all"
HIERARCHICAL, RADIX_OFF = "enable-hierarchical-cache", "disable-radix-cache"
_ATTENTION = "srt/arg_groups/attention_hook.py"
_CACHE = "srt/arg_groups/kv_cache_hook.py"
_PD_POOL = "the decode pool of a disaggregated stack is not wired for the ring"
_SHARED_RING = "both use one ring and move its cursor differently"
_BOUNDED = "the layers have a gate with a lower bound, and their decode then takes the ordinary path without a word"
_NO_LINEAR = "the model has no linear-attention layers"


def _when(fact: str, value: bool) -> Callable[[Arguments, Model], bool]:
    return lambda arguments, model: getattr(model, fact) is value


_REPLAY = (
    Rule(REPLAY, "refused", _disaggregated, _PD_POOL, ("disaggregation-mode",), _ATTENTION),
    Rule(REPLAY, "refused", lambda a, m: stated(a, REPLAY_SPEC), _SHARED_RING, (REPLAY_SPEC,), _ATTENTION),
    Rule(
        REPLAY, "refused", _is("mamba-radix-cache-strategy", "extra_buffer", "extra_buffer_lazy"),
        "it needs the strategy `no_buffer`", ("mamba-radix-cache-strategy",), _ATTENTION,
    ),
    Rule(REPLAY, "refused", _decodes_with("triton", "helion"), "it decodes with triton or helion", BACKENDS, _ATTENTION),
    Rule(REPLAY, "ignored", _when("bounded_gate", True), _BOUNDED, (), "srt/layers/attention/linear/kernels/kda_triton.py"),
    Rule(REPLAY, "ignored", _when("linear_attention", False), _NO_LINEAR, (), "srt/mem_cache/memory_pool.py"),
    Rule(
        REPLAY_SPEC, "refused", _is("disaggregation-mode", "prefill"), "a prefill server verifies no drafts",
        ("disaggregation-mode",), _ATTENTION,
    ),
    Rule(
        REPLAY_SPEC, "refused", _more_than_one("speculative-eagle-topk"), "drafts must be one chain, not a tree",
        ("speculative-eagle-topk",), _ATTENTION,
    ),
    Rule(
        REPLAY_SPEC, "refused", _decodes_with("triton", "flashinfer"), "it decodes with triton or flashinfer", BACKENDS,
        _ATTENTION,
    ),
    Rule(
        REPLAY_SPEC, "ignored", _unless("speculative-algorithm"), "its ring is for verifying drafts, and there are none",
        ("speculative-algorithm",), _ATTENTION,
    ),
    Rule(REPLAY_SPEC, "ignored", _when("linear_attention", False), _NO_LINEAR, (), "srt/mem_cache/memory_pool.py"),
    Rule(
        "linear-replayssm-cache-len", "ignored", _unless(REPLAY, REPLAY_SPEC), "there is no ring without ReplaySSM",
        (REPLAY, REPLAY_SPEC), "srt/mem_cache/memory_pool.py",
    ),
    Rule(
        "linear-attn-decode-backend", "refused", _is("linear-attn-decode-backend", "flashkda"),
        "FlashKDA is for prefill only", (), _ATTENTION,
    ),
)  # fmt: skip

_CACHES = (
    Rule(
        HIERARCHICAL, "refused", lambda a, m: stated(a, RADIX_OFF), "it needs the radix cache", (RADIX_OFF,), _CACHE,
    ),
    Rule(
        "enable-int8-mamba-checkpoint", "refused", lambda a, m: stated(a, HIERARCHICAL),
        "the host tier cannot read int8 states", (HIERARCHICAL,), "srt/arg_groups/mamba_hook.py",
    ),
    Rule(
        "int8-mamba-ckpt-size", "ignored", _unless("enable-int8-mamba-checkpoint"), "there is no such pool",
        ("enable-int8-mamba-checkpoint",), "srt/mem_cache/mamba_checkpoint_pool.py",
    ),
    Rule(
        "schedule-policy", "ignored",
        lambda a, m: stated(a, RADIX_OFF) and a.get("schedule-policy") in ("lpm", "dfs-weight"),
        "it orders by cached prefixes, and without the radix cache the order is first come, first served", (RADIX_OFF,),
        "srt/managers/schedule_policy.py",
    ),
    *(
        Rule(
            f"hicache-{name}", "ignored",
            lambda a, m: not (
                stated(a, HIERARCHICAL)
                or stated(a, "disaggregation-decode-enable-offload-kvcache")
                or a.get("disaggregation-mode") == "decode"
            ),
            "there is no hierarchical cache", (HIERARCHICAL,), "srt/arg_groups/hicache_hook.py",
        )
        for name in ("ratio", "size", "write-policy", "io-backend", "mem-layout", "storage-prefetch-policy")
    ),
)  # fmt: skip

_OTHERS = (
    Rule(
        TP_HEAD, "refused", lambda a, m: stated(a, DP_HEAD), "the two shard the LM head in different ways", (DP_HEAD,),
        "srt/arg_groups/overrides.py",
    ),
    *(
        Rule(
            f"speculative-{name}", "ignored", _unless("speculative-algorithm"), "nothing is drafted",
            ("speculative-algorithm",), "srt/arg_groups/speculative_hook.py",
        )
        for name in ("num-steps", "eagle-topk", "num-draft-tokens", "adaptive", "attention-mode")
    ),
    *(
        Rule(
            f"deepep-{name}", "ignored",
            lambda a, m: a.get("moe-a2a-backend") in (None, "none"),
            "experts do not exchange tokens by an all-to-all", ("moe-a2a-backend",), "srt/layers/moe/token_dispatcher",
        )
        for name in ("mode", "config", "dispatcher-output-dtype")
    ),
    *(
        Rule(
            f"disaggregation-{name}", "ignored",
            lambda a, m: not _disaggregated(a, m),
            "prefill and decode are one server", ("disaggregation-mode",), "srt/arg_groups/pd_disaggregation_hook.py",
        )
        for name in ("transfer-backend", "ib-device", "decode-extra-slots", "decode-polling-interval")
    ),
)  # fmt: skip
RULES = (*_REPLAY, *_CACHES, *_OTHERS)
