"""What a ledger holds about earlier hypotheses, as far as it bears on whether to ask a new one."""

from tasks.history import attempts
from tasks.ledger import Damage, Ledger
from tasks.records import Experiment, Hypothesis, Outcome, Record, Text


class Asked(Record):
    """A hypothesis that is settled: `says` is how, such as `REJECTED: no change`. `stored`: the ledger has it."""

    hypothesis: Hypothesis
    says: Text
    stored: bool = True


class Past(Record):
    """`damaged`: objects of the ledger that could not be read; what they held is not known here."""

    settled: tuple[Asked, ...] = ()
    damaged: tuple[Damage, ...] = ()

    def with_accepted(self, hypothesis: Hypothesis) -> "Past":
        """As if `hypothesis` had been asked already, so that a second one like it is a duplicate."""
        asked = Asked(hypothesis=hypothesis, says="accepted a moment ago", stored=False)
        return self.model_copy(update={"settled": (*self.settled, asked)})


def past_of(ledger: Ledger) -> Past:
    """One entry per settled attempt, oldest first. Raises Broken when the ledger cannot be read."""
    contents = ledger.read()
    return Past(
        settled=tuple(Asked(hypothesis=e.hypothesis, says=_ended(e)) for e in attempts(contents) if settles(e)),
        damaged=contents.damaged,
    )


def settles(experiment: Experiment) -> bool:
    """Whether the attempt leaves nothing to ask again.

    BROKEN and no verdict settle nothing. INCONCLUSIVE does if the rung that answers observed something: it would observe
    the same again. Where that rung did not run (no GPU, a budget, --upto), it may run another time.
    """
    verdict = experiment.verdict
    if verdict is None or verdict.outcome is Outcome.BROKEN:
        return False
    if verdict.outcome is not Outcome.INCONCLUSIVE:
        return True
    answering = [step.rung for step in experiment.plan.steps if step.purpose == "answer"]
    return any((evidence := experiment.of(rung)) is not None and evidence.blocks for rung in answering)


def _ended(experiment: Experiment) -> str:
    return f"{experiment.verdict.outcome}: {experiment.verdict.reason}" if experiment.verdict else "no verdict"
