"""What the candidates of kda_decode are said to do, in the machine code: fewer instructions, chains, early loads."""

from collections import Counter

import pytest

from tasks.compiled import Launch, compile_arm
from tasks.disassembly import disassemble
from tasks.problem import KERNELS, Problem
from tasks.records import KernelCandidate
from tasks.sass import Code, read_code
from tasks.toolchain import environment

pytestmark = pytest.mark.usefixtures("shared_builds")
WARP_WAITS = ("BAR", "MUFU", "SHFL")


def built(problem: Problem, name: str, **launch: int) -> tuple[Launch, Code, list[str]]:
    """The launch at tp8_b8 on sm_90, what its code counts, and its opcodes in order."""
    source = (KERNELS / "kda_decode" / f"{name}.py").read_text()
    compiled = compile_arm(
        problem, KernelCandidate(source_name=f"{name}.py", source=source, launch=launch), environment(90)
    )
    assert compiled.failure is None
    (found,) = compiled.workloads["tp8_b8"]
    cubin = compiled.cubin(found)
    return found, read_code(cubin), [x.opcode for x in disassemble(cubin).functions[0].body]


def test_a_row_over_four_lanes_needs_few_shuffles_and_keeps_wide_accesses(tiny: Problem) -> None:
    before, after = built(tiny, "incumbent"), built(tiny, "row_lanes")
    shuffles = [sum(x.startswith("SHFL") for x in opcodes) for _, _, opcodes in (before, after)]
    assert shuffles[1] < 0.15 * shuffles[0]
    assert after[1].instructions < 0.7 * before[1].instructions
    for width in ("LDG.128", "STG.128"):
        assert after[1].widths[width] == before[1].widths[width]


def test_chains_of_multiply_adds_leave_hardly_an_addition_and_no_division(tiny: Problem) -> None:
    _, code, opcodes = built(tiny, "fma_chain")
    kinds = Counter(x.split(".")[0] for x in opcodes)
    assert kinds["FFMA"] >= 3 * 32 * 128 // 32  # three of four passes over a tile of 32 x 128, in a warp
    assert kinds["FADD"] < 70
    assert "RCP" not in code.mufu
    assert code.spill_bytes == 0
    assert code.instructions < 0.6 * built(tiny, "incumbent")[1].instructions


def test_the_state_is_on_its_way_before_anything_waits(tiny: Problem) -> None:
    _, _, opcodes = built(tiny, "fma_chain")
    wide = [i for i, x in enumerate(opcodes) if x.startswith("LDG") and "128" in x]
    first_wait = next(i for i, x in enumerate(opcodes) if x.startswith(WARP_WAITS))
    assert len(wide) >= 32
    assert max(wide) < first_wait


def test_one_lane_to_a_row_spills(tiny: Problem) -> None:
    assert built(tiny, "row_lanes", CHUNK=4)[1].spill_bytes > 0


def test_the_grid_is_the_incumbents(tiny: Problem) -> None:
    assert built(tiny, "fma_chain")[0].grid == built(tiny, "incumbent")[0].grid
