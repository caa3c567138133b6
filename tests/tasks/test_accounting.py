"""Everything costs: builds, failed rungs, lost stages; and an unknown cost is not nothing."""

import pytest
from examples import block, build, evidence, experiment
from service_evidence import CRITERIA

from tasks.accounting import Cost, cost_of, total
from tasks.decide import broken, decide
from tasks.problem import load_problem
from tasks.records import Arm, Outcome, Rung

RIGHT = evidence(Rung.NUMERICS, *(block(arm, "out_rel_error", 1e-7) for arm in Arm))


def test_p7_build_rungs_and_what_a_fault_cost_are_all_charged() -> None:
    view = experiment()
    view = view.with_record(build(view.hypothesis)).with_record(RIGHT)
    assert cost_of(view) == Cost(wall_s=3.0, device_s=0.0)
    assert cost_of(view.with_record(broken(view, "port taken", lost_s=40.0))).wall_s == pytest.approx(43.0)


def test_p6_an_unknown_cost_is_unknown_in_every_sum_and_stops() -> None:
    view = experiment()
    view = view.with_record(build(view.hypothesis)).with_record(RIGHT.model_copy(update={"device_s": None}))
    assert cost_of(view).device_s is None
    assert total([cost_of(view), Cost(wall_s=1.0, device_s=5.0)]).device_s is None
    verdict = decide(view, load_problem("kda_decode").criteria)
    assert verdict is not None
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "not known" in verdict.reason


def test_known_costs_add_up() -> None:
    assert total([Cost(wall_s=1.0, device_s=2.0), Cost(wall_s=3.0, device_s=4.0)]) == Cost(wall_s=4.0, device_s=6.0)


def test_who_must_approve_and_what_evidence_is_required_can_be_read_from_criteria() -> None:
    assert CRITERIA.value("approvers.0") == "serving owner"
    assert "required_evidence.0" in CRITERIA.keys("required_evidence")
    with pytest.raises(KeyError):
        CRITERIA.value("approvers.9")
