"""What a CPU call works on: arrays as they lie in shared memory, written before each call and looked at after it.

Every call gets values of its own in the same buffers, and outputs that hold nothing of use: what is remembered from an
earlier call, by address, by content or by count, is wrong in the next.
"""

import secrets
from typing import Any

import numpy as np

from serving.errors import Broken
from tasks.definition import Timing
from tasks.ending import Limits
from tasks.interpreted import arrays_of
from tasks.native import STORED, NativeFault
from tasks.numerics import SEED_BITS
from tasks.problem import Problem
from tasks.records import digest
from tasks.staging import UntrustedResult, staged
from tasks.twins import Array

DRAWN_STEPS = 16
MAX_DRAW_BYTES = 1 << 30
POISON = (float("nan"), 1.0, -3.0e38)
WEIGHT_RANGE = (0.8, 1.25)
Views = dict[str, Array]


def new_seed() -> int:
    """Not from the source, as where kernels are only interpreted: a candidate that runs could compute it, and the inputs."""
    return secrets.randbits(SEED_BITS)


def stored(values: Array, dtype: str) -> Array:
    """`values` as they lie in memory; bfloat16 is rounded to nearest, ties to even, and kept as its bits."""
    if dtype != "bfloat16":
        return np.ascontiguousarray(values, STORED[dtype])
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def values_of(memory: Array, dtype: str) -> Array:
    """A copy as numbers: float32, or the integers that they are."""
    if dtype == "bfloat16":
        return (memory.astype(np.uint32) << 16).view(np.float32)
    return memory.copy()


def poison(views: Views, arguments: list[dict[str, Any]], turn: int) -> None:
    """Fill every output: with NaN, or with numbers that a kernel could leave."""
    for x in arguments:
        if x.get("role") == "out":
            floating = x["dtype"] in ("float32", "bfloat16")
            value = np.array(POISON[turn % len(POISON)] if floating else -(turn % 100) - 1)
            views[x["name"]][...] = stored(value, x["dtype"])


class Fresh:
    """Inputs of one timing, new at every call. `drawn` holds plain numbers, those of a step with a leading axis."""

    def __init__(self, arguments: list[dict[str, Any]], drawn: dict[str, Array]) -> None:
        self.arguments = arguments
        self._drawn = {
            x["name"]: stored(drawn[x["name"]], x["dtype"]) if x["role"] == "step" else drawn[x["name"]]
            for x in arguments
            if x.get("role") in ("step", "fixed", "in_place")
        }

    def begin(self, views: Views, rng: np.random.Generator) -> Views:
        """Weights and state of a batch: as drawn, times a factor. Gives the weights, which must stay as they are."""
        kept = {}
        for x in self.arguments:
            if x.get("role") in ("fixed", "in_place"):
                base = self._drawn[x["name"]]
                scaled = base * np.float32(rng.uniform(*WEIGHT_RANGE)) if base.dtype.kind == "f" else base
                views[x["name"]][...] = stored(scaled, x["dtype"])
                if x["role"] == "fixed":
                    kept[x["name"]] = views[x["name"]].copy()
        return kept

    def step(self, views: Views, rng: np.random.Generator) -> Views:
        """Inputs of one call: a window into the numbers that were drawn; integers are those of one step."""
        kept = {}
        for x in self.arguments:
            if x.get("role") == "step":
                name, base = x["name"], self._drawn[x["name"]]
                size = views[name].size
                start = int(rng.integers((len(base) - 1) * size + 1))
                if x["dtype"] in ("float32", "bfloat16"):
                    window = base.reshape(-1)[start : start + size].reshape(views[name].shape)
                else:
                    window = base[start // size]
                views[name][...] = window
                kept[name] = window
        return kept


def changed_input(views: Views, kept: Views) -> str | None:
    """The first input whose bytes are not what they were."""
    return next((name for name, before in kept.items() if views[name].tobytes() != before.tobytes()), None)


def must_be_unchanged(views: Views, kept: Views) -> None:
    """Raises NativeFault for an input that was written to."""
    name = changed_input(views, kept)
    if name is not None:
        raise NativeFault(f"the input `{name}` was changed")


def draw(problem: Problem, seed: int) -> dict[str, Fresh]:
    """Inputs for every timing, made in a process of their own. Raises Broken."""
    workloads = [
        {
            **x.model_dump(mode="json", exclude_none=True),
            "axes": problem.axes_of(x),
            "seed": int(digest([seed, x.name])[:12], 16),
            "steps": DRAWN_STEPS,
            "inputs": {},
        }
        for x in problem.workloads.timings
    ]
    with staged({"reference.py": problem.reference}, {"workloads": workloads}) as stage:
        ending = stage.run("draw.py", Limits(file_bytes=MAX_DRAW_BYTES))
        try:
            if ending.kind != "ok":
                raise UntrustedResult(ending.reason)
            arrays = arrays_of(stage.read("inputs.npz", MAX_DRAW_BYTES))
        except UntrustedResult as fault:
            raise Broken(
                f"the inputs of `{problem.name}` cannot be drawn: {fault}", "check its reference.py"
            ) from fault
    return {x.name: Fresh(problem.arguments_of(x), _of(arrays, x)) for x in problem.workloads.timings}


def _of(arrays: dict[str, Array], workload: Timing) -> dict[str, Array]:
    prefix = f"{workload.name}/"
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
