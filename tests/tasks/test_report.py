"""Figures as people read them."""

import pytest

from tasks.records import Finding, Interval, Locus
from tasks.report import change, figure, interval_text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "ms", "unknown"),
        (2176950272.0, "B", "2,176,950,272 B"),
        (24641.3, "us", "24,641 us"),
        (476.123, "ms", "476.1 ms"),
        (4.76837158203125e-07, "nats", "4.768e-07 nats"),
        (4.0, "1", "4"),
    ],
)
def test_a_figure_has_four_digits_or_is_whole(value: float | None, unit: str, shown: str) -> None:
    assert figure(value, unit) == shown


@pytest.mark.parametrize(
    ("before", "after", "unit", "shown"),
    [
        (200.0, 150.0, "ms", "200 ms → 150 ms (-25.0 %)"),
        (1.0, 300.0, "ms", "1 ms → 300 ms (times 3e+02)"),
        (-30.0, -50.5, "%", "-30 % → -50.5 %"),
        (0.0, 2.0, "ms", "0 ms → 2 ms"),
        (None, 2.0, "ms", "unknown → 2 ms"),
    ],
)
def test_a_change_is_relative_only_where_that_says_something(
    before: float | None, after: float, unit: str, shown: str
) -> None:
    delta = None if before is None else after - before
    locus = Locus(kind="interval", name="decode")
    told = Finding(
        locus=locus, observable="x", unit=unit, incumbent=before, candidate=after, delta=delta, status="measured",
        implies="so",
    )  # fmt: skip
    assert change(told) == shown


def test_a_shared_confidence_is_shown_in_four_digits() -> None:
    interval = Interval(
        observable="x", unit="%", workload="w", estimate=1.0, low=0.0, high=2.0, confidence=1 - 0.05 / 3, blocks=8,
        method="m",
    )  # fmt: skip
    assert interval_text(interval) == "x at w: +1.00 % [+0.00, +2.00], 98.33 %, 8 pairs, m"
