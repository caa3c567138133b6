"""Whether both arms compute the same, as blocks: the gate before any traffic of the service rung."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from serving.launch import Server
from serving.quality import Probe, probe
from serving.scenario import Scenario
from tasks.records import Arm, Block

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Quality:
    """`same`: every prompt drifts by no more than the scenario allows, or than the incumbent drifts from itself."""

    blocks: tuple[Block, ...]
    same: bool


def compare_quality(scenario: Scenario, servers: Mapping[str, Server]) -> Quality:
    """Raises Broken when a server does not answer or the incumbent's numbers are not finite."""
    incumbent, candidate = (servers[arm].base_url for arm in Arm)
    probes = probe(incumbent, candidate, scenario.guard, scenario.traffic.token_ids, scenario.traffic.seed)
    blocks = [block for order, found in enumerate(probes) for block in _blocks(found, order)]
    known = [p.drift for p in probes if p.drift is not None]
    limit = max(scenario.guard.greatest_logprob_drift, *(p.floor for p in probes))
    largest = f"{max(known):.3g} nats" if known else "not known"
    log.info("largest log-probability drift: %s (limit %g)", largest, limit)
    same = len(known) == len(probes) and max(known) <= limit
    return Quality(tuple(blocks), same)


def _blocks(found: Probe, order: int) -> list[Block]:
    workload = f"guard-{found.prompt_tokens}-tokens"
    return [
        Block(arm=arm, observable=name, unit=unit, workload=workload, value=value, order=order, reason=reason)
        for arm, name, unit, value, reason in (
            (Arm.INCUMBENT, "logprob_floor", "nats", found.floor, None),
            (Arm.CANDIDATE, "logprob_drift", "nats", found.drift, found.reason),
            (Arm.CANDIDATE, "greedy_mismatches", "tokens", float(found.greedy_mismatches), None),
        )
    ]
