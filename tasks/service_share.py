"""The share of the incumbent's time that the code under test takes under this traffic, and what that predicts.

Both are recorded before the candidate is timed.
"""

import logging
from collections.abc import Sequence
from statistics import median

from serving.launch import Server
from serving.observables import OBSERVABLES
from serving.scenario import Scenario
from serving.traffic import send
from tasks.decide import judge
from tasks.judge_microbench import MIX
from tasks.reconcile import predict_service
from tasks.records import Arm, Block, Experiment, Interval, KernelTarget, Rung, ServiceGain
from tasks.rules import rules_of
from tasks.service_blocks import Run, summarise_calls
from tasks.service_code import Code

log = logging.getLogger(__name__)
SHARE = "kernel_share_pct"
SHARE_BLOCKS = 3


def measure_share(scenario: Scenario, server: Server, run: Run) -> list[Block]:
    """Time in the counted functions over the time of a block, as the server's processes count it. Blocks of their own."""
    found = []
    for order, number in enumerate(_numbers(scenario)):
        started_s, before = run.elapsed_s, server.witness.calls()
        batch = send(server.base_url, scenario.traffic, number, ended=server.ended)
        share = summarise_calls(server.witness, before, batch.wall_s).get("code_share_pct")
        failed = not all(record.completed for record in batch.records)
        value = share.value if share is not None and not failed else None
        told = "no function is counted" if share is None else share.reason
        reason = None if value is not None else "requests failed" if failed else told
        found.append(
            Block(
                arm=Arm.INCUMBENT,
                observable=SHARE,
                unit="%",
                workload=scenario.name,
                value=value,
                order=order,
                started_s=started_s,
                reason=reason,
            )
        )
    return found


def send_alike(scenario: Scenario, server: Server) -> None:
    """The blocks of `measure_share` to the other arm, untimed: both have served the same when they are compared."""
    for number in _numbers(scenario):
        send(server.base_url, scenario.traffic, number, ended=server.ended)


def _numbers(scenario: Scenario) -> range:
    first = scenario.traffic.warmup_blocks + scenario.traffic.pairs + scenario.traffic.noise_pairs
    return range(first, first + SHARE_BLOCKS)


def predicted_gain(code: Code, scenario: Scenario, blocks: Sequence[Block], run: Run) -> ServiceGain | None:
    """For the primary observable, kept in the run's folder; None without a local gain, a share or a time to speak of.

    The range of the share is that of its blocks.
    """
    shares = [min(1.0, block.value / 100) for block in blocks if block.observable == SHARE and block.value is not None]
    primary = OBSERVABLES[scenario.primary]
    if code.alone is None or not shares or primary.unit not in ("ms", "tokens/s", "requests/s"):
        return None
    share = (min(shares), median(shares), max(shares))
    found = predict_service(scenario.primary, code.alone, share, rate=primary.unit != "ms")
    (run.folder / "predicted.json").write_text(found.model_dump_json(), encoding="utf-8")
    log.info(
        "predicted: %s %+.1f %% [%+.1f, %+.1f], from a share of %.1f %%",
        found.observable, found.estimate_pct, found.low_pct, found.high_pct, found.share_pct[1],
    )  # fmt: skip
    return found


def alone(experiment: Experiment) -> Interval | None:
    """The gain of a kernel by itself, at the shape that it has in the service or else in the production mix."""
    target, timed = experiment.hypothesis.target, experiment.of(Rung.MICROBENCH)
    if not isinstance(target, KernelTarget) or timed is None:
        return None
    found = judge(timed, rules_of(experiment)[Rung.MICROBENCH]).intervals
    return next((interval for interval in found if interval.workload == (target.timing or MIX)), None)
