"""The noise of a rung, measured before any candidate: the incumbent against itself, in pairs whose order is drawn.

It says how small an effect can be seen at all, and how many pairs that takes: a comparison is planned, not hoped for.
"""

from functools import cache
from typing import Annotated

import numpy as np
from pydantic import Field

from tasks.hypothesis import Digest, Record, Rung, Text, digest
from tasks.sequential import log_evidence, robust_scale

POWER = 0.8
RUNS, MOST_PAIRS = 400, 400
LEAST_PAIRS = 4
SMALLEST_SCALE = 1e-3  # log units: a scale of nothing would make the test useless


class Noise(Record):
    """`changes`: the paired log-ratios of each observable, raw. Valid under equal `facts` only."""

    rung: Rung
    workload: Text
    facts: dict[str, str]
    seed: int
    changes: dict[str, tuple[float, ...]]
    wall_s: Annotated[float, Field(ge=0)]

    def asked(self) -> object:
        return [self.rung, self.workload, self.facts]

    def scale(self, observable: str) -> float | None:
        """The robust deviation of one observable, never below a floor; None with fewer than four pairs of it."""
        found = self.changes.get(observable, ())
        return max(robust_scale(found), SMALLEST_SCALE) if len(found) >= LEAST_PAIRS else None


def noise_key(rung: Rung, workload: str, facts: dict[str, str]) -> Digest:
    """Under this key the noise of a rung is kept: equal rung, workload and environment."""
    return digest(["Noise", [rung, workload, facts]])


def planned_pairs(effect_pct: float, scale: float, alpha: float, limit_pct: float = 0.0) -> int | None:
    """Pairs after which an effect of `effect_pct` past the limit is shown with 80 % power; None if 400 are too few.

    By simulation of normal noise with a fixed seed.
    """
    return _pairs_at(
        round((np.log1p(effect_pct / 100) - np.log1p(limit_pct / 100)) / max(scale, SMALLEST_SCALE), 3), alpha
    )


def smallest_detectable_pct(pairs: int, scale: float, alpha: float) -> float | None:
    """The smallest effect in percent that `pairs` pairs show with 80 % power; None if they are too few for any."""
    for effect in np.geomspace(0.1, 20, 60):
        needed = _pairs_at(round(float(effect), 3), alpha)
        if needed is not None and needed <= pairs:
            return float(100 * np.expm1(effect * max(scale, SMALLEST_SCALE)))
    return None


@cache
def _pairs_at(effect: float, alpha: float) -> int | None:
    """`effect` in units of the scale of a pair."""
    if effect <= 0:
        return None
    changes = np.random.default_rng(0).standard_normal((RUNS, MOST_PAIRS)) + effect
    shown = log_evidence(changes, 0.0, 1.0) >= np.log(2 / alpha)
    first = np.where(shown.any(axis=1), shown.argmax(axis=1) + 1, MOST_PAIRS + 1)
    needed = int(np.quantile(first, POWER, method="higher"))
    return needed if needed <= MOST_PAIRS else None
