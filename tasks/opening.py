"""From a hypothesis to an experiment that can start: its plan, and a name for this attempt."""

import uuid
from datetime import UTC, datetime

from tasks.history import tried
from tasks.ledger import Ledger
from tasks.plan import make_plan
from tasks.records import Experiment, Hypothesis, Rung


def new_experiment(
    hypothesis: Hypothesis, ledger_url: str, upto: Rung | None = None, budget_s: float | None = None
) -> Experiment:
    """Reads the ledger, and writes nothing. Raises `BadInput` when no rung answers the question for this change."""
    plan = make_plan(hypothesis, upto, budget_s, tried(Ledger(ledger_url), hypothesis))
    return Experiment(hypothesis_id=hypothesis.id, attempt=new_attempt(), hypothesis=hypothesis, plan=plan)


def new_attempt() -> str:
    """Sorts by start; the random part keeps two attempts of one second apart."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
