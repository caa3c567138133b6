"""Print the pip options that bring the right build of torch to this machine, and nothing else on stdout.

With an NVIDIA driver, or where the plain name already yields a build without CUDA, the plain name is right and no other
index is contacted. Otherwise the CPU index is named: TORCH_INDEX, by default PyTorch's own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def options(chosen_index: str | None, has_driver: bool, plain_requires: list[str] | None) -> list[str]:
    """pip options for torch. `plain_requires`: what the plain name would need, or None where pip finds none."""
    if chosen_index:
        return ["--index-url", chosen_index]
    if has_driver:
        return []
    if plain_requires is not None and not any(brings_cuda(requirement) for requirement in plain_requires):
        return []
    return ["--index-url", CPU_INDEX]


def brings_cuda(requirement: str) -> bool:
    """Whether a requirement line of torch's metadata names a CUDA wheel."""
    return requirement.lower().startswith(("nvidia-", "cuda-"))


def plain_requires(requirement: str) -> list[str] | None:
    """The requirements of the wheel that pip would take for the plain name; downloads at most its metadata."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet"]
    found = subprocess.run([*command, "--report", "-", requirement], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        return None
    metadata = json.loads(found.stdout)["install"][0]["metadata"]
    requires: list[str] = metadata.get("requires_dist", [])
    return requires


def main() -> None:
    lock = Path(__file__).parent / "requirements" / "orchestrator.lock"
    requirement = next(line for line in lock.read_text().split() if line.startswith("torch=="))
    index = os.environ.get("TORCH_INDEX")
    has_driver = Path("/proc/driver/nvidia/version").exists()
    known = None if index or has_driver else plain_requires(requirement)
    print(*options(index, has_driver, known), requirement)


if __name__ == "__main__":
    main()
