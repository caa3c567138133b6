"""Loaded by every engine process through PYTHONPATH, before anything else: it reports what runs there, to whoever started it.

`INFRA_AGENT_WATCH` is the path of a JSON file: `reports`, a folder; `modules`, names whose file is told as this process
read it; `functions`, as `module:qualified.name`, whose calls and time are counted; `install`, a module after whose import
`splice.install()` is called. What an engine process tells stands in `<reports>/<pid>.json`, its counters in
`<pid>.counts`: calls and nanoseconds of each function as int64. serving/witness.py reads both.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

LOADER = "sglang.srt.model_loader.loader"


def customize_further() -> None:
    """Runs the `sitecustomize` that this one stands before on the path, if there is one."""
    here = Path(__file__).resolve().parent
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class _Watching(importlib.abc.MetaPathFinder):
    """Has the watched modules found as anybody would, and looked at once their own code has run."""

    def __init__(self, watched: frozenset[str]) -> None:
        self.watched = watched

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self.watched:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Reporting(spec.loader)
        return spec


class _Reporting(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        from watched_process import imported

        imported(module)

    def __getattr__(self, name: str) -> object:
        """`inspect` asks the loader for the source."""
        return getattr(self.loader, name)


customize_further()
if os.environ.get("INFRA_AGENT_WATCH"):
    asked = json.loads(Path(os.environ["INFRA_AGENT_WATCH"]).read_text())
    of_functions = [function.partition(":")[0] for function in asked["functions"]]
    installing = [asked["install"]] if asked["install"] else []
    sys.meta_path.insert(0, _Watching(frozenset([LOADER, *asked["modules"], *of_functions, *installing])))
