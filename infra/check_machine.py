"""Name what this machine lacks before anything is installed. Runs on the system's Python, so: standard library only."""

import ctypes.util
import importlib.util
import shutil
import sys


def missing() -> list[tuple[str, str]]:
    """(what is missing, how to get it), empty when all is there. A warning ends with `(optional)`."""
    found: list[tuple[str, str]] = []
    if sys.version_info < (3, 11):
        found.append((f"Python 3.11 or newer, found {sys.version.split()[0]}", "make PYTHON=python3.11 ..."))
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        found.append(("Python's venv module", "apt-get install python3-venv"))
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        found.append(("a C++ compiler", "apt-get install g++"))
    if not shutil.which("git"):
        found.append(("git", "apt-get install git"))
    if ctypes.util.find_library("ibverbs") is None:
        found.append(("libibverbs1, which Mooncake needs to move KV (optional)", "apt-get install libibverbs1"))
    return found


def main() -> int:
    for what, remedy in missing():
        print(f"missing on this machine: {what}\nhint: {remedy}", file=sys.stderr)
    return 1 if any(not what.endswith("(optional)") for what, _ in missing()) else 0


if __name__ == "__main__":
    sys.exit(main())
