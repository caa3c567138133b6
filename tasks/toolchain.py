"""The compilers that build kernels here, and the facts that must be equal before two results may be compared."""

import os
import platform
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from serving.errors import Broken
from tasks.records import Environment
from tasks.sandbox import sandbox_mode

BLACKWELL = 100
TESTED = ((3, 6), (3, 8))  # of Triton; newer ones are taken, others are refused
_PTXAS_TIMEOUT_S = 30


def triton_version() -> str:
    """Version of the Triton that compiles here. Raises Broken, naming it, for one whose output is not understood."""
    found = package_version("triton")
    release = tuple(int(x) for x in re.findall(r"\d+", found)[:2])
    if release in TESTED or release > max(TESTED):
        return found
    known = ", ".join(f"{major}.{minor}" for major, minor in TESTED)
    raise Broken(f"Triton `{found}` is not supported", f"install {known} or newer: `make setup` installs a fitting one")


def triton_tool(name: str) -> Path:
    """A binary inside the Triton wheel: ptxas, nvdisasm, cuobjdump. Raises Broken if it is missing or cannot run."""
    spec = find_spec("triton")
    if spec is None or spec.origin is None:
        raise Broken("triton is not installed", "install the orchestrator's requirements (make setup)")
    path = Path(spec.origin).parent / "backends/nvidia/bin" / name
    return _executable(path, f"reinstall triton: its `{name}` is part of the wheel")


def ptxas(arch: int) -> Path:
    """The ptxas that Triton will use for `arch` (90, 100). Raises Broken, naming the path, if it cannot run."""
    blackwell = arch >= BLACKWELL
    variable = "TRITON_PTXAS_BLACKWELL_PATH" if blackwell else "TRITON_PTXAS_PATH"
    chosen = os.environ.get(variable)
    if chosen:
        return _executable(Path(chosen), f"correct {variable} or unset it to use the ptxas of the Triton wheel")
    return triton_tool("ptxas-blackwell" if blackwell else "ptxas")


def ptxas_version(path: Path) -> str:
    """Version such as 12.9.86. Raises Broken if the program does not say."""
    hint = "point TRITON_PTXAS_PATH to a ptxas that runs on this machine"
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_PTXAS_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Broken(f"ptxas `{path}` does not run: {error}", hint) from error
    found = re.search(r"V(\d+\.\d+\.\d+)", done.stdout)
    if done.returncode != 0 or found is None:
        raise Broken(f"ptxas `{path}` does not tell its version (status {done.returncode})", hint)
    return found.group(1)


def environment(arch: int) -> Environment:
    """Versions, architecture, CPU, sandbox mode. Raises Broken if a compiler is missing or the sandbox leaks."""
    facts = {
        "arch": f"sm_{arch}",
        "cpu": cpu_model(),
        "ptxas": ptxas_version(ptxas(arch)),
        "python": platform.python_version(),
        "sandbox": sandbox_mode(),
        "triton": triton_version(),
        **{package: package_version(package) for package in ("torch", "numpy")},
    }
    return Environment(facts=facts)


@cache
def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else f"{sys.platform} {platform.machine()}"


def package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError as error:
        raise Broken(
            f"the package `{package}` is not installed", "install the orchestrator's requirements (make setup)"
        ) from error


def _executable(path: Path, hint: str) -> Path:
    if not path.is_file():
        raise Broken(f"no such compiler: `{path}`", hint)
    if not os.access(path, os.X_OK):
        raise Broken(f"the compiler `{path}` is not executable", hint)
    return path
