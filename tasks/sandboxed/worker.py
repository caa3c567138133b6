"""What the workers share: the request, the candidate's module, guards around it, and one result file with the nonce.

The guards live in the candidate's process, so they name what goes wrong and protect nothing.
"""

# mypy: ignore-errors

import importlib.util
import json
import math
import traceback
from pathlib import Path

from torch.utils._python_dispatch import TorchDispatchMode

STAGE = Path("/stage")
CANDIDATE = STAGE / "candidate.py"
ALLOCATIONS = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided"}
VIEWS = {
    "view", "_unsafe_view", "alias", "t", "_reshape_alias", "as_strided", "detach", "expand", "permute", "transpose",
    "squeeze", "unsqueeze", "slice", "select", "unbind", "split", "split_with_sizes", "diagonal", "unfold", "view_as",
}  # fmt: skip


class CandidateFault(Exception):
    """Something the candidate did wrong, in one line."""


class WorkOutside(TorchDispatchMode):
    """Refuses every torch operation that computes: neither static counts nor a kernel check would see its work."""

    def __init__(self, vault):
        super().__init__()
        self.vault = vault
        self.seen = []
        self.paused = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if self.paused or name in VIEWS:
            return func(*args, **(kwargs or {}))
        if name not in ALLOCATIONS:
            self.seen.append(name)
            self.complain()
        plain = func(*args, **(kwargs or {}))
        return self.vault.empty(plain.shape, plain.dtype, plain.stride()) if plain.device.type == "cpu" else plain

    def own(self, name, tensor):
        if not self.vault.holds(tensor):
            raise CandidateFault(f"`{name}` takes memory that is neither an argument of `run` nor from torch.empty")

    def complain(self):
        if self.seen:
            raise CandidateFault("work outside the kernels: " + ", ".join(f"aten.{name}" for name in self.seen[:5]))


def read_request():
    return json.loads((STAGE / "request.json").read_text())


def write_result(request, **content):
    (STAGE / "result.json").write_text(json.dumps({"nonce": request["nonce"], **content}))


def load_entry(name):
    """The candidate's `run`, imported from its file."""
    spec = importlib.util.spec_from_file_location("candidate", CANDIDATE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    entry = getattr(module, name, None)
    if not callable(entry):
        raise CandidateFault(f"the source defines no function `{name}`")
    return entry


def describe(error):
    """One line: what went wrong, in the compiler's own words, and where in the candidate."""
    if isinstance(error, CandidateFault):
        return str(error)
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" \t^")]
    fatal = [line for line in lines if "fatal" in line or "error" in line.lower()]
    last = (fatal or lines or [""])[-1]
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} (line {error.lineno})"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(CANDIDATE)]
    where = f" (line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {last}"[:400] + where


def plain(value):
    """A constexpr as JSON: dtypes and numbers that are not finite by name, functions by what they do."""
    if hasattr(value, "recorded_digest"):
        return f"{value.__name__} {value.recorded_digest[:16]}"
    value = getattr(value, "value", value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def scalars(values):
    """The arguments that are no memory, as JSON."""
    return {name: plain(value) for name, value in values.items() if not hasattr(value, "data_ptr")}


def listed(value):
    """An option of `triton.jit` as JSON."""
    return list(value) if isinstance(value, tuple | set | frozenset | list) else value
