"""The stages of an experiment: what each runs, and how its records reach the ledger.

A stage takes the experiment so far and gives it back with more records. Each record is stored as soon as it exists, and
each may end the experiment: the first verdict is the last record.
"""

import logging
import math
import time
import traceback
from collections.abc import Callable

from serving.errors import BadInput, Broken
from tasks.accounting import cost_of
from tasks.build import build_kernel
from tasks.cpu_bench import measure_cpu_bench
from tasks.cpu_numerics import measure_cpu_numerics
from tasks.decide import broken, decide
from tasks.history import keep_noise, recall_noise
from tasks.judge_microbench import is_decided as faster_decided
from tasks.judge_service import is_decided
from tasks.ledger import Ledger
from tasks.microbench import measure_microbench
from tasks.numerics import measure_numerics
from tasks.plan import stage_steps
from tasks.problem import Problem, problem_of
from tasks.records import (
    Build,
    CodePatch,
    Environment,
    Evidence,
    Experiment,
    KernelCandidate,
    KernelTarget,
    Record,
    Rung,
    digest,
)
from tasks.rules import rules_of
from tasks.service import measure_service
from tasks.service_arms import build_stack
from tasks.service_code import Code, build_patch, overlay_of
from tasks.service_share import alone
from tasks.static import measure_static

log = logging.getLogger(__name__)
Work = Callable[[Experiment, Ledger], Build | Evidence]


def open_experiment(experiment: Experiment, ledger_url: str) -> Experiment:
    """The propose stage: the hypothesis and its plan enter the ledger before anything runs. Raises `Broken`."""
    ledger = Ledger(ledger_url)
    ledger.check_writable()
    records: tuple[Record, ...] = (experiment.hypothesis, experiment.plan)
    for record in records:
        ledger.append(experiment.hypothesis_id, experiment.attempt, record)
    return experiment


def run_stage(name: str, experiment: Experiment, ledger_url: str, pool: str | None = None) -> Experiment:
    """Run one of `build`, `microbench`, `validate`, `deploy`; a fault of ours ends the experiment as BROKEN.

    `pool`: run only the rungs that belong to it.
    Raises `Broken` only when the ledger itself fails, and passes an interrupt on after recording it.
    """
    ledger = Ledger(ledger_url)

    def store(record: Record) -> None:
        ledger.append(experiment.hypothesis_id, experiment.attempt, record)

    since = time.monotonic()
    try:
        for work in work_of(name, experiment, pool):
            log.info("%s: %s ...", name, work.__name__)
            record = work(experiment, ledger)
            log.info("%s: %s took %.1f s", name, work.__name__, record.wall_s)
            store(record)
            since = time.monotonic()
            keep_noise(ledger, experiment.attempt, record)
            experiment = experiment.with_record(record)
            verdict = decide(experiment, rules_of(experiment))
            if verdict is not None:
                store(verdict)
                return experiment.with_record(verdict)
    except (Broken, BadInput) as fault:
        verdict = broken(experiment, f"{fault.message} (hint: {fault.hint})", time.monotonic() - since)
    except Exception as error:  # noqa: BLE001  a fault of ours must be recorded as BROKEN, never lost or judged
        log.error("unexpected fault in stage %s:\n%s", name, traceback.format_exc())
        reason = f"unexpected fault in {name}: {type(error).__name__}: {error}"
        verdict = broken(experiment, reason, time.monotonic() - since)
    except BaseException:  # Ctrl-C, and Prefect's own exception for SIGTERM
        store(broken(experiment, f"interrupted during {name}", time.monotonic() - since))
        raise
    else:
        return experiment
    store(verdict)
    return experiment.with_record(verdict)


def work_of(stage: str, experiment: Experiment, pool: str | None = None) -> tuple[Work, ...]:
    """What a stage has to do for this plan (on one pool), in order; nothing for a stage that the plan does not name."""
    if stage == "build":
        return (build,)
    steps = [step for step in stage_steps(experiment.plan, stage) if pool in (None, step.pool)]
    again = [MEASURES[s.rung] for s in steps if s.purpose == "answer" and experiment.plan.confirms]
    return (*(MEASURES[step.rung] for step in steps), *again)


