"""Hypotheses as the files that people write."""

from pathlib import Path

import pytest
from examples import stack_hypothesis

from serving.home import REPOSITORY
from serving.stack import load_stack
from tasks.folder import write_folder
from tasks.hypothesis_file import load_hypothesis
from tasks.records import CodePatch, Hypothesis, StackTarget
from tasks.written_out import files_of

STACK = "serving/stacks/tiny-glm-cpu.yaml"
CATALOGUE = [
    REPOSITORY / path
    for path in (
        "kernels/kda_decode/hypotheses/hoist_gate.yaml",
        "kernels/kda_replay_decode/hypotheses/replay.yaml",
        "kernels/kda_cpu/hypotheses/fused_cpp_service.yaml",
        "serving/hypotheses/chunked_prefill.yaml",
    )
]


def written(hypothesis: Hypothesis, folder: Path) -> Hypothesis:
    write_folder(files_of([hypothesis]), folder)
    (file,) = folder.glob("*/hypothesis.yaml")
    return load_hypothesis(file)


@pytest.mark.parametrize("path", CATALOGUE, ids=lambda path: path.stem)
def test_a_hypothesis_that_is_written_out_and_read_again_is_the_same(path: Path, tmp_path: Path) -> None:
    asked = load_hypothesis(path).model_copy(update={"origin": "model"})
    again = written(asked, tmp_path / "out")
    assert again == asked
    assert again.id == asked.id


def test_a_patch_is_a_file_of_its_own(tmp_path: Path) -> None:
    diff = "--- a/sglang/x.py\n+++ b/sglang/x.py\n@@ -1 +1 @@\n-a\n+b\n"
    scenario = "serving/scenarios/mixed-lengths-cpu.yaml"
    target = StackTarget(stack=STACK, scenario=scenario, incumbent_digest=load_stack(REPOSITORY / STACK).digest)
    change = CodePatch(package="sglang", version="0.5.23", diff=diff)
    asked = stack_hypothesis().model_copy(update={"target": target, "change": change})
    assert written(asked, tmp_path / "out") == asked
    assert next((tmp_path / "out").glob("*/change.diff")).read_text() == diff


def test_folders_are_numbered_and_named_by_title_however_it_is_spelled() -> None:
    asked = load_hypothesis(CATALOGUE[0])
    odd = asked.model_copy(update={"title": "../../etc: 漢字 / " + "x" * 90})
    only = asked.model_copy(update={"title": "漢字"})
    folders = sorted({name.split("/")[0] for name in files_of([asked, odd, only])})
    assert folders[0] == "01-norms-and-gate-once-per-head-in-a-prologue-kerne"
    assert folders[1].startswith("02-etc-xxx")
    assert folders[2] == "03"
