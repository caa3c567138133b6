"""A patch applies exactly where it says, or is refused with the reason."""

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.patch import Patched, PatchFault, apply_patch, touched_functions

OLD = """\
import os


class A:
    def f(self):
        return 1


def g():
    def inner():
        return 2

    return inner()


X = 3
"""


def diff(new: str, old: str = OLD, path: str = "p/m.py", context: int = 3) -> str:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), f"a/{path}", f"b/{path}", lineterm="", n=context)
    return "\n".join(lines) + "\n"


def apply(text: str, old: str = OLD) -> Patched:
    (found,) = apply_patch(text, lambda path: old).values()
    return found


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "  d", "-e", "+f", "@@"]), max_size=12)


@given(LINES, LINES, st.integers(0, 3))
def test_any_change_of_any_text_is_applied_as_difflib_wrote_it(old: list[str], new: list[str], context: int) -> None:
    before, after = ("".join(f"{line}\n" for line in text) for text in (old, new))
    if before != after:
        assert apply(diff(after, before, context=context), before).text == after


@pytest.mark.parametrize(
    ("change", "functions"),
    [
        (("return 1", "return 7"), ("A.f",)),
        (("return 2", "return 7"), ("g",)),
        (("X = 3", "X = 4"), ()),
    ],
)
def test_the_functions_that_a_patch_touches_are_named_the_outermost_of_nested_ones(
    change: tuple[str, str], functions: tuple[str, ...]
) -> None:
    assert touched_functions(apply(diff(OLD.replace(*change)))) == functions


def test_a_patch_that_leaves_no_python_is_refused() -> None:
    with pytest.raises(PatchFault, match="IndentationError"):
        touched_functions(apply(diff(OLD.replace("        return 1\n", ""))))


def test_a_function_that_only_lost_a_line_is_touched() -> None:
    old = "def f():\n    a = 1\n    b = 2\n    return 3\n"
    assert touched_functions(apply(diff(old.replace("    a = 1\n", ""), old), old)) == ("f",)


SMALL = "--- a/p/m.py\n+++ b/p/m.py\n@@ -1,1 +1,1 @@\n-import os\n+import sys\n"
FAULTS = {
    "no hunk": "nothing of the kind",
    "finds `import os`": SMALL.replace("-import os", "-import re"),
    "finds ``": SMALL.replace("@@ -1,1", "@@ -2,1"),
    "another end": SMALL.replace("\n", "\r\n"),
    "other spaces": SMALL.replace("-import os", "-import  os"),
    "does not have": SMALL.replace("@@ -1,1", "@@ -999,1"),
    "makes and deletes none": SMALL.replace("a/p/m.py", "/dev/null"),
    "two files": SMALL.replace("a/p/m.py", "a/p/n.py"),
    "stands twice": SMALL + SMALL,
    "fewer lines": SMALL.replace("-1,1 +1,1", "-1,3 +1,3"),
    "more lines": SMALL.replace("-1,1 +1,1", "-1,2 +1,0"),
    "is no line": SMALL + "surprise\n",
    "changes nothing": SMALL.replace("+import sys", "+import os"),
    "before any": SMALL.split("\n", 2)[2],
    "not followed": "--- a/p/m.py\n@@ -1,1 +1,1 @@\n",
    "nothing else": "rename from a\n" + SMALL,
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_patch_that_does_not_fit_is_refused_and_says_where(said: str) -> None:
    with pytest.raises(PatchFault, match=said):
        apply(FAULTS[said])


def test_hunks_out_of_order_are_refused() -> None:
    first, second = "@@ -1,1 +1,1 @@\n-import os\n+import sys\n", "@@ -16,1 +16,1 @@\n-X = 3\n+X = 4\n"
    head = "--- a/p/m.py\n+++ b/p/m.py\n"
    assert "X = 4" in apply(head + first + second).text
    with pytest.raises(PatchFault, match="taken"):
        apply(head + second + first)
