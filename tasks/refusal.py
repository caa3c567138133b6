"""Why a hypothesis is not worth a build. A refusal says nothing about whether the hypothesis is true: nothing was run."""

from enum import StrEnum

from tasks.hypothesis import Hypothesis, Record, Text


class RefusedFor(StrEnum):
    DUPLICATE = "duplicate"
    NO_CHANGE = "no change"
    ONLY_RENAMES = "only renames"
    UNKNOWN_ARGUMENT = "unknown argument"
    IGNORED_ARGUMENT = "ignored argument"
    UNSERVABLE = "unservable"
    FORBIDDEN_FILE = "forbidden file"
    UNREADABLE_PATCH = "unreadable patch"
    WRONG_VERSION = "wrong version"
    WRONG_QUESTION = "wrong question"
    EMPTY_PREDICTION = "empty prediction"
    EMPTY_MECHANISM = "empty mechanism"


class Objection(Record):
    """`says`: what is wrong, with values in backticks. `hint`: what would be let through."""

    reason: RefusedFor
    says: Text
    hint: Text


class Refusal(Record):
    """An objection to a hypothesis, as the ledger keeps it."""

    hypothesis: Hypothesis
    reason: RefusedFor
    says: Text
    hint: Text
