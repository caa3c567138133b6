"""Static counts: plausible, exact, tied to the machine code, and silent where the code does not tell."""

import json
from pathlib import Path

import pytest
from kernel_sources import candidate, catalogue, other_kernel

from serving.home import home
from tasks.build import build_kernel
from tasks.challenge_prediction import BYTES, STATIC
from tasks.compiled import compile_arm
from tasks.judge_static import judge_static
from tasks.problem import Problem
from tasks.records import Arm, Block, Evidence, KernelCandidate, digest
from tasks.static import measure_static
from tasks.toolchain import environment

pytestmark = pytest.mark.usefixtures("shared_builds")
BOTH = (Arm.INCUMBENT, Arm.CANDIDATE)
LOOP = other_kernel(
    "    tl.store(tile, memory)\n",
    "    for i in range(tl.load(state_index + request)):\n        memory = memory * 0.5\n    tl.store(tile, memory)\n",
)


def measure(problem: Problem, source: KernelCandidate, arms: tuple[Arm, ...] = BOTH) -> Evidence:
    return measure_static(problem, source, build_kernel(problem, source, digest("a hypothesis"), arms=arms), arms=arms)


def block(
    evidence: Evidence,
    arm: Arm,
    observable: str,
    part: str | None = None,
    workload: str = "tp8_b8",
    arch: str | None = None,
) -> Block:
    wanted = (arm, observable, part, workload, arch)
    (found,) = [b for b in evidence.blocks if (b.arm, b.observable, b.part, b.workload, b.arch) == wanted]
    return found


def value(
    evidence: Evidence,
    arm: Arm,
    observable: str,
    part: str | None = None,
    workload: str = "tp8_b8",
    arch: str | None = None,
) -> float:
    found = block(evidence, arm, observable, part, workload, arch).value
    assert found is not None
    return found


def test_hoisting_emits_less_work_and_takes_the_special_functions_out_of_the_main_kernel(tiny: Problem) -> None:
    evidence = measure(tiny, catalogue("hoist_gate"))
    before, after = (value(evidence, arm, "warp_instructions") for arm in BOTH)
    assert 0.7 < after / before < 0.95
    assert value(evidence, Arm.CANDIDATE, "mufu") < 0.3 * value(evidence, Arm.INCUMBENT, "mufu")
    observed = {
        b.observable: b.unit for b in evidence.blocks if b.observable not in (*BYTES, "code_changed", "line_share")
    }
    assert observed.items() <= STATIC.items(), "what is observed can be predicted, in the same unit"
    assert value(evidence, Arm.CANDIDATE, "mufu", "update_state") == 0
    assert value(evidence, Arm.CANDIDATE, "launches") == 2
    parts = sum(value(evidence, Arm.CANDIDATE, "warp_instructions", part) for part in ("prologue", "update_state"))
    assert after == parts


def test_a_reciprocal_emits_a_little_less_work(tiny: Problem) -> None:
    evidence = measure(tiny, catalogue("reciprocal"))
    before, after = (value(evidence, arm, "warp_instructions") for arm in BOTH)
    assert 0.95 < after / before < 0.999


def test_totals_are_one_warps_instructions_times_warps_times_programs(tiny: Problem) -> None:
    evidence = measure(tiny, catalogue("reciprocal"))
    small, large = (value(evidence, Arm.INCUMBENT, "warp_instructions", workload=w) for w in ("tp8_b1", "tp8_b8"))
    assert large == 8 * small
    assert value(evidence, Arm.INCUMBENT, "programs") == 4 * 8 * 8
    file, _ = evidence.files
    table = json.loads(Path(home(), file.path).read_text())
    (code,) = table["incumbent"]["codes"].values()
    assert small == code["instructions"] * 1 * 4 * 8 * 1
    assert digest(Path(home(), file.path).read_bytes()) == file.sha256


def test_the_incumbent_spills_nothing_and_moves_nearly_all_bytes_by_wide_accesses(tiny: Problem) -> None:
    evidence = measure(tiny, tiny.incumbent, (Arm.CANDIDATE,))
    assert value(evidence, Arm.CANDIDATE, "spill_bytes", "kda_decode") == 0
    assert 64 < value(evidence, Arm.CANDIDATE, "registers", "kda_decode") < 255
    assert value(evidence, Arm.CANDIDATE, "wide_share") > 0.9
    assert value(evidence, Arm.CANDIDATE, "programs_per_sm", "kda_decode") >= 4


def test_one_arm_alone_has_no_comparison(tiny: Problem) -> None:
    evidence = measure(tiny, catalogue("reciprocal"), (Arm.CANDIDATE,))
    assert {b.arm for b in evidence.blocks} == {Arm.CANDIDATE}
    assert not [b for b in evidence.blocks if b.observable == "code_changed"]


def test_the_incumbent_under_other_names_is_the_same_machine_code(tiny: Problem) -> None:
    renamed = candidate("# a comment\n" + tiny.incumbent.source.replace("memory", "tile_of_state"))
    evidence = measure(tiny, renamed)
    assert {b.value for b in evidence.blocks if b.observable == "code_changed"} == {0.0}


def test_work_in_a_loop_is_unknown_rather_than_small(tiny: Problem) -> None:
    evidence = measure(tiny, candidate(LOOP))
    total = block(evidence, Arm.CANDIDATE, "warp_instructions")
    assert total.value is None
    assert "has a loop" in str(total.reason)


