"""Code behind a branch counts as often as its lines ran; straight-line code keeps its plain count."""

import pytest

from tasks.branch_weights import weighted
from tasks.control_flow import loops, stretches
from tasks.disassembly import Instruction
from tasks.records import digest
from tasks.sass import Code, CodeBlock, LineWork


def op(opcode: str, target: int | None = None, conditional: bool = False) -> Instruction:
    return Instruction(opcode=opcode, conditional=conditional, line=1, target=target)


def code(*blocks: tuple[bool, dict[int, int]]) -> Code:
    built = tuple(
        CodeBlock(always=always, lines={n: LineWork(instructions=x, mufu=0, pipes={}) for n, x in lines.items()})
        for always, lines in blocks
    )
    return Code(
        name="k", text_sha256=digest("text"), instructions=sum(x for _, lines in blocks for x in lines.values()), mufu={},
        pipes={}, widths={}, global_bytes=0, global_wide_bytes=0, bulk_copies=0, registers=32, spill_bytes=0,
        static_shared_bytes=0, loops=False, blocks=built,
    )  # fmt: skip


def count(work: LineWork) -> int:
    return work.instructions


FLUSH = code((True, {10: 800, 20: 5}), (False, {20: 80, 10: 8}), (False, {22: 32}))


def test_a_flush_in_one_step_of_eight_counts_an_eighth() -> None:
    shares = {20: 1 / 8, 22: 7 / 8}
    assert weighted(FLUSH, shares, count) == pytest.approx(805 + 88 / 8 + 32 * 7 / 8)


def test_without_shares_everything_counts_once() -> None:
    assert weighted(FLUSH, {}, count) == FLUSH.instructions
    assert weighted(code((True, {1: 1632})), {}, count) == 1632


def test_a_block_within_a_block_does_not_make_its_parent_as_rare() -> None:
    assert weighted(code((False, {20: 80, 21: 2})), {20: 1 / 8, 21: 1 / 64}, count) == pytest.approx(82 / 8)


def test_a_few_rare_instructions_do_not_make_the_work_beside_them_rare() -> None:
    predicated = code((True, {10: 20}), (False, {30: 1213, 40: 32}))
    assert weighted(predicated, {40: 1 / 20}, count) == pytest.approx(20 + 1213 + 32 / 20)


def test_a_slow_path_of_lines_that_always_run_counts_once() -> None:
    assert weighted(code((True, {1: 100}), (False, {1: 20})), {9: 0.5}, count) == 120


def test_only_what_no_path_avoids_always_runs() -> None:
    branch = [op("MOV"), op("BRA", 3, True), op("FADD"), op("FMUL"), op("EXIT")]
    assert [(x.start, x.end, x.always) for x in stretches(branch)] == [(0, 2, True), (2, 3, False), (3, 5, True)]
    either = [op("BRA", 3, True), op("FADD"), op("BRA", 4), op("FMUL"), op("EXIT")]
    assert [x.always for x in stretches(either)] == [True, False, False, True]
    early = [op("EXIT", None, True), op("FADD"), op("EXIT")]
    assert [x.always for x in stretches(early)] == [True, False]


def test_a_branch_backwards_or_to_an_unknown_place_is_a_loop() -> None:
    assert loops([op("FADD"), op("BRA", 0, True)])
    assert loops([op("BRX"), op("EXIT")])
    assert not loops([op("BRA", 1, True), op("EXIT")])
