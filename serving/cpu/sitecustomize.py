"""Loaded by every engine process on a machine without a GPU, through PYTHONPATH, before anything else.

What this folder is: SGLang's wheel reaches its CPU path only through two packages that no CPU wheel carries: the CPU
build of `sgl_kernel`, and `triton`. The packages beside this file let the unmodified wheel import. The operators that a
tiny `glm4_moe` or `glm5_next` calls are plain torch; `replaced_names.py` says where they are put. Every other name raises
when it is called, with its name. What runs is the real scheduler, batching, cache, transfer, HTTP server and metrics. It
says nothing about the speed of GPU kernels.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from collections.abc import Sequence
from types import ModuleType

from replaced_names import AFTER_IMPORT

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


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds the modules of `AFTER_IMPORT` as anybody would, and has them changed once their own code has run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in AFTER_IMPORT:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _ChangingLoader(spec.loader)
        return spec


class _ChangingLoader(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        for change in AFTER_IMPORT[module.__name__]:
            change(module)

    def __getattr__(self, name: str) -> object:
        """`inspect` asks the loader for the source."""
        return getattr(self.loader, name)


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


sys.meta_path[:0] = [_BeforeImport(), _AfterImport()]
