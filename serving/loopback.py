"""A small library that keeps an engine process from listening on any address but loopback, whatever it asks for."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from serving.errors import Broken
from serving.home import home

SOURCE = Path(__file__).with_name("loopback_only.c")
COMPILERS = ("cc", "gcc", "g++", "clang", "c++")
TIMEOUT_S = 60


def loopback_only() -> Path:
    """The library for LD_PRELOAD, compiled once per source. Raises Broken without a C compiler."""
    source = SOURCE.read_bytes()
    folder = home() / "loopback"
    made = folder / f"{hashlib.sha256(source).hexdigest()[:24]}.so"
    if made.exists():
        return made
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise Broken(
            "no C compiler, so the ports of Mooncake cannot be kept on loopback", "install one: `apt-get install g++`"
        )
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        built = Path(scratch) / "loopback_only.so"
        command = [compiler, "-x", "c", "-shared", "-fPIC", "-O2", "-o", str(built), str(SOURCE), "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip() or "nothing").splitlines()[-1]
            raise Broken(f"`{SOURCE.name}` does not compile: `{last}`", f"is `{compiler}` a working C compiler?")
        os.replace(built, made)
    return made
