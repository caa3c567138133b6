"""What a judge of one rung says, and what it needs of a criteria file."""

from collections.abc import Mapping
from typing import Protocol

from tasks.records import Criterion, Finding, Interval, Outcome, Record, Rung


class Criteria(Protocol):
    """A file that people own: every limit in it can be read and cited by its dotted key."""

    def limit(self, key: str) -> float:
        """The number under a dotted key. Raises KeyError for a key that the file does not have."""
        ...

    def keys(self, group: str) -> tuple[str, ...]:
        """The dotted keys under a group, such as every veto. Raises KeyError."""
        ...

    def cite(self, key: str) -> Criterion:
        """File, digest, key and value, for a verdict."""
        ...


# One file judges an experiment; or, where a kernel is tried in a service, a file judges each rung.
Rules = Criteria | Mapping[Rung, Criteria]


class Judgement(Record):
    """`outcome` None: the gate holds and the plan goes on."""

    outcome: Outcome | None
    reason: str
    criterion: Criterion | None = None
    intervals: tuple[Interval, ...] = ()
    findings: tuple[Finding, ...] = ()

    @classmethod
    def rejected(
        cls, reason: str, criterion: Criterion | None = None, findings: tuple[Finding, ...] = ()
    ) -> "Judgement":
        return cls(outcome=Outcome.REJECTED, reason=reason, criterion=criterion, findings=findings)

    @classmethod
    def inconclusive(cls, reason: str) -> "Judgement":
        return cls(outcome=Outcome.INCONCLUSIVE, reason=reason)

    @classmethod
    def broken(cls, reason: str) -> "Judgement":
        return cls(outcome=Outcome.BROKEN, reason=reason)
