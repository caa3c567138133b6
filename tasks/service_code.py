"""Code that is tried in the service: the overlay that a patch or a kernel becomes, and the proof that it is what ran.

A kernel reaches the engine by its problem's `splice`. A template that is a `.patch` is applied to the package, with the
kernel laid beside the patched file under the name that stands for `{module}`; one that is a `.py` is called after the
import of the module that holds the replaced name.
"""

import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from serving.documents import read_text
from serving.engine_env import engine, version_in_engine
from serving.errors import Broken
from serving.overlay import Overlay, patched_files
from serving.patch import PatchFault
from tasks.artifacts import keep_json
from tasks.cpu_build import built_cpu_arms
from tasks.definition import Splice
from tasks.native import NativeSource
from tasks.problem import Problem, problem_of
from tasks.records import (
    Arm,
    Build,
    CodePatch,
    Environment,
    Hypothesis,
    Interval,
    KernelCandidate,
    KernelTarget,
)

WINNER = "infra_agent_candidate"  # what stands for `{module}` in a patch template


@dataclass(frozen=True)
class Code:
    """`alone`: the change of a kernel's time that the microbench measured, where there is one."""

    overlay: Overlay
    alone: Interval | None = None


def build_patch(hypothesis: Hypothesis, patch: CodePatch) -> Build:
    """The patched files, kept by content. A patch that does not fit the engine's package is a `failure`."""
    began, failure = time.monotonic(), None
    try:
        told: object = patch_overlay(patch).digests
    except PatchFault as fault:
        told, failure = patch.model_dump(mode="json"), str(fault)
    return engine_build(hypothesis, told, failure, began)


def engine_build(hypothesis: Hypothesis, told: object, failure: str | None, began: float) -> Build:
    """A build for the engine since `began` (s, monotonic), with what was made of it kept by content. Raises Broken without
    an engine."""
    kept = keep_json(told)
    return Build(
        hypothesis_id=hypothesis.id,
        artifact=kept.path,
        artifact_digest=None if failure else kept.sha256,
        log="",
        environment=Environment(facts=dict(engine().versions)),
        wall_s=time.monotonic() - began,
        failure=failure,
    )


def patch_overlay(patch: CodePatch) -> Overlay:
    """Raises PatchFault for a patch that does not fit the installed package."""
    found = patched_files(patch.package, patch.version, patch.diff)
    return Overlay(
        files={path: content for path, (content, _) in found.items()},
        counted=tuple(function for _, functions in found.values() for function in functions),
    )


def overlay_of(hypothesis: Hypothesis, build: Build) -> Overlay | None:
    """What the candidate runs beside the stack as it is; None for an edit of the stack.

    Raises Broken where it is not what was built.
    """
    match hypothesis.target, hypothesis.change:
        case KernelTarget() as target, KernelCandidate() as candidate:
            return kernel_overlay(problem_of(target), candidate, build)
        case _, CodePatch() as patch:
            try:
                overlay = patch_overlay(patch)
            except PatchFault as fault:
                raise Broken(f"the engine is another than the one of the build: {fault}", "run it again") from fault
            if keep_json(overlay.digests).sha256 != build.artifact_digest:
                raise Broken("the patched files are others than those of the build", "run it again")
            return overlay
        case _:
            return None


def kernel_overlay(problem: Problem, candidate: KernelCandidate, build: Build) -> Overlay:
    """The kernel as it was built, with the template that puts it in the place of the engine's. Raises Broken."""
    splice = problem.definition.splice
    if splice is None or splice.patch is None:
        raise Broken(
            f"`{problem.name}` does not say how a kernel reaches the engine", "its definition needs a `splice`"
        )
    installed = version_in_engine(splice.package)
    if installed != splice.version:
        raise Broken(
            f"`{problem.name}` is spliced into {splice.package} `{splice.version}`, the engine has `{installed}`",
            "port the splice, or make the engine environment again",
        )
    if problem.definition.runs_on == "cpu":
        made = built_cpu_arms(problem, candidate, build, (Arm.CANDIDATE,))[Arm.CANDIDATE]
    else:
        made = NativeSource(source=candidate.source, launch=dict(candidate.launch))
    return spliced(splice, splice.patch, problem.folder, made)


def spliced(splice: Splice, template: str, folder: Path, made: NativeSource) -> Overlay:
    """`template`: a file of the problem's `folder`. The function that it replaces is the one that is counted."""
    module, _, name = splice.replaces.rpartition(".")
    source = made.source
    if made.launch:
        source += f"\n\nfrom functools import partial as _partial\n\nrun = _partial(run, **{made.launch!r})\n"
    text = read_text(folder / template)
    if template.endswith(".py"):
        files = {"splice.py": text.encode(), **_beside("candidate", source, made.library)}
        return Overlay(files, install=module, counted=(f"{module}:{name}",))
    try:
        found = patched_files(splice.package, splice.version, text.replace("{module}", WINNER))
    except PatchFault as fault:
        raise Broken(f"`{template}` does not fit: {fault}", "correct the template of the problem") from fault
    patched = {path: content for path, (content, _) in found.items()}
    beside = str(PurePosixPath(next(iter(patched))).parent / WINNER)
    touched = tuple(function for _, functions in found.values() for function in functions)
    return Overlay({**patched, **_beside(beside, source, made.library)}, counted=touched)


def _beside(stem: str, source: str, library: bytes | None) -> dict[str, bytes]:
    return {f"{stem}.py": source.encode(), **({f"{stem}.cpp.so": library} if library is not None else {})}
