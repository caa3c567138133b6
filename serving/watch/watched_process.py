"""What one engine process does when a watched module has been imported: tells its file, counts calls, accounts for weights."""

import functools
import hashlib
import importlib
import json
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ASKED = json.loads(Path(os.environ["INFRA_AGENT_WATCH"]).read_text())
REPORTS = Path(ASKED["reports"])
LOADER = "sglang.srt.model_loader.loader"
told: dict[str, Any] = {"pid": os.getpid(), "modules": {}, "uncounted": {}, "counted": [], "weights": None}
_kept: list[object] = []


def imported(module: ModuleType) -> None:
    """Called once the code of a watched module has run."""
    name = module.__name__
    if name in ASKED["modules"]:
        tell_file(module)
    if name == ASKED["install"]:
        for added in ("candidate", "splice"):
            tell_file(importlib.import_module(added))
        importlib.import_module("splice").install()
    for index, function in enumerate(ASKED["functions"]):
        of_module, _, qualified = function.partition(":")
        if of_module == name:
            count(module, qualified, index)
    if name == LOADER:
        from account_of_weights import account_for

        account_for(module, tell_weights)


def tell_file(module: ModuleType) -> None:
    """Path and sha256 of the file that the module was made from."""
    file = str(module.__file__)
    told["modules"][module.__name__] = {"path": file, "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()}
    tell()


def tell_weights(account: dict[str, Any]) -> None:
    told["weights"] = [*(told["weights"] or []), account]
    tell()


def tell() -> None:
    """Whole or not at all."""
    made = REPORTS / f"{os.getpid()}.part"
    made.write_text(json.dumps(told))
    os.replace(made, REPORTS / f"{os.getpid()}.json")


def count(module: ModuleType, qualified: str, index: int) -> None:
    """Puts a counting function in the place of a plain one; of anything else it says that it cannot be counted."""
    *within, last = qualified.split(".")
    try:
        owner = functools.reduce(getattr, within, module)
        found = vars(owner)[last]
    except (AttributeError, KeyError):
        told["uncounted"][ASKED["functions"][index]] = "is not there"
    else:
        if isinstance(found, FunctionType):
            setattr(owner, last, counting(found, counters(), 2 * index))
            told["counted"].append(ASKED["functions"][index])
        else:
            told["uncounted"][ASKED["functions"][index]] = f"is no plain function but `{type(found).__name__}`"
    tell()


def counting(function: Callable[..., Any], view: memoryview, at: int) -> Callable[..., Any]:
    """One process serves from one thread, so nothing is lost between reading and writing a counter."""

    @functools.wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            view[at] += 1
            view[at + 1] += time.perf_counter_ns() - began

    return counted


@functools.cache
def counters() -> memoryview:
    """Shared with whoever reads the file: two int64 for each function."""
    size = 16 * len(ASKED["functions"])
    with (REPORTS / f"{os.getpid()}.counts").open("w+b") as file:
        file.truncate(size)
        shared = mmap.mmap(file.fileno(), size)
    _kept.append(shared)
    return memoryview(shared).cast("q")
