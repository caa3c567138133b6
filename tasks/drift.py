"""Does the machine stand still while two arms are compared? A trend that is larger than the noise ends a comparison.

Under a drawn order a trend cannot favour an arm, but it says that the run is not what it was planned as: a leak, a neighbour, a
clock that falls. So it is looked for once, when a verdict is near, and then the verdict is INCONCLUSIVE.
"""

from collections.abc import Sequence

import numpy as np
from scipy.stats import kendalltau, theilslopes

SMALLEST_P = 1e-3
LEAST_SHIFT = 2.0  # of the whole run, in units of the noise that is left without the trend
LEAST_VALUES = 8


def drift(values: Sequence[float]) -> float | None:
    """The shift over the run, in the unit of `values` (log units, in order of time), or None where there is no trend.

    A trend is what Kendall's tau finds at p < 0.001 and what moves the level by twice the remaining noise (Theil-Sen slope).
    """
    x = np.asarray(values, dtype=float)
    if len(x) < LEAST_VALUES or np.ptp(x) == 0:
        return None
    times = np.arange(len(x))
    if kendalltau(times, x).pvalue >= SMALLEST_P:
        return None
    slope, level, _, _ = theilslopes(x, times)
    left = x - slope * times - level
    noise = 1.4826 * float(np.median(np.abs(left - np.median(left))))
    shift = float(slope * (len(x) - 1))
    return shift if abs(shift) >= LEAST_SHIFT * noise else None
