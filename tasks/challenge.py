"""Is a hypothesis worth a build? Cheap rules before anything is compiled or started, for hypotheses of every origin."""

from serving.effective import options_or_why
from serving.errors import BadInput
from serving.home import located
from serving.stack import apply_edit, load_stack
from tasks.challenge_kernel import object_to_kernel
from tasks.challenge_patch import object_to_patch, unchecked_patch
from tasks.challenge_prediction import object_to_prediction
from tasks.challenge_stack import object_to_edit, unchecked_edit
from tasks.meaning import of_kernel, of_patch, of_stack
from tasks.one_line import one_line
from tasks.past import Past
from tasks.plan import make_plan
from tasks.problem import Problem, problem_of
from tasks.records import CodePatch, Hypothesis, KernelCandidate, KernelTarget, Question, StackEdit, StackTarget
from tasks.refusal import Objection, Refusal, RefusedFor

__all__ = ["Refusal", "RefusedFor", "challenge", "unchecked"]
MOST_SAID = 4000  # characters: it may repeat what was proposed
REPEATS = ("person", "catalogue")  # who may ask the very same hypothesis again: another attempt


def challenge(hypothesis: Hypothesis, past: Past) -> Refusal | None:
    """The first reason to refuse, or None. Reads the files of the target; runs nothing and records nothing.

    Raises BadInput for a target that does not exist.
    """
    problem = problem_of(hypothesis.target) if isinstance(hypothesis.target, KernelTarget) else None
    objection = (
        _question(hypothesis, problem)
        or _change(hypothesis, problem)
        or object_to_prediction(hypothesis, problem)
        or _duplicate(hypothesis, problem, past)
    )
    if objection is None:
        return None
    says, hint = one_line(objection.says, MOST_SAID), one_line(objection.hint, MOST_SAID)
    return Refusal(hypothesis=hypothesis, reason=objection.reason, says=says, hint=hint)


def unchecked(hypothesis: Hypothesis) -> str | None:
    """What of the change could not be challenged on this machine, and why; None if all of it was."""
    match hypothesis.change:
        case StackEdit():
            return unchecked_edit()
        case CodePatch() as patch:
            return unchecked_patch(patch)
    return None


def _question(hypothesis: Hypothesis, problem: Problem | None) -> Objection | None:
    """Questions that no rung answers for this change or this target."""
    question = hypothesis.question
    try:
        make_plan(hypothesis)
    except BadInput as error:
        return Objection(reason=RefusedFor.WRONG_QUESTION, says=error.message, hint=error.hint)
    if problem is None:
        return None
    if question is Question.FEWER_BYTES and problem.criteria.values.bytes is None:
        return Objection(
            reason=RefusedFor.WRONG_QUESTION,
            says=f"the criteria of `{problem.name}` have no limit for bytes, so `{question}` has no answer there",
            hint="ask another question, or have the owner of the criteria add `bytes.smallest_effect_pct`",
        )
    if question in (Question.SOUND_ENGINE, Question.BETTER_SERVICE) and problem.definition.splice is None:
        return Objection(
            reason=RefusedFor.WRONG_QUESTION,
            says=f"`{problem.name}` has no `splice`: its kernels cannot reach an engine, so `{question}` has no answer",
            hint=f"ask `{Question.FASTER_KERNEL}`, or add a `splice` to its definition",
        )
    return None


def _change(hypothesis: Hypothesis, problem: Problem | None) -> Objection | None:
    match hypothesis.target, hypothesis.change:
        case _, KernelCandidate() as candidate if problem is not None:
            return object_to_kernel(problem, candidate)
        case StackTarget() as target, StackEdit() as edit:
            return object_to_edit(target, edit)
        case _, CodePatch() as patch:
            return object_to_patch(patch)
    return None


def _duplicate(hypothesis: Hypothesis, problem: Problem | None, past: Past) -> Objection | None:
    """The latest settled hypothesis that asks the same of the same target with a change of the same meaning."""
    meant = _meaning(hypothesis, problem)
    for earlier in reversed(past.settled):
        asked = earlier.hypothesis
        if asked.id == hypothesis.id and hypothesis.origin in REPEATS:
            continue
        if asked.question is not hypothesis.question or not _same_target(asked, hypothesis, problem):
            continue
        if asked.change == hypothesis.change or (meant is not None and _meaning(asked, problem) == meant):
            look = f"; `infra-agent ledger show {asked.id[:12]}` says what came of it" if earlier.stored else ""
            return Objection(
                reason=RefusedFor.DUPLICATE,
                says=f"`{asked.id[:12]}` (`{asked.title}`) asked this of the same change: {earlier.says}",
                hint=f"change something else{look}",
            )
    return None


def _same_target(one: Hypothesis, other: Hypothesis, problem: Problem | None) -> bool:
    """The same incumbent, in the same form however its launch options are spelled."""
    ours, theirs = one.target, other.target
    if problem is None or not isinstance(ours, KernelTarget) or not isinstance(theirs, KernelTarget):
        return ours == theirs
    bare = [target.model_copy(update={"incumbent_launch": {}}) for target in (ours, theirs)]
    forms = [
        of_kernel(problem, problem.incumbent.model_copy(update={"launch": target.incumbent_launch}))
        for target in (ours, theirs)
    ]
    return bare[0] == bare[1] and forms[0] == forms[1]


def _meaning(hypothesis: Hypothesis, problem: Problem | None) -> str | None:
    """Of the change, for the target as it is now; None where it cannot be told."""
    try:
        match hypothesis.target, hypothesis.change:
            case KernelTarget(), KernelCandidate() as candidate if problem is not None:
                return of_kernel(problem, candidate)
            case StackTarget(stack=path), StackEdit(roles=roles):
                known = options_or_why()
                return of_stack(apply_edit(load_stack(located(path)), roles), {} if isinstance(known, str) else known)
            case _, CodePatch() as patch:
                return of_patch(patch)
    except BadInput:
        return None
    return None
