"""The stage flows with rungs that measure nothing: quick, or as long as a test needs. Deployed in place of flows.stage."""

import time

from examples import block, evidence
from examples import build as built

from flows.stage import build, deploy, microbench, validate
from tasks import stages
from tasks.ledger import Ledger
from tasks.records import Arm, Build, Evidence, Experiment, Rung

__all__ = ["build", "deploy", "microbench", "validate"]
HOLD_S = 12.0  # longer than a second process needs to start


def double_build(view: Experiment, book: Ledger) -> Build:
    if "never ends" in view.hypothesis.title:
        time.sleep(600)
    return built(view.hypothesis)


def double_numerics(view: Experiment, book: Ledger) -> Evidence:
    return evidence(Rung.NUMERICS, *(block(arm, "out_rel_error", 1e-7) for arm in Arm))


def double_microbench(view: Experiment, book: Ledger) -> Evidence:
    time.sleep(HOLD_S)
    return evidence(Rung.MICROBENCH, not_run="no GPU", engagement=())


stages.build = double_build
stages.MEASURES[Rung.NUMERICS] = double_numerics
stages.MEASURES[Rung.MICROBENCH] = double_microbench
