"""Rules derive findings with a locus, what they imply, and a next test; and a prediction is held against the result."""

import pytest
from examples import block, build, evidence, experiment, kernel_hypothesis
from hypothesis import given
from hypothesis import strategies as st
from service_evidence import LAYERS, guard, pairs, service
from static_evidence import static

from tasks import diagnose as rules
from tasks.brief import BYTES_PER_TOKEN, brief
from tasks.decide import decide
from tasks.problem import load_problem
from tasks.reconcile import predict_service, reconcile, reconcile_service
from tasks.records import Arm, Block, Engagement, Finding, Interval, Outcome, Prediction, Rung, Verdict

INC, CAN = Arm


def interval(estimate: float, low: float, high: float, observable: str = "e2e_mean_ms") -> Interval:
    fields = {"observable": observable, "unit": "%", "workload": "w", "confidence": 0.95, "blocks": 20, "method": "m"}
    return Interval.model_validate({**fields, "estimate": estimate, "low": low, "high": high})


def test_clocks_that_heat_held_back_are_a_finding_of_their_role_and_none_where_they_were_not_or_nobody_knows() -> None:
    held = {INC: 0.0, CAN: 25.0}
    cool = [block(arm, "prefill.gpu_held_back_pct", 0.0) for arm in Arm]
    unknown = [block(arm, "encode.gpu_held_back_pct", None) for arm in Arm]
    hot = [block(arm, "decode.gpu_held_back_pct", held[arm]) for arm in Arm]
    (finding,) = rules.held_back_clocks(evidence(Rung.SERVICE, *cool, *unknown, *hot))
    assert (finding.locus.name, finding.incumbent, finding.candidate) == ("clocks of decode", 0.0, 25.0)


@pytest.mark.parametrize(("called", "found"), [((), ["pack/mod.py"]), (("server.calls.pack.mod:f",), [])])
def test_a_patch_without_a_function_is_engaged_by_the_digest_of_its_file_and_says_so(
    called: tuple[str, ...], found: list[str]
) -> None:
    names = ("server.code.pack/mod.py", *called)
    proofs = tuple(Engagement(arm=CAN, what=name, expected="x", seen="x") for name in names)
    seen = evidence(Rung.SERVICE, block(CAN, "e2e_mean_ms", 1.0)).model_copy(update={"engagement": proofs})
    assert [finding.locus.name for finding in rules.shown_by_digest(seen)] == found
    assert all("by digest" in finding.implies for finding in rules.shown_by_digest(seen))


def moved(shifts_ms: dict[str, float], ttft_ms: float) -> list[Block]:
    """Pairs in which the client's TTFT, 100 ms in the incumbent, and layers of it are so much longer in the candidate."""
    effects = {layer: 100 * shift / LAYERS[layer] for layer, shift in shifts_ms.items()}
    return guard() + pairs({**effects, "ttft_mean_ms": ttft_ms}, level=0.0)


def test_a_change_of_ttft_is_told_apart_by_layer_and_the_rest_has_a_size() -> None:
    (finding,) = rules.where_time_went(service(moved({"server_queue_ms": 30.0}, ttft_ms=32.0)))
    assert (finding.locus.kind, finding.locus.name) == ("interval", "queue")
    assert (
        "queue +30.0 ± 0.0 ms, prefill +0.0 ± 0.0 ms, http +0.0 ± 0.0 ms, unexplained +2.0 ± 0.0 ms" in finding.implies
    )
    assert "94 % of the change" in str(finding.next_test)


def test_a_change_that_no_layer_shows_is_unexplained() -> None:
    (finding,) = rules.where_time_went(service(moved({}, ttft_ms=30.0)))
    assert finding.locus.name == "unexplained"
    assert "unexplained +30.0 ± 0.0 ms" in finding.implies


