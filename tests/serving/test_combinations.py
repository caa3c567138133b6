"""Options that refuse each other, or are taken and not obeyed: one planted case for every rule."""

import pytest

from serving.combinations import ALL_RULES, clashes
from serving.model_facts import ModelFacts
from serving.roles import Value
from serving.setting import Effect, Setting, canonical
from serving.sglang_count_rules import COUNT_RULES

FLASH = ModelFacts(
    "test",
    "glm5_next",
    {
        "num_hidden_layers": 45,
        "num_attention_heads": 64,
        "linear_num_heads": 64,
        "intermediate_size": 12288,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 288,
        "index_topk": 2048,
        "index_kpool": 4,
        "max_position_embeddings": 1048576,
        "linear_lower_bound": -5.0,
    },
)
DENSE = ModelFacts("test", "glm4_moe", {"num_hidden_layers": 4, "num_attention_heads": 4, "n_routed_experts": 8})
PREFILL, DECODE = {"disaggregation-mode": "prefill"}, {"disaggregation-mode": "decode"}
REPLAY, VERIFY = {"enable-linear-replayssm": True}, {"enable-linear-replayssm-spec": True}
EAGLE = {"speculative-algorithm": "EAGLE"}
CPU = {"device": "cpu", "max-total-tokens": 4096}
DEEPEP = {"moe-a2a-backend": "deepep"}
GPU = "h200"

