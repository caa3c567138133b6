"""From a hypothesis to an experiment that can start: challenged, planned, named, and in the ledger; or refused."""

import logging
import uuid
from datetime import UTC, datetime

from tasks.challenge import challenge, unchecked
from tasks.history import tried
from tasks.ledger import Ledger
from tasks.past import past_of
from tasks.plan import make_plan
from tasks.records import Experiment, Hypothesis, Refusal, Rung
from tasks.stages import open_experiment

log = logging.getLogger(__name__)


def new_experiment(
    hypothesis: Hypothesis, ledger_url: str, upto: Rung | None = None, budget_s: float | None = None
) -> Experiment:
    """Reads the ledger, and writes nothing. Raises `BadInput` when no rung answers the question for this change."""
    plan = make_plan(hypothesis, upto, budget_s, tried(Ledger(ledger_url), hypothesis))
    return Experiment(hypothesis_id=hypothesis.id, attempt=new_attempt(), hypothesis=hypothesis, plan=plan)


def admit(experiment: Experiment, ledger_url: str) -> Experiment:
    """The propose stage: the experiment with its refusal, or opened. Raises `Broken`, and `BadInput` for a missing target."""
    refusal = refuse(experiment.hypothesis, ledger_url)
    if refusal is not None:
        return experiment.model_copy(update={"refusal": refusal})
    return open_experiment(experiment, ledger_url)


def refuse(hypothesis: Hypothesis, ledger_url: str) -> Refusal | None:
    """Challenge a hypothesis; a refusal is in the ledger when this returns it. Raises as `admit` does."""
    ledger = Ledger(ledger_url)
    past = past_of(ledger)
    refusal = challenge(hypothesis, past)
    for damage in past.damaged:
        log.warning("the challenge goes on without `%s`: %s", damage.path, damage.reason)
    left_open = unchecked(hypothesis)
    if left_open is not None:
        log.warning("%s", left_open)
    if refusal is not None:
        keep_refusal(ledger, refusal)
    return refusal


def keep_refusal(ledger: Ledger, refusal: Refusal) -> None:
    """Store a refusal under the id of its hypothesis; one that is there already is not stored again. Raises `Broken`."""
    ledger.check_writable()
    known = ledger.read(refusal.hypothesis.id).entries
    if all(entry.record_id != refusal.id for entry in known):
        ledger.append(refusal.hypothesis.id, new_attempt(), refusal)


def new_attempt() -> str:
    """Sorts by start; the random part keeps two attempts of one second apart."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
