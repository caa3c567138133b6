"""Arms that cannot run side by side: they swap places, the place is a blocking factor, and restarts are charged.

A round has two places and two periods. In the first period one place runs the incumbent and the other the candidate, drawn at
random; in the second they swap. Half the difference of the two places' log-ratios is free of both place and period. Nothing in
the rungs here needs it yet: both stacks fit on one machine.
"""

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from tasks.records import Arm, Record, Text


class Period(Record):
    """What one place observed of one arm in one period. `restart_s`: wall time to bring that arm up there."""

    round: Annotated[int, Field(ge=0)]
    place: Text
    period: Annotated[int, Field(ge=0, le=1)]
    arm: Arm
    value: Annotated[float, Field(gt=0)]
    restart_s: Annotated[float, Field(ge=0)]


def crossover_ratios(periods: Sequence[Period]) -> list[float]:
    """log(candidate / incumbent) per whole round, in order, free of place and period. A round that is not whole is left out."""
    rounds: dict[int, list[Period]] = {}
    for period in periods:
        rounds.setdefault(period.round, []).append(period)
    return [ratio for _, found in sorted(rounds.items()) if (ratio := _of_round(found)) is not None]


def restart_time_s(periods: Sequence[Period]) -> float:
    """Wall time of all restarts, which a budget counts like traffic."""
    return sum(period.restart_s for period in periods)


def _of_round(found: list[Period]) -> float | None:
    places = sorted({period.place for period in found})
    cells = {(p.place, p.period): p for p in found}
    if len(found) != 4 or len(places) != 2 or len(cells) != 4:
        return None
    arms = [cells[place, period].arm for place in places for period in (0, 1)]
    if arms not in (list(Arm) + list(reversed(Arm)), list(reversed(Arm)) + list(Arm)):
        return None
    logs = {arm: [math.log(p.value) for p in found if p.arm is arm] for arm in Arm}
    return (sum(logs[Arm.CANDIDATE]) - sum(logs[Arm.INCUMBENT])) / 2