def with_noise(blocks: list[Block], name: str, extra_ms: list[float]) -> list[Block]:
    """`extra_ms` is added to `name` of the candidate, pair by pair."""
    return [
        b.model_copy(update={"value": b.value + extra_ms[b.order // 2 % len(extra_ms)]})
        if b.observable == name and b.arm is CAN and b.value is not None
        else b
        for b in blocks
    ]


def test_a_change_that_may_be_noise_names_no_layer() -> None:
    """One pair of 24 had a bad moment of 200 ms: the mean of the candidate is 8 % up, and it says nothing."""
    bad_moment = [*[0.0] * 20, 200.0, 0.0, 0.0, 0.0]
    blocks = with_noise(moved({}, ttft_ms=0.0), "ttft_mean_ms", bad_moment)
    assert rules.where_time_went(service(with_noise(blocks, "server_queue_ms", bad_moment))) == []


def test_where_the_change_is_sure_and_every_layer_may_be_noise_no_layer_is_named() -> None:
    blocks = with_noise(moved({}, ttft_ms=20.0), "server_queue_ms", [60.0, -40.0])
    (finding,) = rules.where_time_went(service(with_noise(blocks, "server_prefill_ms", [-40.0, 60.0])))
    assert finding.locus.name == "no layer alone"
    assert "TTFT +20.0 ± 0.0 ms (+20 %): queue +10.0 ± 21.6 ms, prefill +10.0 ± 21.6 ms" in finding.implies
    assert "more pairs" in str(finding.next_test)


def test_times_that_no_float_can_square_name_no_layer() -> None:
    blocks = with_noise(moved({}, ttft_ms=0.0), "ttft_mean_ms", [1e307, 0.0])
    assert rules.where_time_went(service(with_noise(blocks, "server_queue_ms", [1e307, 0.0]))) == []


def test_one_pair_has_no_margin_and_names_no_layer() -> None:
    blocks = [b for b in moved({"server_queue_ms": 30.0}, ttft_ms=30.0) if b.order < 2]
    assert rules.where_time_went(service(blocks)) == []


def test_evidence_in_which_not_every_layer_was_looked_at_is_not_told_apart() -> None:
    blocks = [b for b in moved({"server_queue_ms": 30.0}, ttft_ms=32.0) if b.observable != "unexplained_ms"]
    assert rules.where_time_went(service(blocks)) == []


def test_without_a_layer_the_rest_is_called_open_and_not_unexplained() -> None:
    blocks = [
        b.model_copy(update={"value": None, "reason": "no metric"}) if b.observable == "server_prefill_ms" else b
        for b in moved({}, ttft_ms=30.0)
    ]
    (finding,) = rules.where_time_went(service(blocks))
    assert finding.locus.name == "not measured"
    assert "not measured: prefill (no metric), so the other +30.0 ms are open" in finding.implies
    assert "unexplained" not in finding.implies


def test_pages_that_wait_for_prefill_point_to_the_gil() -> None:
    name = "pages_before_prefill_end_pct"
    held = evidence(Rung.OVERLAP, block(INC, name, 95.0), block(CAN, name, 2.0))
    assert "GIL" in rules.starved_transfer(held)[0].implies
    assert rules.starved_transfer(evidence(Rung.OVERLAP, block(CAN, name, 97.0))) == []


def test_a_kernel_with_a_small_share_is_not_worth_it() -> None:
    (finding,) = rules.small_share(evidence(Rung.MICROBENCH, block(INC, "kernel_share_pct", 3.0), gate="0" * 64))
    assert "choose a kernel with a larger share" in str(finding.next_test)


@given(st.floats(0.01, 1), st.floats(-60, 60), st.floats(0, 20))
def test_a_local_change_predicts_a_service_change_by_its_share(share: float, change: float, half: float) -> None:
    shares = (share / 2, share, min(1, share * 1.5))
    predicted = predict_service("e2e_mean_ms", interval(change, change - half, change + half), shares)
    assert predicted.low_pct <= predicted.estimate_pct <= predicted.high_pct
    assert abs(predicted.estimate_pct) <= abs(change) + 1e-9


def test_a_doubled_kernel_of_five_percent_share_gains_two_and_a_half() -> None:
    found = predict_service("e2e_mean_ms", interval(-50, -50, -50), (0.05, 0.05, 0.05))
    assert found.estimate_pct == pytest.approx(-2.5)


def test_what_halves_the_time_of_half_a_service_lets_it_do_a_third_more_work() -> None:
    found = predict_service("output_tokens_per_s", interval(-50, -60, -40), (0.5, 0.5, 0.5), rate=True)
    assert found.estimate_pct == pytest.approx(100 / 3)
    assert found.low_pct == pytest.approx(25)
    assert found.high_pct == pytest.approx(300 / 7)


def test_shares_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="shares"):
        predict_service("e2e_mean_ms", interval(-50, -60, -40), (0.5, 0.2, 0.9))


def test_a_service_gain_outside_its_prediction_is_a_finding_with_likely_loci() -> None:
    predicted = predict_service("e2e_mean_ms", interval(-20, -22, -18), (0.4, 0.5, 0.6))
    hit, miss = (reconcile_service(predicted, interval(e, e - 1, e + 1)) for e in (-10.0, 5.0))
    assert "they agree" in hit.implies
    assert hit.next_test is None
    assert "a miss" in miss.implies
    assert miss.next_test is not None


@pytest.mark.parametrize(
    ("size", "high", "words"),
    [(8.0, -6, "as predicted"), (80.0, -6, "missed"), (8.0, 6, "too wide to tell the prediction from no change")],
)
def test_a_prediction_is_held_against_its_interval(size: float, high: float, words: str) -> None:
    said = Prediction(observable="e2e_mean_ms", direction="down", size=size, unit="%")
    found = reconcile(said, (interval(-9, -12, high),), ())
    assert found is not None
    assert words in found.implies


def test_a_prediction_about_something_else_is_left_alone() -> None:
    said = Prediction(observable="smell", direction="down", size=1, unit="%")
    assert reconcile(said, (interval(-9, -12, -6),), ()) is None


def test_rules_reach_the_verdict() -> None:
    view = experiment(kernel_hypothesis(question="same results"))  # type: ignore[arg-type]
    view = view.with_record(build(view.hypothesis))
    right = evidence(Rung.NUMERICS, *(block(arm, "out_rel_error", 1e-7) for arm in Arm))
    verdict = decide(
        view.with_record(right).with_record(static(repeated=(4.0, 1.0))), load_problem("kda_decode").criteria
    )
    assert verdict is not None
    assert any("each of 4 programs" in finding.implies for finding in verdict.findings)


@given(st.integers(0, 400), st.integers(300, 4000), st.text(min_size=1, max_size=3000))
def test_the_text_for_a_model_is_bounded_and_says_what_it_left_out(findings: int, tokens: int, words: str) -> None:
    finding = Finding.model_validate(
        {"locus": {"kind": "kernel", "name": "k"}, "observable": "x", "unit": "ms", "incumbent": 1.5, "candidate": 2.25,
         "delta": 0.75, "status": "measured", "implies": words}
    )  # fmt: skip
    view = experiment()
    verdict = Verdict(
        hypothesis_id=view.hypothesis_id, outcome=Outcome.REJECTED, reason=words, findings=(finding,) * findings
    )
    text = brief(view.with_record(verdict), tokens)
    assert len(text.encode()) <= max(tokens * BYTES_PER_TOKEN, 4000)
    kept = text.count("measured: kernel `k`: x: 1.5 ms → 2.25 ms")
    assert f"left out: {findings - kept} lines" in text or (kept == findings and "left out: nothing" in text)
