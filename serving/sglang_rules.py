"""Rules of SGLang 0.5.23 about states, caches, speculation and disaggregation.

`source` is a file of the wheel below `sglang/srt/`.
"""

from serving.setting import Rule, Setting, stated_without


def _replay(s: Setting) -> bool:
    return s.on("enable-linear-replayssm")


def _verify(s: Setting) -> bool:
    return s.on("enable-linear-replayssm-spec")


def _decode_backend(s: Setting) -> str:
    """FlashKDA for all phases decodes with Triton."""
    backend = s.text("linear-attn-backend", "triton")
    return s.text("linear-attn-decode-backend", "triton" if backend == "flashkda" else backend)


def _no_linear_layers(s: Setting) -> bool:
    return s.model is not None and s.model.linear_layers == 0


_ONE = "keep one of the two"
_DROP = "take it away, or state what it needs"
_ATTENTION = "arg_groups/attention_hook.py"
_DISAGGREGATION = "arg_groups/pd_disaggregation_hook.py"
_CACHE = "arg_groups/kv_cache_hook.py"
_MAMBA = "arg_groups/mamba_hook.py"
_SPECULATIVE = "arg_groups/speculative_hook.py"
_OF_SPECULATION = (
    "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens", "speculative-adaptive",
    "speculative-attention-mode", "speculative-draft-kv-cache-dtype",
)  # fmt: skip
_OF_HICACHE = (
    "hicache-size", "hicache-ratio", "hicache-write-policy", "hicache-io-backend", "hicache-mem-layout",
    "hicache-storage-backend", "hicache-storage-prefetch-policy",
)  # fmt: skip
_OF_DECODE = (
    "disaggregation-decode-enable-radix-cache", "disaggregation-decode-retraction-backup",
    "disaggregation-decode-extra-slots", "disaggregation-decode-polling-interval",
)  # fmt: skip