# options, the one to blame, effect, words of the reason
CASES: list[tuple[dict[str, Value], str, Effect, str]] = [
    (REPLAY | PREFILL, "enable-linear-replayssm", "rejected", "not wired"),
    (REPLAY | DECODE, "enable-linear-replayssm", "rejected", "not wired"),
    (REPLAY, "enable-linear-replayssm", "ignored", "lower bound"),
    (REPLAY | VERIFY, "enable-linear-replayssm", "rejected", "cursor"),
    (REPLAY | {"mamba-radix-cache-strategy": "extra_buffer"}, "enable-linear-replayssm", "rejected", "no_buffer"),
    (REPLAY | {"linear-attn-backend": "cutedsl"}, "enable-linear-replayssm", "rejected", "backend triton"),
    ({"linear-attn-decode-backend": "flashkda"}, "linear-attn-decode-backend", "rejected", "prefill alone"),
    ({"schedule-policy": "lpm", "disable-radix-cache": True}, "schedule-policy", "ignored", "as they came"),
    *[
        ({f"disaggregation-{what}": value}, f"disaggregation-{what}", "ignored", "one server")
        for what, value in {"transfer-backend": "mooncake", "ib-device": "mlx5_0"}.items()
    ],
    (REPLAY | CPU, "enable-linear-replayssm", "rejected", "Triton"),
    (VERIFY | PREFILL, "enable-linear-replayssm-spec", "rejected", "never verifies"),
    (VERIFY | EAGLE | {"speculative-eagle-topk": 4}, "enable-linear-replayssm-spec", "rejected", "linear chain"),
    (VERIFY | {"linear-attn-decode-backend": "helion"}, "enable-linear-replayssm-spec", "rejected", "flashinfer"),
    (VERIFY, "enable-linear-replayssm-spec", "ignored", "nothing is verified"),
    (VERIFY | EAGLE | {"mamba-ssm-dtype": "bfloat16"}, "mamba-ssm-dtype", "doubtful", "float32"),
    ({"linear-replayssm-cache-len": 16}, "linear-replayssm-cache-len", "ignored", "off"),
    (REPLAY | {"linear-replayssm-cache-len": 0}, "linear-replayssm-cache-len", "rejected", "one step"),
    (
        {"enable-hierarchical-cache": True, "disable-radix-cache": True},
        "enable-hierarchical-cache",
        "rejected",
        "takes away",
    ),
    (
        {"enable-hierarchical-cache": True, "hicache-size": 32, "hicache-ratio": 2.0},
        "hicache-ratio",
        "ignored",
        "`hicache-size` decides",
    ),
    *[
        ({f"hicache-{what}": value}, f"hicache-{what}", "ignored", "hierarchical cache is off")
        for what, value in {
            "size": 32,
            "ratio": 2.0,
            "write-policy": "write_back",
            "io-backend": "kernel",
            "mem-layout": "page_first",
            "storage-backend": "mooncake",
            "storage-prefetch-policy": "timeout",
        }.items()
    ],
    (
        {"enable-int8-mamba-checkpoint": True, "enable-hierarchical-cache": True},
        "enable-int8-mamba-checkpoint",
        "rejected",
        "host tier",
    ),
    (
        {"enable-int8-mamba-checkpoint": True, "disable-radix-cache": True},
        "enable-int8-mamba-checkpoint",
        "ignored",
        "off",
    ),
    ({"int8-mamba-ckpt-size": 4}, "int8-mamba-ckpt-size", "ignored", "INT8"),
    (
        {"mamba-radix-cache-strategy": "no_buffer", "page-size": 64},
        "mamba-radix-cache-strategy",
        "rejected",
        "one token",
    ),
    (
        DECODE | {"mamba-radix-cache-strategy": "extra_buffer_lazy"},
        "mamba-radix-cache-strategy",
        "rejected",
        "lazy slots",
    ),
    (
        {"mamba-radix-cache-strategy": "extra_buffer", "disable-radix-cache": True},
        "mamba-radix-cache-strategy",
        "ignored",
        "no prefix cache",
    ),
    ({"enable-mamba-cache-stochastic-rounding": True}, "enable-mamba-cache-stochastic-rounding", "rejected", "float16"),
    ({"kv-cache-dtype": "fp8_e4m3"}, "kv-cache-dtype", "doubtful", "scale 1.0"),
    ({"kv-cache-dtype": "fp8_e5m2"}, "kv-cache-dtype", "rejected", "sparse attention"),
    (
        {"kv-cache-dtype": "fp8_e4m3", "dsa-decode-backend": "tilelang"},
        "kv-cache-dtype",
        "rejected",
        "tilelang",
    ),
    (CPU | {"kv-cache-dtype": "fp8_e4m3"}, "kv-cache-dtype", "rejected", "AMX"),
    ({"mem-fraction-static": 1.5}, "mem-fraction-static", "rejected", "share"),
    ({"max-mamba-cache-size": 4, "max-running-requests": 8}, "max-mamba-cache-size", "ignored", "needs a state"),
    *[
        ({name: value}, name, "ignored", "speculative decoding is off")
        for name, value in {
            "speculative-num-steps": 3,
            "speculative-eagle-topk": 1,
            "speculative-num-draft-tokens": 4,
            "speculative-adaptive": True,
            "speculative-attention-mode": "decode",
            "speculative-draft-kv-cache-dtype": "auto",
        }.items()
    ],
    (
        EAGLE | {"speculative-eagle-topk": 1, "speculative-num-steps": 3, "speculative-num-draft-tokens": 8},
        "speculative-num-draft-tokens",
        "ignored",
        "+ 1",
    ),
    (
        EAGLE | {"speculative-use-rejection-sampling": True, "speculative-eagle-topk": 2},
        "speculative-use-rejection-sampling",
        "rejected",
        "one branch",
    ),
    (
        DECODE | EAGLE | {"disaggregation-decode-enable-radix-cache": True},
        "disaggregation-decode-enable-radix-cache",
        "rejected",
        "excludes",
    ),
    *[
        (PREFILL | {f"disaggregation-decode-{what}": value}, f"disaggregation-decode-{what}", "ignored", "decode alone")
        for what, value in {
            "enable-radix-cache": True,
            "retraction-backup": "cpu_tensor",
            "extra-slots": 4,
            "polling-interval": 2,
        }.items()
    ],
    (
        PREFILL | {"disaggregation-decode-allocation-policy": "prefill_complete", "language-only": True},
        "disaggregation-decode-allocation-policy",
        "rejected",
        "without encode",
    ),
    (DECODE | {"enable-kv-cache-sharding": True}, "enable-kv-cache-sharding", "rejected", "prefill alone"),
    (PREFILL | {"language-model-only": True}, "language-model-only", "rejected", "multimodal"),
    (
        PREFILL | {"disaggregation-transfer-backend": "mooncake_tcp", "disaggregation-ib-device": "mlx5_0"},
        "disaggregation-ib-device",
        "ignored",
        "no RDMA",
    ),
    ({"stream-interval": 30}, "stream-interval", "doubtful", "bundles"),
    ({"load-format": "dummy"}, "load-format", "doubtful", "random"),
    *[
        ({name: 0}, name, "rejected", "counts ranks")
        for name in ("tp-size", "ep-size", "attn-dp-size", "attn-cp-size", "moe-dp-size", "dcp-size", "pp-size")
    ],
    ({"tp-size": 8, "attn-dp-size": 2, "dp-size": 2}, "attn-dp-size", "rejected", "replicas"),
    ({"tp-size": 8, "attn-dp-size": 3}, "attn-dp-size", "rejected", "without text"),
    ({"tp-size": 8, "attn-dp-size": 4, "attn-cp-size": 4}, "attn-cp-size", "rejected", "divisible"),
    ({"tp-size": 8, "attn-cp-size": 8}, "attn-cp-size", "rejected", "illegal memory"),
    ({"tp-size": 8, "ep-size": 3}, "ep-size", "rejected", "must divide"),
    ({"tp-size": 8, "moe-dp-size": 3}, "moe-dp-size", "rejected", "must divide"),
    ({"enable-prefill-cp": True}, "enable-prefill-cp", "rejected", "cp-strategy"),
    ({"dcp-comm-backend": "a2a"}, "dcp-comm-backend", "rejected", "exchange"),
    ({"dcp-replicate-q-proj": True}, "dcp-replicate-q-proj", "rejected", "decode context"),
    ({"enable-dp-lm-head": True}, "enable-dp-lm-head", "rejected", "no attention groups"),
    (
        {"tp-size": 8, "attn-dp-size": 8, "enable-dp-lm-head": True, "enable-tp-lm-head-all-to-all": True},
        "enable-dp-lm-head",
        "rejected",
        "excludes",
    ),
    (
        {"tp-size": 8, "attn-dp-size": 2, "enable-tp-lm-head-all-to-all": True},
        "enable-tp-lm-head-all-to-all",
        "rejected",
        "one rank",
    ),
    ({"tp-size": 3}, "tp-size", "rejected", "heads of linear attention"),
    ({"tp-size": 3}, "tp-size", "rejected", "the attention heads"),
    ({"tp-size": 5}, "tp-size", "rejected", "dense layer"),
    ({"tp-size": 3}, "tp-size", "rejected", "an expert"),
    ({"tp-size": 64, "ep-size": 64}, "ep-size", "rejected", "redundant"),
    ({"tp-size": 8, "ep-size": 4} | DEEPEP, "ep-size", "ignored", "becomes `tp-size`"),
    ({"deepep-mode": "auto"}, "deepep-mode", "ignored", "not the all-to-all"),
    ({"deepep-config": "{}"}, "deepep-config", "ignored", "not the all-to-all"),
    (DEEPEP | {"cuda-graph-max-bs-decode": 256}, "cuda-graph-max-bs-decode", "rejected", "buffer"),
    ({"ep-dispatch-algorithm": "static"}, "ep-dispatch-algorithm", "rejected", "same replica"),
    ({"enable-eplb": True}, "enable-eplb", "rejected", "nothing to balance"),
    (
        {"moe-runner-backend": "flashinfer_cutlass", "quantization": "fp8"},
        "moe-runner-backend",
        "rejected",
        "ModelOpt",
    ),
    ({"page-size": 6}, "page-size", "rejected", "key pool"),
    ({"dsa-prefill-backend": "triton"}, "dsa-prefill-backend", "rejected", "ROCm"),
    ({"dsa-decode-backend": "triton"}, "dsa-decode-backend", "rejected", "ROCm"),
    (CPU | {"dsa-prefill-backend": "tilelang"}, "dsa-prefill-backend", "ignored", "no sparse attention"),
    (CPU | {"dsa-decode-backend": "tilelang"}, "dsa-decode-backend", "ignored", "no sparse attention"),
    ({"dsa-prefill-backend": "trtllm"}, "dsa-prefill-backend", "doubtful", "Blackwell"),
    ({"dsa-decode-backend": "trtllm"}, "dsa-decode-backend", "doubtful", "Blackwell"),
    (CPU, "device", "doubtful", "dense attention is served in its place"),
    (CPU, "context-length", "rejected", "no `context-length`"),
    (CPU | {"context-length": 2049}, "context-length", "rejected", "`context-length: 2049`"),
    (CPU | {"quantization": "fp8"}, "quantization", "rejected", "AMX"),
    (CPU | DEEPEP, "moe-a2a-backend", "rejected", "needs GPUs"),
    (CPU | {"attention-backend": "fa3"}, "attention-backend", "rejected", "no CPU kernels"),
    (CPU | DECODE, "disaggregation-decode-retraction-backup", "rejected", "needs CUDA"),
    ({"device": "cpu"}, "max-total-tokens", "doubtful", "most of the memory"),
    ({"enable-two-batch-overlap": True}, "enable-two-batch-overlap", "rejected", "there is neither"),
    (DECODE | {"enable-hierarchical-cache": True}, "enable-hierarchical-cache", "rejected", "none of by default"),
    *[
        (off | {f"cuda-graph-{what}-{phase}": 8}, f"cuda-graph-{what}-{phase}", "doubtful", "no effect")
        for what in ("max-bs", "bs")
        for phase in ("decode", "prefill")
        for off in ({"disable-cuda-graph": True}, {f"disable-{phase}-cuda-graph": True})
    ],
    *[({rule.option: value}, rule.option, rule.effect, rule.why) for rule in COUNT_RULES for value in (0, -5)],
]


