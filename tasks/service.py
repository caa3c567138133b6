"""The `service` rung: incumbent and candidate stack side by side, the same traffic to both in turns.

Order: both servers start together; the edit must be in force and be all that differs; both must compute the same; then
warm-up, and pairs of blocks whose order is drawn at random; then a sample of the answers to that traffic is scored. Intervals
and opinions are made elsewhere, from the blocks.
Where the candidate is other code in the same stack, it must be what runs, and its share of the incumbent's time is measured
first: with the kernel's gain by itself that predicts what the traffic will show.
"""

import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from serving.breakers import check_breakers, sentence, shut_out_of
from serving.deployment import deployed_together
from serving.endings import EngineEnded, ended_within
from serving.engagement import resolved_by
from serving.errors import Broken
from serving.home import home
from serving.launch import Server, check_answering, running_together
from serving.scenario import Scenario
from serving.traffic import LATE_S, send
from serving.validate import check_stack
from serving.witness import check_weights
from tasks.noise import Noise
from tasks.records import Arm, Block, Engagement, Evidence, FileRef, Hypothesis, Rung, ServiceGain, digest
from tasks.service_answers import score_answers
from tasks.service_arms import Arms, arms_of
from tasks.service_blocks import Run, send_block
from tasks.service_code import Code
from tasks.service_engagement import prove
from tasks.service_environment import environment, evaluator_digest
from tasks.service_noise import measure_noise
from tasks.service_proof import prove_code
from tasks.service_quality import compare_quality
from tasks.service_share import measure_share, predicted_gain, send_alike

log = logging.getLogger(__name__)

# Time kept free at the end of a budget: scoring answers, and stopping both servers.
ENDING_S = 20.0

Enough = Callable[[tuple[Block, ...], Noise | None], bool]
Recall = Callable[[Mapping[str, str]], Noise | None]


