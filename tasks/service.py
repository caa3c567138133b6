"""The `service` rung: incumbent and candidate stack side by side, the same traffic to both in turns.

Order: both servers start together; the edit must be in force and be all that differs; both must compute the same; then
warm-up, and pairs of blocks whose order is drawn at random. Intervals and opinions are made elsewhere, from the blocks.
"""

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from serving import metrics
from serving.arguments import check_arguments
from serving.errors import Broken
from serving.home import home
from serving.launch import EngineEnded, Server, running_together
from serving.observables import OBSERVABLES
from serving.scenario import Scenario
from serving.summary import Measured, summarise, summarise_batch
from serving.traffic import send, write_jsonl
from tasks.records import Arm, Block, Engagement, Evidence, FileRef, Hypothesis, Rung, digest
from tasks.service_arms import Arms, arms_of, prove
from tasks.service_environment import environment, evaluator_digest
from tasks.service_quality import compare_quality

log = logging.getLogger(__name__)

# Time kept free at the end of a budget: stopping both servers.
STOPPING_S = 15.0

Enough = Callable[[tuple[Block, ...]], bool]


@dataclass
class Observed:
    """What a run has produced so far; it outlives a candidate that fails on the way."""

    run_dir: Path
    began: float = field(default_factory=time.monotonic)
    blocks: list[Block] = field(default_factory=list)
    engagement: tuple[Engagement, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began


def measure_service(hypothesis: Hypothesis, enough: Enough | None = None) -> Evidence:
    """Runs the comparison. `enough` sees all blocks after each pair and may end the traffic early.

    A candidate that does not start, or dies of its own under traffic, is evidence with a `candidate_fault`; one that
    computes something else is evidence with its drift and no timings. Raises BadInput for files or an edit that cannot
    be used, Broken for every fault of ours.
    """
    arms = arms_of(hypothesis)
    check_arguments(arms.incumbent)
    check_arguments(arms.candidate)
    run_dir = home() / "runs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{hypothesis.id[:12]}"
    run_dir.mkdir(parents=True)
    observed = Observed(run_dir)
    specs = {str(Arm.INCUMBENT): arms.incumbent, str(Arm.CANDIDATE): arms.candidate}
    try:
        with running_together(specs, run_dir) as servers:
            _compare(arms, servers, random.Random(hypothesis.id), observed, enough)
    except EngineEnded as ended:
        if ended.server != Arm.CANDIDATE or not ended.refused:
            raise
        observed.fault = ended.message
    return _evidence(hypothesis, arms, observed)


def _compare(
    arms: Arms, servers: Mapping[str, Server], rng: random.Random, observed: Observed, enough: Enough | None
) -> None:
    """Raises EngineEnded when a fault turns out to be the end of the candidate's server."""
    try:
        resolved = {arm: metrics.resolved_arguments(servers[arm].base_url) for arm in Arm}
        served = servers[Arm.INCUMBENT].checkpoint.digest
        observed.facts = environment(arms.incumbent, arms.scenario, served, resolved[Arm.INCUMBENT])
        proof = prove(arms, servers, resolved, observed.run_dir / "arms.json")
        observed.engagement, observed.fault = proof.engagement, proof.fault
        log.info("engaged: %s", ", ".join(f"{e.arm} {e.what}={e.seen}" for e in proof.engagement))
        if proof.fault is not None:
            return
        quality = compare_quality(arms.scenario, servers)
        observed.blocks += quality.blocks
        if quality.same:
            _send_traffic(arms.scenario, servers, rng, observed, enough)
    except Broken as broken:
        ended = servers[Arm.CANDIDATE].ended()
        if ended is None or servers[Arm.INCUMBENT].ended() is not None:
            raise
        raise ended from broken


def _send_traffic(
    scenario: Scenario, servers: Mapping[str, Server], rng: random.Random, observed: Observed, enough: Enough | None
) -> None:
    """Block numbers below `warmup_blocks` warm up; both arms of a pair get the same requests."""
    warmup = scenario.traffic.warmup_blocks
    for number in range(warmup):
        for arm in Arm:
            send(servers[arm].base_url, scenario.traffic, number)
    for pair in range(scenario.traffic.pairs):
        began = observed.elapsed_s
        for place, arm in enumerate(rng.sample(list(Arm), k=2)):
            _block(scenario, servers[arm], arm, warmup + pair, 2 * pair + place, observed)
        took_s = observed.elapsed_s - began
        if enough is not None and enough(tuple(observed.blocks)):
            log.info("decided after %d pairs", pair + 1)
            return
        if observed.elapsed_s + took_s + STOPPING_S > scenario.budget_s:
            log.info("the budget of %.0f s ends the traffic after %d pairs", scenario.budget_s, pair + 1)
            return


def _block(scenario: Scenario, server: Server, arm: Arm, number: int, order: int, observed: Observed) -> None:
    psutil.cpu_percent()
    started_s = observed.elapsed_s
    before = metrics.scrape(server.base_url)
    batch = send(server.base_url, scenario.traffic, number)
    after = metrics.scrape(server.base_url)
    name = f"{order:03d}-{arm}"
    write_jsonl(observed.run_dir / f"{name}.requests.jsonl", batch.records)
    (observed.run_dir / f"{name}.before.prom").write_text(before.text, encoding="utf-8")
    (observed.run_dir / f"{name}.after.prom").write_text(after.text, encoding="utf-8")
    doubt = metrics.disagreement(before, after, batch.records)
    layers = metrics.layers(before, after)
    whole = {
        **summarise_batch(batch, scenario.objectives),
        **(layers if doubt is None else {layer: Measured(None, doubt) for layer in layers}),
        "machine_cpu_pct": Measured(psutil.cpu_percent()),
    }
    observed.blocks += _blocks(whole, arm, scenario.name, order, started_s)
    for part in scenario.traffic.classes:
        values = summarise([record for record in batch.records if record.class_name == part])
        observed.blocks += _blocks(values, arm, scenario.name, order, started_s, part)
    value = whole[scenario.primary].value
    shown = "unknown" if value is None else f"{value:.1f}"
    log.info("block %d, %s: %s %s, %.1f s", order, arm, scenario.primary, shown, batch.wall_s)


def _blocks(
    values: Mapping[str, Measured], arm: Arm, workload: str, order: int, started_s: float, part: str | None = None
) -> list[Block]:
    """An observable of one class of requests carries the class in its name: nobody averages it with the whole."""
    return [
        Block(
            arm=arm,
            observable=observable if part is None else f"{part}.{observable}",
            unit=OBSERVABLES[observable].unit,
            workload=workload,
            value=measured.value,
            order=order,
            part=part,
            started_s=started_s,
            reason=measured.reason,
        )
        for observable, measured in values.items()
    ]


def _evidence(hypothesis: Hypothesis, arms: Arms, observed: Observed) -> Evidence:
    facts = observed.facts or environment(arms.incumbent, arms.scenario, None, {})
    root = home()
    files = [
        FileRef(
            path=path.relative_to(root).as_posix(), sha256=digest(path.read_bytes()), size_bytes=path.stat().st_size
        )
        for path in sorted(p for p in observed.run_dir.iterdir() if p.is_file())
    ]
    return Evidence.model_validate(
        {
            "subject": hypothesis.id,
            "rung": Rung.SERVICE,
            "blocks": tuple(observed.blocks),
            "engagement": tuple(observed.engagement),
            "environment": {"facts": dict(facts)},
            "evaluator_digest": evaluator_digest(),
            "seed": arms.scenario.traffic.seed,
            "files": tuple(files),
            "wall_s": observed.elapsed_s,
            "candidate_fault": observed.fault,
        }
    )