@pytest.mark.parametrize(
    ("options", "blamed", "effect", "words"), CASES, ids=[f"{option}-{words}" for _, option, _, words in CASES]
)
def test_a_planted_combination_is_found_and_its_option_named(
    options: dict[str, Value], blamed: str, effect: Effect, words: str
) -> None:
    found = [clash for clash in clashes(Setting(options, model=FLASH, gpu=GPU)) if clash.option == blamed]
    assert any(clash.effect == effect and words in clash.message and clash.hint for clash in found), found


def test_every_rule_has_a_case_that_breaks_it() -> None:
    settings = [Setting(options, model=FLASH, gpu=GPU) for options, *_ in CASES]
    settings += [Setting(options, model=DENSE) for options in ({"enable-dsa-cache-layer-split": True}, REPLAY, VERIFY)]
    idle = [(rule.option, rule.why) for rule in ALL_RULES if not any(rule.when(s) for s in settings)]
    assert idle == []


@pytest.mark.parametrize(
    "options",
    [
        {"tp-size": 8, "ep-size": 8, "kv-cache-dtype": "bfloat16"},
        {"tp-size": 8, "ep-size": 8, "deepep-mode": "auto"} | DEEPEP,
        EAGLE | {"speculative-num-steps": 5, "speculative-eagle-topk": 1, "speculative-num-draft-tokens": 6},
        EAGLE | VERIFY | DECODE | {"linear-replayssm-cache-len": 16},
        {"enable-hierarchical-cache": True, "hicache-size": 32},
        {"enable-linear-replayssm": False} | DECODE,
        {"schedule-policy": "lpm"},
        {"tp-size": 8, "attn-dp-size": 8, "enable-dp-lm-head": True},
        {"enable-two-batch-overlap": True, "tp-size": 8, "attn-dp-size": 8},
        {"enable-two-batch-overlap": True, "tp-size": 8, "ep-size": 8} | DEEPEP,
        DECODE | {"enable-hierarchical-cache": True, "disaggregation-decode-enable-radix-cache": True},
        PREFILL | {"enable-hierarchical-cache": True},
        {"disable-cuda-graph": True, "cuda-graph-backend-decode": "full", "cuda-graph-max-bs-decode": 8},
        {"disable-decode-cuda-graph": True, "cuda-graph-max-bs-prefill": 8},
        {"chunked-prefill-size": -1},
        {rule.option: 4 for rule in COUNT_RULES},
    ],
)
def test_options_that_go_together_break_no_rule(options: dict[str, Value]) -> None:
    assert list(clashes(Setting(options, model=FLASH, gpu=GPU))) == []


