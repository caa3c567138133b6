"""What stands in the lines of a kernel is read from what was handed over, and not from the file."""

from typing import Any

from tasks.line_axes import lines_of
from tasks.recorded import text_of

TRITON = {"tl": {"module": "triton.language"}}


def function(name: str, line: int, body: str, **names: Any) -> dict[str, Any]:
    text = f"@triton.jit\ndef {name}(p):\n    {body}\n"
    return {"name": name, "line": line, "text": text, "names": {**TRITON, **names}}


HELPER = function("helper", 3, "return tl.program_id(1)")


def test_functions_stand_on_their_lines_and_know_what_they_use() -> None:
    kernel = function("kernel", 10, "x = tl.load(p) + helper(p)", helper={"function": 1})
    text = text_of([kernel, HELPER])
    assert text.splitlines()[10] == "def kernel(p):"
    assert lines_of(text, "kernel")[12].values == {1}


def test_nothing_is_claimed_where_a_name_means_two_things() -> None:
    exchanged = function("kernel", 10, "x = other(p)", other={"function": 1})
    assert lines_of(text_of([exchanged, HELPER]), "kernel")[12].values == {0, 1, 2}
    other = function("other", 20, "return p")
    assert text_of([exchanged, HELPER, other]) == "\n"
    assert text_of([HELPER, function("helper", 30, "return p")]) == "\n"
    assert text_of([function("kernel", 10, "x = p"), function("second", 20, "x = p", tl={"module": "math"})]) == "\n"
