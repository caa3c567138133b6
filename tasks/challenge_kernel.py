"""What is wrong with a kernel candidate before it is compiled: options that nothing takes, and sources that change nothing."""

from serving.errors import BadInput
from tasks.meaning import of_kernel
from tasks.normal_form import options_of
from tasks.problem import Problem
from tasks.records import KernelCandidate
from tasks.refusal import Objection, RefusedFor


def object_to_kernel(problem: Problem, candidate: KernelCandidate) -> Objection | None:
    """The first objection to the candidate beside the incumbent of `problem`, in the form that the target names."""
    if candidate.source_name in (".", "..") or any(x in candidate.source_name for x in "/\\\0"):
        return Objection(
            reason=RefusedFor.FORBIDDEN_FILE,
            says=f"`{candidate.source_name}` is no name of one file",
            hint="a candidate is one file without folders, such as `candidate.py`",
        )
    return _unknown_option(problem, candidate) or _same(problem, candidate)


def _unknown_option(problem: Problem, candidate: KernelCandidate) -> Objection | None:
    try:
        problem.tuned(candidate)
    except BadInput as error:
        return Objection(reason=RefusedFor.UNKNOWN_ARGUMENT, says=error.message, hint=error.hint)
    known = options_of(candidate.source)
    unknown = sorted(set(problem.options_of(candidate)) - known) if known is not None else []
    if known is None or not unknown:
        return None
    return Objection(
        reason=RefusedFor.UNKNOWN_ARGUMENT,
        says=f"`run` of `{candidate.source_name}` takes no launch option `{unknown[0]}`",
        hint=f"it takes {', '.join(f'`{name}`' for name in sorted(known)) or 'none'}",
    )


def _same(problem: Problem, candidate: KernelCandidate) -> Objection | None:
    if of_kernel(problem, candidate) != of_kernel(problem, problem.incumbent):
        return None
    if candidate.source == problem.incumbent.source:
        options = ", ".join(f"`{name}: {value}`" for name, value in candidate.launch.items())
        what = f"the launch options {options} are" if options else "without launch options it is"
        return Objection(
            reason=RefusedFor.NO_CHANGE,
            says=f"it is the source of the incumbent, and {what} what the incumbent runs with",
            hint="change the source, or an option to another value than the incumbent's",
        )
    return Objection(
        reason=RefusedFor.ONLY_RENAMES,
        says="only names, comments, layout or spelled-out defaults differ from the incumbent",
        hint="change what the kernel computes, or how",
    )
