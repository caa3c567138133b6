"""The service rung decides on intervals, and refuses whatever is no measurement. Ids of traps: docs/traps.md."""

import math
import re

import pytest
from examples import experiment, stack_hypothesis
from service_evidence import CRITERIA, FACTS, SCENARIO, answers, guard, pairs, replaced, service

from tasks.decide import decide, judge
from tasks.judge_service import is_decided
from tasks.judgement import Judgement
from tasks.plan import make_plan
from tasks.records import Arm, Block, Engagement, Environment, Evidence, Experiment, Outcome, Question, Rung, Verdict

INC, CAN = Arm
PRIMARY = SCENARIO.primary
VETO = "e2e_mean_ms"


def judged(evidence: Evidence) -> Judgement:
    return judge(evidence, CRITERIA, Question.BETTER_SERVICE)


def with_effects(effects: dict[str, float], **how: float) -> list[Block]:
    return guard() + pairs(effects, **how)  # type: ignore[arg-type]


def test_a_clear_gain_without_a_loss_passes_and_quotes_its_criterion() -> None:
    found = judged(service())
    assert found.outcome is Outcome.PASSED
    assert found.criterion is not None
    assert found.criterion.key == "smallest_effect_of_interest_pct"
    assert found.criterion.file.endswith("mixed-lengths-cpu.yaml")
    interval = found.intervals[0]
    assert interval.observable == PRIMARY
    assert interval.low <= -30 <= interval.high


def test_a_detectable_gain_below_the_smallest_effect_of_interest_is_rejected() -> None:
    found = judged(service(with_effects({PRIMARY: -3.0}, count=60)))
    assert found.outcome is Outcome.REJECTED
    assert "smallest effect" in found.reason


def test_a_gain_that_costs_more_than_a_veto_allows_is_rejected() -> None:
    found = judged(service(with_effects({PRIMARY: -30.0, VETO: 40.0})))
    assert found.outcome is Outcome.REJECTED
    assert found.criterion is not None
    assert found.criterion.key == f"vetoes.{VETO}"


def test_noise_that_is_too_large_ends_inconclusive() -> None:
    found = judged(service(with_effects({PRIMARY: -15.0}, count=6, level=0.3)))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert PRIMARY in found.reason


def test_traffic_goes_on_until_the_pairs_decide() -> None:
    blocks = pairs({PRIMARY: -40.0})
    few = tuple(b for b in blocks if b.order < 6)
    assert not is_decided(few, CRITERIA, service().noise)
    assert is_decided(tuple(blocks), CRITERIA, service().noise)


def facts(**changes: str) -> Environment:
    return Environment(facts=FACTS | changes)


def with_observable(blocks: list[Block], name: str, values: dict[Arm, float]) -> list[Block]:
    """The blocks with one more observable: a value for the arms named, 0 for the other."""
    like = [b for b in blocks if b.observable == "failed_pct"]
    return blocks + [b.model_copy(update={"observable": name, "value": values.get(b.arm, 0.0)}) for b in like]


def drifting() -> list[Block]:
    """Both arms become slower by 4 % a block."""
    blocks = with_effects({PRIMARY: -30.0}, level=0.01)
    return [
        b.model_copy(update={"value": (b.value or 0) * math.exp(0.04 * b.order)}) if b.observable == PRIMARY else b
        for b in blocks
    ]


