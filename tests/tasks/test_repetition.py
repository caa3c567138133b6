"""Repeated work is what a line computes along an axis that it does not depend on; loads alone are none."""

import pytest

from tasks.compiled import Launch
from tasks.line_axes import Line
from tasks.records import digest
from tasks.repetition import ranges, repetitions
from tasks.sass import Code, CodeBlock, LineWork


def launch(*grid: int) -> Launch:
    return Launch(
        kernel="k", source=digest("k"), grid=grid, constexprs={}, scalars={}, specialised={}, arguments=(), scratch_bytes={},
        cubin=digest("cubin"), num_warps=2, num_stages=1, num_ctas=1, shared_bytes=0, global_scratch_bytes=0,
    )  # fmt: skip


def code(**pipes_of_line: dict[str, int]) -> Code:
    lines = {
        int(name.removeprefix("line")): LineWork(
            instructions=sum(pipes.values()), mufu=pipes.get("mufu", 0), pipes=pipes
        )
        for name, pipes in pipes_of_line.items()
    }
    return Code(
        name="k", text_sha256=digest("text"), instructions=1, mufu={}, pipes={}, widths={}, global_bytes=0,
        global_wide_bytes=0, bulk_copies=0, registers=32, spill_bytes=0, static_shared_bytes=0, loops=False,
        blocks=(CodeBlock(always=True, lines=lines),),
    )  # fmt: skip


def line(*values: int) -> Line:
    return Line(values=frozenset(values), decided=frozenset(), stretch=1)


LINES = {1: line(1), 2: line(1), 3: line(0, 1), 4: line(1)}
WORK = code(line1={"fp32": 3, "mufu": 2}, line2={"fp32": 1}, line3={"fp32": 9}, line4={"memory": 5, "integer": 2})


def test_each_program_along_the_axis_repeats_the_lines_that_do_not_depend_on_it() -> None:
    (found,) = repetitions(launch(4, 8, 1), WORK, LINES)
    assert (found.name, found.times) == ("k lines 1-2 along axis 0", 4)
    assert (found.warp_instructions, found.mufu) == (6 * 2 * 32, 2 * 2 * 32)


@pytest.mark.parametrize("grid", [(1, 8, 1), (1, 8, 16)])
def test_an_axis_of_one_program_or_that_nothing_depends_on_repeats_nothing(grid: tuple[int, int, int]) -> None:
    assert repetitions(launch(*grid), WORK, LINES) == []


def test_lines_that_only_load_are_no_repeated_work() -> None:
    assert repetitions(launch(4, 8, 1), code(line4={"memory": 5, "integer": 2}), LINES) == []


@pytest.mark.parametrize(("numbers", "text"), [([29, 30, 31, 33], "29-31, 33"), ([7], "7"), ([], "")])
def test_lines_are_named_in_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text
