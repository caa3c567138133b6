"""The build of a candidate that runs on CPU: its C++ compiled in the sandbox, then loaded and called once.

A source may hold C++ as the text `CPP`, a literal. We compile it, so that the process that runs the candidate never
starts another; the candidate finds the library beside itself, under its own name with `.cpp.so`: with `.so` alone
Python would import it in the source's place.
"""

import ast
import hashlib
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from uuid import uuid4

from serving.errors import Broken
from serving.home import home
from tasks.ending import Limits
from tasks.native import NativeFault, NativeSource, native
from tasks.problem import Problem
from tasks.records import Arm, Build, Environment, KernelCandidate, Record, digest
from tasks.sandbox import sandbox_mode
from tasks.staging import UntrustedResult, fault_of, staged
from tasks.toolchain import cpu_model, package_version

FLAGS = ("-O3", "-march=native", "-fopenmp-simd", "-shared", "-fPIC")
PACKAGES = ("torch", "numpy", "numba")
MAX_LIBRARY_BYTES = 64 << 20
_ELF = b"\x7fELF"


class BuildFault(Exception):
    """What a candidate that does not build did wrong, in one line."""


class Outcome(Record):
    """result.json of the compile worker."""

    nonce: str
    fault: str | None


def build_cpu_kernel(problem: Problem, candidate: KernelCandidate, hypothesis_id: str, arms: Sequence[Arm]) -> Build:
    """Compile and call once. A candidate that fails gives a Build with a `failure`; raises Broken for the incumbent."""
    started, failure, made = time.monotonic(), None, None
    facts = cpu_environment()
    try:
        if Arm.INCUMBENT in arms:
            _first_call(problem, prepare(problem, problem.incumbent))
    except (BuildFault, NativeFault) as fault:
        raise Broken(f"the incumbent of `{problem.name}` does not build: {fault}", "repair the incumbent") from fault
    try:
        made = prepare(problem, candidate)
        _first_call(problem, made)
    except (BuildFault, NativeFault) as fault:
        failure = str(fault)
    return Build(
        hypothesis_id=hypothesis_id,
        artifact=f"sources/{digest(candidate.source)}",
        artifact_digest=None if failure is not None or made is None else artifact_digest(made),
        log="",
        environment=facts,
        wall_s=time.monotonic() - started,
        failure=failure,
    )


def built_cpu_arms(
    problem: Problem, candidate: KernelCandidate, build: Build, arms: Sequence[Arm]
) -> dict[Arm, NativeSource]:
    """What `build` made, from the cache or compiled again. Raises Broken if this machine makes something else."""
    here, there = cpu_environment().facts, build.environment.facts
    differing = sorted(name for name in there if here.get(name) != there[name])
    if differing:
        raise Broken(
            f"the build was made with another `{', '.join(differing)}` than this machine has",
            "run build and measurement on one machine",
        )
    sources = {Arm.INCUMBENT: problem.incumbent, Arm.CANDIDATE: candidate}
    try:
        made = {arm: prepare(problem, sources[arm]) for arm in arms}
    except BuildFault as fault:
        raise Broken(f"what was built does not build again: {fault}", "build it again") from fault
    if Arm.CANDIDATE in made and artifact_digest(made[Arm.CANDIDATE]) != build.artifact_digest:
        raise Broken("the candidate compiles to other code than its build record says", "build it again")
    return made


def prepare(problem: Problem, candidate: KernelCandidate) -> NativeSource:
    """The source with its library, compiled or from the cache. Raises BuildFault, Broken."""
    code = cpp_of(candidate.source)
    library = None if code is None else _library(code, problem.criteria.values.limits)
    return NativeSource(source=candidate.source, library=library, launch=dict(candidate.launch))


def cpp_of(source: str) -> str | None:
    """The text literal that the module assigns to `CPP`. Raises BuildFault for a source that is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise BuildFault(f"{type(error).__name__}: {getattr(error, 'msg', error)}{where}") from None
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(x, ast.Name) and x.id == "CPP" for x in node.targets):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return node.value.value
            raise BuildFault("`CPP` is not a plain text literal, so it cannot be compiled without running the source")
    return None


def artifact_digest(made: NativeSource) -> str:
    """Digest of all that is loaded, and of how it is called."""
    return digest([made.digests, made.launch])


@cache
def cpu_environment() -> Environment:
    """Versions, compiler, CPU and sandbox mode: equal, or no comparison. Raises Broken if one is missing."""
    facts = {
        "runs_on": "cpu",
        "cpu": cpu_model(),
        "machine": platform.machine(),
        "compiler": f"{_gcc()} {' '.join(FLAGS)}",
        "python": platform.python_version(),
        "sandbox": f"{sandbox_mode()}, one thread, no child processes",
        **{package: package_version(package) for package in PACKAGES},
    }
    return Environment(facts=facts)


def _gcc() -> str:
    found = shutil.which("g++", path="/usr/bin:/bin")
    if found is None:
        raise Broken("no `g++` in /usr/bin, where the sandbox looks for it", "apt-get install g++")
    done = subprocess.run([found, "-dumpfullversion"], capture_output=True, text=True, timeout=30, check=False)
    if not re.fullmatch(r"[\d.]+", done.stdout.strip()):
        raise Broken(f"`{found}` does not tell its version", "reinstall g++")
    return f"g++ {done.stdout.strip()}"


def _first_call(problem: Problem, made: NativeSource) -> None:
    """On zeros, results not looked at: does it load and return?"""
    check = problem.workloads.checks[0]
    with native(made, [problem.arguments_of(check)], problem.criteria.values.limits) as process:
        process.call(0)


def _library(code: str, limits: Limits) -> bytes:
    """The compiled library, kept under what it was made from and its own digest. Raises BuildFault, Broken."""
    key = digest(["cpp", code, cpu_environment().facts["compiler"], cpu_model()])
    folder = home() / "builds"
    for kept in folder.glob(f"{key}.*.so"):
        content = kept.read_bytes()
        if kept.name == f"{key}.{hashlib.sha256(content).hexdigest()}.so":
            return content
    content = _compiled(code, limits)
    folder.mkdir(parents=True, exist_ok=True)
    making = folder / f"{key}.{uuid4().hex}.part"
    making.write_bytes(content)
    os.replace(making, folder / f"{key}.{hashlib.sha256(content).hexdigest()}.so")
    return content


def _compiled(code: str, limits: Limits) -> bytes:
    with staged({"candidate.cpp": code}, {"flags": FLAGS}) as stage:
        ending = stage.run("compile_cpp.py", limits)
        fault = fault_of(ending, None, limits)
        try:
            fault = fault or stage.result(Outcome).fault
            content = b"" if fault else stage.read(Path("candidate.so").name, MAX_LIBRARY_BYTES)
        except UntrustedResult as error:
            fault = str(error)
    if fault is not None:
        raise BuildFault(fault)
    if not content.startswith(_ELF):
        raise BuildFault("g++ left no library")
    return content
