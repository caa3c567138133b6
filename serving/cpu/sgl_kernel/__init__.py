"""The part of the CPU kernel library that a `glm4_moe` or `glm5_next` server calls; everything else is absent by name."""

import torch
from absent_names import AbsentSubmodules, absent, absent_attributes

from sgl_kernel.w8a8 import int8_scaled_mm_with_quant

__version__ = "0.0+infra.agent"

_library = torch.library.Library("sgl_kernel", "FRAGMENT")


def _initialize(size: int, rank: int) -> None:
    """Shared-memory collectives: with one rank there is nobody to share with."""
    if size != 1:
        raise NotImplementedError(f"`sgl_kernel.initialize` with `{size}` ranks: serving/cpu serves one rank")


def _init_cpu_threads_env(cpu_ids: str) -> str:
    """Binds no thread; returns the text that SGLang logs."""
    return f"serving/cpu: threads are not bound, asked for cores {cpu_ids}"


_library.define("initialize(int size, int rank) -> ()")
_library.impl("initialize", _initialize, "CompositeExplicitAutograd")
_library.define("init_cpu_threads_env(str cpu_ids) -> str")
_library.impl("init_cpu_threads_env", _init_cpu_threads_env, "CompositeExplicitAutograd")

torch.ops.sgl_kernel.int8_scaled_mm_with_quant = int8_scaled_mm_with_quant

# Operators of other models and formats, some of which modules on the way to ours look up when they are imported.
LOOKED_UP = (
    "fused_gdn_gating_cpu", "fused_qk_gemma_rmsnorm_cpu", "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu", "fused_sigmoid_gating_delta_rule_update_cpu",
    "fused_sigmoid_mul_cpu",
    "fused_experts_cpu",
)  # fmt: skip
for _name in LOOKED_UP:
    setattr(torch.ops.sgl_kernel, _name, absent(f"torch.ops.sgl_kernel.{_name}"))

AbsentSubmodules("sgl_kernel")
__getattr__ = absent_attributes("sgl_kernel")
