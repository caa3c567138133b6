"""docs/traps.md is true: every trap is there, and every test and candidate that it names exists."""

import re
from pathlib import Path

import pytest

from tasks.cases import load_cases

ROOT = Path(__file__).resolve().parents[1]
LENGTHS = {"T": 19, "C": 7, "S": 18, "H": 11, "V": 19, "P": 9}
ROWS = re.findall(
    r"^\| ([TCSHVP]\d+) \| (.+?) \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "traps.md").read_text(), re.MULTILINE
)
TESTS = {
    name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
}
PLAYED = {case.name: case.header.trap for case in load_cases() if not case.honest}
# Of a kernel's Python there is nothing to play: the shapes are ours.
NOT_A_KERNELS = {"T10"}


def test_every_trap_has_a_line() -> None:
    assert [row[0] for row in ROWS] == [f"{kind}{n}" for kind, last in LENGTHS.items() for n in range(1, last + 1)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_trap_is_planted_by_what_exists_or_is_open(row: tuple[str, str, str, str]) -> None:
    trap, _, ends, planted = row
    named = set(re.findall(r"`(\w+)`", planted))
    assert ends.startswith("open") or named or trap in NOT_A_KERNELS
    assert named <= TESTS | PLAYED.keys()
    assert {name for name in named if name in PLAYED} == {name for name, traps in PLAYED.items() if trap in traps}
