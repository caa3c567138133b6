"""Kernel problems with a few of their checks and timings."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from types import ModuleType

import pytest

from tasks.problem import KERNELS, Problem, load_problem

SomeChecks = Callable[[str, tuple[str, ...], tuple[str, ...]], Problem]


@pytest.fixture(scope="session")
def some_checks(tmp_path_factory: pytest.TempPathFactory) -> SomeChecks:
    """A problem with those checks and timings alone, by name."""

    def make(name: str, checks: tuple[str, ...], timings: tuple[str, ...]) -> Problem:
        folder = tmp_path_factory.mktemp("problem") / name
        shutil.copytree(KERNELS / name, folder)
        workloads = json.loads((folder / "workloads.json").read_text())
        for key, names in (("checks", checks), ("timings", timings)):
            workloads[key] = [x for x in workloads[key] if x["name"] in names]
            assert len(workloads[key]) == len(names)
        (folder / "workloads.json").write_text(json.dumps(workloads))
        return load_problem(folder)

    return make


@pytest.fixture(scope="session")
def reference_of() -> Callable[[str], ModuleType]:
    """The reference.py of a problem, imported by path."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_reference", KERNELS / name / "reference.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load
