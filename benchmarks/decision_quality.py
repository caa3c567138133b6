"""How good the verdicts of a paired comparison are: false positives, coverage, power and cost, against three usual ways.

    .venv/bin/python -P benchmarks/decision_quality.py [--quick] [--json FILE] [--table FILE]

Noise is added to both arms in slots of time; which arm of a pair goes first is drawn, as in the rungs. Effects are in units of
the planned minimum detectable effect (MDE), which is half the standard deviation of a pair's log-ratio where n = 32 pairs are
planned. The smallest effect of interest is the limit that an interval must clear; all ways are asked the same question.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu
from scipy.stats import norm as normal
from scipy.stats import t as student

from tasks.drift import drift
from tasks.sequential import log_evidence, robust_scale

Array = NDArray[np.float64]
ALPHA, POWER = 0.05, 0.8
MDE_IN_SD = 0.5
MOST_PAIRS = 64
CANARY_SAMPLES, CANARY_PCT = 16, 5.0
NOTHING = None  # no effect at all; 0 is an effect at the limit, and the others lie so many MDE past it
EFFECTS = (NOTHING, 0.0, 0.5, 1.0, 2.0, 3.0)
DATA = Path(__file__).with_name("data") / "aa_service_cpu.json"
Noise = Callable[[np.random.Generator, int, int], Array]
Row = dict[str, float | str | None]


def normal_noise(rng: np.random.Generator, runs: int, slots: int) -> Array:
    return 0.02 * rng.standard_normal((runs, slots))


def heavy_tails(rng: np.random.Generator, runs: int, slots: int) -> Array:
    return 0.015 * rng.standard_t(2.2, (runs, slots))


def two_modes(rng: np.random.Generator, runs: int, slots: int) -> Array:
    return 0.006 * rng.standard_normal((runs, slots)) + rng.choice([0.0, 0.06], p=[0.8, 0.2], size=(runs, slots))


def memory(rng: np.random.Generator, runs: int, slots: int) -> Array:
    """AR(1) with rho = 0.5 from slot to slot."""
    noise = 0.02 * rng.standard_normal((runs, slots))
    for i in range(1, slots):
        noise[:, i] = 0.5 * noise[:, i - 1] + 0.75**0.5 * noise[:, i]
    return noise


def drifting(rng: np.random.Generator, runs: int, slots: int) -> Array:
    """One standard deviation per pair: the machine becomes slower all the time."""
    return normal_noise(rng, runs, slots) + 0.01 * np.arange(slots)


def resampled(rng: np.random.Generator, runs: int, slots: int) -> Array:
    """Blocks of four successive slots of a recorded A/A run, drawn with replacement."""
    series = np.log(np.asarray(json.loads(DATA.read_text())["values"], dtype=float))
    series -= np.median(series)
    starts = rng.integers(0, len(series) - 3, size=(runs, -(-slots // 4)))
    chosen: Array = series[starts[:, :, None] + np.arange(4)].reshape(runs, -1)[:, :slots]
    return chosen


@dataclass(frozen=True)
class Setting:
    """What is fixed before any candidate: scale from an A/A run, planned MDE, limit, pairs of the fixed-n test."""

    scale: float
    mde: float
    limit: float
    fixed_pairs: int


def plan(noise: Noise, rng: np.random.Generator) -> Setting:
    changes = pairs(noise, rng, 400, MOST_PAIRS, 0.0)[0]
    scale = float(np.median([robust_scale(x) for x in changes]))
    spread = float(np.std(changes))
    mde = MDE_IN_SD * spread
    needed = ((normal.ppf(1 - ALPHA / 2) + normal.ppf(POWER)) * spread / mde) ** 2
    return Setting(scale, mde, 0.5 * mde, int(np.ceil(needed)))


def pairs(noise: Noise, rng: np.random.Generator, runs: int, count: int, effect: float) -> tuple[Array, Array, Array]:
    """Log-ratios [runs, count], the values by slot [runs, 2 * count], and the drawn order (+1: candidate second)."""
    values, order = noise(rng, runs, 2 * count), rng.choice([-1.0, 1.0], size=(runs, count))
    changes: Array = (values[:, 1::2] - values[:, 0::2]) * order + effect
    return changes, values, order


def sequential(changes: Array, slots: Array, setting: Setting) -> tuple[Array, Array, Array]:
    """Decision (+1 better, -1 not better, 0 open), pairs used, and whether the interval held the effect at every look."""
    better = log_evidence(changes, setting.limit, setting.scale) >= np.log(2 / ALPHA)
    worse = log_evidence(-changes, -setting.limit, setting.scale) >= np.log(2 / ALPHA)
    runs, count = changes.shape
    first = [np.where(hit.any(axis=1), hit.argmax(axis=1), count) for hit in (better, worse)]
    used = np.minimum(np.minimum(*first), count - 1) + 1
    decision = np.where(first[0] < first[1], 1, np.where(first[1] < first[0], -1, 0))
    drifted = np.array([drift(slots[i, : 2 * used[i]]) is not None for i in range(runs)])
    return np.where(drifted, 0, decision), used, drifted


def covered(changes: Array, effect: float, scale: float) -> float:
    """Share of runs whose interval holds the effect at every look."""
    low = log_evidence(changes, effect, scale).max(axis=1) < np.log(2 / ALPHA)
    high = log_evidence(-changes, -effect, scale).max(axis=1) < np.log(2 / ALPHA)
    return float(np.mean(low & high))


def fixed_n(changes: Array, setting: Setting) -> Array:
    """Better by a t-test of the planned number of pairs, same question and error."""
    x = changes[:, : setting.fixed_pairs] - setting.limit
    statistic = x.mean(axis=1) / (x.std(axis=1, ddof=1) / np.sqrt(setting.fixed_pairs))
    return np.asarray(statistic > student.ppf(1 - ALPHA / 2, setting.fixed_pairs - 1))


def canary(slots: Array, order: Array, effect: float) -> Array:
    """Mann-Whitney at 5 % on samples of both arms, and the medians 5 % apart, as canary tools decide."""
    count = min(CANARY_SAMPLES, slots.shape[1] // 2)
    second = np.where(order > 0, slots[:, 1::2], slots[:, 0::2])[:, :count] + effect
    first = np.where(order > 0, slots[:, 0::2], slots[:, 1::2])[:, :count]
    p = mannwhitneyu(second, first, axis=1, alternative="greater").pvalue
    apart = np.median(second, axis=1) - np.median(first, axis=1) > np.log1p(CANARY_PCT / 100)
    return np.asarray((p < ALPHA) & apart)


def cell(name: str, noise: Noise, runs: int) -> list[Row]:
    rng = np.random.default_rng(sum(map(ord, name)))
    setting, rows = plan(noise, rng), []
    for times in EFFECTS:
        effect = 0.0 if times is NOTHING else setting.limit + times * setting.mde
        changes, slots, order = pairs(noise, rng, runs, MOST_PAIRS, effect)
        decision, used, drifted = sequential(changes, slots, setting)
        one_run = changes[:, 0] > np.log1p(CANARY_PCT / 100)
        rows.append(
            {
                "noise": name,
                "effect": "none" if times is NOTHING else f"limit + {times:g} MDE",
                "past_limit_mde": times,
                "better": float(np.mean(decision == 1)),
                "not_better": float(np.mean(decision == -1)),
                "inconclusive": float(np.mean(decision == 0)),
                "drift_seen": float(np.mean(drifted)),
                "coverage": covered(changes, effect, setting.scale),
                "pairs": float(used.mean()),
                "fixed_n_pairs": float(setting.fixed_pairs),
                "fixed_n_better": float(np.mean(fixed_n(changes, setting))),
                "canary_better": float(np.mean(canary(slots, order, effect))),
                "one_run_better": float(np.mean(one_run)),
            }
        )
    return rows


def headline(rows: list[Row]) -> dict[str, float]:
    """The figures that the aims are about; a drifting machine has no right answer but INCONCLUSIVE."""

    def values(key: str, noise: bool, *effects: float | None) -> list[float]:
        """One column, of the rows with these effects; `noise` False is the drifting machine."""
        chosen = [
            r for r in rows if (r["noise"] != "drifting") == noise and (not effects or r["past_limit_mde"] in effects)
        ]
        return [float(r[key] or 0.0) for r in chosen]

    ratios = zip(values("pairs", True, 2.0, 3.0), values("fixed_n_pairs", True, 2.0, 3.0), strict=True)
    return {
        "false_better_max": max(values("better", True, NOTHING)),
        "false_better_fixed_n_max": max(values("fixed_n_better", True, NOTHING)),
        "false_better_at_limit_max": max(values("better", True, 0.0)),
        "false_better_at_limit_fixed_n_max": max(values("fixed_n_better", True, 0.0)),
        "coverage_min": min(values("coverage", True)),
        "blocks_ratio_vs_fixed_n": max(ours / theirs for ours, theirs in ratios),
        "power_at_twice_mde_min": min(values("better", True, 2.0, 3.0)),
        "drifting_inconclusive_min": min(values("inconclusive", False)),
        "drifting_false_better": max(values("better", False, NOTHING)),
    }


def table(rows: list[Row], figures: dict[str, float], runs: int) -> str:
    """Markdown."""
    ours = ["noise", "effect", "better", "not better", "inconclusive", "coverage", "pairs"]
    head = f"| {' | '.join([*ours, 'n fixed: pairs', 'n fixed: better', 'canary', 'one run'])} |"
    lines = [f"{runs} simulations a cell, alpha {ALPHA}, at most {MOST_PAIRS} pairs.", "", head, "|" + "---|" * 11]
    for r in rows:
        shares = [f"{100 * float(r[k] or 0.0):.2f} %" for k in ("better", "not_better", "inconclusive", "coverage")]
        others = [f"{100 * float(r[k] or 0.0):.2f} %" for k in ("fixed_n_better", "canary_better", "one_run_better")]
        cells = [r["noise"], r["effect"], *shares, f"{r['pairs']:.1f}", f"{r['fixed_n_pairs']:.0f}", *others]
        lines.append("| " + " | ".join(str(x) for x in cells) + " |")
    return "\n".join([*lines, "", *(f"- `{name}`: {value:.4g}" for name, value in figures.items())]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="400 simulations a cell instead of 5,000")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    chosen, started = parser.parse_args(), time.monotonic()
    runs = 400 if chosen.quick else 5000
    kinds: dict[str, Noise] = {
        "normal": normal_noise, "heavy tails": heavy_tails, "two modes": two_modes, "memory": memory, "drifting": drifting,
    }  # fmt: skip
    if DATA.exists():
        kinds["recorded"] = resampled
    rows = []
    for name, noise in kinds.items():
        rows += cell(name, noise, runs)
        print(f"{name}: done after {time.monotonic() - started:.0f} s", flush=True)
    figures = headline(rows)
    text = table(rows, figures, runs)
    print(text)
    if chosen.table:
        chosen.table.write_text(text)
    if chosen.json:
        whole = {**figures, "simulations": runs, "quick": chosen.quick, "cells": rows}
        chosen.json.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    main()