GOOD = with_effects({PRIMARY: -30.0})
TRAPS = {
    "V1": (service(replaced(GOOD, "cached_tokens", CAN, 800.0)), Outcome.BROKEN, "prefix cache favours one arm"),
    "V2": (service(environment=facts(radix_cache="not read")), Outcome.BROKEN, "prefix cache was not recorded"),
    "V3": (service(environment=facts(simulated_acceptance="SGLANG_SIMULATE_ACC_LEN")), Outcome.INCONCLUSIVE, "forced"),
    "V5": (service(guard(drift=3.0) + GOOD[3:]), Outcome.REJECTED, "log-probabilities drift"),
    "V6": (service(replaced(GOOD, "failed_pct", CAN, 12.0)), Outcome.REJECTED, "requests failed"),
    "V7": (service(replaced(GOOD, "send_lag_p95_ms", INC, 900.0)), Outcome.BROKEN, "load generator"),
    "V8": (service(replaced(GOOD, "prompt_tokens", CAN, 600.0)), Outcome.BROKEN, "different work"),
    "V17": (service(drifting()), Outcome.INCONCLUSIVE, "not steady"),
    "V19": (service(guard(drift=0.5) + GOOD[3:]), Outcome.REJECTED, "log-probabilities drift"),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_a_planted_trap_ends_with_its_id(trap: str) -> None:
    evidence, outcome, words = TRAPS[trap]
    found = judged(evidence)
    assert found.outcome is outcome
    assert trap in found.reason
    assert words in found.reason or words in found.reason.replace("got different work", "different work")


def test_v6_failures_of_the_incumbent_are_our_fault() -> None:
    assert judged(service(replaced(GOOD, "failed_pct", INC, 12.0))).outcome is Outcome.BROKEN


@pytest.mark.parametrize(("arm", "outcome"), [(INC, Outcome.BROKEN), (CAN, Outcome.REJECTED)])
def test_v6_requests_that_were_cancelled_count_like_failures_and_are_called_what_they_are(
    arm: Arm, outcome: Outcome
) -> None:
    found = judged(service(with_observable(GOOD, "cancelled_pct", {arm: 12.0})))
    assert found.outcome is outcome
    assert "12.0 %" in found.reason
    assert "were cancelled" in found.reason


def test_v7_a_client_that_looks_late_is_as_bad_as_one_that_sends_late() -> None:
    found = judged(service(with_observable(GOOD, "loop_lag_p95_ms", {CAN: 900.0})))
    assert found.outcome is Outcome.BROKEN
    assert "V7" in found.reason


def test_evidence_from_before_these_were_observed_can_be_judged_again() -> None:
    assert judged(service(GOOD)).outcome is Outcome.PASSED


def test_a_ratio_has_both_values_beside_it() -> None:
    reason = judged(service(GOOD)).reason
    assert re.search(rf"{PRIMARY} [\d.]+ → [\d.]+ ms, -\d+\.\d %", reason), reason


def test_v1_hits_may_differ_when_the_cache_is_what_was_edited() -> None:
    what = "server.arguments.disable-radix-cache"
    proofs = tuple(Engagement(arm=arm, what=what, expected="x", seen="x") for arm in Arm)
    found = judged(service(replaced(GOOD, "cached_tokens", CAN, 800.0), engagement=proofs))
    assert found.outcome is Outcome.PASSED


def test_v5_garbage_that_is_not_even_a_number_is_rejected() -> None:
    assert judged(service(guard(drift=None) + GOOD[3:])).outcome is Outcome.REJECTED


LIMIT = SCENARIO.guard.greatest_logprob_drift


@pytest.mark.parametrize(
    ("ours", "theirs", "outcome"),
    [
        (0.0, 2 * LIMIT, Outcome.PASSED),  # each of two numbers may be off by the limit
        (0.0, 2.01 * LIMIT, Outcome.REJECTED),
        (0.3, 0.4, Outcome.PASSED),  # what a sample of the incumbent's own answers shows is the floor
        (0.3, 0.7, Outcome.REJECTED),
        (0.0, None, Outcome.REJECTED),
    ],
)
def test_v5_answers_under_traffic_may_be_as_unlikely_as_the_guard_allows_or_the_incumbents_are(
    ours: float, theirs: float | None, outcome: Outcome
) -> None:
    found = judged(service([*answers(ours, theirs), *GOOD]))
    assert found.outcome is outcome
    if outcome is Outcome.REJECTED:
        assert "an answer under traffic is wrong: `4-1` of answers-chat: " in found.reason
        assert "[V5]" in found.reason
        assert found.criterion is not None
        assert found.criterion.key == "guard.greatest_logprob_drift"
        assert ("token 3" in found.reason) == ("token 3" in found.findings[0].locus.name) == (theirs is not None)


def test_v5_wrong_answers_are_rejected_whatever_the_machine_did_meanwhile() -> None:
    late = replaced(GOOD, "send_lag_p95_ms", INC, 900.0)
    assert judged(service([*answers(0.0, 5.0), *late])).outcome is Outcome.REJECTED


@pytest.mark.parametrize(("theirs", "outcome"), [(2 * LIMIT, Outcome.PASSED), (0.3, Outcome.REJECTED)])
def test_v5_answers_that_only_the_candidate_has_deficits_of_are_judged_without_a_floor(
    theirs: float, outcome: Outcome
) -> None:
    assert judged(service([*answers(0.0, theirs)[1:], *GOOD])).outcome is outcome


def test_v5_a_candidate_that_answered_no_sampled_request_is_rejected() -> None:
    assert judged(service([answers()[0], *GOOD])).outcome is Outcome.REJECTED


def test_answers_that_could_not_be_scored_are_named_in_the_verdict() -> None:
    unread = answers(None)[0].model_copy(update={"reason": "pictures carry no ids"})
    found = judged(service([unread, *GOOD]))
    assert found.outcome is Outcome.PASSED
    assert "answers under traffic: not measured (pictures carry no ids)" in found.reason
    (finding,) = [f for f in found.findings if f.observable == "answer_deficit"]
    assert (finding.status, finding.candidate) == ("unknown", None)


def test_evidence_from_before_answers_were_scored_says_nothing_of_them() -> None:
    found = judged(service(GOOD))
    assert "answers" not in found.reason
    assert not [f for f in found.findings if f.observable == "answer_deficit"]


def test_the_largest_deficit_of_each_arm_stands_in_the_verdict() -> None:
    found = judged(service([*answers(1e-4, 2e-4), *GOOD]))
    (finding,) = [f for f in found.findings if f.observable == "answer_deficit"]
    assert (finding.incumbent, finding.candidate, finding.status) == (1e-4, 2e-4, "measured")


def test_v5_without_a_comparison_of_log_probabilities_there_is_no_verdict() -> None:
    assert judged(service(GOOD[3:])).outcome is Outcome.BROKEN


def test_v11_a_setting_that_is_not_in_force_is_broken_whatever_the_timing_says() -> None:
    proof = Engagement(arm=CAN, what="server.arguments.chunked-prefill-size", expected="64", seen="512")
    found = judged(service(engagement=(proof,)))
    assert found.outcome is Outcome.BROKEN
    assert "should be `64`, is `512`" in found.reason


def test_required_evidence_that_is_missing_is_no_pass() -> None:
    found = judged(service([b for b in GOOD if b.observable != "server_prefill_ms"]))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert "server_prefill_ms" in found.reason


def test_without_the_primary_observable_there_is_a_reason_and_no_verdict_on_the_candidate() -> None:
    found = judged(service([b for b in GOOD if b.observable != PRIMARY]))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert f"`{PRIMARY}` was not measured" in found.reason
    assert not is_decided((), CRITERIA, service().noise)


def test_swapped_arms_turn_a_win_into_a_rejection() -> None:
    other = {INC: CAN, CAN: INC}
    blocks = [b.model_copy(update={"arm": other[b.arm]}) for b in GOOD[3:]]
    assert judged(service(guard() + blocks)).outcome is Outcome.REJECTED


def among(tried: int, *found: Evidence) -> Experiment:
    asked = stack_hypothesis()
    view = experiment(asked)
    view = view.model_copy(update={"plan": make_plan(asked, tried=tried)})
    for one in found:
        view = view.with_record(one)
    return view


def test_p4_a_win_among_several_waits_for_a_fresh_run_and_that_run_decides() -> None:
    first = service()
    assert decide(among(3, first), CRITERIA) is None
    held, lost = (
        service(confirms=first.id, seed=2),
        service(with_effects({PRIMARY: 0.0}, count=40), confirms=first.id, seed=2),
    )
    won, refuted = decide(among(3, first, held), CRITERIA), decide(among(3, first, lost), CRITERIA)
    assert isinstance(won, Verdict)
    assert isinstance(refuted, Verdict)
    assert won.outcome is Outcome.PASSED
    assert refuted.outcome is Outcome.REJECTED
    assert "P4" in refuted.reason
    assert [i.method.endswith("first run") for i in won.intervals if i.observable == PRIMARY] == [False, True]


def test_a_single_hypothesis_needs_no_second_run() -> None:
    verdict = decide(among(1, service()), CRITERIA)
    assert verdict is not None
    assert verdict.outcome is Outcome.PASSED


def test_the_published_negative_case_gets_its_verdicts() -> None:
    """50 rounds on another model: +0.98 % at best, a quality loss, and a profile that won one run in five."""
    small = pairs({PRIMARY: -0.98}, count=5, level=0.02)
    assert judged(service(guard() + small)).outcome in (Outcome.INCONCLUSIVE, Outcome.REJECTED)
    single = [b for b in pairs({PRIMARY: -0.98}) if b.order < 2]
    without_interval = judged(service(guard() + single))
    assert without_interval.outcome is Outcome.INCONCLUSIVE
    faster_but_worse = judged(service(guard(drift=0.23) + pairs({PRIMARY: -40.0})))
    assert faster_but_worse.outcome is Outcome.REJECTED
    one_in_five = [b for k, e in enumerate((-40.0, 0.0, 0.0, 0.0, 0.0)) for b in pairs({PRIMARY: e}, count=1, seed=k)]
    moved = [
        b.model_copy(update={"order": b.order + 2 * (i * 5 // len(one_in_five))}) for i, b in enumerate(one_in_five)
    ]
    assert judged(service(guard() + moved)).outcome is Outcome.INCONCLUSIVE


def test_a_rung_that_did_not_run_is_no_service_verdict() -> None:
    whole = service()
    ids = {"subject": whole.subject, "evaluator_digest": whole.evaluator_digest}
    nothing = Evidence(rung=Rung.SERVICE, environment=facts(), not_run="no GPU", **ids)
    assert judged(nothing).outcome is Outcome.INCONCLUSIVE
