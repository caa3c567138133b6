"""What is put into SGLang's own modules on a machine without a GPU, each time right after the import of the module.

A name that is not there, or one that should be missing and is there, ends the process: then this SGLang is not the one
that these kernels were written against, and it would serve something else than is said here.
"""

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any


def put(name: str, home: str, as_name: str = "", was_there: bool = True) -> Callable[[ModuleType], None]:
    """Puts `as_name` (by default `name`) of the module `home` in the place of `name`, or of nothing when it was not there."""

    def into(module: ModuleType) -> None:
        check(module, name, was_there)
        setattr(module, name, getattr(importlib.import_module(home), as_name or name))

    return into


def absorbed_mla(module: ModuleType) -> None:
    """The torch backend has no handler of its own, and the one it inherits wants a backend that expands the latent cache."""
    for name in ("AttentionBackendRegistry", "_dispatch_mla_subtype"):
        check(module, name, was_there=True)
    module.AttentionBackendRegistry.register("torch_native", module._dispatch_mla_subtype)


def our_w8a8(module: ModuleType) -> None:
    """SGLang's CPU path gives its kernel of the experts no SwiGLU limit, and its kernels take no float32; ours do."""
    for name in ("W8A8Int8MoEMethod", "W8A8Int8Config"):
        check(module, name, was_there=True)
    check(module.MoeRunnerConfig, "swiglu_limit", was_there=True)
    kernels = importlib.import_module("sgl_kernel.w8a8")
    module.W8A8Int8MoEMethod.apply = kernels.apply_experts
    module.W8A8Int8Config.get_supported_act_dtypes = staticmethod(lambda: kernels.ACTIVATIONS)


def dense_attention(module: ModuleType) -> None:
    """Kernels of sparse attention (DSA) need CUDA."""
    for name in ("is_deepseek_dsa", "ModelConfig"):
        check(module, name, was_there=True)
    importlib.import_module("dense_attention").serve_dense(module)


def check(module: Any, name: str, was_there: bool) -> None:
    if hasattr(module, name) != was_there:
        raise SystemExit(
            f"serving/cpu: `{module.__name__}` {'has no' if was_there else 'already has a'} `{name}`\n"
            "hint: the installed sglang is not the release it says it is; make its environment again with `make engine`"
        )


given = functools.partial(put, was_there=False)

AFTER_IMPORT: dict[str, tuple[Callable[[ModuleType], None], ...]] = {
    "sglang.srt.layers.attention.linear.kernels.kda_triton": (
        given("chunk_kda", "sgl_kernel.linear_attention"),
        given("fused_sigmoid_gating_delta_rule_update", "sgl_kernel.linear_attention"),
    ),
    "sglang.kernels.ops.mamba.causal_conv1d_triton": (
        put("causal_conv1d_fn", "sgl_kernel.mamba", "causal_conv1d_fn_cpu"),
    ),
    "sglang.kernels.ops.attention.fla.fused_norm_gate": (put("rms_norm_gated", "sgl_kernel.pointwise"),),
    "sglang.kernels.ops.activation.silu_and_mul_clamp": (put("silu_and_mul_clamp", "sgl_kernel.pointwise"),),
    "sglang.srt.layers.quantization.w8a8_int8": (
        put("_is_cpu_arm64", "sgl_kernel.w8a8", "UNPACKED_WEIGHTS"),
        our_w8a8,
    ),
    "sglang.srt.configs.model_config": (dense_attention,),
    "sglang.srt.model_loader.loader": (given("left_out", "dense_attention"),),
    "sglang.srt.models.deepseek_common.attention_backend_handler": (absorbed_mla,),
    "sglang.srt.disaggregation.prefill": (put("torch", "host_torch", "TORCH"),),
    "sglang.srt.disaggregation.encoder.server": (put("torch", "host_torch", "TORCH"),),
}
