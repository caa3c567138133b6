"""The `microbench` rung of problems that run on CPU: both arms side by side, timed for real, by CPU time of one thread.

It says how long the candidate takes on this CPU and never anything about a GPU: a problem whose kernels run on a GPU is
not timed here. The candidate cannot reach the clock, which is read in this process (tasks/native.py); results of every
timed batch are compared with the incumbent's on the same inputs (tasks/cpu_pairs.py). Raw samples only: intervals and
opinions are born in the verdict.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from serving.errors import Broken
from tasks.cpu_build import built_cpu_arms
from tasks.cpu_inputs import draw, new_seed
from tasks.cpu_numerics import engaged
from tasks.cpu_pairs import Lane, LaneFault, Track, WrongResult, calibrate, run_pair, started
from tasks.judge_microbench import MIX, TIME, WORKING_SET
from tasks.native import NativeSource
from tasks.noise import Noise
from tasks.paired import log_ratios
from tasks.problem import Problem
from tasks.records import Arm, Block, Build, Engagement, Environment, Evidence, KernelCandidate, Rung, digest

log = logging.getLogger(__name__)
Enough = Callable[[tuple[Block, ...], Noise | None], bool]
Recall = Callable[[Mapping[str, str]], Noise | None]
CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass
class Observed:
    """What a run has produced so far; it outlives a candidate that fails on the way."""

    began: float = field(default_factory=time.monotonic)
    blocks: list[Block] = field(default_factory=list)
    engagement: tuple[Engagement, ...] = ()
    noise: Noise | None = None
    fault: str | None = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began


def measure_cpu_bench(
    problem: Problem,
    candidate: KernelCandidate,
    build: Build,
    *,
    gate: str | None,
    enough: Enough | None = None,
    recall: Recall | None = None,
    confirms: str | None = None,
) -> Evidence:
    """Samples of `time_us` per arm, timing and pair, and of the production mix.

    `gate` is the id of the numerics evidence. `enough` sees all blocks after each round and may end the run; `recall`
    finds an A/A run under the same facts, without which one is made first. Raises Broken.
    """
    if gate is None:
        raise Broken("a timing without its numerics evidence was asked for", "run the numerics rung first")
    observed, seed = Observed(), new_seed()
    made = built_cpu_arms(problem, candidate, build, tuple(Arm))
    facts = {**build.environment.facts, **_machine(), "evaluator": problem.evaluator_digest[:16]}
    facts["incumbent"] = digest(made[Arm.INCUMBENT].digests)[:16]
    tracks = tracks_of(problem, seed)
    observed.noise = recall(facts) if recall is not None else None
    if observed.noise is None:
        observed.noise = measure_noise(problem, made[Arm.INCUMBENT], tracks, facts, seed)
    most = int(problem.criteria.limit("microbench.most_pairs"))
    _compare(problem, made, tracks, observed, seed, most, enough)
    return Evidence(
        subject=build.hypothesis_id,
        rung=Rung.MICROBENCH,
        blocks=tuple(observed.blocks),
        engagement=observed.engagement,
        environment=Environment(facts=facts),
        evaluator_digest=problem.evaluator_digest,
        seed=seed,
        wall_s=observed.elapsed_s,
        candidate_fault=observed.fault,
        gate=gate,
        noise=observed.noise,
        confirms=confirms,
    )


def tracks_of(problem: Problem, seed: int) -> list[Track]:
    """Every timing with its inputs. A timed result may be off by what both arms may be off from fp64."""
    limits = {
        "float32": 2 * problem.criteria.limit("numerics.fp32_max_rel_error"),
        "bfloat16": 2 * problem.criteria.limit("numerics.bf16_max_rel_error"),
    }
    fresh = draw(problem, seed)
    return [Track(x.name, i, fresh[x.name], limits) for i, x in enumerate(problem.workloads.timings)]


def measure_noise(
    problem: Problem, incumbent: NativeSource, tracks: list[Track], facts: dict[str, str], seed: int
) -> Noise:
    """The incumbent against itself, in two processes as the arms will be."""
    observed, pairs = Observed(), int(problem.criteria.limit("microbench.noise_pairs"))
    log.info("noise first: %d pairs of the incumbent against itself", pairs)
    _compare(problem, dict.fromkeys(Arm, incumbent), tracks, observed, seed + 1, pairs)
    if observed.fault is not None:
        raise Broken(
            f"the incumbent of `{problem.name}` fails against itself: {observed.fault}", "repair the incumbent"
        )
    names = [*(track.name for track in tracks), MIX]
    noise = Noise(
        rung=Rung.MICROBENCH,
        workload=problem.name,
        facts=facts,
        seed=seed,
        changes={name: tuple(log_ratios(tuple(observed.blocks), TIME, name)) for name in names},
        wall_s=observed.elapsed_s,
    )
    scale = noise.scale(MIX)
    log.info("noise of the %s: %s", MIX, "unknown" if scale is None else f"{100 * scale:.1f} % a pair")
    return noise


def _compare(
    problem: Problem,
    made: Mapping[Arm, NativeSource],
    tracks: list[Track],
    observed: Observed,
    seed: int,
    most: int,
    enough: Enough | None = None,
) -> None:
    """Pairs until `enough`, `most` or the budget ends them."""
    ends_s = observed.elapsed_s + problem.criteria.limit("microbench.budget_s")
    try:
        for pair in range(most):
            with started(made, tracks, problem.criteria.values.limits) as lanes:
                observed.engagement = tuple(engaged(x.arm, made[x.arm], x.process.loaded) for x in lanes)
                if pair == 0:
                    observed.blocks += [_prepared(lane.arm, x, lanes, seed) for x in tracks for lane in lanes]
                observed.blocks += _blocks(problem, run_pair(lanes, tracks, [seed, pair]), observed)
            if enough is not None and enough(tuple(observed.blocks), observed.noise):
                log.info("decided after %d pairs", pair + 1)
                return
            if observed.elapsed_s > ends_s:
                log.info("the budget of the microbench ends it after %d pairs", pair + 1)
                return
    except LaneFault as fault:
        if fault.arm is Arm.INCUMBENT:
            raise Broken(f"the incumbent of `{problem.name}` fails: {fault}", "repair the incumbent") from fault
        observed.fault = str(fault)
    except WrongResult as fault:
        observed.fault = str(fault)


def _blocks(problem: Problem, spent_us: Mapping[str, Mapping[Arm, float]], observed: Observed) -> list[Block]:
    """Each timing as it is, and the production mix: a step of it costs each timing by its share."""
    shares = {x.name: x.share for x in problem.workloads.timings}
    mix = {arm: sum(shares[x] * spent[arm] for x, spent in spent_us.items()) / sum(shares.values()) for arm in Arm}
    order = len(observed.blocks)
    found: list[Block] = []
    for workload, spent in {**spent_us, MIX: mix}.items():
        for arm, value in spent.items():
            place = order + len(found)
            found.append(
                Block(
                    arm=arm, observable=TIME, unit="µs", workload=workload, value=value, order=place,
                    started_s=observed.elapsed_s,
                )
            )  # fmt: skip
    return found


def _prepared(arm: Arm, track: Track, lanes: list[Lane], seed: int) -> Block:
    """The size of a batch is set once for both arms; what stays in evidence is the working set."""
    if arm is lanes[0].arm:
        calibrate(lanes, track, [seed, track.index])
    size = float(track.working_set_bytes)
    return Block(arm=arm, observable=WORKING_SET, unit="bytes", workload=track.name, value=size, order=0)


def _machine() -> dict[str, str]:
    """What a CPU time depends on beside the compilers. Sizes of caches as the kernel tells them."""
    sizes = {}
    for folder in sorted(CACHE.glob("index*")):
        try:
            level, size = (Path(folder, name).read_text().strip() for name in ("level", "size"))
        except OSError:
            continue
        sizes[f"cache_l{level}"] = size
    return {
        "device": "cpu",
        "cores": str(os.cpu_count()),
        "clock": "CPU time of the process, read from outside",
        **sizes,
    }
