"""An interval for the median effect of paired blocks that stays valid however often it is looked at.

Which arm of a pair goes first is drawn at random, so whatever the noise does (heavy tails, two modes, drift, memory), the
log-ratio of a pair is symmetric about the effect. For a symmetric Y and any lambda, exp(lambda Y) / cosh(lambda Y) has mean
at most 1 given the past, so the product over pairs is a test martingale against "the effect is at most c" with Y = X - c, and
by Ville's inequality exceeds 1/alpha with probability alpha at most, at any time. A fixed mixture over lambda keeps that.
Source: de la Peña 1999 (Ann. Probab. 27, 537-564); Howard, Ramdas, McAuliffe, Sekhon 2020 (Probab. Surv. 17, 257-317).

Only the shape of the mixture and the clipping need a scale, and any scale fixed beforehand is valid: it comes from an A/A run.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from tasks.hypothesis import Record

Array = NDArray[np.float64]
LAMBDAS = np.array(
    [0.15, 0.3, 0.6, 1.2, 2.4]
)  # per unit of scale: small ones for small effects, large ones for few pairs
CLIP = 3.0  # in units of scale: an outlier counts as three, which keeps the symmetry
METHOD = "anytime-valid symmetric test martingale, order drawn at random"


class Bounds(Record):
    """`estimate` is the centre that the evidence favours neither way. An open side is infinite in the maths, None here."""

    low: float | None
    estimate: float
    high: float | None


def log_evidence(changes: Sequence[float] | Array, centre: float, scale: float) -> Array:
    """Log e-value after each pair against "the effect is at most `centre`"; changes and result [..., pairs].

    `scale` > 0, in the unit of the changes.
    """
    y = np.clip((np.asarray(changes, dtype=float) - centre) / scale, -CLIP, CLIP)
    each = [np.cumsum(np.log(2.0) - np.logaddexp(0.0, -2.0 * rate * y), axis=-1) for rate in LAMBDAS]
    mixed: Array = np.logaddexp.reduce(each, axis=0) - np.log(len(LAMBDAS))
    return mixed


def exceeds(changes: Sequence[float] | Array, centre: float, scale: float, alpha: float) -> bool:
    """Whether the pairs so far show an effect above `centre` at error `alpha` (one-sided)."""
    return len(changes) > 0 and bool(log_evidence(changes, centre, scale)[-1] >= -np.log(alpha))


def below(changes: Sequence[float] | Array, centre: float, scale: float, alpha: float) -> bool:
    """Whether the pairs so far show an effect below `centre` at error `alpha` (one-sided)."""
    return exceeds(-np.asarray(changes, dtype=float), -centre, scale, alpha)


def bounds(changes: Sequence[float] | Array, scale: float, alpha: float) -> Bounds:
    """Two-sided interval at error `alpha`, alpha/2 a side. Sides are open until there are enough pairs.

    Raises ValueError for no pairs or a scale that is not above zero.
    """
    x = np.asarray(changes, dtype=float)
    if not len(x) or scale <= 0:
        raise ValueError("bounds need at least one pair and a scale above zero")
    span = 4 * CLIP * scale
    bottom, top = float(x.min()) - span, float(x.max()) + span
    middle = _root(lambda c: log_evidence(x, c, scale)[-1] - log_evidence(-x, -c, scale)[-1], bottom, top)
    low = high = None
    if exceeds(x, bottom, scale, alpha / 2):
        low = _root(lambda c: log_evidence(x, c, scale)[-1] + np.log(alpha / 2), bottom, middle)
        high = _root(lambda c: -log_evidence(-x, -c, scale)[-1] - np.log(alpha / 2), middle, top)
    return Bounds(low=low, estimate=middle, high=high)


def _root(falling: Callable[[float], float], left: float, right: float) -> float:
    """Where a falling function crosses zero; an end if it does not cross."""
    if falling(left) <= 0:
        return left
    if falling(right) >= 0:
        return right
    return float(brentq(falling, left, right, xtol=1e-12))


def robust_scale(changes: Sequence[float] | Array) -> float:
    """Median absolute deviation about the median, times 1.4826: the standard deviation where the noise is normal."""
    x = np.asarray(changes, dtype=float)
    return float(1.4826 * np.median(np.abs(x - np.median(x))))
