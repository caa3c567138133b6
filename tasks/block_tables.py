"""Raw blocks as tables to look over in a terminal: a row for each workload and part, a column for each observable."""

import io
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table

from tasks.records import Block
from tasks.report import figure

Row = tuple[str, str, str]  # workload, architecture, part
LEFT_OUT = "line_share"  # one block for each branch and workload: long, and only read by machines
WIDE = 1000  # columns of the terminal: rows are never broken


def block_tables(blocks: Sequence[Block]) -> str:
    """One table for all parts of which the same was observed; below each, what of it is unknown and why."""
    rows: dict[Row, dict[str, Block]] = {}
    for block in blocks:
        if block.observable != LEFT_OUT:
            rows.setdefault((block.workload, block.arch or "", block.part or ""), {})[block.observable] = block
    alike: dict[tuple[str, ...], dict[Row, dict[str, Block]]] = {}
    for row, observed in rows.items():
        alike.setdefault(tuple(observed), {})[row] = observed
    return "\n\n".join(_table(group) for group in alike.values())


def _table(group: dict[Row, dict[str, Block]]) -> str:
    first = next(iter(group.values()))
    known = [name for name in first if any(observed[name].value is not None for observed in group.values())]
    labels = [(i, name) for i, name in enumerate(("workload", "on", "part")) if any(row[i] for row in group)]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for _, name in labels:
        table.add_column(name, no_wrap=True)
    for name in known:
        unit = first[name].unit
        table.add_column(name if unit == "1" else f"{name} {unit}", justify="right", no_wrap=True)
    for row, observed in group.items():
        table.add_row(*(row[i] for i, _ in labels), *(figure(observed[name].value, "1") for name in known))
    return "\n".join([*(_lines(table) if known else []), *_unknown(group)])


def _lines(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=WIDE, color_system=None, markup=False, highlight=False)
    with console.capture() as printed:
        console.print(table)
    return [line.rstrip() for line in printed.get().splitlines()]


def _unknown(group: dict[Row, dict[str, Block]]) -> Iterator[str]:
    """What is not known, and why, once for each reason."""
    why: dict[str, dict[str, None]] = {}
    for observed in group.values():
        for name, block in observed.items():
            if block.value is None:
                why.setdefault(block.reason or "no reason given", {})[name] = None
    for reason, names in why.items():
        yield f"{', '.join(names)}: unknown ({reason})"
