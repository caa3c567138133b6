"""The stages of an experiment: what each runs, and how its records reach the ledger.

A stage takes the experiment so far and gives it back with more records. Each record is stored as soon as it exists, and
each may end the experiment: the first verdict is the last record.
"""

import logging
import traceback
from collections.abc import Callable

from serving.scenario import load_scenario

from serving.errors import BadInput, Broken
from tasks.build import build_kernel
from tasks.decide import Criteria, broken, decide
from tasks.ledger import Ledger
from tasks.microbench import measure_microbench
from tasks.numerics import measure_numerics
from tasks.plan import STAGE_RUNGS
from tasks.problem import load_problem
from tasks.records import (
    Build,
    Evidence,
    Experiment,
    KernelCandidate,
    KernelTarget,
    Record,
    Rung,
    StackEdit,
    StackTarget,
)
from tasks.service import build_stack, measure_service
from tasks.static import measure_static

log = logging.getLogger(__name__)
Work = Callable[[Experiment], Build | Evidence]


def open_experiment(experiment: Experiment, ledger_url: str) -> Experiment:
    """The propose stage: the hypothesis and its plan enter the ledger before anything runs. Raises `Broken`."""
    ledger = Ledger(ledger_url)
    ledger.check_writable()
    records: tuple[Record, ...] = (experiment.hypothesis, experiment.plan)
    for record in records:
        ledger.append(experiment.hypothesis_id, experiment.attempt, record)
    return experiment


def run_stage(name: str, experiment: Experiment, ledger_url: str) -> Experiment:
    """Run one of `build`, `microbench`, `validate`, `deploy`; a fault of ours ends the experiment as BROKEN.

    Raises `Broken` only when the ledger itself fails, and passes KeyboardInterrupt on after recording it.
    """
    ledger = Ledger(ledger_url)

    def store(record: Record) -> None:
        ledger.append(experiment.hypothesis_id, experiment.attempt, record)

    try:
        for work in work_of(name, experiment):
            record = work(experiment)
            store(record)
            experiment = experiment.with_record(record)
            verdict = decide(experiment, criteria_of(experiment))
            if verdict is not None:
                store(verdict)
                return experiment.with_record(verdict)
    except (Broken, BadInput) as fault:
        verdict = broken(experiment, f"{fault.message} (hint: {fault.hint})")
    except KeyboardInterrupt:
        store(broken(experiment, f"interrupted during {name}"))
        raise
    except Exception as error:  # noqa: BLE001  a fault of ours must be recorded as BROKEN, never lost or judged
        log.error("unexpected fault in stage %s:\n%s", name, traceback.format_exc())
        verdict = broken(experiment, f"unexpected fault in {name}: {type(error).__name__}: {error}")
    else:
        return experiment
    store(verdict)
    return experiment.with_record(verdict)


def work_of(stage: str, experiment: Experiment) -> tuple[Work, ...]:
    """What a stage has to do for this plan, in order; nothing for a stage that the plan does not name."""
    if stage == "build":
        return (build,)
    return tuple(MEASURES[step.rung] for step in experiment.plan.steps if step.rung in STAGE_RUNGS[stage])


def build(experiment: Experiment) -> Build:
    match experiment.hypothesis:
        case hypothesis if isinstance(hypothesis.change, KernelCandidate) and isinstance(
            hypothesis.target, KernelTarget
        ):
            return build_kernel(load_problem(hypothesis.target.problem), hypothesis.change, hypothesis.id)
        case hypothesis:
            return build_stack(hypothesis)


def criteria_of(experiment: Experiment) -> Criteria:
    """The criteria that people wrote for the target of this experiment."""
    match experiment.hypothesis.target:
        case KernelTarget(problem=name):
            return load_problem(name).criteria
        case StackTarget(scenario=path):
            return load_scenario(path)
