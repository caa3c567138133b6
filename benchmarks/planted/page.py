"""What became of each plant, as rows of a table, and the page that shows them."""

from collections.abc import Mapping
from dataclasses import dataclass

from planted.waits import NONE

TOLERANCE_PCT = 20.0
WHOLE = "end to end"


@dataclass(frozen=True)
class Row:
    """`wait_ms` is what each wait was to be, `waits` how many there were a request, `planted_ms` what they were of it in sum.

    `attributed`: ms of a request by layer. `margins`: how far each, `unexplained` and the whole may be off at 95 %.
    """

    planted_in: str
    wait_ms: float
    waits: float
    planted_ms: float
    attributed: Mapping[str, float]
    unexplained_ms: float | None
    change_ms: float
    margins: Mapping[str, float]
    outcome: str
    reason: str
    named: str

    @property
    def hit(self) -> bool:
        """Rejected, in the right layer, with its size."""
        if self.planted_in == NONE:
            return self.named == NONE
        off = abs(self.attributed.get(self.planted_in, 0.0) - self.planted_ms)
        near = off <= TOLERANCE_PCT / 100 * self.planted_ms
        return near and self.outcome == "REJECTED" and self.named == self.planted_in


def table(rows: list[Row]) -> str:
    layers = list(rows[0].attributed)
    lines = [
        f"| planted in | waits of a request | sum | {' | '.join(layers)} | unexplained | end to end | verdict | layer named | "
        f"within {TOLERANCE_PCT:g} % |",
        "|" + "---|" * (len(layers) + 8),
    ]
    for row in rows:
        parts = [with_margin(row, name, row.attributed[name]) for name in layers]
        cells = [row.planted_in, f"{row.waits:.1f} of {row.wait_ms:g} ms", f"{row.planted_ms:.1f}", *parts]
        cells += [with_margin(row, "unexplained", row.unexplained_ms), with_margin(row, WHOLE, row.change_ms)]
        lines.append(f"| {' | '.join([*cells, row.outcome, row.named, 'yes' if row.hit else '**no**'])} |")
    return "\n".join(lines)


def with_margin(row: Row, name: str, shift: float | None) -> str:
    return "not measured" if shift is None else f"{shift:+.1f} ± {row.margins[name]:.1f}"


def page(rows: list[Row], told: str, noise: str) -> str:
    verdicts = "\n".join(f"- `{row.planted_in}`: {row.outcome}, {row.reason}" for row in rows)
    return f"""# Planted delays

A wait is planted in one layer of the candidate at a time; the judge must reject the candidate, and the decomposition must give
the wait back in that layer within {TOLERANCE_PCT:g} % of its size. `benchmarks/planted_delays.py --page` makes this page.

{told}
A tiny random model on a CPU: nothing here says anything of a GPU, which was not run.

Milliseconds of a request, candidate minus incumbent, mean over all blocks, ± half of its 95 % interval over the pairs; layers
and `unexplained` add up to `end to end`.
`sum` is what the waits of a request were by their own clock; decode waits at each step. A forward waits busily, as a slower
kernel would: after a sleep a prefill itself gets slower. The wait of `router` is in a proxy before the router, which is a
binary; the layer is all between the client and decode.

{table(rows)}

In `none` nothing waits: it shows how far the figures stray by themselves, and no layer may be named. {noise}.

{verdicts}
"""
