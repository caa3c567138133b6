"""Does a role fit in the memory of its ranks? Weights, KV, indexer keys and linear states, from the configuration.

An estimate to refuse what cannot fit, good to a few per cent: norms, mHC mixing, graphs and workspaces are not counted.
The shapes are those of SGLang 0.5.23: KV of MLA and the indexer's keys are whole on every rank (mem_cache/memory_pool.py,
index_key_cache.py), linear states are split over the ranks of an attention group (configs/mamba_utils.py).
"""

from dataclasses import dataclass

from serving.model_facts import ModelFacts
from serving.setting import Setting

GB = 1e9
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "auto": 2}
EIGHT_BIT = ("w8a8_int8", "w8a8_fp8", "fp8", "mxfp8", "modelopt_fp8", "modelslim")
FOUR_BIT = ("modelopt_fp4", "nvfp4_online", "mxfp4", "w4afp8", "awq", "gptq")
# SGLang keeps so much of a large GPU free when `mem-fraction-static` is not stated (arg_groups/memory_hook.py).
RESERVED_BYTES = 10 * 1024**3


@dataclass(frozen=True)
class Footprint:
    """Bytes on one rank. `kv_token_bytes`, `state_bytes`: of one token, and of one request in all linear layers."""

    weights: float
    kv_token_bytes: float
    state_bytes: float
    tokens: int
    states: int

    @property
    def total(self) -> float:
        return self.weights + self.kv_token_bytes * self.tokens + self.state_bytes * self.states

    def __str__(self) -> str:
        kv, states = self.kv_token_bytes * self.tokens, self.state_bytes * self.states
        said = [
            f"weights {size_text(self.weights)}",
            f"KV of {self.tokens:,} token{'' if self.tokens == 1 else 's'} {size_text(kv)}",
        ]
        if states:
            said.append(
                f"linear states of {self.states:,} request{'' if self.states == 1 else 's'} {size_text(states)}"
            )
        return ", ".join(said)