def test_a_lost_alignment_shows_as_lost_width(tiny: Problem) -> None:
    narrow = other_kernel("+ cols[None, :]\n    memory", "+ (cols * heads // heads)[None, :]\n    memory")
    evidence = measure(tiny, candidate(narrow))
    wide = [value(evidence, arm, "wide_share") for arm in BOTH]
    assert wide[1] < wide[0] - 0.5


def test_both_architectures_are_looked_at_and_the_builds_own_decides(tiny: Problem) -> None:
    evidence = measure(tiny, catalogue("reciprocal"))
    facts = evidence.environment.facts
    assert facts["arch"] == "sm_90"
    assert facts["ptxas_sm_100"] == environment(100).facts["ptxas"]
    counts = {arch: value(evidence, Arm.INCUMBENT, "warp_instructions", arch=arch) for arch in (None, "sm_100")}
    assert counts[None] != counts["sm_100"]
    assert value(evidence, Arm.CANDIDATE, "warp_instructions", arch="sm_100") < counts["sm_100"]
    first, second = (json.loads(Path(home(), file.path).read_text()) for file in evidence.files)
    assert (first["arch"], second["arch"]) == ("sm_90", "sm_100")
    judged = judge_static(evidence, tiny.criteria, answers=True)
    assert f"{100 * (value(evidence, Arm.CANDIDATE, 'warp_instructions') / counts[None] - 1):+.1f} %" in judged.reason
    assert [f.locus.name for f in judged.findings if f.locus.kind == "code_change"] == ["sm_100"]


def test_a_spill_on_the_other_architecture_is_a_gate_too(tiny: Problem) -> None:
    evidence = measure(tiny, catalogue("reciprocal"))
    spilled = [
        b.model_copy(update={"value": 8.0}) if (b.observable, b.arch, b.arm) == ("spill_bytes", "sm_100", "candidate") else b
        for b in evidence.blocks
    ]  # fmt: skip
    judged = judge_static(evidence.model_copy(update={"blocks": tuple(spilled)}), tiny.criteria, answers=True)
    assert judged.outcome == "REJECTED"
    assert "on sm_100" in judged.reason


def test_a_build_for_blackwell_is_judged_by_its_own_counts(tiny: Problem) -> None:
    build = build_kernel(tiny, catalogue("reciprocal"), digest("a hypothesis"), arch=100)
    evidence = measure_static(tiny, catalogue("reciprocal"), build)
    assert evidence.environment.facts["arch"] == "sm_100"
    assert "ptxas_sm_90" in evidence.environment.facts
    assert value(evidence, Arm.CANDIDATE, "warp_instructions") < value(evidence, Arm.INCUMBENT, "warp_instructions")


@pytest.mark.parametrize(("tile", "times"), [(16, 8), (32, 4), (64, 2)])
def test_the_lines_that_every_tile_repeats_are_named_with_how_many_times(tiny: Problem, tile: int, times: int) -> None:
    evidence = measure(tiny, candidate(tiny.incumbent.source, BV=tile), (Arm.CANDIDATE,))
    (repeated,) = [
        b for b in evidence.blocks if b.observable == "repetitions" and b.part and b.workload == "tp8_b8" and not b.arch
    ]
    assert repeated.value == times
    norms_and_gate = [
        i for i, x in enumerate(tiny.incumbent.source.splitlines(), 1) if "tl.sqrt(" in x or "gate =" in x
    ]
    assert f"lines {norms_and_gate[0]}-" in str(repeated.part)
    assert "along axis 0" in str(repeated.part)
    share = value(evidence, Arm.CANDIDATE, "repeated_mufu") / value(evidence, Arm.CANDIDATE, "mufu")
    assert share > 0.5


def test_a_hoisted_prologue_is_repeated_by_no_tile(tiny: Problem) -> None:
    evidence = measure(tiny, catalogue("hoist_gate"))
    assert [value(evidence, arm, "repetitions") for arm in BOTH] == [4, 1]
    assert value(evidence, Arm.CANDIDATE, "repeated_warp_instructions") == 0
    assert not [b for b in evidence.blocks if b.arm is Arm.CANDIDATE and b.observable == "repetitions" and b.part]


def test_every_instruction_is_attributed_to_a_line_of_the_kernel(tiny: Problem) -> None:
    file, _ = measure(tiny, tiny.incumbent, (Arm.CANDIDATE,)).files
    (code,) = json.loads(Path(home(), file.path).read_text())["candidate"]["codes"].values()
    source = tiny.incumbent.source.splitlines()
    assert sum(x["instructions"] for x in code["lines"].values()) == code["instructions"]
    assert sum(x["mufu"] for x in code["lines"].values()) == sum(code["mufu"].values())
    roots = {
        source[int(line) - 1].strip()[:5]
        for line, x in code["lines"].items()
        if x["mufu"] == 2 and "sqrt" in source[int(line) - 1]
    }
    assert roots == {"query", "key ="}


def test_each_block_of_a_cluster_counts_as_work(tiny: Problem) -> None:
    (launch,) = compile_arm(tiny, tiny.incumbent, environment(90)).workloads["tp8_b8"]
    assert launch.model_copy(update={"num_ctas": 2}).warps == 2 * launch.warps
