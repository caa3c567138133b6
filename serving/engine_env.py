"""The engine environment: a virtual environment with SGLang, apart from ours, only ever used by starting its Python."""

import hashlib
import importlib.metadata
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.errors import Broken

SGLANG = "0.5.23"
REPOSITORY = Path(__file__).resolve().parent.parent
SCRIPTS = Path(__file__).resolve().parent / "engine_scripts"
CPU_STAND_INS = Path(__file__).resolve().parent / "cpu"

# An engine process sees these and nothing else of our environment: no keys, no proxies, nobody's PYTHONPATH.
PASSED_ON = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ", "USER")
PASSED_ON_PREFIXES = ("CUDA_", "NCCL_", "NVIDIA_")

LOOPBACK_AND_OFFLINE = {
    "SGLANG_HOST_IP": "127.0.0.1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}
WITHOUT_GPU = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "PYTHONPATH": str(CPU_STAND_INS),
    # Compiling in the middle of a measurement would be measured, and needs a C++ compiler.
    "TORCHDYNAMO_DISABLE": "1",
    # mHC by SGLang's own torch code: the other one takes only the widths of the large model.
    "SGLANG_OPT_USE_TILELANG_MHC_PRE": "0",
    "SGLANG_OPT_USE_TILELANG_MHC_POST": "0",
}
# Where the ranks of one server meet: a file, because torch's TCP store listens on every interface.
MEETING = "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"


@dataclass(frozen=True)
class Engine:
    """`versions`: of sglang, torch, transformers and python. `content`: digest of the installed sglang's file list."""

    python: Path
    versions: Mapping[str, str]
    content: str


def engine_folder() -> Path:
    """`INFRA_AGENT_ENGINE`, by default `.venv-engine` of this repository, whether it exists or not."""
    return Path(os.environ.get("INFRA_AGENT_ENGINE") or REPOSITORY / ".venv-engine").expanduser().absolute()


def version_in_engine(package: str) -> str | None:
    """Version of a package in the engine environment; None without such an environment, or without the package in it."""
    found = _in_engine(package)
    return found.version if found else None


def installed_packages() -> list[Path]:
    """The folders of the engine environment that its packages are installed in; none without such an environment."""
    return [Path(folder) for folder in _site_packages(engine_folder())]


def files_in_engine(package: str) -> frozenset[str] | None:
    """What the package installs in the engine environment, as paths; None without one, or without the package in it."""
    found = _in_engine(package)
    return frozenset(path.as_posix() for path in found.files or ()) if found else None


def _in_engine(package: str) -> importlib.metadata.Distribution | None:
    site = _site_packages(engine_folder())
    return next(iter(importlib.metadata.distributions(name=package, path=site)), None) if site else None


def _site_packages(folder: Path) -> list[str]:
    return [str(path) for path in folder.glob("lib/python3.*/site-packages")]


def engine() -> Engine:
    """What is in the engine environment. Raises Broken when it cannot serve."""
    folder = engine_folder()
    hint = "run `make engine`, or set `INFRA_AGENT_ENGINE` to a virtual environment that has it"
    python = folder / "bin" / "python"
    if not python.exists():
        raise Broken(f"there is no engine environment at `{folder}`", hint)
    site = _site_packages(folder)
    found = {d.metadata["Name"]: d for d in importlib.metadata.distributions(path=site)}
    if "sglang" not in found or found["sglang"].version != SGLANG:
        seen = f"sglang `{found['sglang'].version}`" if "sglang" in found else "no sglang"
        raise Broken(f"the engine environment `{folder}` has {seen}, not sglang `{SGLANG}`", hint)
    versions = {
        name: found[name].version if name in found else "absent" for name in ("sglang", "torch", "transformers")
    }
    versions["python"] = Path(site[0]).parent.name.removeprefix("python")
    record = found["sglang"].read_text("RECORD") or ""
    return Engine(python, versions, hashlib.sha256(record.encode()).hexdigest())


def process_environment(
    device: str, stated: Mapping[str, str] | None = None, decided: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables of an engine process on `device` (`cpu` or a GPU).

    What a stack has `stated` goes over our environment; what the launcher has `decided` goes over everything.
    """
    # What is compiled outlives the engine's own folder for temporary files; this is where torch has it by default.
    kept = {"TORCHINDUCTOR_CACHE_DIR": f"{tempfile.gettempdir()}/torchinductor_{os.getuid()}"}
    passed = {k: v for k, v in os.environ.items() if k in PASSED_ON or k.startswith(PASSED_ON_PREFIXES)}
    fixed = {**LOOPBACK_AND_OFFLINE, **(WITHOUT_GPU if device == "cpu" else {}), **(decided or {})}
    return {**kept, **passed, **(stated or {}), **fixed}


def run_script(name: str, *arguments: str, cwd: Path, timeout_s: float = 180) -> None:
    """Runs one of `engine_scripts/` without a GPU. Raises Broken with the last line it printed when it fails."""
    command = [str(engine().python), "-P", str(SCRIPTS / name), *arguments]
    hint = "the engine environment may be incomplete: `make engine`"
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=process_environment("cpu"),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Broken(f"`{name}` did not end within {timeout_s:g} s", hint) from error
    if done.returncode != 0:
        last = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise Broken(f"`{name}` ended with status {done.returncode}: `{last}`", hint)
