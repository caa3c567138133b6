"""docs/traps.md is true: every trap is there, and every test that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS = re.findall(
    r"^\| ([VP]\d+) \| (.+?) \| (.+?) \| (.+?) \|$", (ROOT / "docs" / "traps.md").read_text(), re.MULTILINE
)
TESTS = {
    name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
}


def test_every_trap_of_serving_and_process_has_a_line() -> None:
    assert [row[0] for row in ROWS] == [f"V{n}" for n in range(1, 20)] + [f"P{n}" for n in range(1, 10)]


def test_every_trap_is_planted_by_a_test_that_exists_or_is_open() -> None:
    for trap, _, ends, planted in ROWS:
        named = re.findall(r"`(test_\w+)`", planted)
        assert ends.startswith("open") or named, trap
        assert set(named) <= TESTS, trap
