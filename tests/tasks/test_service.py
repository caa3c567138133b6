"""The service rung against fake servers: what it records, and when it refuses to time anything."""

import re
from functools import partial
from pathlib import Path

import pytest
from fake_nvml import fake_nvml
from fake_stack import stack_file
from fake_witness import told
from service_setup import INFO, REQUESTS_A_BLOCK, Alive, Setup, known_noise, requests_of, values

from serving.errors import BadInput, Broken
from serving.home import home
from serving.nvml import sampled
from serving.scenario import Scenario
from tasks.criteria import load_criteria
from tasks.judge_service import judge_service
from tasks.records import (
    Arm,
    Outcome,
    RoleEdit,
    Rung,
    StackEdit,
    digest,
)
from tasks.service import measure_service


def test_an_aa_run_that_would_find_its_own_blocks_in_the_cache_is_refused(setup: Setup) -> None:
    for arm, engine in setup.engines.items():
        engine.info = INFO[arm] | {"disable_radix_cache": False}
    with pytest.raises(BadInput, match="sends each block twice"):
        measure_service(setup.hypothesis())


def test_noise_is_measured_on_the_incumbent_and_the_candidate_has_then_served_the_same(setup: Setup) -> None:
    evidence = measure_service(setup.hypothesis())
    assert evidence.noise is not None
    pairs = len(evidence.noise.changes["ttft_mean_ms"])
    assert pairs >= 4
    served = (1 + 2 * pairs) * REQUESTS_A_BLOCK  # with the warm-up
    began = [sorted(requests_of(setup, arm)[:served]) for arm in Arm]
    assert began[0] == began[1]
    assert len(requests_of(setup, Arm.INCUMBENT)) == len(requests_of(setup, Arm.CANDIDATE)) > served
    assert dict(evidence.environment.facts) == evidence.noise.facts


def test_noise_that_is_known_for_this_environment_is_not_measured_again(setup: Setup) -> None:
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    assert evidence.noise == known_noise(evidence.environment.facts)
    assert len(setup.engines[Arm.INCUMBENT].seen) == len(setup.engines[Arm.CANDIDATE].seen)


