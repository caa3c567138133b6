"""A line depends on an axis of the grid if a program's index on it can reach the line; what is not understood does."""

import pytest

from tasks.line_axes import ALL, lines_of
from tasks.problem import KERNELS

HEAD = "import triton\nimport triton.language as tl\nimport other\n\n\n"
HELPER = "@triton.jit\ndef helper(x):\n    return x + tl.program_id(1)\n\n\n"


def axes_of_last_line(body: str, before: str = "") -> frozenset[int]:
    source = f"{HEAD}{before}@triton.jit\ndef kernel(p, n):\n" + "".join(f"    {x}\n" for x in body.splitlines())
    return lines_of(source, "kernel")[len(source.splitlines())].values


@pytest.mark.parametrize(
    ("body", "axes"),
    [
        ("x = 1.0", set()),
        ("x = tl.program_id(0)", {0}),
        ("x = tl.program_id(axis=2)", {2}),
        ("i = tl.program_id(0)\nj = i * 2\nx = tl.load(p + j)", {0}),
        ("x = tl.num_programs(0) + n", set()),
        ("i = tl.program_id(0)\ni = 1\nx = i", {0}),
        ("x = 0\nif tl.load(p + tl.program_id(1)) > 0:\n    x = 1\ny = x", {1}),
        ("if tl.program_id(0) > 0:\n    return\nx = 1.0", {0}),
        ("for i in range(tl.program_id(2)):\n    p += 1\ntl.store(p, 1.0)", {2}),
        ("x = 0\nfor i in range(4):\n    y = x\n    x = tl.program_id(0)\nz = y", {0}),
        ("for i in range(4):\n    x = 1\n    if tl.program_id(0) == i:\n        break\ny = x", {0}),
        ("a, b = tl.program_id(0), 1\nx = b", {0}),
        ("x = tl.load(p).to(tl.float32)", set()),
        ("x = (tl.load(p) + tl.program_id(1)).to(tl.float32)", {1}),
        ("x = tl.sum(tl.load(p + tl.arange(0, 4)), axis=0)", set()),
    ],
)
def test_an_axis_reaches_what_is_computed_from_its_index(body: str, axes: set[int]) -> None:
    assert axes_of_last_line(body) == axes


@pytest.mark.parametrize(
    "body",
    [
        "x = tl.program_id(n)",
        "x = other.thing(p)",
        "x = unknown(p)",
        "x = tl.atomic_add(p, 1)",
        "x = tl.inline_asm_elementwise('mov.u32 $0, %ctaid.x;', '=r', [], tl.int32, True, 1)",
        "x = [y for y in p]",
        "with other.thing():\n    x = 1\ny = x",
    ],
)
def test_what_is_not_understood_depends_on_every_axis(body: str) -> None:
    assert axes_of_last_line(body) == ALL


def test_a_device_function_brings_the_axes_that_it_asks_for() -> None:
    assert axes_of_last_line("x = helper(tl.program_id(0))", HELPER) == {0, 1}


def test_functions_that_call_each_other_often_are_read_once_each() -> None:
    chain = "".join(f"@triton.jit\ndef f{i}(x):\n    return f{i + 1}(x) + f{i + 1}(x)\n\n\n" for i in range(40))
    last = "@triton.jit\ndef f40(x):\n    return x * tl.program_id(2)\n\n\n"
    assert axes_of_last_line("x = f0(tl.program_id(0))", chain + last) == {0, 2}


def test_a_function_that_calls_itself_is_not_understood() -> None:
    assert axes_of_last_line("x = f(p)", "@triton.jit\ndef f(x):\n    return f(x)\n\n\n") == ALL


def test_an_expression_too_deep_to_read_claims_nothing() -> None:
    source = f"{HEAD}@triton.jit\ndef kernel(p, n):\n    x = {' + '.join(['p'] * 3000)}\n"
    assert lines_of(source, "kernel") == {}


def test_data_decides_about_a_branch_otherwise_than_an_index() -> None:
    source = (
        f"{HEAD}@triton.jit\ndef kernel(p, n):\n    i = tl.program_id(0)\n    if tl.load(p + i) > 0:\n"
        "        x = 1\n    if i > 0:\n        y = 1\n"
    )
    by_data, by_index = (lines_of(source, "kernel")[line] for line in (10, 12))
    assert (by_data.values, by_data.decided) == ({0}, frozenset())
    assert (by_index.values, by_index.decided) == ({0}, {0})


def test_a_stretch_begins_with_a_block_and_after_a_branch() -> None:
    source = f"{HEAD}@triton.jit\ndef kernel(p, n):\n    x = 1\n    y = 2\n    if n:\n        x = 2\n        y = 3\n    x = 4\n"
    assert {line: x.stretch for line, x in lines_of(source, "kernel").items()} == {
        8: 8,
        9: 8,
        10: 8,
        11: 11,
        12: 11,
        13: 13,
    }


def test_a_condition_on_the_line_of_its_branch_runs_as_often_as_what_is_before_it() -> None:
    source = f"{HEAD}@triton.jit\ndef kernel(p, n):\n    x = p\n    if heavy(x) > 1: y = 2\n"
    assert {line: x.stretch for line, x in lines_of(source, "kernel").items()} == {8: 8, 9: 8}


def test_lines_of_one_statement_belong_together() -> None:
    source = f"{HEAD}@triton.jit\ndef kernel(p, n):\n    x = (\n        p\n        + tl.program_id(1)\n    )\n"
    found = lines_of(source, "kernel")
    assert {line: x.stretch for line, x in found.items()} == dict.fromkeys(range(8, 12), 8)
    assert {x.values for x in found.values()} == {frozenset({1})}


def test_a_kernel_that_the_source_does_not_define_has_no_lines() -> None:
    assert lines_of(HEAD, "kernel") == {}


def test_only_the_state_and_the_value_of_the_incumbent_depend_on_the_tile() -> None:
    source = (KERNELS / "kda_decode" / "incumbent.py").read_text()
    text = source.splitlines()
    of_tile = [text[line - 1].strip() for line, x in lines_of(source, "kda_decode").items() if 0 in x.values]
    assert [x.split(" ")[0] for x in of_tile[:3]] == ["rows", "value", "tile"]
    assert not [x for x in of_tile if x.startswith(("gate", "query", "key", "beta"))]
