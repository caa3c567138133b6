"""Evidence of a service run as the rung would write it, from effects and a noise. Tests change the one thing they are about."""

import math

import numpy as np
from examples import ENVIRONMENT, block

from serving.home import REPOSITORY
from serving.scenario import Scenario
from tasks.criteria import load_criteria
from tasks.noise import Noise
from tasks.records import Arm, Block, Engagement, Environment, Evidence, Rung, digest

CRITERIA = load_criteria(REPOSITORY / "serving" / "scenarios" / "mixed-lengths-cpu.yaml", Scenario)
SCENARIO = CRITERIA.values
WATCHED = (SCENARIO.primary, *SCENARIO.vetoes)
FACTS = {**ENVIRONMENT.facts, "radix_cache": "off", "simulated_acceptance": "none"}
CONSTANT = {"failed_pct": 0.0, "prompt_tokens": 1000.0, "cached_tokens": 0.0, "send_lag_p95_ms": 1.0}
LAYERS = {
    "server_queue_ms": 20.0,
    "server_prefill_ms": 50.0,
    "server_decode_ms": 200.0,
    "http_ms": 3.0,
    "http_until_first_token_ms": 2.0,
    "unexplained_ms": 5.0,
}


def noise(level: float = 0.03) -> Noise:
    changes = tuple(level * x for x in np.random.default_rng(0).standard_normal(8))
    return Noise(
        rung=Rung.SERVICE, workload=SCENARIO.name, facts=FACTS, seed=0, changes=dict.fromkeys(WATCHED, changes), wall_s=1.0
    )  # fmt: skip


def pairs(effects_pct: dict[str, float], count: int = 24, level: float = 0.02, seed: int = 1) -> list[Block]:
    """Blocks of both arms in drawn order; the candidate's value of each observable is so many percent higher."""
    rng, found = np.random.default_rng(seed), []
    for pair in range(count):
        arms = list(Arm) if rng.random() < 0.5 else list(reversed(Arm))
        for place, arm in enumerate(arms):
            values = {name: 100 * math.exp(rng.normal(0, level)) for name in WATCHED} | CONSTANT | LAYERS
            if arm is Arm.CANDIDATE:
                values = {name: value * (1 + effects_pct.get(name, 0.0) / 100) for name, value in values.items()}
            found += [block(arm, n, v, workload=SCENARIO.name, order=2 * pair + place) for n, v in values.items()]
    return found


def guard(drift: float | None = 1e-6, floor: float = 1e-7) -> list[Block]:
    name = "guard-16-tokens"
    return [
        block(Arm.INCUMBENT, "logprob_floor", floor, workload=name, unit="nats"),
        block(Arm.CANDIDATE, "logprob_drift", drift, workload=name, unit="nats"),
        block(Arm.CANDIDATE, "greedy_mismatches", 0.0, workload=name, unit="tokens"),
    ]


def answers(ours: float | None = 0.0, theirs: float | None = 0.0, token: int = 3) -> list[Block]:
    """An answer of each arm to one request; where `theirs` is None it could not be scored."""
    found = [
        block(arm, "answer_deficit", value, workload="answers-chat", unit="nats", part="4-1", order=place)
        for place, (arm, value) in enumerate(zip(Arm, (ours, theirs), strict=True))
    ]
    where = block(Arm.CANDIDATE, "answer_deficit_token", float(token), workload="answers-chat", part="4-1", order=1)
    return found if theirs is None else [*found, where]


def service(blocks: list[Block] | None = None, **changes: object) -> Evidence:
    what = "server.arguments.chunked-prefill-size"
    proofs = tuple(Engagement(arm=arm, what=what, expected=str(arm), seen=str(arm)) for arm in Arm)
    fields: dict[str, object] = {
        "subject": digest("subject"),
        "rung": Rung.SERVICE,
        "blocks": tuple(guard() + pairs({SCENARIO.primary: -30.0}) if blocks is None else blocks),
        "engagement": proofs,
        "environment": Environment(facts=FACTS),
        "evaluator_digest": digest("evaluator"),
        "noise": noise(),
        "wall_s": 100.0,
    }
    return Evidence.model_validate(fields | changes)


def replaced(blocks: list[Block], observable: str, arm: Arm, value: float) -> list[Block]:
    """The blocks with one observable of one arm set."""
    return [b.model_copy(update={"value": value}) if (b.observable, b.arm) == (observable, arm) else b for b in blocks]
