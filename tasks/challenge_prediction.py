"""Does a hypothesis say what would be seen if it were true? An observable that is measured, a size, a mechanism."""

import re

from serving.observables import OBSERVABLES
from tasks.gpus import GPUS
from tasks.plan import ANSWERS
from tasks.problem import Problem
from tasks.records import Hypothesis, Question, Rung
from tasks.refusal import Objection, RefusedFor

# What each rung observes of a whole step or of a kernel, with its unit.
STATIC = {
    **dict.fromkeys(
        ("warp_instructions", "warp_instructions_unweighted", "mufu", "registers", "programs", "launches", "programs_per_sm",
         "wide_share", "repetitions", "repeated_warp_instructions", "repeated_mufu"), "1",
    ),
    **{f"waves_{gpu.name.lower()}": "1" for gpu in GPUS},
    "spill_bytes": "B",
    "shared_bytes": "B",
}  # fmt: skip
BYTES = {"unique_bytes": "B", "requested_bytes": "B"}
TIMES = {"time_us": "µs"}
COUNTS = {"changed_untouched_slots": "1", "differing_elements": "1"}
SERVICE = {**{name: x.unit for name, x in OBSERVABLES.items()}, "logprob_drift": "nats"}
SAME_UNIT = {"us": "µs", "bytes": "B", "byte": "B", "percent": "%"}
IMPROVES = (Question.LESS_WORK, Question.FEWER_BYTES, Question.FASTER_KERNEL, Question.BETTER_SERVICE)
# Words that say that it will be better, and not by what.
PRAISE = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "become", "becomes", "because", "better", "by", "can", "do", "does",
    "efficient", "efficiency", "fast", "faster", "for", "from", "get", "gets", "good", "has", "have", "helps", "help",
    "if", "improve", "improved", "improvement", "improves", "in", "is", "it", "its", "kernel", "less", "makes",
    "make", "more", "much", "of", "on", "optimal", "optimized", "optimization", "optimisation", "or", "performance",
    "quicker", "run", "runs", "should", "slow", "slower", "so", "speed", "speeds", "speedup", "than", "that", "the",
    "then", "there", "these", "this", "time", "to", "up", "very", "was", "we", "well", "when", "which", "will",
    "with", "work", "works", "would",
})  # fmt: skip


def object_to_prediction(hypothesis: Hypothesis, problem: Problem | None) -> Objection | None:
    """The first objection to what is predicted, or to why. `problem`: of a kernel target."""
    return _observable(hypothesis, problem) or _size(hypothesis) or _mechanism(hypothesis)


def measured(question: Question, problem: Problem | None) -> dict[str, str] | None:
    """Observables of the rung that answers, with their units; None where that rung is not built, so nothing is known."""
    match ANSWERS[question][0], question:
        case Rung.STATIC, _:
            return STATIC
        case Rung.NUMERICS, Question.FEWER_BYTES:
            return BYTES
        case Rung.NUMERICS, _:
            return _errors(problem)
        case Rung.MICROBENCH, _:
            return TIMES
        case Rung.SERVICE, _:
            return SERVICE
    return None


def _errors(problem: Problem | None) -> dict[str, str] | None:
    if problem is None:
        return None
    tensors = problem.definition.tensors
    results = [name for name in tensors if problem.definition.role_of(name) in ("out", "in_place")]
    kinds = ("", "_ieee", "_toward_zero", "_round_operands", "_drift")
    errors = {f"{name}{kind}_rel_error": "1" for name in results for kind in kinds}
    return errors | {f"{name}_mismatches": "1" for name in results if tensors[name].dtype == "int32"} | COUNTS


def _observable(hypothesis: Hypothesis, problem: Problem | None) -> Objection | None:
    said, known = hypothesis.prediction, measured(hypothesis.question, problem)
    if known is None:
        return None
    if said.observable not in known:
        return Objection(
            reason=RefusedFor.EMPTY_PREDICTION,
            says=f"no rung that answers `{hypothesis.question}` observes `{said.observable}`",
            hint=f"predict one of {', '.join(f'`{name}`' for name in known)}",
        )
    unit = SAME_UNIT.get(said.unit, said.unit)
    if unit not in ("%", known[said.observable]):
        return Objection(
            reason=RefusedFor.EMPTY_PREDICTION,
            says=f"`{said.observable}` is not observed in `{said.unit}`",
            hint=f"give the change in `%` or in `{known[said.observable]}`",
        )
    return None


def _size(hypothesis: Hypothesis) -> Objection | None:
    said = hypothesis.prediction
    if hypothesis.question in IMPROVES and said.direction == "same":
        return Objection(
            reason=RefusedFor.EMPTY_PREDICTION,
            says=f"`{hypothesis.question}` is asked, and nothing is predicted to change",
            hint="predict a direction and a size",
        )
    if said.direction == "down" and SAME_UNIT.get(said.unit, said.unit) == "%" and said.size > 100:
        return Objection(
            reason=RefusedFor.EMPTY_PREDICTION,
            says=f"nothing falls by `{said.size:g} %`",
            hint="give the size as a share of the incumbent's value, at most 100 %",
        )
    return None


def _mechanism(hypothesis: Hypothesis) -> Objection | None:
    """At least two words that stand neither in the title nor on the list of those that only praise."""
    left = _words(hypothesis.mechanism) - _words(hypothesis.title) - PRAISE
    if len(left) >= 2:
        return None
    return Objection(
        reason=RefusedFor.EMPTY_MECHANISM,
        says="the mechanism says no more than the title, or only that it is better",
        hint="name what the machine code, the counts or a trace must show if it is true, such as `MUFU.RCP goes away`",
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
