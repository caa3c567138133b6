"""Peers and our own kernels go through one worker: it must count what the rungs count, and charge peers for torch."""

import sys
from pathlib import Path

import pytest

from serving.home import REPOSITORY
from tasks.compiled import compile_arm
from tasks.definition import Check
from tasks.interpreted import make_expected
from tasks.problem import Problem, load_problem
from tasks.sass import read_code
from tasks.toolchain import environment

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

from kernel_peers import floor_bytes, sources_of
from peers.measured import Source, build, check
from peers.page import page

pytestmark = pytest.mark.usefixtures("sandbox")
# Copies an input with torch before it launches, and gives a new output instead of the one that it got.
WRAPPED = """
import torch
from types import ModuleType
inner = ModuleType("inner")
exec(compile(open("/stage/kernel.py").read(), "/stage/kernel.py", "exec"), inner.__dict__)

def run(q, *others):
    *middle, out, scale, lower_bound = others
    made = torch.empty_like(out)
    inner.run(q.clone(), *middle, made, scale, lower_bound)
    return made
"""


@pytest.fixture(scope="module")
def problem() -> Problem:
    """kda_decode with one check and two production shapes."""
    whole = load_problem("kda_decode")
    few = {
        "checks": tuple(
            Check(**{**x.model_dump(), "steps": 1, "twins": ()})
            for x in whole.workloads.checks
            if x.name == "default_bf16"
        ),
        "timings": tuple(x for x in whole.workloads.timings if x.name in ("tp8_b1", "tp1_b256")),
    }
    return whole.model_copy(update={"workloads": whole.workloads.model_copy(update=few)})


def wrapped(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> Source:
    from peers import measured

    real = measured.files_of
    monkeypatch.setattr(measured, "files_of", lambda source: {**real(source), "kernel.py": problem.incumbent.source})
    return Source(name="wrapped", of="a test", adapter=WRAPPED)


def test_our_kernel_compiles_to_the_same_code_as_in_the_static_rung(problem: Problem) -> None:
    (ours, *_) = sources_of(problem)
    found = build(problem, ours, 90)
    compiled = compile_arm(problem, problem.incumbent, environment(90))
    (launch,) = compiled.workloads["tp8_b1"]
    code = read_code(compiled.cubin(launch))
    assert found.counts["tp8_b1"].instructions == code.instructions * launch.warps
    assert found.counts["tp1_b256"].programs == 256 * 64 * 4
    assert found.compiled is not None
    (same,) = found.compiled.workloads["tp8_b1"]
    assert read_code(found.compiled.cubin(same)).text_sha256 == code.text_sha256
    assert found.counts["tp8_b1"].launches == 1


def test_a_torch_operation_of_a_peer_counts_as_a_launch_and_what_it_returns_is_the_output(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = wrapped(problem, monkeypatch)
    found = build(problem, source, 90)
    assert found.fault is None
    assert (found.counts["tp8_b1"].launches, found.counts["tp8_b1"].torch_operations) == (2, 1)
    assert found.compiled is not None
    (launch,) = found.compiled.workloads["tp8_b1"]
    assert "out" in {x.buffer for x in launch.arguments}
    checked = check(problem, source, list(problem.workloads.checks), make_expected(problem, 0))
    assert checked.fault is None
    error = checked.errors["default_bf16/out"]
    assert error is not None
    assert error < 3.5e-3


def test_a_peer_that_fails_is_a_fault_and_not_a_figure(problem: Problem) -> None:
    found = build(problem, Source(name="x", of="x", adapter="import nothing_of_that_name\n"), 90)
    assert "nothing_of_that_name" in (found.fault or "")
    assert not found.counts


def test_the_floor_counts_a_state_both_ways_and_a_ring_half_full() -> None:
    for name, state_passes, ring_passes in (("kda_decode", 2.0, 0.0), ("kda_replay_decode", 17 / 16, 8.4375 / 16)):
        problem = load_problem(name)
        (timing,) = [x for x in problem.workloads.timings if x.name == "tp1_b256"]
        big = 256 * 64 * 4 * (state_passes * 128 * 128 + ring_passes * 3 * 16 * 128)
        assert 1 < floor_bytes(problem, timing) / big < 1.02


def counts(instructions: int) -> dict[str, object]:
    return {
        "instructions": instructions, "mufu": 16384, "registers": 99, "spill_bytes": 0, "programs": 7, "warps": 28,
        "programs_per_sm": 3, "launches": 2, "torch_operations": 1, "loops": True,
    }  # fmt: skip


def test_the_page_gives_ratios_to_the_incumbent_and_says_what_was_not_run() -> None:
    def row(name: str, instructions: int, fault: str | None = None) -> dict[str, object]:
        built = {"fault": fault, "counts": {} if fault else {"tp1_b256": counts(instructions)}}
        checked = {"fault": None, "errors": {"c_fp32/out": 1.5e-7, "c_fp32/state": None}, "unique_bytes": {}}
        return {"name": name, "of": "v1", "sm": {"sm_90": built}, "checked": checked, "time_us": None}

    rows = [row("ours", 16384 * 100), row("peer", 16384 * 150), row("absent", 0, "not run: no such file")]
    ieee = {"c_fp32": {"out": 1e-7, "state": 1e-7}}
    found = {
        "date": "d", "machine": "m", "versions": {"triton": "t"}, "bytes_at": "b",
        "problems": [{"problem": "kda_decode", "rows": rows, "checks": ["c_fp32"], "ieee": ieee, "floor_bytes": {},
                      "floor_us": {"tp1_b256": 1.0}}],
    }  # fmt: skip
    text = page(found)
    assert "2,457,600 (+50.0 %)" in text
    assert "| tp1_b256 | 1.00 | not run | not run | not run |" in text
    assert "not run: no such file" in text
    assert "not finite" in text


@pytest.mark.engine
def test_the_peers_compute_the_same_step(problem: Problem) -> None:
    expected = make_expected(problem, 0)
    for source in sources_of(problem)[-2:]:
        checked = check(problem, source, list(problem.workloads.checks), expected)
        assert checked.fault is None
        error = checked.errors["default_bf16/out"]
        assert error is not None
        assert error < 3.5e-3


def test_every_adapter_imports_its_package_and_copies_no_kernel() -> None:
    for path in (REPOSITORY / "benchmarks" / "peers").glob("*.py"):
        assert "triton.jit" not in Path(path).read_text()
