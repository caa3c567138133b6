"""What a change amounts to, so that the same one in another spelling is known again."""

from collections.abc import Mapping
from functools import lru_cache

from serving.arguments import Option
from serving.effective import in_effect
from serving.engagement import as_text
from serving.stack import StackSpec
from tasks.normal_form import normal_form
from tasks.patch import read_patch
from tasks.problem import Problem
from tasks.records import CodePatch, KernelCandidate, digest


def of_kernel(problem: Problem, candidate: KernelCandidate) -> str:
    """Digest of the source's normal form with the options that are in effect, and of the sizes and dtypes it chose.

    Raises BadInput for a launch option that is no size or dtype.
    """
    tuned = problem.tuned(candidate)
    options = problem.options_of(candidate)
    sizes = {name: axis.value for name, axis in tuned.definition.axes.items() if axis.tunable}
    caches = [workload.cache for workload in (*tuned.workloads.checks, *tuned.workloads.timings)]
    form = _form(candidate.source, tuple(sorted(options.items())))
    source = [candidate.source, options] if form is None else form
    return digest(["kernel", source, sizes, caches])


@lru_cache(maxsize=4096)
def _form(source: str, options: tuple[tuple[str, object], ...]) -> str | None:
    return normal_form(source, dict(options))  # type: ignore[arg-type]


def of_stack(spec: StackSpec, options: Mapping[str, Option]) -> str:
    """Digest of what each role's options, variables and count amount to. Without `options` every stated value counts."""
    roles = {
        name: [role.count, in_effect(role.arguments, options), {k: as_text(v) for k, v in role.environment.items()}]
        for name, role in spec.roles.items()
    }
    return digest(["stack", roles])


def of_patch(patch: CodePatch) -> str:
    """Digest of what the lines of the patch say, without their numbers, comments and spacing."""
    files = read_patch(patch.diff)
    said = patch.diff if files is None else sorted([f.old, f.new, [e.asked() for e in f.edits]] for f in files)
    return digest(["patch", patch.package, patch.version, said])
