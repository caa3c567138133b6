"""The interpreter is believed only after it has shown that it rounds like a GPU."""

import io
import json
import re
import shutil
from pathlib import Path

import numpy
import pytest
from kernel_sources import INCUMBENT

from serving.errors import Broken
from tasks import bubblewrap as module
from tasks.bubblewrap import SCRIPTS
from tasks.compiled import compile_arm
from tasks.ending import Limits
from tasks.interpreted import _results, interpret, make_expected
from tasks.problem import Problem
from tasks.recorded import Recording
from tasks.sandbox import run_sandboxed
from tasks.staging import UntrustedResult
from tasks.toolchain import environment

SELF_TEST = """
import json, os, sys
os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, "/scripts")
import rounding
before = rounding.self_test()
rounding.install()
json.dump([before, rounding.self_test()], open("/stage/found.json", "w"))
"""


def recording(problem: Problem) -> Recording:
    return compile_arm(problem, problem.incumbent, environment(90)).recording


@pytest.fixture
def scripts(sandbox: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of our workers that a test may damage."""
    folder = Path(shutil.copytree(SCRIPTS, tmp_path / "scripts"))
    monkeypatch.setattr(module, "SCRIPTS", folder)
    return folder


def test_the_self_test_fails_without_the_correction_and_passes_with_it(scripts: Path, tmp_path: Path) -> None:
    (scripts / "script.py").write_text(SELF_TEST)
    stage = tmp_path / "stage"
    stage.mkdir()
    ending = run_sandboxed("script.py", [], stage, Limits())
    assert ending.kind == "ok", ending.output_tail
    without, corrected = json.loads((stage / "found.json").read_text())
    assert "does not round fp32 to torch.bfloat16" in without
    assert corrected is None


def test_an_interpreter_that_rounds_wrongly_is_our_fault(scripts: Path, tiny: Problem) -> None:
    worker = scripts / "interpret.py"
    worker.write_text(worker.read_text().replace("    rounding.install()\n", ""))
    with pytest.raises(Broken, match="the Triton interpreter cannot be trusted"):
        interpret(tiny, recording(tiny), make_expected(tiny, 1).inputs)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"nonce": numpy.array("n")}, "does not hold the results"),
        ({"x": 1, "out": numpy.zeros(2, "float32")}, "does not carry the nonce"),
        ({"out": numpy.zeros(1 << 20, "float32")}, "`default_fp32/out` in outputs.npz does not have the size"),
        ({"out": numpy.zeros((2, 1, 2, 128), "int32")}, "does not have the shape or dtype"),
    ],
)
def test_arrays_that_were_not_asked_for_are_refused_before_they_are_unpacked(
    tiny: Problem, arrays: dict[str, object], words: str
) -> None:
    named = {"nonce": numpy.array("n" if "x" not in arrays else "m")}
    named |= {f"default_fp32/{name}": numpy.asarray(x) for name, x in arrays.items() if name not in ("nonce", "x")}
    if "out" in arrays:
        named["default_fp32/state"] = numpy.zeros((4, 2, 128, 128), "float32")
    file = io.BytesIO()
    numpy.savez(file, **named)  # type: ignore[arg-type]
    with pytest.raises(UntrustedResult, match=re.escape(words)):
        _results(tiny, file.getvalue(), "n")


def test_a_bomb_of_compressed_zeros_is_refused(tiny: Problem) -> None:
    named = {"nonce": numpy.array("n"), "default_fp32/out": numpy.zeros(1), "default_fp32/state": numpy.zeros(1)}
    file = io.BytesIO()
    numpy.savez_compressed(file, **named)  # type: ignore[arg-type]
    with pytest.raises(UntrustedResult, match="does not have the size"):
        _results(tiny, file.getvalue(), "n")


def test_neither_inputs_nor_exact_results_ever_reach_the_candidates_folder(tiny: Problem) -> None:
    spy = INCUMBENT.replace(
        "import triton\n", "import os\nimport triton\nassert False, sorted(os.listdir('/stage'))\n", 1
    )
    failure = compile_arm(tiny, tiny.incumbent.model_copy(update={"source": spy}), environment(90)).failure
    assert "['candidate.py', 'request.json']" in str(failure)
