"""Rules of SGLang 0.5.23 about ranks, experts and hardware.

`source` is a file of the wheel below `sglang/srt/` or of ours, an issue of the project, or how it was measured.
"""

from collections.abc import Callable

from serving.model_facts import ModelFacts
from serving.setting import Rule, Setting

# Backends whose experts span all ranks.
_SPANNING = ("deepep", "deepep_v2", "mooncake", "nixl", "mori", "pplx", "flashinfer", "megamoe")


def _all_to_all(s: Setting) -> str:
    return s.text("moe-a2a-backend", "none")


def _experts(s: Setting) -> int | None:
    """Routed experts with their redundant copies."""
    known = s.model.experts if s.model is not None else None
    return None if known is None else known + s.size("ep-num-redundant-experts", 0)


def _sent_at_most(s: Setting) -> int:
    """Tokens that a rank may send through DeepEP at once in low latency mode."""
    stated = s.environment.get("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "128")
    return int(stated) if stated.isdigit() else 128


def _indivisible(of: Callable[[ModelFacts], int | None], by: Callable[[Setting], int]) -> Callable[[Setting], bool]:
    def broken(s: Setting) -> bool:
        size = of(s.model) if s.model is not None else None
        return size is not None and size % max(1, by(s)) != 0

    return broken


def _is(option: str, value: str, also: Callable[[Setting], bool] = lambda _: True) -> Callable[[Setting], bool]:
    return lambda s: s.text(option) == value and also(s)


def _beyond_the_indexer(s: Setting) -> bool:
    """Whether a context may be longer than what the indexer of sparse attention selects."""
    if s.model is None or s.model.index_topk is None or s.on("encoder-only"):
        return False
    return s.size("context-length", s.model.number("max_position_embeddings") or 0) > s.model.index_topk


_ONE = "keep one of the two"
_DIVISOR = "choose a divisor of `tp-size`"
_PARALLEL = "arg_groups/parallel_hook.py"
_MOE = "arg_groups/moe_hook.py"
_OVERRIDES = "arg_groups/overrides.py"
_CPU = "measured on a CPU without AMX"
_DENSE = "serving/cpu/dense_attention.py"
_RANKS = ("tp-size", "ep-size", "attn-dp-size", "attn-cp-size", "moe-dp-size", "dcp-size", "pp-size")
_DSA_BACKENDS = ("dsa-prefill-backend", "dsa-decode-backend")

# fmt: off
# What is split over the ranks, how many the model has, and over how many ranks.
_SPLIT: tuple[tuple[str, Callable[[ModelFacts], int | None], Callable[[Setting], int]], ...] = (
    ("heads of linear attention", lambda m: m.linear_heads, lambda s: s.attention_tp),
    ("attention heads", lambda m: m.attention_heads, lambda s: s.attention_tp),
    ("channels of a dense layer", lambda m: m.intermediate, lambda s: s.size("moe-dense-tp-size", s.size("tp-size"))),
    ("channels of an expert", lambda m: m.moe_intermediate, lambda s: max(1, s.size("tp-size") // s.ranks("ep-size"))),
)

LAYOUT_RULES: tuple[Rule, ...] = (
    # Ranks
    *(Rule(name, "rejected", lambda s, name=name: s.size(name) < 1, "it counts ranks",  # type: ignore[misc]
           "state 1 or more", _PARALLEL) for name in _RANKS),
    Rule("attn-dp-size", "rejected", lambda s: s.size("attn-dp-size") > 1 and s.size("dp-size") > 1,
         "replicas (`dp-size`) and attention groups do not go together", _ONE, _PARALLEL),
    Rule("attn-dp-size", "rejected", lambda s: s.size("tp-size") % s.ranks("attn-dp-size") != 0,
         "it must divide `tp-size`; SGLang ends in an assertion without text", _DIVISOR, _PARALLEL),
    Rule("attn-cp-size", "rejected",
         lambda s: s.size("tp-size") % (s.ranks("attn-dp-size") * s.ranks("attn-cp-size")) != 0,
         "`tp-size` must be divisible by `attn-dp-size` times `attn-cp-size`", _DIVISOR, _PARALLEL),
    Rule("attn-cp-size", "rejected",
         lambda s: s.size("attn-cp-size") > 1 and s.model is not None and s.model.model_type == "glm5_next",
         "prefill context parallel of this model ends in an illegal memory access", "state 1", "sglang issue 40109"),
    Rule("ep-size", "rejected", lambda s: s.size("tp-size") % s.ranks("ep-size") != 0,
         "it must divide `tp-size`", _DIVISOR, "runtime_context.py"),
    Rule("moe-dp-size", "rejected", lambda s: s.size("tp-size") % s.ranks("moe-dp-size") != 0,
         "it must divide `tp-size`", _DIVISOR, _PARALLEL),
    Rule("enable-prefill-cp", "rejected", lambda s: s.on("enable-prefill-cp") and not s.on("cp-strategy"),
         "it needs `cp-strategy`", "state `cp-strategy`", _PARALLEL),
    Rule("dcp-comm-backend", "rejected",
         lambda s: s.text("dcp-comm-backend") in ("a2a", "fi_a2a") and s.size("dcp-size") <= 1,
         "there is no decode context parallel to exchange for", "state `dcp-size`", _PARALLEL),
    Rule("dcp-replicate-q-proj", "rejected", lambda s: s.on("dcp-replicate-q-proj") and s.size("dcp-size") <= 1,
         "there is no decode context parallel", "state `dcp-size`", _PARALLEL),
    Rule("enable-dp-lm-head", "rejected", lambda s: s.on("enable-dp-lm-head") and s.size("attn-dp-size") <= 1,
         "there are no attention groups to split the LM head over", "state `attn-dp-size`", _OVERRIDES),
    Rule("enable-dp-lm-head", "rejected",
         lambda s: s.on("enable-dp-lm-head") and s.on("enable-tp-lm-head-all-to-all"),
         "it excludes `enable-tp-lm-head-all-to-all`", _ONE, _OVERRIDES),
    Rule("enable-tp-lm-head-all-to-all", "rejected",
         lambda s: s.on("enable-tp-lm-head-all-to-all")
         and (s.size("attn-dp-size") <= 1 or s.size("attn-dp-size") != s.size("tp-size")),
         "it needs attention groups of one rank", "state `attn-dp-size` equal to `tp-size`", _OVERRIDES),
    *(Rule("tp-size", "rejected", _indivisible(of, by), f"the {what} of the model do not divide by the ranks",
           "choose a size that divides them", "distributed/utils.py") for what, of, by in _SPLIT),
    Rule("ep-size", "rejected", lambda s: (_experts(s) or 0) % s.ranks("ep-size") != 0,
         "the experts, with the redundant ones, do not divide by it", "choose a divisor of their number",
         "eplb/expert_location.py"),
    # Mixture of experts
    Rule("ep-size", "ignored", lambda s: _all_to_all(s) in _SPANNING and s.size("ep-size") != s.size("tp-size"),
         "with this all-to-all experts span all ranks, so it becomes `tp-size`", "state it equal to `tp-size`", _OVERRIDES),
    Rule("deepep-mode", "ignored", lambda s: _all_to_all(s) not in ("deepep", "mooncake", "mori", "pplx", "nixl"),
         "DeepEP is not the all-to-all", "state `moe-a2a-backend: deepep`, or take it away", _MOE),
    Rule("deepep-config", "ignored", lambda s: _all_to_all(s) != "deepep",
         "DeepEP is not the all-to-all", "state `moe-a2a-backend: deepep`, or take it away", _MOE),
    Rule("cuda-graph-max-bs-decode", "rejected",
         lambda s: _all_to_all(s) == "deepep" and s.text("deepep-mode", "auto") != "normal"
         and s.size("cuda-graph-max-bs-decode") > _sent_at_most(s) * s.ranks("attn-dp-size"),
         "DeepEP's buffer holds fewer tokens of a rank than a captured batch has",
         "raise SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK (128 by default)", "environ.py"),
    Rule("ep-dispatch-algorithm", "rejected",
         lambda s: _all_to_all(s) == "none" and s.text("ep-dispatch-algorithm") in ("static", "lp"),
         "without an all-to-all every rank must choose the same replica", "state `dynamic`, or `moe-a2a-backend`", _PARALLEL),
    Rule("enable-eplb", "rejected",
         lambda s: s.on("enable-eplb") and s.size("ep-size") <= 1 and _all_to_all(s) == "none",
         "there is one rank of experts, and nothing to balance", "state `ep-size`", _PARALLEL),
    Rule("moe-runner-backend", "rejected",
         lambda s: s.text("moe-runner-backend") == "flashinfer_cutlass"
         and s.text("quantization", "None") not in ("modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "None"),
         "it runs bfloat16 and the formats of ModelOpt only", "state another runner", _MOE),
    Rule("enable-two-batch-overlap", "rejected",
         lambda s: s.on("enable-two-batch-overlap") and _all_to_all(s) == "none" and s.size("attn-dp-size") <= 1,
         "it overlaps compute with the exchange of experts or attention groups, and there is neither",
         "state `moe-a2a-backend` or `attn-dp-size`", "arg_groups/validation_hook.py"),
    # Sparse attention (DSA)
    Rule("kv-cache-dtype", "rejected",
         lambda s: s.sparse and not s.on_cpu and s.text("kv-cache-dtype") not in ("auto", "bf16", "bfloat16", "fp8_e4m3"),
         "sparse attention keeps KV in bfloat16 or fp8_e4m3", "state one of these", _OVERRIDES),
    Rule("kv-cache-dtype", "rejected",
         _is("kv-cache-dtype", "fp8_e4m3", lambda s: [s.text(name) for name in _DSA_BACKENDS].count("tilelang") == 1),
         "tilelang reads FP8 KV only when it is the backend of prefill and of decode", "state tilelang for both, or none",
         _OVERRIDES),
    Rule("page-size", "rejected",
         lambda s: s.sparse and not s.on_cpu and s.model is not None and s.size("page-size") % (s.model.index_kpool or 1) != 0,
         "it must be a multiple of the indexer's key pool", "state a multiple of `index_kpool`", "mem_cache/memory_pool.py"),
    Rule("enable-dsa-cache-layer-split", "rejected",
         lambda s: s.on("enable-dsa-cache-layer-split") and s.model is not None and not (s.sparse and not s.on_cpu),
         "the model has no sparse attention, or is served without it", "take it away", "arg_groups/model_hook.py"),
    *(Rule(name, "ignored", lambda s, name=name: s.on_cpu and s.on(name),  # type: ignore[misc]
           "there is no sparse attention on a CPU", "take it away", _DENSE) for name in _DSA_BACKENDS),
    *(Rule(name, "rejected", _is(name, "triton", lambda s: not s.on_cpu), "it is for ROCm only",
           "state tilelang or flashmla_kv on Hopper, trtllm on Blackwell", _OVERRIDES) for name in _DSA_BACKENDS),
    *(Rule(name, "doubtful", _is(name, "trtllm", lambda s: (s.gpu or "").startswith("h")),
           "SGLang itself chooses it on Blackwell only", "state tilelang or flashmla_kv", _OVERRIDES)
      for name in _DSA_BACKENDS),
    # What a machine without a GPU lacks
    Rule("device", "doubtful", lambda s: s.on_cpu and s.sparse and not s.on("encoder-only"),
         "the checkpoint's `index_topk` asks for sparse attention (DSA), which needs CUDA: dense attention is served in its "
         "place, the same up to `index_topk` tokens", "look at the indexer on a GPU", _DENSE),
    *(Rule("context-length", "rejected", lambda s: s.on_cpu and _beyond_the_indexer(s),
           "sparse attention is served dense on a CPU, and answers beyond `index_topk` tokens would not be the model's",
           "state `index_topk` tokens or fewer", _DENSE, absent=absent) for absent in (False, True)),
    Rule("quantization", "rejected", lambda s: s.on_cpu and s.text("quantization") in ("fp8", "w8a8_fp8"),
         "its CPU kernels need AMX and a library that no wheel carries", "serve in w8a8_int8 or without it on CPU", _CPU),
    Rule("kv-cache-dtype", "rejected",
         lambda s: s.on_cpu and s.text("kv-cache-dtype").startswith(("fp8", "mxfp8", "nvfp4", "fp4")),
         "8-bit KV on a CPU needs AMX", "leave it to SGLang", _CPU),
    Rule("moe-a2a-backend", "rejected", lambda s: s.on_cpu and _all_to_all(s) != "none",
         "expert exchange needs GPUs", "take it away", _CPU),
    Rule("enable-linear-replayssm", "rejected", lambda s: s.on_cpu and s.on("enable-linear-replayssm"),
         "its kernels are Triton", "take it away", _CPU),
    Rule("attention-backend", "rejected",
         lambda s: s.on_cpu and s.text("attention-backend") not in ("torch_native", "intel_amx"),
         "it has no CPU kernels", "state `torch_native`", _CPU),
    Rule("disaggregation-decode-retraction-backup", "rejected",
         lambda s: s.on_cpu and s.mode == "decode" and not s.on("disaggregation-decode-retraction-backup"),
         "the default of decode needs CUDA", "state `disaggregation-decode-retraction-backup: cpu_tensor`", _CPU, absent=True),
    Rule("max-total-tokens", "doubtful",
         lambda s: s.on_cpu and not s.on("max-total-tokens") and not s.on("encoder-only"),
         "the KV pool takes most of the memory by default", "state it", _CPU, absent=True),
)
# fmt: on
