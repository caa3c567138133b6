"""What this machine can run. Each rung is listed with what it needs; what is missing comes with a hint."""

import os
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from serving.errors import InfraAgentError

DRIVER = Path("/proc/driver/nvidia/version")


class Need(NamedTuple):
    """One thing that a rung may need. `hint` is empty when it is there."""

    name: str
    found: str
    hint: str

    @property
    def met(self) -> bool:
        return not self.hint


RUNG_NEEDS = {
    "static": ("triton", "ptxas", "sandbox"),
    "numerics": ("triton", "sandbox"),
    "microbench (Triton kernels)": ("triton", "ptxas", "gpu"),
    "microbench (CPU kernels)": ("sandbox", "C++ compiler", "numba"),
    "overlap": ("overlap rung",),
    "engine": ("engine rung",),
    "service (CPU stack)": ("engine environment", "C++ compiler"),
    "service (GPU stack)": ("engine environment", "gpu"),
    "disaggregated stack (Mooncake)": ("engine environment", "libibverbs"),
}


def diagnose() -> str:
    """The whole report, one line per need and per rung."""
    needs = {need.name: need for need in look()}
    lines = ["this machine has:"]
    for need in needs.values():
        lines.append(f"  {'yes' if need.met else 'no ':<4}{need.name}: {need.found}")
        if not need.met:
            lines.append(f"      hint: {need.hint}")
    lines.append("so it can run:")
    for rung, wanted in RUNG_NEEDS.items():
        lacking = [name for name in wanted if not needs[name].met]
        lines.append(
            f"  {'yes' if not lacking else 'no ':<4}{rung}" + (f": missing {', '.join(lacking)}" if lacking else "")
        )
    return "\n".join(lines)


def look() -> list[Need]:
    """Every need, looked at on this machine. A look that fails is a need that is not met."""
    return [
        _package("prefect", "make setup"),
        _attempt("triton", _triton, "make setup"),
        _package("numba", "make setup"),
        _attempt("ptxas", _ptxas, "make setup; unset TRITON_PTXAS_PATH if it names no file"),
        _attempt("sandbox", _sandbox, "allow unprivileged user namespaces; candidates never run without a sandbox"),
        _tool("C++ compiler", ("c++", "g++", "clang++"), "apt-get install g++"),
        _attempt("engine environment", _engine, "make engine"),
        _ibverbs(),
        _gpu(),
        _attempt("ledger", _ledger, "set INFRA_AGENT_LEDGER to a URL you can write"),
        Need("overlap rung", "not built yet", "questions about overlap end INCONCLUSIVE for now"),
        Need("engine rung", "not built yet", "the service rung compares log-probabilities of both arms itself"),
    ]


def _package(name: str, hint: str) -> Need:
    try:
        return Need(name, version(name), "")
    except PackageNotFoundError:
        return Need(name, "not installed", hint)


def _tool(name: str, commands: tuple[str, ...], hint: str) -> Need:
    found = next((path for command in commands if (path := shutil.which(command))), None)
    return Need(name, found or "not on PATH", "" if found else hint)


def _ibverbs() -> Need:
    from serving.libraries import IBVERBS, INSTALL, loads

    return Need("libibverbs", IBVERBS, "") if loads(IBVERBS) else Need("libibverbs", "not installed", INSTALL)


def _attempt(name: str, look_at: Callable[[], str], hint: str) -> Need:
    try:
        return Need(name, look_at(), "")
    except InfraAgentError as fault:
        return Need(name, fault.message, fault.hint or hint)


def _gpu() -> Need:
    if not DRIVER.exists():
        return Need(
            "gpu", "no NVIDIA driver", "GPU kernels are compiled and checked here, and timed on a machine with a GPU"
        )
    return Need("gpu", DRIVER.read_text().splitlines()[0], "")


def _triton() -> str:
    """With that of the engine, which should be the same for what a kernel compiles to here to be what runs there."""
    from serving.engine_env import version_in_engine
    from tasks.toolchain import triton_version

    ours, engines = triton_version(), version_in_engine("triton")
    if engines is None:
        return f"{ours} (the engine environment has none: it runs no GPU kernels)"
    if engines == ours:
        return f"{ours}, as in the engine environment"
    return f"{ours}, but {engines} in the engine environment: kernels get no further than static and numerics"


def _ptxas() -> str:
    from tasks.build import ARCHITECTURES
    from tasks.toolchain import ptxas, ptxas_version

    return ", ".join(f"{ptxas_version(ptxas(arch))} for sm_{arch}" for arch in ARCHITECTURES)


def _sandbox() -> str:
    from tasks.sandbox import sandbox_mode

    return sandbox_mode()


def _engine() -> str:
    from serving.engine_env import engine

    found = engine()
    return f"sglang {found.versions['sglang']}, torch {found.versions['torch']}"


def _ledger() -> str:
    from tasks.ledger import Ledger, default_url

    ledger = Ledger(os.environ.get("INFRA_AGENT_LEDGER") or default_url())
    ledger.check_writable()
    return ledger.url