@dataclass
class Observed:
    """What a run has produced so far; it outlives a candidate that fails on the way."""

    run: Run
    scenario: Scenario
    blocks: list[Block] = field(default_factory=list)
    engagement: tuple[Engagement, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    noise: Noise | None = None
    predicted: ServiceGain | None = None


def measure_service(
    hypothesis: Hypothesis,
    enough: Enough | None = None,
    recall: Recall | None = None,
    confirms: str | None = None,
    code: Code | None = None,
) -> Evidence:
    """Runs the comparison. `enough` sees all blocks after each pair and may end the traffic early.

    `recall` finds the noise that an earlier A/A run measured under the same facts; without one it is measured first.
    `confirms`: the evidence whose win is shown again; the run then has requests and an order of its own.
    `code`: what the candidate runs in the stack as it is, where the change is no edit of the stack.

    A candidate that does not start, or dies of its own under traffic, is evidence with a `candidate_fault`; one that
    computes something else is evidence with its drift and no timings. Raises BadInput for files or an edit that cannot
    be used, Broken for every fault of ours.
    """
    arms = arms_of(hypothesis)
    for spec in (arms.incumbent, arms.candidate):
        for fault in check_stack(spec):
            log.warning("%s: `%s`: %s", spec.name, fault.field, fault.message)
    run_dir = home() / "runs" / f"{time.strftime('%Y%m%dT%H%M%S')}-{hypothesis.id[:12]}-{uuid.uuid4().hex[:6]}"
    run_dir.mkdir(parents=True)
    observed = Observed(Run(run_dir), with_seed(arms.scenario, confirms))
    specs = {str(Arm.INCUMBENT): arms.incumbent, str(Arm.CANDIDATE): arms.candidate}
    try:
        together = running_together if "server" in arms.incumbent.roles else deployed_together
        laid = {str(Arm.CANDIDATE): code.overlay} if code is not None else {}
        with together(specs, run_dir, laid) as servers:
            _compare(arms, servers, random.Random(f"{hypothesis.id}:{confirms}"), observed, enough, recall, code)
    except EngineEnded as ended:
        if ended.server != Arm.CANDIDATE or not ended.refused:
            raise
        observed.fault = ended.message
    return _evidence(hypothesis, arms, observed, confirms)


def with_seed(scenario: Scenario, confirms: str | None) -> Scenario:
    """The scenario with requests of its own for a confirmatory run."""
    if confirms is None:
        return scenario
    seed = int(digest([scenario.traffic.seed, confirms])[:12], 16)
    return scenario.model_copy(update={"traffic": scenario.traffic.model_copy(update={"seed": seed})})


def _compare(
    arms: Arms,
    servers: Mapping[str, Server],
    rng: random.Random,
    observed: Observed,
    enough: Enough | None,
    recall: Recall | None,
    code: Code | None,
) -> None:
    """Raises EngineEnded when the end of a server turns out to be the cause of a fault."""
    try:
        check_answering(servers.values())
        for server in servers.values():
            check_weights(server.name, server.witness, several_roles=len(server.parts) > 1)
        resolved = {arm: {part.role: resolved_by(part) for part in servers[arm].parts} for arm in Arm}
        served, ours = servers[Arm.INCUMBENT].checkpoint.digest, resolved[Arm.INCUMBENT]
        observed.facts = environment(
            arms.incumbent,
            arms.scenario,
            served,
            ours.get("server") or ours["prefill"],
            servers[Arm.INCUMBENT].witness.departures(),
        )
        proof = prove(arms, servers, resolved, observed.run.folder / "arms.json")
        observed.engagement, observed.fault = proof.engagement, proof.fault
        _say_engaged(proof.engagement)
        if proof.fault is not None:
            return
        quality = compare_quality(observed.scenario, servers)
        observed.blocks += quality.blocks
        if code is not None:
            running = prove_code(code, servers, observed.run.folder / "code.json")
            observed.engagement += running
            _say_engaged(running)
        if quality.same:
            _warm_up(observed.scenario, servers)
            if code is not None:
                observed.blocks += measure_share(observed.scenario, servers[Arm.INCUMBENT], observed.run)
                observed.predicted = predicted_gain(code, observed.scenario, observed.blocks, observed.run)
                send_alike(observed.scenario, servers[Arm.CANDIDATE])
            known = recall(observed.facts) if recall is not None else None
            observed.noise = known or measure_noise(observed.scenario, servers, rng, observed.run, observed.facts)
            check_breakers(servers.values())
            _send_traffic(servers, rng, observed, enough)
            if observed.fault is None:
                observed.blocks += score_answers(observed.scenario, servers[Arm.INCUMBENT], observed.run.folder)
        check_answering(servers.values())
    except Broken as broken:
        # Who ended is the cause of it; the incumbent first, since that is never the candidate's fault.
        ended = ended_within(lambda: servers[Arm.INCUMBENT].ended() or servers[Arm.CANDIDATE].ended(), LATE_S)
        if ended is None:
            check_breakers(servers.values())  # a bare status 503 does not say who is shut out
            raise
        raise ended from broken


def _say_engaged(proofs: Sequence[Engagement]) -> None:
    if proofs:
        log.info("engaged: %s", ", ".join(f"{e.arm} {e.what}={e.seen[:12]}" for e in proofs))


def _warm_up(scenario: Scenario, servers: Mapping[str, Server]) -> None:
    for number in range(scenario.traffic.warmup_blocks):
        for arm in Arm:
            send(servers[arm].base_url, scenario.traffic, number, ended=servers[arm].ended)


def _send_traffic(servers: Mapping[str, Server], rng: random.Random, observed: Observed, enough: Enough | None) -> None:
    """Block numbers below `warmup_blocks` warmed up; both arms of a pair get the same requests."""
    scenario = observed.scenario
    for pair in range(scenario.traffic.pairs):
        began = observed.run.elapsed_s
        for place, arm in enumerate(rng.sample(list(Arm), k=2)):
            number, order = scenario.traffic.warmup_blocks + pair, 2 * pair + place
            observed.blocks += send_block(scenario, servers[arm], arm, number, order, observed.run)
            if workers := shut_out_of(servers[arm]):
                if arm is Arm.INCUMBENT:
                    check_breakers([servers[arm]])
                observed.fault = f"under traffic {sentence(workers)}"
                return
        took_s = observed.run.elapsed_s - began
        if enough is not None and enough(tuple(observed.blocks), observed.noise):
            log.info("decided after %d pairs", pair + 1)
            return
        if observed.run.elapsed_s + took_s + ENDING_S > scenario.budget_s:
            log.info("the budget of %.0f s ends the traffic after %d pairs", scenario.budget_s, pair + 1)
            return


def _evidence(hypothesis: Hypothesis, arms: Arms, observed: Observed, confirms: str | None) -> Evidence:
    facts = observed.facts or environment(arms.incumbent, arms.scenario, None, {})
    root = home()
    files = [
        FileRef(
            path=path.relative_to(root).as_posix(), sha256=digest(path.read_bytes()), size_bytes=path.stat().st_size
        )
        for path in sorted(p for p in observed.run.folder.iterdir() if p.is_file())
    ]
    return Evidence.model_validate(
        {
            "subject": hypothesis.id,
            "rung": Rung.SERVICE,
            "blocks": tuple(observed.blocks),
            "engagement": tuple(observed.engagement),
            "environment": {"facts": dict(facts)},
            "evaluator_digest": evaluator_digest(),
            "seed": observed.scenario.traffic.seed,
            "files": tuple(files),
            "wall_s": observed.run.elapsed_s,
            "candidate_fault": observed.fault,
            "noise": observed.noise,
            "predicted": observed.predicted,
            "confirms": confirms,
        }
    )