# fmt: off
RULES: tuple[Rule, ...] = (
    Rule("load-format", "doubtful", lambda s: s.text("load-format") == "dummy",
         "weights are random: what is measured is no evidence of accuracy, of the experts' load or of drafts accepted",
         "take it away", "model_loader/loader.py"),
    # ReplaySSM
    Rule("enable-linear-replayssm", "rejected", lambda s: _replay(s) and s.mode != "null",
         "under disaggregation the decode pool is not wired for the ring",
         "serve aggregated, or wire the ring by a code patch", _ATTENTION),
    Rule("enable-linear-replayssm", "ignored",
         lambda s: _replay(s) and s.model is not None and s.model.gate_lower_bound is not None,
         "its Triton branch wants a gate without lower bound, and this model has one",
         "try `enable-linear-replayssm-spec`, or wire the bounded gate by a code patch",
         "layers/attention/linear/kernels/kda_triton.py"),
    Rule("enable-linear-replayssm", "rejected", lambda s: _replay(s) and _verify(s),
         "it shares the ring with `enable-linear-replayssm-spec` and moves the cursor differently", _ONE, _ATTENTION),
    Rule("enable-linear-replayssm", "rejected",
         lambda s: _replay(s) and s.text("mamba-radix-cache-strategy", "auto").startswith("extra_buffer"),
         "it needs the strategy `no_buffer`", "state `mamba-radix-cache-strategy: no_buffer`", _ATTENTION),
    Rule("enable-linear-replayssm", "rejected",
         lambda s: _replay(s) and _decode_backend(s) not in ("triton", "helion"),
         "it needs the decode backend triton, or helion for KDA", "state `linear-attn-decode-backend: triton`", _ATTENTION),
    Rule("enable-linear-replayssm-spec", "rejected", lambda s: _verify(s) and s.mode == "prefill",
         "a prefill server never verifies drafts", "state it for decode alone", _ATTENTION),
    Rule("enable-linear-replayssm-spec", "rejected", lambda s: _verify(s) and s.size("speculative-eagle-topk") > 1,
         "its mask is for a linear chain of drafts", "state `speculative-eagle-topk: 1`", _ATTENTION),
    Rule("enable-linear-replayssm-spec", "rejected",
         lambda s: _verify(s) and _decode_backend(s) not in ("triton", "flashinfer"),
         "it needs the decode backend triton or flashinfer", "state `linear-attn-decode-backend: triton`", _ATTENTION),
    Rule("enable-linear-replayssm-spec", "ignored", lambda s: _verify(s) and not s.on("speculative-algorithm"),
         "without speculative decoding nothing is verified", "state `speculative-algorithm`", _ATTENTION),
    Rule("mamba-ssm-dtype", "doubtful", lambda s: _verify(s) and s.text("mamba-ssm-dtype") != "float32",
         "ReplaySSM in verification expects a float32 state", "validate accuracy on long sequences", _ATTENTION),
    *(Rule(name, "ignored", lambda s, name=name: s.on(name) and _no_linear_layers(s),  # type: ignore[misc]
           "the model has no linear attention", "take it away", "mem_cache/memory_pool.py")
      for name in ("enable-linear-replayssm", "enable-linear-replayssm-spec")),
    Rule("linear-attn-decode-backend", "rejected", lambda s: s.text("linear-attn-decode-backend") == "flashkda",
         "FlashKDA is for prefill alone", "state it as `linear-attn-prefill-backend`", _ATTENTION),
    Rule("linear-replayssm-cache-len", "ignored",
         stated_without("enable-linear-replayssm", "enable-linear-replayssm-spec"), "ReplaySSM is off", _DROP, _ATTENTION),
    Rule("linear-replayssm-cache-len", "rejected", lambda s: s.size("linear-replayssm-cache-len") < 1,
         "the ring needs one step at least", "state 1 or more", _ATTENTION),
    # Caches
    Rule("schedule-policy", "ignored",
         lambda s: s.on("disable-radix-cache") and s.text("schedule-policy") in ("lpm", "dfs-weight"),
         "it orders by cached prefixes, and without them requests are served as they came", _ONE,
         "managers/schedule_policy.py"),
    Rule("enable-hierarchical-cache", "rejected",
         lambda s: s.on("enable-hierarchical-cache") and s.on("disable-radix-cache"),
         "it is a tier of the prefix cache, which `disable-radix-cache` takes away", _ONE, _CACHE),
    Rule("enable-hierarchical-cache", "rejected",
         lambda s: s.on("enable-hierarchical-cache") and s.mode == "decode"
         and not s.on("disaggregation-decode-enable-radix-cache"),
         "it is a tier of the prefix cache, which decode has none of by default",
         "state it for prefill, or `disaggregation-decode-enable-radix-cache` here, too", _DISAGGREGATION),
    *(Rule(name, "ignored",
           stated_without("enable-hierarchical-cache", "disaggregation-decode-enable-offload-kvcache", "enable-lmcache"),
           "the hierarchical cache is off", "state `enable-hierarchical-cache`, or take it away",
           "arg_groups/hicache_hook.py") for name in _OF_HICACHE),
    Rule("hicache-ratio", "ignored", lambda s: s.size("hicache-size") > 0 and s.on("hicache-ratio"),
         "`hicache-size` decides how large the host tier is", _ONE, "mem_cache/pool_host/base.py"),
    Rule("enable-int8-mamba-checkpoint", "rejected",
         lambda s: s.on("enable-int8-mamba-checkpoint") and s.on("enable-hierarchical-cache"),
         "the host tier does not know INT8 states", _ONE, _MAMBA),
    Rule("enable-int8-mamba-checkpoint", "ignored",
         lambda s: s.on("enable-int8-mamba-checkpoint") and s.on("disable-radix-cache"),
         "only states in the prefix cache are held in INT8, and it is off", _ONE, "arg_groups/fields/exec_.py"),
    Rule("int8-mamba-ckpt-size", "ignored", stated_without("enable-int8-mamba-checkpoint"),
         "states are not held in INT8", _DROP, _MAMBA),
    Rule("mamba-radix-cache-strategy", "rejected",
         lambda s: s.text("mamba-radix-cache-strategy") == "no_buffer" and s.size("page-size") > 1,
         "`no_buffer` works with pages of one token only", "state `page-size: 1`, or another strategy", _MAMBA),
    Rule("mamba-radix-cache-strategy", "rejected",
         lambda s: s.text("mamba-radix-cache-strategy") == "extra_buffer_lazy" and s.mode != "null",
         "under disaggregation the decode pool has no lazy slots", "state `extra_buffer`", _MAMBA),
    Rule("mamba-radix-cache-strategy", "ignored",
         lambda s: s.on("disable-radix-cache") and s.text("mamba-radix-cache-strategy") != "auto",
         "there is no prefix cache to keep states in", _ONE, "arg_groups/model_hook.py"),
    Rule("enable-mamba-cache-stochastic-rounding", "rejected",
         lambda s: s.on("enable-mamba-cache-stochastic-rounding") and s.text("mamba-ssm-dtype") != "float16",
         "it rounds to float16 only", "state `mamba-ssm-dtype: float16`", _MAMBA),
    Rule("kv-cache-dtype", "doubtful",
         lambda s: s.text("kv-cache-dtype").startswith("fp8") and not s.on("quantization-param-path"),
         "without scales FP8 KV is stored with scale 1.0, which may cost accuracy",
         "guard the quality, or state `quantization-param-path`", _CACHE),
    Rule("mem-fraction-static", "rejected", lambda s: not 0 < s.number("mem-fraction-static", 0.5) < 1,
         "it is a share of the device's memory", "state a number between 0 and 1", "arg_groups/memory_hook.py"),
    Rule("max-mamba-cache-size", "ignored",
         lambda s: s.on("max-running-requests") and s.size("max-mamba-cache-size") < s.size("max-running-requests"),
         "each running request needs a state, so fewer than `max-running-requests` can run",
         "raise it, or lower `max-running-requests`", "mem_cache/kv_cache_configurator.py"),
    # Speculative decoding
    *(Rule(name, "ignored", stated_without("speculative-algorithm"), "speculative decoding is off",
           "state `speculative-algorithm`, or take it away", _SPECULATIVE) for name in _OF_SPECULATION),
    Rule("speculative-num-draft-tokens", "ignored",
         lambda s: s.size("speculative-eagle-topk", 0) == 1 and s.on("speculative-num-steps")
         and s.size("speculative-num-draft-tokens") != s.size("speculative-num-steps") + 1,
         "with one branch it becomes `speculative-num-steps` + 1", "state that number", _SPECULATIVE),
    Rule("speculative-use-rejection-sampling", "rejected",
         lambda s: s.on("speculative-use-rejection-sampling") and s.size("speculative-eagle-topk", 0) != 1,
         "it needs one branch", "state `speculative-eagle-topk: 1`", _SPECULATIVE),
    # Disaggregation
    Rule("disaggregation-decode-enable-radix-cache", "rejected",
         lambda s: s.on("disaggregation-decode-enable-radix-cache") and s.on("speculative-algorithm"),
         "the prefix cache of decode excludes speculative decoding", _ONE, _SPECULATIVE),
    *(Rule(name, "ignored", lambda s: s.mode != "decode", "it is for decode alone", "state it for decode",
           _DISAGGREGATION) for name in _OF_DECODE),
    Rule("disaggregation-decode-allocation-policy", "rejected",
         lambda s: s.text("disaggregation-decode-allocation-policy") == "prefill_complete"
         and (s.mode == "null" or s.on("language-only") or s.attention_tp != 1),
         "`prefill_complete` needs prefill and decode without encode, and attention groups of one rank",
         "state `early`", _DISAGGREGATION),
    Rule("enable-kv-cache-sharding", "rejected", lambda s: s.on("enable-kv-cache-sharding") and s.mode != "prefill",
         "it is for prefill alone", "state it for prefill", "arg_groups/kv_shard_hook.py"),
    Rule("language-model-only", "rejected",
         lambda s: s.on("language-model-only") and (s.mode != "null" or s.on("language-only")),
         "it takes multimodal input away, and excludes encode and disaggregation", _DROP, "arg_groups/model_hook.py"),
    *(Rule(f"disaggregation-{name}", "ignored", lambda s: s.mode == "null", "prefill and decode are one server",
           "take it away", _DISAGGREGATION) for name in ("transfer-backend", "ib-device")),
    Rule("disaggregation-ib-device", "ignored",
         lambda s: s.text("disaggregation-transfer-backend") == "mooncake_tcp", "TCP uses no RDMA device",
         "state the backend `mooncake`, or take it away", _DISAGGREGATION),
    # CUDA graphs
    *(Rule(f"{name}-{phase}", "doubtful",
           lambda s, phase=phase: any(s.on(off) for off in ("disable-cuda-graph", f"disable-{phase}-cuda-graph"))  # type: ignore[misc]
           and not s.on(f"cuda-graph-backend-{phase}") and not s.on("cuda-graph-config"),
           "CUDA graphs are off, so it has no effect", "take it away, or the option that turns graphs off",
           "arg_groups/cuda_graph_hook.py")
      for phase in ("decode", "prefill") for name in ("cuda-graph-max-bs", "cuda-graph-bs")),
    # What falsifies a measurement
    Rule("stream-interval", "doubtful", lambda s: s.size("stream-interval") > 1,
         "tokens arrive in bundles, so the ITL of a client is not the engine's", "measure with 1",
         "managers/scheduler_components/output_streamer.py"),
)
# fmt: on
