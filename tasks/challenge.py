"""Is a hypothesis worth a build? Cheap rules before anything is compiled or started, for hypotheses of every origin."""

from collections.abc import Callable

from serving.errors import BadInput
from tasks.past import Past
from tasks.plan import make_plan
from tasks.records import Hypothesis
from tasks.refusal import Refusal, RefusedFor

__all__ = ["Refusal", "RefusedFor", "challenge"]
REPEATS = ("person", "catalogue")  # who may ask the very same hypothesis again: another attempt


def challenge(hypothesis: Hypothesis, past: Past) -> Refusal | None:
    """The first reason to refuse, or None. Reads the target's files; runs nothing and records nothing.

    Raises `BadInput` for a target that does not exist.
    """
    for rule in RULES:
        refusal = rule(hypothesis, past)
        if refusal is not None:
            return refusal
    return None


def _question(hypothesis: Hypothesis, past: Past) -> Refusal | None:
    try:
        make_plan(hypothesis)
    except BadInput as error:
        return Refusal(hypothesis=hypothesis, reason=RefusedFor.WRONG_QUESTION, says=error.message, hint=error.hint)
    return None


def _duplicate(hypothesis: Hypothesis, past: Past) -> Refusal | None:
    for earlier in past.settled:
        asked = earlier.hypothesis
        if asked.id == hypothesis.id and hypothesis.origin in REPEATS:
            continue
        if (asked.target, asked.question, asked.change) == (hypothesis.target, hypothesis.question, hypothesis.change):
            says = f"it asks what `{asked.id[:12]}` asked ({earlier.says})"
            hint = f"`infra-agent ledger show {asked.id[:12]}` shows what came of it; change something else"
            return Refusal(hypothesis=hypothesis, reason=RefusedFor.DUPLICATE, says=says, hint=hint)
    return None


RULES: tuple[Callable[[Hypothesis, Past], Refusal | None], ...] = (_question, _duplicate)
