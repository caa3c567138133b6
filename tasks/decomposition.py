"""A change of a request's whole time between the arms of a service run, told apart by layer."""

import math
from collections.abc import Mapping

import numpy as np
from scipy.stats import sem, t

from serving.layers import UNEXPLAINED, UNTIL_TOKEN, Decomposition, decompose
from serving.observables import LAYERS
from serving.summary import Measured
from tasks.records import Arm, Block

TTFT, E2E = "ttft_mean_ms", "e2e_mean_ms"
AFTER_FIRST_TOKEN = "server_decode_ms"
OUTSIDE = ("router", "http")
CONFIDENCE = 0.95


def layers_of(blocks: tuple[Block, ...], whole: str) -> tuple[str, ...]:
    """The observables that add up to `whole`, which is TTFT or E2E: those of the layers that the stack has."""
    there = {block.observable for block in blocks}
    named = [layer for layer in LAYERS if layer != UNEXPLAINED]
    if whole == TTFT:
        cut = {f"{outside}_ms": f"{outside}{UNTIL_TOKEN}" for outside in OUTSIDE}
        named = [cut.get(layer, layer) for layer in named if layer != AFTER_FIRST_TOKEN]
    return tuple(layer for layer in named if layer in there)


def decomposed(blocks: tuple[Block, ...], whole: str) -> Decomposition | None:
    """What each layer adds to the change of the mean of `whole` over all blocks.

    None when it was not measured, or not all layers that the stack has were looked at (evidence of an older evaluator).
    """
    if not any(block.observable == UNEXPLAINED for block in blocks):
        return None
    layers = layers_of(blocks, whole)
    ours, theirs = ({name: _mean(blocks, name, arm) for name in (whole, *layers)} for arm in Arm)
    before, after = ours.pop(whole), theirs.pop(whole)
    return decompose(before, after, ours, theirs)


def plain(layer: str) -> str:
    """`server_prefill_ms` is `prefill`."""
    return layer.removeprefix("server_").removesuffix(UNTIL_TOKEN).removesuffix("_ms")


def margins(blocks: tuple[Block, ...], whole: str, found: Decomposition) -> dict[str, float]:
    """How far each shift of `found`, its change (as `whole`) and its rest may be off, in ms.

    Half of the 95 % interval of a mean of paired differences (Student's t); infinite below two pairs, and for times that no
    float can square. For reading: no verdict rests on it.
    """
    each = {name: _differences(blocks, name) for name in (whole, *found.contributions)}
    if found.unexplained is not None:
        each[UNEXPLAINED] = [all_of - sum(parts) for all_of, *parts in zip(*each.values(), strict=False)]
    return {name: _margin(differences) for name, differences in each.items()}


def _differences(blocks: tuple[Block, ...], observable: str) -> list[float]:
    """Candidate minus incumbent of the k-th block of each arm."""
    chosen = sorted((b for b in blocks if b.observable == observable and b.value is not None), key=lambda b: b.order)
    ours, theirs = ([b.value or 0.0 for b in chosen if b.arm is arm] for arm in Arm)
    return [after - before for before, after in zip(ours, theirs, strict=False)]


def _margin(differences: list[float]) -> float:
    if len(differences) < 2:
        return math.inf
    with np.errstate(over="ignore", invalid="ignore"):  # a server may tell of any finite time
        width = float(sem(differences) * t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1))
    return width if math.isfinite(width) else math.inf


def shares_text(found: Decomposition, margin: Mapping[str, float]) -> str:
    """In the order of the layers, as signed ms; what is missing is named, and nothing is called unexplained then."""
    parts = [f"{plain(layer)} {signed(shift, margin[layer])}" for layer, shift in found.contributions.items()]
    if found.unexplained is None:
        missing = ", ".join(f"{plain(layer)} ({reason})" for layer, reason in found.missing.items())
        rest = found.change - sum(found.contributions.values())
        return f"{', '.join(parts)}; not measured: {missing}, so the other {rest:+.1f} ms are open"
    return f"{', '.join(parts)}, unexplained {signed(found.unexplained, margin[UNEXPLAINED])}"


def signed(shift: float, margin: float) -> str:
    """`+7.5 ± 2.0 ms`."""
    return f"{shift:+.1f} ± {margin:.1f} ms" if margin < math.inf else f"{shift:+.1f} ms"


def _mean(blocks: tuple[Block, ...], observable: str, arm: Arm) -> Measured:
    """Over all blocks of the arm; a single one without a value leaves none, or the sum would be of different blocks."""
    found = [block for block in blocks if block.observable == observable and block.arm is arm]
    values = [block.value for block in found if block.value is not None]
    if not found:
        return Measured(None, "not measured")
    if len(values) < len(found):
        return Measured(None, next(block.reason for block in found if block.value is None))
    return Measured(sum(values) / len(values))