def test_both_arms_get_the_same_requests_in_pairs_and_every_file_has_its_digest(setup: Setup) -> None:
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    sent = {arm: sorted(requests_of(setup, arm)) for arm in Arm}
    assert sent[Arm.INCUMBENT] == sent[Arm.CANDIDATE]
    orders = sorted({(b.order // 2, b.arm) for b in evidence.blocks if b.observable == "ttft_mean_ms"})
    assert orders == [(pair, arm) for pair in range(3) for arm in sorted(Arm)]
    assert evidence.rung is Rung.SERVICE
    assert all(digest((home() / file.path).read_bytes()) == file.sha256 for file in evidence.files)
    assert {Path(file.path).suffix for file in evidence.files} == {".json", ".jsonl", ".prom"}


def test_engagement_names_the_edited_argument_and_what_each_server_runs_with(setup: Setup) -> None:
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    assert [(p.arm, p.what, p.expected, p.seen) for p in evidence.engagement] == [
        (Arm.INCUMBENT, "server.arguments.chunked-prefill-size", "512", "512"),
        (Arm.CANDIDATE, "server.arguments.chunked-prefill-size", "64", "64"),
    ]


def test_the_layers_of_the_server_are_recorded_only_when_its_counts_agree_with_the_clients(setup: Setup) -> None:
    agreed = measure_service(setup.hypothesis(), recall=known_noise)
    assert all(v is not None for v in values(agreed, "server_ttft_ms", Arm.CANDIDATE))
    setup.engines[Arm.CANDIDATE].fail_every = 3
    doubted = measure_service(setup.hypothesis(RoleEdit(arguments={"chunked-prefill-size": 64}, environment={})))
    assert None in values(doubted, "server_ttft_ms", Arm.CANDIDATE)


def test_failed_requests_are_counted_and_judged_before_any_latency(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].fail_every = 2
    judged = judge_service(
        measure_service(setup.hypothesis(), recall=known_noise), load_criteria(setup.scenario, Scenario), True
    )
    assert judged.outcome is Outcome.REJECTED
    assert "requests failed" in judged.reason


@pytest.mark.parametrize("drift", [0.5, None])
def test_a_candidate_that_computes_something_else_is_rejected_and_never_timed(
    setup: Setup, drift: float | None
) -> None:
    setup.engines[Arm.CANDIDATE].drift = drift
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    assert not any(engine.seen for engine in setup.engines.values())
    judged = judge_service(evidence, load_criteria(setup.scenario, Scenario), True)
    assert judged.outcome is Outcome.REJECTED
    assert "log-probabilities" in judged.reason


def test_a_candidate_that_is_right_when_the_guard_asks_and_wrong_when_it_streams_is_rejected(setup: Setup) -> None:
    """Fast garbage under traffic alone: nothing that the guard asks would show it."""
    setup.engines[Arm.CANDIDATE].streamed = lambda ids: [token - 1 for token in ids]
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    assert set(values(evidence, "logprob_drift", Arm.CANDIDATE)) == {0.0}
    assert None not in values(evidence, "ttft_mean_ms", Arm.CANDIDATE)
    judged = judge_service(evidence, load_criteria(setup.scenario, Scenario), True)
    assert judged.outcome is Outcome.REJECTED
    assert re.search(
        r"`\d+-\d+` of answers-chat: token 1 is .+ below the likeliest one \(limit 0\.002\)", judged.reason
    )
    assert judged.findings[0].locus.name.endswith("token 1")


def test_a_candidate_whose_answers_are_right_is_judged_by_its_times_and_the_verdict_shows_the_deficits(
    setup: Setup,
) -> None:
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    per_block = load_criteria(setup.scenario, Scenario).values.guard.answers_per_block
    assert [len(values(evidence, "answer_deficit", arm)) for arm in Arm] == [3 * per_block] * 2
    assert any(file.path.endswith("deficits.jsonl") for file in evidence.files)


def test_an_incumbent_without_finite_numbers_is_broken(setup: Setup) -> None:
    setup.engines[Arm.INCUMBENT].drift = None
    with pytest.raises(Broken, match="incumbent"):
        measure_service(setup.hypothesis(), recall=known_noise)


def test_an_edit_that_is_not_in_force_is_broken(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = {"chunked_prefill_size": 128, "page_size": 1}
    with pytest.raises(Broken, match="asked for `64` and runs with `128`"):
        measure_service(setup.hypothesis(), recall=known_noise)


def test_arms_that_differ_in_another_stated_argument_are_broken(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = {"chunked_prefill_size": 64, "page_size": 16}
    with pytest.raises(Broken, match="page_size"):
        measure_service(setup.hypothesis(), recall=known_noise)


def test_a_server_whose_port_somebody_else_answers_proves_nothing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stranger(_self: Alive) -> int:
        raise Broken("port `31400` is answered by process 7", "see who has it")

    monkeypatch.setattr(Alive, "listener", stranger)
    with pytest.raises(Broken, match="answered by process 7"):
        measure_service(setup.hypothesis(), recall=known_noise)
    assert not any(engine.seen for engine in setup.engines.values())


def test_what_the_engine_derives_from_the_edit_is_recorded_and_allowed(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = INFO[Arm.CANDIDATE] | {"max_prefill_tokens": 64}
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    arms = next(file for file in evidence.files if file.path.endswith("arms.json"))
    assert '"max_prefill_tokens": ["absent", "64"]' in (home() / arms.path).read_text()


def test_an_edit_that_changes_nothing_is_the_candidates_fault(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = INFO[Arm.INCUMBENT]
    evidence = measure_service(setup.hypothesis(RoleEdit(arguments={"chunked-prefill-size": 512})))
    assert "changes nothing" in (evidence.candidate_fault or "")


def test_traffic_ends_as_soon_as_somebody_has_seen_enough(setup: Setup) -> None:
    evidence = measure_service(
        setup.hypothesis(), enough=lambda blocks, noise: any(b.order >= 2 for b in blocks if b.unit == "ms")
    )
    assert len(values(evidence, "ttft_mean_ms", Arm.CANDIDATE)) == 2


def test_warnings_about_a_stack_are_said_and_stop_nothing(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    measure_service(setup.hypothesis(), recall=known_noise)
    assert "s: `roles.server.arguments.max-total-tokens`: no `max-total-tokens`" in caplog.text


def test_a_server_whose_weights_were_not_all_loaded_is_broken(setup: Setup, tmp_path: Path) -> None:
    setup.witnesses[Arm.INCUMBENT] = told(tmp_path / "w", weights={"unused": [], "unfilled": ["model.layers.1.w"]})
    with pytest.raises(Broken, match=r"`model\.layers\.1\.w`"):
        measure_service(setup.hypothesis(), recall=known_noise)
    assert not any(engine.seen for engine in setup.engines.values())


def test_what_the_engine_computes_instead_of_what_its_model_says_is_a_fact_of_the_environment(
    setup: Setup, tmp_path: Path
) -> None:
    assert measure_service(setup.hypothesis(), recall=known_noise).environment.facts["departures"] == "none"
    account = {"unused": [], "unfilled": [], "left_out": {"dense attention": ["indexer.wk.weight"]}}
    setup.witnesses[Arm.INCUMBENT] = told(tmp_path / "w", weights=account)
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    assert evidence.environment.facts["departures"] == "dense attention"


def test_every_limit_of_a_scenario_can_be_cited(setup: Setup) -> None:
    criteria = load_criteria(setup.scenario, Scenario)
    assert criteria.cite("guard.greatest_logprob_drift").value == 0.001
    assert criteria.cite("primary").value == "ttft_mean_ms"
    assert all(criteria.limit(key) >= 0 for key in criteria.keys("vetoes"))
    with pytest.raises(KeyError):
        criteria.limit("vetoes.happiness")


def test_a_stack_of_several_roles_is_compared_on_ports_of_its_own_and_the_edit_is_proved_in_its_role(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service.check_weights", lambda *_, **__: None)  # fake engines load none
    monkeypatch.setattr("serving.arguments.router_arguments", lambda: {})
    setup.stack = stack_file(tmp_path)
    edit = StackEdit(roles={"decode": RoleEdit(environment={"OMP_NUM_THREADS": "2"})})
    hypothesis = setup.hypothesis().model_copy(update={"change": edit})
    monkeypatch.setattr("tasks.service.check_stack", lambda _: [])  # the options above are few
    monkeypatch.setattr("tasks.service_blocks.sampled", partial(sampled, nvml=fake_nvml(driver_error=12)))
    evidence = measure_service(hypothesis, recall=known_noise)
    assert [(p.arm, p.what, p.seen) for p in evidence.engagement] == [
        (Arm.INCUMBENT, "decode.environment.OMP_NUM_THREADS", "absent"),
        (Arm.CANDIDATE, "decode.environment.OMP_NUM_THREADS", "2"),
    ]
    ours, theirs = (
        {b.observable for b in evidence.blocks if b.arm is arm and b.observable.endswith("process_threads")}
        for arm in Arm
    )
    assert ours == theirs == {f"{role}.process_threads" for role in ("encode", "prefill", "decode", "router")}
    of_gpus = [b for b in evidence.blocks if b.observable == "decode.gpu_power_w"]
    assert {(b.value, b.reason, b.unit, b.part) for b in of_gpus} == {(None, "no NVIDIA driver", "W", "decode")}
    assert None not in values(evidence, "ttft_mean_ms", Arm.CANDIDATE)
    assert set(values(evidence, "server_transfer_ms", Arm.CANDIDATE)) == {None}  # the fake router asks nobody