def build(experiment: Experiment, ledger: Ledger) -> Build:
    """Compile a kernel candidate, patch a package, or resolve the edited stack."""
    asked = experiment.hypothesis
    match asked.target, asked.change:
        case KernelTarget() as target, KernelCandidate() as candidate:
            return build_kernel(problem_of(target), candidate, asked.id)
        case _, CodePatch() as patch:
            return build_patch(asked, patch)
        case _:
            return build_stack(asked)


def static(experiment: Experiment, ledger: Ledger) -> Evidence:
    problem, candidate, build = _kernel(experiment)
    return measure_static(problem, candidate, build, interpreted=experiment.of(Rung.NUMERICS))


def numerics(experiment: Experiment, ledger: Ledger) -> Evidence:
    problem, candidate, build = _kernel(experiment)
    if problem.definition.runs_on == "cpu":
        return measure_cpu_numerics(problem, candidate, build)
    return measure_numerics(problem, candidate, build)


def microbench(experiment: Experiment, ledger: Ledger) -> Evidence:
    """On CPU the pairs end as soon as they force a verdict, or the budget of the plan is spent."""
    problem, candidate, build = _kernel(experiment)
    gate, won = experiment.of(Rung.NUMERICS), experiment.of(Rung.MICROBENCH)
    if problem.definition.runs_on == "gpu":
        return measure_microbench(problem, candidate, build, gate=gate.id if gate else None)
    deadline = _deadline(experiment)
    return measure_cpu_bench(
        problem,
        candidate,
        build,
        gate=gate.id if gate else None,
        confirms=won.id if won else None,
        enough=lambda blocks, noise: time.monotonic() > deadline or faster_decided(blocks, problem.criteria, noise),
        recall=lambda facts: recall_noise(ledger, Rung.MICROBENCH, problem.name, facts),
    )


def service(experiment: Experiment, ledger: Ledger) -> Evidence:
    """The traffic ends as soon as the pairs so far force a verdict, or the budget of the plan is spent."""
    asked, built = experiment.hypothesis, experiment.build
    if asked.deployed is None or built is None:
        return _not_built(experiment, Rung.SERVICE, "the hypothesis names no stack and traffic to try the kernel in")
    criteria, won = rules_of(experiment)[Rung.SERVICE], experiment.of(Rung.SERVICE)
    overlay = overlay_of(asked, built)
    deadline = _deadline(experiment)
    return measure_service(
        asked,
        code=None if overlay is None else Code(overlay, alone(experiment)),
        confirms=won.id if won else None,
        enough=lambda blocks, noise: time.monotonic() > deadline or is_decided(blocks, criteria, noise),
        recall=lambda facts: recall_noise(ledger, Rung.SERVICE, str(criteria.cite("name").value), facts),
    )


def _deadline(experiment: Experiment) -> float:
    """When the budget of the plan ends, on the monotonic clock."""
    return time.monotonic() + (experiment.plan.budget_s or math.inf) - cost_of(experiment).wall_s


def overlap(experiment: Experiment, ledger: Ledger) -> Evidence:
    return _not_built(experiment, Rung.OVERLAP, "the overlap rung is not built yet")


def engine(experiment: Experiment, ledger: Ledger) -> Evidence:
    return _not_built(experiment, Rung.ENGINE, "the engine rung is not built yet")


MEASURES: dict[Rung, Work] = {
    Rung.STATIC: static,
    Rung.NUMERICS: numerics,
    Rung.MICROBENCH: microbench,
    Rung.OVERLAP: overlap,
    Rung.ENGINE: engine,
    Rung.SERVICE: service,
}


def _kernel(experiment: Experiment) -> tuple[Problem, KernelCandidate, Build]:
    asked, built = experiment.hypothesis, experiment.build
    if not isinstance(asked.target, KernelTarget) or not isinstance(asked.change, KernelCandidate) or built is None:
        raise Broken("a kernel rung was asked of something that is no built kernel", "this is a defect of infra-agent")
    problem = problem_of(asked.target)
    if digest(problem.incumbent.source) != asked.target.incumbent_digest:
        raise Broken(f"the incumbent of `{problem.name}` is another than when this hypothesis was read", "run it again")
    return problem, asked.change, built


def _not_built(experiment: Experiment, rung: Rung, why: str) -> Evidence:
    environment = experiment.build.environment if experiment.build else Environment(facts={})
    return Evidence(
        subject=experiment.hypothesis_id,
        rung=rung,
        environment=environment,
        evaluator_digest=digest(why),
        not_run=why,
    )
