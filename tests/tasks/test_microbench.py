"""Without a GPU nothing is timed and nothing is claimed. What needs a GPU is tested where one is."""

import ctypes
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from kernel_sources import catalogue

from serving.errors import Broken
from tasks import microbench
from tasks.build import build_kernel
from tasks.compiled import Compiled
from tasks.microbench import REPLAY, gpu, measure_microbench, request_of
from tasks.problem import Problem, load_problem
from tasks.records import Arm, digest

pytestmark = pytest.mark.usefixtures("shared_builds")
GATE = digest("numerics evidence")


@pytest.fixture
def replay() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replay", REPLAY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_the_rung_is_not_run(tiny: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbench, "gpu", lambda: None)
    build = build_kernel(tiny, catalogue("reciprocal"), digest("a hypothesis"), arms=(Arm.CANDIDATE,))
    evidence = measure_microbench(tiny, catalogue("reciprocal"), build, gate=GATE)
    assert (evidence.not_run, evidence.blocks, evidence.gate) == ("no GPU", (), None)


def test_a_timing_without_its_gate_is_refused(tiny: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(microbench, "gpu", lambda: {"gpu": "example", "gpu_driver": "1", "gpu_mig": "Disabled"})
    build = build_kernel(tiny, catalogue("reciprocal"), digest("a hypothesis"), arms=(Arm.CANDIDATE,))
    with pytest.raises(Broken, match="without its numerics evidence"):
        measure_microbench(tiny, catalogue("reciprocal"), build, gate=None)


def test_each_arm_is_timed_on_the_sizes_that_it_asks_for_over_whole_cycles() -> None:
    problem = load_problem("kda_replay_decode")
    short = problem.incumbent.model_copy(update={"launch": {"L": 1}})
    timings = problem.workloads.timings[:1]
    problem = problem.model_copy(update={"workloads": problem.workloads.model_copy(update={"timings": timings})})
    asked = {Arm.INCUMBENT: problem.tuned(short), Arm.CANDIDATE: problem}
    none = Compiled(folder=Path("builds"), workloads={timings[0].name: ()})
    request = request_of(asked, dict.fromkeys(asked, none), seed=1)
    arms = {arm: x["workloads"][timings[0].name] for arm, x in request["arms"].items()}
    assert [arms[arm]["axes"]["L"] for arm in Arm] == [1, 16]
    assert [arms[arm]["steps"] for arm in Arm] == [1, 16]
    rings = [next(x for x in arms[arm]["arguments"] if x["name"] == "ring_d")["shape"][2] for arm in Arm]
    assert rings == [1, 16]
    assert all(set(order) == set(Arm) for order in request["orders"][timings[0].name])


def test_launch_arguments_are_packed_in_order_with_buffer_offsets(replay: ModuleType) -> None:
    arguments = [
        {"type": "*fp32", "buffer": "q", "offset_bytes": 64},
        {"type": "i32", "value": 7},
        {"type": "fp32", "value": -5.0},
    ]
    values = replay.pack(arguments, {"q": 4096})
    assert [type(x) for x in values[:3]] == [ctypes.c_uint64, ctypes.c_int32, ctypes.c_float]
    assert [x.value for x in values] == [4160, 7, -5.0, 0, 0]
    with pytest.raises(replay.KernelFault, match="tensordesc"):
        replay.pack([{"type": "tensordesc<fp32[64]>", "value": 0}], {})


@pytest.mark.skipif(
    gpu() is None, reason="no GPU: run `pytest tests/tasks/test_microbench.py` on a machine that has one"
)
def test_both_arms_are_timed_in_pairs_on_a_gpu(tiny: Problem) -> None:
    source = catalogue("hoist_gate")
    evidence = measure_microbench(tiny, source, build_kernel(tiny, source, digest("a hypothesis")), gate=GATE)
    assert evidence.candidate_fault is None
    assert len(evidence.blocks) == 2 * microbench.PAIRS * len(tiny.workloads.timings)
    assert all(proof.proved for proof in evidence.engagement)
