"""The build stage of a kernel hypothesis: candidate and incumbent, compiled side by side with the same tools."""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from serving.errors import Broken
from tasks.compiled import Compiled, compile_arm
from tasks.cpu_build import build_cpu_kernel
from tasks.problem import Problem
from tasks.records import Arm, Build, Environment, KernelCandidate, digest
from tasks.sass import text_sha256
from tasks.toolchain import environment

BOTH = (Arm.INCUMBENT, Arm.CANDIDATE)
DEFAULT_ARCH = 90
ARCHITECTURES = (DEFAULT_ARCH, 100)


def build_kernel(
    problem: Problem,
    candidate: KernelCandidate,
    hypothesis_id: str,
    *,
    arms: Sequence[Arm] = BOTH,
    arch: int = DEFAULT_ARCH,
) -> Build:
    """Compile each arm for sm_<arch>, or for this CPU. A candidate that does not compile gives a Build with a `failure`.

    Raises Broken if the tools, the sandbox or the incumbent are at fault. `arms` may name the candidate alone.
    """
    if problem.definition.runs_on == "cpu":
        return build_cpu_kernel(problem, candidate, hypothesis_id, arms)
    started = time.monotonic()
    facts = environment(arch)
    compiled = compile_arms(problem, candidate, facts, arms)
    ours = compiled[Arm.CANDIDATE]
    return Build(
        hypothesis_id=hypothesis_id,
        artifact=f"builds/{ours.folder.name}",
        artifact_digest=None if ours.failure else artifact_digest(ours),
        log=ours.log,
        environment=facts,
        cached=all(arm.cached for arm in compiled.values()),
        wall_s=time.monotonic() - started,
        failure=ours.failure,
    )


def compile_arms(
    problem: Problem, candidate: KernelCandidate, facts: Environment, arms: Sequence[Arm]
) -> dict[Arm, Compiled]:
    """Each arm compiled, both at a time. Raises Broken if the incumbent fails."""
    sources = {Arm.INCUMBENT: problem.incumbent, Arm.CANDIDATE: candidate}
    with ThreadPoolExecutor(max_workers=len(sources)) as pool:
        jobs = {arm: pool.submit(compile_arm, problem.tuned(sources[arm]), sources[arm], facts) for arm in arms}
        compiled = {arm: job.result() for arm, job in jobs.items()}
    incumbent = compiled.get(Arm.INCUMBENT)
    if incumbent is not None and incumbent.failure is not None:
        raise Broken(
            f"the incumbent of `{problem.name}` does not compile: {incumbent.failure}",
            "repair the incumbent or the compiler; no candidate is judged meanwhile",
        )
    return compiled


def built_arms(problem: Problem, candidate: KernelCandidate, build: Build, arms: Sequence[Arm]) -> dict[Arm, Compiled]:
    """What `build` made, from the cache or compiled again where another machine made it.

    Raises Broken if this machine's compilers are others, or give other code, than those of the build.
    """
    arch = int(build.environment.facts["arch"].removeprefix("sm_"))
    here, there = environment(arch).facts, build.environment.facts
    differing = sorted(name for name in there if name != "cpu" and here.get(name) != there[name])
    if differing:
        raise Broken(
            f"the build was made with another `{', '.join(differing)}` than this machine has",
            "run build and measurement with the same versions",
        )
    compiled = compile_arms(problem, candidate, build.environment, arms)
    ours = compiled.get(Arm.CANDIDATE)
    if ours is not None and (ours.failure is not None or artifact_digest(ours) != build.artifact_digest):
        raise Broken("the candidate compiles to other code than its build record says", "build it again")
    return compiled


def artifact_digest(compiled: Compiled) -> str:
    """Digest of the launches of every workload, with the machine code of each.

    Code is named by its `.text`: the rest of a cubin, such as debug sections, is not the same in every compilation.
    """
    codes = {x.cubin: x for found in compiled.workloads.values() for x in found}
    text = {cubin: text_sha256(compiled.cubin(x)) for cubin, x in codes.items()}
    return digest(
        {
            name: [{**x.model_dump(mode="json"), "cubin": text[x.cubin]} for x in found]
            for name, found in compiled.workloads.items()
        }
    )
