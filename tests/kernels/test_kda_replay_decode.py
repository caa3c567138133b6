"""ReplaySSM is kda_decode that writes late: the same outputs, the same state after a flush, and at L = 1 the same bits."""

import importlib.util
import io
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from serving.errors import BadInput
from tasks.compiled import compile_arm
from tasks.definition import Check
from tasks.hypothesis_file import load_hypothesis
from tasks.interpreted import interpret, make_expected
from tasks.problem import KERNELS, Problem, load_problem
from tasks.records import KernelCandidate
from tasks.toolchain import environment

FOLDER = KERNELS / "kda_replay_decode"
AXES = {"B": 2, "H": 3, "K": 8, "V": 4, "slots": 5, "L": 4, "pair": 2}


def module(problem: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{problem}_reference", KERNELS / problem / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    return module("kda_replay_decode")


def workload(**changes: object) -> dict[str, Any]:
    scalars = {"scale": 0.5, "lower_bound": -5.0}
    return {"name": "w", "steps": 10, "activation": "float32", "inputs": {}, "scalars": scalars, **changes}


def play(reference: ModuleType, asked: dict[str, Any], axes: dict[str, int] = AXES) -> tuple[list[Any], list[Any]]:
    """All steps in fp64: (what each step was given, what it gave). Copies are made as the caller makes them."""
    fixed, per_step = reference.make_inputs(asked, axes, 7)
    kept = {name: fixed[name].double() for name in ("state", "ring_d", "ring_k", "ring_g") if name in fixed}
    given, found = [], []
    for step in range(asked["steps"]):
        now = {name: x[step] for name, x in per_step.items()}
        source, target = now.get("copied", torch.tensor([-1, -1])).tolist()
        if source >= 0:
            kept = {name: x.clone() for name, x in kept.items()}
            for x in kept.values():
                x[target] = x[source]
        given.append({**fixed, **now, **kept})
        found.append(reference.step(given[-1], asked["scalars"]))
        kept = {name: found[-1][name] for name in kept}
    return given, found


def decoded(given: list[Any], scalars: dict[str, Any]) -> list[Any]:
    """The same requests by kda_decode, each slot with a state of its own: exact only from rings that start empty."""
    decode, state, found = module("kda_decode"), given[0]["state"], []
    for now in given:
        source, target = now["copied"].tolist()
        state = state.clone()
        if source >= 0:
            state[target] = state[source]
        found.append(decode.step({**now, "state": state}, scalars))
        state = found[-1]["state"]
    return found


@pytest.mark.parametrize(
    "inputs", [{}, {"force_flush": {"mean": 0.4}}, {"copied": {"mean": 0.7}}, {"a": {"mean": -8.0}}]
)
def test_outputs_are_those_of_kda_decode_whenever_the_state_is_written(replay: ModuleType, inputs: Any) -> None:
    asked = workload(inputs=inputs, steps=14)
    given, found = play(replay, asked)
    for now, ours, theirs in zip(given, found, decoded(given, asked["scalars"]), strict=True):
        torch.testing.assert_close(ours["out"], theirs["out"], rtol=1e-9, atol=1e-11)
        for row, slot in enumerate(now["state_index"].tolist()):
            if now["write_pos"][row] == AXES["L"] - 1 or now["force_flush"][row]:
                torch.testing.assert_close(ours["state"][slot], theirs["state"][slot], rtol=1e-9, atol=1e-11)


def test_a_plain_step_writes_one_ring_entry_and_no_state_and_a_flush_the_reverse(replay: ModuleType) -> None:
    given, found = play(replay, workload(inputs={"force_flush": {"mean": 0.3}}, steps=12))
    seen = set()
    for now, ours in zip(given, found, strict=True):
        for row, slot in enumerate(now["state_index"].tolist()):
            flush = bool(now["write_pos"][row] == AXES["L"] - 1 or now["force_flush"][row])
            seen.add(flush)
            assert torch.equal(ours["state"][slot], now["state"][slot].double()) is not flush
            changed = (ours["ring_k"][slot] != now["ring_k"][slot]).any(-1).any(0).nonzero().flatten().tolist()
            assert changed == ([] if flush else [int(now["write_pos"][row])])
    assert seen == {True, False}


def test_one_step_after_one_ring_entry_worked_by_hand(replay: ModuleType) -> None:
    one = torch.ones(1, 1, 1)
    tensors = {
        "q": 2.0 * one, "k": 3.0 * one, "v": 7.0 * one, "a": 0 * one, "b": torch.zeros(1, 1),  # beta 1/2, gate -1/2
        "A_log": torch.zeros(1), "dt_bias": torch.zeros(1, 1), "state": torch.full((1, 1, 1, 1), 10.0),
        "ring_d": torch.tensor([[[[4.0], [99.0]]]]), "ring_k": torch.tensor([[[[1.0], [99.0]]]]),
        "ring_g": torch.tensor([[[[-1.0], [99.0]]]]), "state_index": torch.tensor([0]),
        "write_pos": torch.tensor([1]), "force_flush": torch.tensor([0]),
    }  # fmt: skip
    found = replay.step(tensors, {"scale": 1.0, "lower_bound": -1.0})
    before = (10 * np.exp(-1) + 4) * np.exp(-0.5)
    after = before + 0.5 * (7 - before)
    assert found["out"].item() == pytest.approx(after, rel=1e-6)
    assert found["state"].item() == pytest.approx(after, rel=1e-6)  # position 1 of L = 2 flushes


def test_the_schedule_keeps_the_rules_of_the_cache(replay: ModuleType) -> None:
    asked = workload(steps=60, inputs={n: {"mean": 0.3} for n in ("force_flush", "reset", "copied")})
    given, _ = play(replay, asked)
    position, copies = [0] * AXES["slots"], 0
    for now in given:
        source, target = now["copied"].tolist()
        if source >= 0:
            copies += 1
            assert position[source] == 0, "only a flushed slot is copied"
            assert source != target
            position[target] = 0
        for row, slot in enumerate(now["state_index"].tolist()):
            assert now["write_pos"][row] in (position[slot], 0), (
                "it advances once a step, and a new request starts at 0"
            )
            assert slot < AXES["slots"] - 1
            flush = now["write_pos"][row] == AXES["L"] - 1 or now["force_flush"][row]
            position[slot] = 0 if flush else int(now["write_pos"][row]) + 1
    assert copies > 3


def test_what_does_not_depend_on_the_length_of_the_ring_is_drawn_alike_for_every_length(replay: ModuleType) -> None:
    drawn = [replay.make_inputs(workload(), {**AXES, "L": L}, 3) for L in (1, 4)]
    for name in ("q", "k", "v", "a", "b"):
        assert torch.equal(drawn[0][1][name], drawn[1][1][name])
    assert torch.equal(drawn[0][0]["state"], drawn[1][0]["state"])


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem("kda_replay_decode")


def test_checks_cover_two_cycles_both_gates_forced_flushes_and_copies(problem: Problem) -> None:
    checks = {x.name: x for x in problem.workloads.checks}
    assert checks["two_cycles_fp32"].steps == 2 * problem.axes_of(checks["two_cycles_fp32"])["L"] + 2
    assert {"force_flush", "reset", "copied"} <= {name for x in checks.values() for name in x.inputs}
    assert any(x.scalars.get("lower_bound", 0) is None for x in checks.values())
    assert all(problem.cycle_of(x) == 16 for x in problem.workloads.timings)


def test_the_length_of_the_ring_is_an_option_of_an_arm_and_must_be_a_size(problem: Problem) -> None:
    short = problem.incumbent.model_copy(update={"launch": {"L": 1, "BV": 64}})
    assert problem.tuned(short).axes_of(problem.workloads.timings[0])["L"] == 1
    assert problem.options_of(short) == {"BV": 64}
    for wrong in (0, "many", 1.5):
        with pytest.raises(BadInput, match="launch option `L"):
            problem.tuned(problem.incumbent.model_copy(update={"launch": {"L": wrong}}))


def test_replay_is_held_against_the_same_kernel_with_a_ring_of_one() -> None:
    asked = load_hypothesis(FOLDER / "hypotheses" / "replay_is_faster.yaml")
    assert asked.target.model_dump()["incumbent_launch"] == {"L": 1}


@pytest.mark.parametrize("path", sorted((FOLDER / "hypotheses").glob("*.yaml")), ids=lambda path: path.stem)
def test_each_hypothesis_names_a_source_that_exists(path: Path) -> None:
    written = yaml.safe_load(path.read_text())
    assert (path.parent / written["change"]["source"]).is_file()
    assert written["target"]["problem"] == "kda_replay_decode"


def small(problem: Problem, checks: tuple[Check, ...]) -> Problem:
    workloads = problem.workloads.model_copy(update={"checks": checks, "timings": problem.workloads.timings[:1]})
    return problem.model_copy(update={"workloads": workloads})


def interpreted(problem: Problem, candidate: KernelCandidate, inputs: bytes) -> dict[str, Any]:
    compiled = compile_arm(problem, candidate, environment(90))
    assert compiled.failure is None
    assert compiled.recording is not None
    found = interpret(problem, compiled.recording, inputs)
    assert found.fault is None
    return found.arrays


@pytest.mark.usefixtures("sandbox")
def test_with_a_ring_of_one_the_incumbents_of_both_problems_are_equal_bit_for_bit(problem: Problem) -> None:
    """In the interpreter; on hardware: not run."""
    names = ("default_fp32", "default_bf16", "slow_decay_fp32")
    decode = load_problem("kda_decode")
    checks = tuple(x.model_copy(update={"twins": ()}) for x in decode.workloads.checks if x.name in names)
    decode, one = small(decode, checks), problem.incumbent.model_copy(update={"launch": {"L": 1, "num_warps": 1}})
    short = small(problem, checks).tuned(one)
    expected = make_expected(short, 11)
    inputs = io.BytesIO()
    np.savez(inputs, **{n: x for n, x in expected.first.items() if n.split("/")[1] in decode.definition.inputs})
    ours = interpreted(short, one, expected.inputs)
    theirs = interpreted(decode, decode.incumbent, inputs.getvalue())
    for name in names:
        for result in ("out", "state"):
            assert ours[f"{name}/{result}"].tobytes() == theirs[f"{name}/{result}"].tobytes()
