"""Kernel problems that are small enough to judge often."""

import json
import shutil
from collections.abc import Callable

import pytest
import yaml

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
