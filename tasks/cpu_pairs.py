"""A pair: two freshly started processes, batches of calls in turns, what each call computed and what it cost.

Every nanosecond of a process is charged to one of its batches: the clock is read after both arms had their turn, and a
batch costs what has passed since the time before. So work that is put off, or done ahead, is paid for all the same.
Where code and data of a process come to lie may be worth more than a change is, so each pair starts its processes anew.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from tasks.cpu_inputs import Fresh, must_be_unchanged, poison, values_of
from tasks.ending import Limits
from tasks.native import Native, NativeFault, NativeSource, native
from tasks.records import Arm
from tasks.twins import Array

BATCH_NS = 5_000_000
WARM_UP_CALLS, TRIAL_CALLS, MOST_CALLS = 3, 5, 2000
ROUNDS = 6
Results = dict[str, list[Array]]


class WrongResult(Exception):
    """Results of a timed batch that differ between the arms, in one line."""


@dataclass
class Lane:
    """One arm: its process, and the CPU time up to which its batches are paid for."""

    arm: Arm
    process: Native
    paid_ns: int = 0

    def charge(self) -> int:
        """CPU time since the last time that this was asked, in ns."""
        now = self.process.cpu_ns()
        spent, self.paid_ns = now - self.paid_ns, now
        return spent


@dataclass(frozen=True)
class Batch:
    """What both arms spent on a batch, and all that they computed."""

    spent_ns: dict[Arm, int]
    results: dict[Arm, Results]


@dataclass
class Track:
    """One timing: its inputs, how many calls a batch has, and how far results may differ by dtype."""

    name: str
    index: int
    fresh: Fresh
    limits: Mapping[str, float]
    calls: int = 1
    working_set_bytes: int = field(default=0)


class LaneFault(Exception):
    """Which arm did wrong, and what."""

    def __init__(self, arm: Arm, reason: str) -> None:
        super().__init__(reason)
        self.arm = arm


@contextmanager
def started(made: Mapping[Arm, NativeSource], tracks: Sequence[Track], limits: Limits) -> Iterator[list[Lane]]:
    """Both arms loaded, at the same time. Raises LaneFault, Broken."""
    calls = [track.fresh.arguments for track in tracks]
    with ExitStack() as stack, ThreadPoolExecutor(len(made)) as pool:

        def start(arm: Arm) -> Lane:
            try:
                return Lane(arm, stack.enter_context(native(made[arm], calls, limits)))
            except NativeFault as fault:
                raise LaneFault(arm, str(fault)) from None

        yield list(pool.map(start, made))


def run_pair(lanes: Sequence[Lane], tracks: Sequence[Track], seed: Sequence[int]) -> dict[str, dict[Arm, float]]:
    """CPU time of a call in us, by timing and arm: a few batches of each, in an order that is drawn, on equal inputs.

    `lanes` are freshly started. Raises LaneFault for what an arm does wrong, WrongResult where results differ.
    """
    rng = random.Random(repr(seed))
    for lane in lanes:
        lane.charge()
    for track in tracks:
        _both(lanes, track, [*seed, track.index, 0], WARM_UP_CALLS)
    spent_ns = {track.name: dict.fromkeys(Arm, 0) for track in tracks}
    for turn in range(1, ROUNDS + 1):
        for track in rng.sample(tracks, len(tracks)):
            batch = _both(rng.sample(lanes, len(lanes)), track, [*seed, track.index, turn], track.calls)
            compare_results(track, batch)
            for arm, spent in batch.spent_ns.items():
                spent_ns[track.name][arm] += spent
    return {x.name: {arm: ns / 1000 / ROUNDS / x.calls for arm, ns in spent_ns[x.name].items()} for x in tracks}


def calibrate(lanes: Sequence[Lane], track: Track, seed: Sequence[int]) -> None:
    """Warm up, then give `track` so many calls a batch that the faster arm's lasts 5 ms."""
    for lane in lanes:
        lane.charge()
    _both(lanes, track, [*seed, 0], WARM_UP_CALLS)
    trial = _both(lanes, track, [*seed, 1], TRIAL_CALLS)
    fastest_ns = min(trial.spent_ns.values()) / TRIAL_CALLS
    track.calls = min(MOST_CALLS, max(1, math.ceil(BATCH_NS / max(fastest_ns, 1.0))))
    track.working_set_bytes = sum(view.nbytes for view in lanes[0].process.calls[track.index].values())


def _both(lanes: Sequence[Lane], track: Track, seed: Sequence[int], count: int) -> Batch:
    results = {lane.arm: _batch(lane, track, np.random.default_rng(seed), count) for lane in lanes}
    return Batch(spent_ns={lane.arm: lane.charge() for lane in lanes}, results=results)


def _batch(lane: Lane, track: Track, rng: np.random.Generator, count: int) -> Results:
    """`count` calls one by one; every output, and the state at the end."""
    views, arguments = lane.process.calls[track.index], track.fresh.arguments
    found: Results = {x["name"]: [] for x in arguments if x.get("role") in ("out", "in_place")}
    try:
        weights = track.fresh.begin(views, rng)
        for turn in range(count):
            given = track.fresh.step(views, rng)
            poison(views, arguments, turn)
            lane.process.call(track.index)
            must_be_unchanged(views, given)
            for x in arguments:
                if x.get("role") == "out":
                    found[x["name"]].append(views[x["name"]].copy())
        must_be_unchanged(views, weights)
    except NativeFault as fault:
        raise LaneFault(lane.arm, str(fault)) from None
    for x in arguments:
        if x.get("role") == "in_place":
            found[x["name"]].append(views[x["name"]].copy())
    return found


def compare_results(track: Track, batch: Batch) -> None:
    """Raises WrongResult where a result of the candidate is not the incumbent's, within the limits of its dtype."""
    ours, theirs = batch.results[Arm.INCUMBENT], batch.results[Arm.CANDIDATE]
    for x in track.fresh.arguments:
        if x.get("role") in ("out", "in_place"):
            name, dtype = x["name"], x["dtype"]
            before, after = ([values_of(y, dtype) for y in found[name]] for found in (ours, theirs))
            error = _difference(before, after)
            limit = track.limits.get(dtype, 0.0)
            if not error <= limit:
                raise WrongResult(
                    f"wrong `{name}` in a timed batch of {track.name}: differs from the incumbent's by {error:.2g} "
                    f"(limit {limit:.2g})"
                )


def _difference(before: list[Array], after: list[Array]) -> float:
    """Relative Frobenius norm of the difference; for integers the share that differs. NaN if anything is not finite."""
    if before[0].dtype.kind != "f":
        return float(np.mean([x != y for x, y in zip(before, after, strict=True)]))
    size = math.sqrt(sum(float(np.vdot(x, x)) for x in before))
    apart = math.sqrt(sum(float(np.vdot(d, d)) for d in (y - x for x, y in zip(before, after, strict=True))))
    return apart / size if size else apart