@pytest.mark.parametrize("backend", [{"linear-attn-backend": "flashkda"}, {"linear-attn-decode-backend": "helion"}])
def test_replayssm_decodes_with_triton_or_helion(backend: dict[str, Value]) -> None:
    assert list(clashes(Setting(REPLAY | backend))) == []


def test_replayssm_does_nothing_for_a_model_without_linear_attention() -> None:
    assert [clash.effect for clash in clashes(Setting(REPLAY, model=DENSE))] == ["ignored"]


def test_w8a8_is_served_on_a_cpu_by_our_own_kernels() -> None:
    assert list(clashes(Setting(CPU | {"quantization": "w8a8_int8"}))) == []


@pytest.mark.parametrize("tokens", [2048, 100])
def test_a_context_that_the_indexer_selects_whole_is_only_said_to_be_served_dense(tokens: int) -> None:
    (clash,) = clashes(Setting(CPU | {"context-length": tokens}, model=FLASH))
    assert (clash.option, clash.effect) == ("device", "doubtful")


def test_encode_and_a_model_without_sparse_attention_may_have_any_context_on_a_cpu() -> None:
    assert list(clashes(Setting(CPU | {"encoder-only": True}, model=FLASH))) == []
    assert list(clashes(Setting(CPU, model=DENSE))) == []


def test_without_a_model_only_the_options_are_judged() -> None:
    assert list(clashes(Setting({"tp-size": 3, "enable-linear-replayssm": True}))) == []


def test_other_spellings_and_the_deprecated_pair_are_the_same_option() -> None:
    stated: dict[str, Value] = {"tensor-parallel-size": 8, "dp-size": 8, "enable-dp-attention": True}
    assert canonical(stated, {"tensor-parallel-size": "tp-size"}) == {
        "tp-size": 8,
        "attn-dp-size": 8,
        "enable-dp-attention": True,
    }
