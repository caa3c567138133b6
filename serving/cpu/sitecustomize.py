"""Loaded by every engine process on a machine without a GPU, through PYTHONPATH, before anything else.

What this folder is: SGLang's wheel reaches its CPU path only through two packages that no CPU wheel carries: the CPU
build of `sgl_kernel`, and `triton`. The packages beside this file let the unmodified wheel import. The few operators
that a tiny `glm4_moe` calls are plain torch; every other name raises when it is called, with its name. What runs is the
real scheduler, batching, cache, HTTP server and metrics. It says nothing about the speed of GPU kernels.

Linear attention (KDA) would be a module `sgl_kernel/linear_attention.py`, registered from `sgl_kernel/__init__.py`.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Sequence
from types import ModuleType

SGLANG = "0.5.23"


class _BeforeImport(importlib.abc.MetaPathFinder):
    """Prepares the process right before `sglang` or `torchvision` is first imported; finds nothing itself."""

    def __init__(self) -> None:
        self.kept: list[object] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == "sglang":
            refuse_other_versions()
        if name == "torchvision" and not self.kept:
            self.kept.append(declare_torchvision_operators())
        return None


def refuse_other_versions() -> None:
    """Exits the process with a message when the engine is not the version that the stand-ins were written against."""
    found = importlib.metadata.version("sglang")
    if found != SGLANG:
        raise SystemExit(
            f"serving/cpu stands in for kernels of sglang `{SGLANG}`, this environment has `{found}`\n"
            f"hint: install sglang=={SGLANG} (`make engine`), or port serving/cpu to `{found}` and run its tests"
        )


def declare_torchvision_operators() -> object:
    """The torchvision wheel's own library links CUDA and cannot load; its Python part expects these two to exist."""
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


sys.meta_path.insert(0, _BeforeImport())
