"""A winner reaches the engine by its problem's patch: it fits the engine's file, and calls `run` as the problem defines it."""

import ast
import subprocess
from pathlib import Path

import pytest

from serving.engine_env import engine
from tasks.problem import KERNELS, load_problem

TEMPLATES = sorted(KERNELS.glob("*/splice.patch"))


@pytest.mark.engine
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.parent.name)
def test_the_patch_fits_the_engine_and_calls_run_with_the_arguments_of_the_definition(
    template: Path, tmp_path: Path
) -> None:
    """`git apply` refuses a patch whose context is not that of the installed file."""
    (packages,) = engine().python.parent.parent.glob("lib/python3.*/site-packages")
    problem = load_problem(template.parent.name)
    assert problem.definition.splice is not None
    assert problem.definition.splice.patch == template.name
    text = template.read_text().replace("{module}", "winner")
    (target,) = [line.removeprefix("+++ b/").split("\t")[0] for line in text.splitlines() if line.startswith("+++ ")]
    copy = tmp_path / target
    copy.parent.mkdir(parents=True)
    copy.write_text((packages / target).read_text())
    done = subprocess.run(
        ["git", "apply", "--no-index", "-"], input=text, text=True, cwd=tmp_path, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    calls = [x for x in ast.walk(ast.parse(copy.read_text())) if isinstance(x, ast.Call)]
    (call,) = [x for x in calls if ast.unparse(x.func) == "candidate.run"]
    assert len(call.args) == len(problem.arguments_of(problem.workloads.timings[0]))


def test_every_kernel_problem_of_the_engine_with_a_patch_file_names_it() -> None:
    assert {path.parent.name for path in TEMPLATES} >= {"kda_decode", "kda_replay_decode", "w8a8_linear"}
