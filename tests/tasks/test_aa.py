"""Nothing against nothing: decisions on resampled blocks of a recorded A/A run say neither better nor worse."""

import json
from collections import Counter

import numpy as np
from service_evidence import CRITERIA, SCENARIO

from serving.home import REPOSITORY
from tasks.judge_service import effect
from tasks.noise import Noise
from tasks.records import Arm, Block, Outcome, Rung

RECORDED = REPOSITORY / "benchmarks" / "data" / "aa_service_cpu.json"
DECISIONS, PAIRS, RUN_LENGTH = 320, 16, 2
NAMES = (SCENARIO.primary, *SCENARIO.vetoes)


def recorded() -> dict[str, list[float]]:
    """Values by observable, in order of time: one entry per block of traffic."""
    blocks = json.loads(RECORDED.read_text())["blocks"]
    return {name: [b["value"] for b in blocks if b["observable"] == name] for name in NAMES}


def pairs_of(series: dict[str, list[float]], rng: np.random.Generator) -> list[Block]:
    """Runs of successive pairs of the record, drawn with replacement, with arms drawn anew within each pair."""
    whole, found = len(series[SCENARIO.primary]) // 2, []
    starts = rng.integers(0, whole - RUN_LENGTH + 1, size=PAIRS // RUN_LENGTH)
    for pair, place in enumerate((start + i) for start in starts for i in range(RUN_LENGTH)):
        arms = list(Arm) if rng.random() < 0.5 else list(reversed(Arm))
        for half, arm in enumerate(arms):
            for name in NAMES:
                value = series[name][2 * place + half]
                block = {"arm": arm, "observable": name, "unit": "1", "workload": SCENARIO.name, "value": value}
                found.append(Block.model_validate(block | {"order": 2 * pair + half}))
    return found


def test_decisions_about_nothing_say_neither_better_nor_worse() -> None:
    series, rng, said = recorded(), np.random.default_rng(3), Counter[str]()
    for _ in range(DECISIONS):
        blocks = pairs_of(series, rng)
        noise_blocks = pairs_of(series, rng)
        changes = {name: tuple(_ratios(noise_blocks, name)[:8]) for name in NAMES}
        noise = Noise(rung=Rung.SERVICE, workload=SCENARIO.name, facts={}, seed=0, changes=changes, wall_s=0.0)
        found = effect(tuple(blocks), CRITERIA, noise)
        worse = found.outcome is Outcome.REJECTED and found.key.startswith("vetoes")
        said["better" if found.outcome is Outcome.PASSED else "worse" if worse else "neither"] += 1
    assert said == {"neither": DECISIONS}


def _ratios(blocks: list[Block], name: str) -> list[float]:
    from tasks.paired import log_ratios

    return log_ratios(tuple(blocks), name, SCENARIO.name)
