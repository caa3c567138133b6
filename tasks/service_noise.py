"""The A/A run of the service rung: the incumbent against itself on its own server, before any candidate is timed."""

import logging
import random
from collections.abc import Mapping
from dataclasses import replace

from serving.errors import BadInput
from serving.launch import Server
from serving.observables import CLIENT
from serving.scenario import Scenario
from serving.traffic import send
from tasks.noise import Noise, planned_pairs, smallest_detectable_pct
from tasks.paired import log_ratios
from tasks.records import Arm, Block, Rung
from tasks.service_blocks import Run, send_block

log = logging.getLogger(__name__)


def measure_noise(
    scenario: Scenario, servers: Mapping[str, Server], rng: random.Random, run: Run, facts: Mapping[str, str]
) -> Noise:
    """Pairs of blocks on the incumbent's server, each half of a pair called by the name of an arm that is drawn.

    The candidate gets every block too, after the incumbent, and is not timed: servers get faster with their first requests, so
    both must have served the same when the comparison begins, where each block has the other arm's beside it as here.

    Raises BadInput where the second half of a pair would find the first in the server's prefix cache.
    """
    if facts.get("radix_cache") == "on" and scenario.traffic.prefix_cache == "kept":
        raise BadInput(
            f"`traffic.prefix_cache` of `{scenario.name}` is `kept`, and the stack's prefix cache is on: the A/A run sends "
            "each block twice to one server",
            "set it to `flushed`",
        )
    began, blocks = run.elapsed_s, list[Block]()
    noise_run = replace(run, prefix="noise-")
    first = scenario.traffic.warmup_blocks + scenario.traffic.pairs
    log.info("noise first: %d pairs of the incumbent against itself", scenario.traffic.noise_pairs)
    for pair in range(scenario.traffic.noise_pairs):
        for place, arm in enumerate(rng.sample(list(Arm), k=2)):
            blocks += send_block(scenario, servers[Arm.INCUMBENT], arm, first + pair, 2 * pair + place, noise_run)
            send(servers[Arm.CANDIDATE].base_url, scenario.traffic, first + pair, ended=servers[Arm.CANDIDATE].ended)
    noise = Noise(
        rung=Rung.SERVICE,
        workload=scenario.name,
        facts=dict(facts),
        seed=scenario.traffic.seed,
        changes={name: tuple(log_ratios(tuple(blocks), name, scenario.name)) for name in CLIENT},
        wall_s=run.elapsed_s - began,
    )
    log.info("%s", foresight(noise, scenario))
    return noise


def foresight(noise: Noise, scenario: Scenario) -> str:
    """What the noise lets one see of the primary observable, before any candidate is measured."""
    scale, alpha = noise.scale(scenario.primary), 1 - scenario.confidence
    if scale is None:
        return f"the noise of `{scenario.primary}` is not known"
    least = smallest_detectable_pct(scenario.traffic.pairs, scale, alpha)
    wanted = 2 * scenario.smallest_effect_of_interest_pct
    needed = planned_pairs(wanted, scale, alpha, limit_pct=scenario.smallest_effect_of_interest_pct)
    seen = "no effect" if least is None else f"effects of {least:.0f} % past the limit"
    plan = "more than 400" if needed is None else f"{needed}"
    return (
        f"noise of `{scenario.primary}`: {100 * scale:.1f} % a pair; {scenario.traffic.pairs} pairs show {seen}; "
        f"an effect of {wanted:g} % needs {plan} pairs"
    )