def size_text(size_bytes: float) -> str:
    """A size in the unit that suits it; 1 GB is 10^9 bytes."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:.4g} {unit}"
    return f"{size_bytes:.0f} bytes"


def footprint(setting: Setting, convolution_dtype: str = "bfloat16") -> Footprint | None:
    """What one rank of the role needs at least; None where the model is not known, or only encodes.

    Tokens and requests are those that the options name; one of each where they name none.
    """
    model = setting.model
    if model is None or model.layers is None or model.number("hidden_size") is None or setting.on("encoder-only"):
        return None
    return Footprint(
        weights=_weight_bytes(model, setting),
        kv_token_bytes=_kv_token_bytes(model, setting),
        state_bytes=_state_bytes(model, setting, convolution_dtype),
        tokens=max(0, setting.size("max-total-tokens", setting.size("context-length", 1))),
        states=max(
            1, setting.size("max-mamba-cache-size", setting.size("max-running-requests", 1) // _groups(setting))
        ),
    )


def capacity_bytes(setting: Setting, memory_gb: float, is_gpu: bool) -> float:
    """What weights and pools may take of `memory_gb`."""
    whole = memory_gb * GB
    if setting.on("mem-fraction-static"):
        return whole * setting.number("mem-fraction-static", 1.0)
    return whole - RESERVED_BYTES if is_gpu else whole


def _groups(s: Setting) -> int:
    return s.ranks("attn-dp-size")


def _weight_bytes(model: ModelFacts, s: Setting) -> float:
    """Experts and dense layers are split over all ranks, attention over those of its group; the head as it is asked for."""
    layer_bytes, whole_bytes = _bytes_of_weights(s)
    tp = s.ranks("tp-size")
    head_ranks = s.attention_tp if s.on("enable-dp-lm-head") else tp
    vocabulary = _n(model, "vocab_size") * _n(model, "hidden_size") * whole_bytes
    drafts = _n(model, "num_nextn_predict_layers") if s.on("speculative-algorithm") else 0
    full, linear = (model.full_layers or 0) + drafts, model.linear_layers
    attention = full * _full_attention(model) + linear * _linear_attention(model)
    dense_layers = min(_n(model, "first_k_dense_replace"), model.layers or 0) if model.experts else model.layers or 0
    sparse_layers = (model.layers or 0) - dense_layers + drafts
    dense = dense_layers * 3 * _n(model, "hidden_size") * _n(model, "intermediate_size")
    feed_forward = (dense + sparse_layers * _experts(model, s)) / tp
    return (
        layer_bytes * (attention / s.attention_tp + feed_forward)
        + vocabulary / s.attention_tp
        + vocabulary / head_ranks
    )


def _bytes_of_weights(s: Setting) -> tuple[float, float]:
    """Bytes of a weight in the layers, and of one in the vocabulary, which stays unquantised."""
    plain = DTYPE_BYTES.get(s.text("dtype", "auto"), 2)
    quantization = s.text("quantization")
    if quantization in FOUR_BIT:
        return 0.5625, plain  # 4 bits and one 8-bit scale for 16 weights
    return (1, plain) if quantization in EIGHT_BIT else (plain, plain)


def _full_attention(model: ModelFacts) -> float:
    hidden, heads = _n(model, "hidden_size"), _n(model, "num_attention_heads")
    if not model.number("kv_lora_rank"):
        head = model.number("head_dim") or hidden // max(1, heads)
        return hidden * head * (2 * heads + 2 * (model.number("num_key_value_heads") or heads))
    q_rank, kv_rank = _n(model, "q_lora_rank"), _n(model, "kv_lora_rank")
    nope, rope, value = _n(model, "qk_nope_head_dim"), _n(model, "qk_rope_head_dim"), _n(model, "v_head_dim")
    projections = hidden * q_rank + q_rank * heads * (nope + rope) + hidden * (kv_rank + rope)
    projections += kv_rank * heads * (nope + value) + heads * value * hidden
    index_heads, index_head = _n(model, "index_n_heads"), _n(model, "index_head_dim")
    return projections + q_rank * index_heads * index_head + hidden * (index_head + index_heads)


def _linear_attention(model: ModelFacts) -> float:
    """Query, key, value and output; two gates of low rank; beta; the short convolution."""
    hidden, heads, head = _n(model, "hidden_size"), _n(model, "linear_num_heads"), _n(model, "linear_head_dim")
    wide = heads * head
    return (
        4 * hidden * wide + 2 * head * (hidden + wide) + hidden * heads + 3 * wide * _n(model, "linear_conv_kernel_dim")
    )


def _experts(model: ModelFacts, s: Setting) -> float:
    expert = 3 * _n(model, "hidden_size") * _n(model, "moe_intermediate_size")
    count = (model.experts or 0) + s.size("ep-num-redundant-experts", 0) + _n(model, "n_shared_experts")
    return count * expert + _n(model, "hidden_size") * (model.experts or 0)


def _kv_token_bytes(model: ModelFacts, s: Setting) -> float:
    stated = s.text("kv-cache-dtype", "auto")
    if stated == "auto":
        stated = s.text("dtype", "auto")
    size = DTYPE_BYTES.get(stated, 1)
    layers = model.full_layers or 0
    if not model.number("kv_lora_rank"):
        head = model.number("head_dim") or _n(model, "hidden_size") // max(1, _n(model, "num_attention_heads"))
        heads = -(-(model.number("num_key_value_heads") or _n(model, "num_attention_heads")) // s.attention_tp)
        return 2 * layers * heads * head * size
    keys = 0.0
    if model.index_topk is not None:
        keys = (_n(model, "index_head_dim") + 4) / (model.index_kpool or 1)  # 8-bit keys, a float32 scale each 128
    return layers * ((_n(model, "kv_lora_rank") + _n(model, "qk_rope_head_dim")) * size + keys)


def _state_bytes(model: ModelFacts, s: Setting, convolution_dtype: str) -> float:
    head = _n(model, "linear_head_dim")
    heads = _n(model, "linear_num_heads") / s.attention_tp
    size, conv = DTYPE_BYTES.get(s.text("mamba-ssm-dtype", "float32"), 4), DTYPE_BYTES.get(convolution_dtype, 2)
    state = heads * head * head * size
    window = 3 * heads * head * max(0, _n(model, "linear_conv_kernel_dim") - 1) * conv
    ring = 0.0
    if s.on("enable-linear-replayssm") or s.on("enable-linear-replayssm-spec"):
        steps = s.size("linear-replayssm-cache-len", 16)
        ring = heads * head * steps * (2 * size + 4)  # d, k in the state's dtype; g in float32
    return model.linear_layers * (state + window + ring)


def _n(model: ModelFacts, name: str) -> int:
    return model.number(name) or 0
