"""Kernel problems that are small enough to judge often, and a service run against fake servers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from service_setup import OPTIONS, Setup

from serving.engine_env import Engine
from tasks.problem import KERNELS, Problem, load_problem

MakeProblem = Callable[..., Problem]


@pytest.fixture(scope="session")
def make_problem(tmp_path_factory: pytest.TempPathFactory) -> MakeProblem:
    """kda_decode with few checks and timings; keyword arguments change its limits."""

    def make(
        checks: tuple[str, ...] = ("default_fp32",),
        timings: tuple[str, ...] = ("tp8_b1", "tp8_b8"),
        twins: bool = False,
        **limits: int,
    ) -> Problem:
        folder = tmp_path_factory.mktemp("problem") / "kda_decode"
        folder.mkdir()
        for name in ("definition.yaml", "reference.py", "incumbent.py"):
            shutil.copy(KERNELS / "kda_decode" / name, folder)
        workloads = json.loads((KERNELS / "kda_decode" / "workloads.json").read_text())
        workloads["checks"] = [
            {**x, "steps": 2, "twins": x.get("twins", []) if twins else []}
            for x in workloads["checks"]
            if x["name"] in checks
        ]
        workloads["timings"] = [x for x in workloads["timings"] if x["name"] in timings]
        (folder / "workloads.json").write_text(json.dumps(workloads))
        criteria = yaml.safe_load((KERNELS / "kda_decode" / "criteria.yaml").read_text())
        criteria["limits"] |= {"cpu_s": 60, "wall_s": 200} | limits
        (folder / "criteria.yaml").write_text(yaml.safe_dump(criteria))
        return load_problem(folder)

    return make


@pytest.fixture(scope="session")
def tiny(make_problem: MakeProblem) -> Problem:
    return make_problem()


@pytest.fixture(scope="session")
def make_cpu_problem(tmp_path_factory: pytest.TempPathFactory) -> MakeProblem:
    """kda_cpu with few checks and one timing; keyword arguments change its limits."""

    def make(checks: tuple[str, ...] = ("default_fp32", "tiny_bf16"), **limits: int) -> Problem:
        folder = tmp_path_factory.mktemp("problem") / "kda_cpu"
        shutil.copytree(KERNELS / "kda_cpu", folder)
        workloads = json.loads((folder / "workloads.json").read_text())
        workloads["checks"] = [x for x in workloads["checks"] if x["name"] in checks]
        workloads["timings"] = workloads["timings"][:1]
        (folder / "workloads.json").write_text(json.dumps(workloads))
        criteria = yaml.safe_load((folder / "criteria.yaml").read_text())
        criteria["limits"] |= limits
        criteria["microbench"] |= {"noise_pairs": 4, "most_pairs": 3}
        (folder / "criteria.yaml").write_text(yaml.safe_dump(criteria))
        return load_problem(folder)

    return make


@pytest.fixture(scope="session")
def small_cpu(make_cpu_problem: MakeProblem) -> Problem:
    return make_cpu_problem()


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    made = Setup(tmp_path)
    installed = Engine(Path("python"), {"sglang": "0.5.23", "torch": "2", "transformers": "5", "python": "3.11"}, "x")
    monkeypatch.setattr("tasks.service.running_together", made.running_together)
    for place in ("serving.arguments", "serving.engagement"):
        monkeypatch.setattr(f"{place}.known_arguments", lambda: OPTIONS)
    for place in ("serving.arguments", "tasks.service_environment", "tasks.service_code"):
        monkeypatch.setattr(f"{place}.engine", lambda: installed)
    return made
