"""The part of the CPU kernel library that a `glm4_moe` server calls; everything else is absent by name."""

import torch
from absent_names import AbsentSubmodules, absent_attributes

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

AbsentSubmodules("sgl_kernel")
__getattr__ = absent_attributes("sgl_kernel")
