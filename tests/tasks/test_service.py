"""The service rung against fake servers: what it records, and when it refuses to time anything."""

import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
import yaml
from examples import experiment
from fake_engine import FakeEngine, listening
from fake_nvml import fake_nvml
from fake_stack import stack_file
from fake_witness import told

from serving.arguments import Option
from serving.checkpoint import Checkpoint
from serving.engine_env import Engine
from serving.errors import BadInput, Broken
from serving.home import home
from serving.launch import Part, Server
from serving.nvml import sampled
from serving.overlay import Overlay
from serving.readiness import EngineEnded
from serving.scenario import Scenario
from serving.stack import load_stack
from serving.witness import Witness
from tasks.criteria import load_criteria
from tasks.judge_service import judge_service
from tasks.noise import Noise
from tasks.records import (
    Arm,
    CodePatch,
    Evidence,
    Hypothesis,
    Interval,
    Outcome,
    RoleEdit,
    Rung,
    StackEdit,
    StackTarget,
    digest,
)
from tasks.service import measure_service
from tasks.service_arms import build_stack, check_edit
from tasks.service_code import Code, build_patch

REQUESTS_A_BLOCK = 4
SERVING = Path(__file__).parents[2] / "serving"
OPTIONS = {
    name: Option(dest=name.replace("-", "_"), flag=False, type="int", choices=None, default=None)
    for name in ("chunked-prefill-size", "page-size")
} | {
    "device": Option(dest="device", flag=False, type="str", choices=None, default=None),
    "max-total-tokens": Option(dest="max_total_tokens", flag=False, type="int", choices=None, default=None),
    "enable-metrics": Option(dest="enable_metrics", flag=True, type="str", choices=None, default=False),
}
INFO = {
    Arm.INCUMBENT: {"chunked_prefill_size": 512, "page_size": 1},
    Arm.CANDIDATE: {"chunked_prefill_size": 64, "page_size": 1},
}


class Alive:
    def exit_status(self) -> None:
        return None

    def listener(self) -> int:
        return 1

    def alive(self) -> list[psutil.Process]:
        return [psutil.Process()]


class Setup:
    """Files of a hypothesis, and the fake servers that stand for its arms."""

    def __init__(self, folder: Path) -> None:
        self.stack, self.scenario = folder / "stack.yaml", folder / "scenario.yaml"
        self.checkpoint = folder / "checkpoint"
        self.checkpoint.mkdir()
        (self.checkpoint / "config.json").write_text('{"vocab_size": 1024}')
        arguments = {"device": "cpu", "chunked-prefill-size": 512, "page-size": 1, "enable-metrics": True}
        role = {"port": 31400, "arguments": arguments}
        stack = {"name": "s", "model": "m", "ready_timeout_s": 1, "roles": {"server": role}}
        self.stack.write_text(yaml.safe_dump(stack))
        scenario = yaml.safe_load((SERVING / "scenarios" / "mixed-lengths-cpu.yaml").read_text())
        span = {"low": 4, "high": 8}
        scenario["traffic"] |= {
            "pairs": 3,
            "noise_pairs": 4,
            "classes": {"chat": {"requests": REQUESTS_A_BLOCK, "prompt_tokens": span, "output_tokens": span}},
        }
        self.scenario.write_text(yaml.safe_dump(scenario))
        self.engines = {arm: FakeEngine(info=INFO[arm]) for arm in Arm}
        self.witnesses: dict[Arm, Witness] = {}

    def hypothesis(self, edit: RoleEdit | None = None) -> Hypothesis:
        target = StackTarget(
            stack=str(self.stack), scenario=str(self.scenario), incumbent_digest=load_stack(self.stack).digest
        )
        change = StackEdit(roles={"server": edit or RoleEdit(arguments={"chunked-prefill-size": 64})})
        fields = experiment().hypothesis.model_dump() | {
            "question": "better service",
            "target": target,
            "change": change,
        }
        return Hypothesis.model_validate(fields)

    @contextmanager
    def running_together(self, _specs: object, run_dir: Path, _overlays: object = None) -> Iterator[dict[str, Server]]:
        with ExitStack() as servers:
            yield {
                str(arm): self._server(servers.enter_context(listening(self.engines[arm])), arm, run_dir) for arm in Arm
            }

    def _server(self, engine: FakeEngine, arm: Arm, run_dir: Path) -> Server:
        model = Checkpoint(self.checkpoint, digest("weights"))
        log_file, process = run_dir / f"{arm}.log", Alive()
        witness = self.witnesses.get(arm) or told(run_dir / arm / "reports")
        part = Part(arm, "server", engine.base_url, os.getpid(), log_file, process)  # type: ignore[arg-type]
        return Server(arm, engine.base_url, 1, log_file, (), model, 1.0, process, witness, (part,))  # type: ignore[arg-type]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setup:
    made = Setup(tmp_path)
    installed = Engine(Path("python"), {"sglang": "0.5.23", "torch": "2", "transformers": "5", "python": "3.11"}, "x")
    monkeypatch.setattr("tasks.service.running_together", made.running_together)
    for place in ("serving.arguments", "serving.engagement"):
        monkeypatch.setattr(f"{place}.known_arguments", lambda: OPTIONS)
    for place in ("serving.arguments", "tasks.service_environment", "tasks.service_code"):
        monkeypatch.setattr(f"{place}.engine", lambda: installed)
    return made


def values(evidence: Evidence, observable: str, arm: Arm) -> list[float | None]:
    return [b.value for b in evidence.blocks if b.observable == observable and b.arm is arm]


def requests_of(setup: Setup, arm: Arm) -> list[tuple[int, ...]]:
    return [tuple(body["input_ids"]) for body in setup.engines[arm].seen]


def known_noise(facts: Mapping[str, str]) -> Noise:
    """An earlier A/A run, so that a test need not make one."""
    changes = {"ttft_mean_ms": (0.02, -0.02, 0.01, -0.01)}
    return Noise(rung=Rung.SERVICE, workload="w", facts=dict(facts), seed=0, changes=changes, wall_s=1.0)


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
    evidence = measure_service(setup.hypothesis())
    assert [(p.arm, p.what, p.expected, p.seen) for p in evidence.engagement] == [
        (Arm.INCUMBENT, "server.arguments.chunked-prefill-size", "512", "512"),
        (Arm.CANDIDATE, "server.arguments.chunked-prefill-size", "64", "64"),
    ]


def test_the_layers_of_the_server_are_recorded_only_when_its_counts_agree_with_the_clients(setup: Setup) -> None:
    agreed = measure_service(setup.hypothesis())
    assert all(v is not None for v in values(agreed, "server_ttft_ms", Arm.CANDIDATE))
    setup.engines[Arm.CANDIDATE].fail_every = 3
    doubted = measure_service(setup.hypothesis(RoleEdit(arguments={"chunked-prefill-size": 64}, environment={})))
    assert None in values(doubted, "server_ttft_ms", Arm.CANDIDATE)


def test_failed_requests_are_counted_and_judged_before_any_latency(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].fail_every = 2
    judged = judge_service(measure_service(setup.hypothesis()), load_criteria(setup.scenario, Scenario), True)
    assert judged.outcome is Outcome.REJECTED
    assert "requests failed" in judged.reason


@pytest.mark.parametrize("drift", [0.5, None])
def test_a_candidate_that_computes_something_else_is_rejected_and_never_timed(
    setup: Setup, drift: float | None
) -> None:
    setup.engines[Arm.CANDIDATE].drift = drift
    evidence = measure_service(setup.hypothesis())
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
        measure_service(setup.hypothesis())


def test_an_edit_that_is_not_in_force_is_broken(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = {"chunked_prefill_size": 128, "page_size": 1}
    with pytest.raises(Broken, match="asked for `64` and runs with `128`"):
        measure_service(setup.hypothesis())


def test_arms_that_differ_in_another_stated_argument_are_broken(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = {"chunked_prefill_size": 64, "page_size": 16}
    with pytest.raises(Broken, match="page_size"):
        measure_service(setup.hypothesis())


def test_a_server_whose_port_somebody_else_answers_proves_nothing(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stranger(_self: Alive) -> int:
        raise Broken("port `31400` is answered by process 7", "see who has it")

    monkeypatch.setattr(Alive, "listener", stranger)
    with pytest.raises(Broken, match="answered by process 7"):
        measure_service(setup.hypothesis())
    assert not any(engine.seen for engine in setup.engines.values())


def test_what_the_engine_derives_from_the_edit_is_recorded_and_allowed(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = INFO[Arm.CANDIDATE] | {"max_prefill_tokens": 64}
    evidence = measure_service(setup.hypothesis())
    arms = next(file for file in evidence.files if file.path.endswith("arms.json"))
    assert '"max_prefill_tokens": ["absent", "64"]' in (home() / arms.path).read_text()


def test_an_edit_that_changes_nothing_is_the_candidates_fault(setup: Setup) -> None:
    setup.engines[Arm.CANDIDATE].info = INFO[Arm.INCUMBENT]
    evidence = measure_service(setup.hypothesis(RoleEdit(arguments={"chunked-prefill-size": 512})))
    assert "changes nothing" in (evidence.candidate_fault or "")


def ended(server: str, refused: bool) -> Callable[..., object]:
    def raising(*_args: object) -> object:
        raise EngineEnded(f"`{server}` ended", "see its log", server=server, refused=refused)

    return raising


def test_a_candidate_that_refuses_to_start_is_its_own_fault(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.service.running_together", ended("candidate", refused=True))
    assert measure_service(setup.hypothesis()).candidate_fault == "`candidate` ended"


@pytest.mark.parametrize(("server", "refused"), [("incumbent", True), ("candidate", False)])
def test_an_incumbent_that_ends_or_a_candidate_ended_from_outside_is_broken(
    server: str, refused: bool, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service.running_together", ended(server, refused))
    with pytest.raises(Broken):
        measure_service(setup.hypothesis())


def shutting_out(arm: Arm) -> Callable[[Server], tuple[str, ...]]:
    return lambda server: ("prefill", "decode") if server.name == arm else ()


@pytest.mark.parametrize("arm", list(Arm))
def test_workers_that_a_router_shuts_out_before_the_traffic_are_named_and_nothing_is_judged(
    arm: Arm, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.breakers.shut_out_of", shutting_out(arm))
    with pytest.raises(Broken, match=f"{arm}: the router sends nothing to `prefill` and `decode`"):
        measure_service(setup.hypothesis(), recall=known_noise)


def test_a_status_that_only_says_no_becomes_the_names_of_the_workers_that_are_shut_out(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup.engines[Arm.CANDIDATE].key = "k"
    with pytest.raises(Broken, match="401"):
        measure_service(setup.hypothesis())
    monkeypatch.setattr("serving.breakers.shut_out_of", shutting_out(Arm.CANDIDATE))
    with pytest.raises(Broken, match="candidate: the router sends nothing to `prefill` and `decode`"):
        measure_service(setup.hypothesis())


def test_workers_that_are_shut_out_under_traffic_are_the_fault_of_the_candidate_alone(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service.shut_out_of", shutting_out(Arm.CANDIDATE))
    evidence = measure_service(setup.hypothesis(), recall=known_noise)
    assert "under traffic the router sends nothing to `prefill` and `decode`" in (evidence.candidate_fault or "")
    assert len(values(evidence, "ttft_mean_ms", Arm.CANDIDATE)) == 1
    checked: list[Server] = []
    monkeypatch.setattr("tasks.service.check_breakers", checked.extend)
    monkeypatch.setattr("tasks.service.shut_out_of", shutting_out(Arm.INCUMBENT))
    measure_service(setup.hypothesis(), recall=known_noise)
    assert {server.name for server in checked} == set(Arm)


def test_traffic_ends_as_soon_as_somebody_has_seen_enough(setup: Setup) -> None:
    evidence = measure_service(
        setup.hypothesis(), enough=lambda blocks, noise: any(b.order >= 2 for b in blocks if b.unit == "ms")
    )
    assert len(values(evidence, "ttft_mean_ms", Arm.CANDIDATE)) == 2


def test_a_stack_that_changed_since_the_hypothesis_was_read_is_refused(setup: Setup) -> None:
    hypothesis = setup.hypothesis()
    setup.stack.write_text(setup.stack.read_text().replace("31400", "31402"))
    with pytest.raises(BadInput, match="no longer the stack"):
        measure_service(hypothesis)


def test_an_option_that_sglang_lacks_is_bad_input_for_a_person_and_a_failed_build_for_a_run(setup: Setup) -> None:
    hypothesis = setup.hypothesis(RoleEdit(arguments={"chunky": 1}))
    with pytest.raises(BadInput, match="chunky"):
        check_edit(hypothesis)
    assert "chunky" in (build_stack(hypothesis).failure or "")
    assert build_stack(setup.hypothesis()).failure is None


FAULTS = {
    "help": RoleEdit(arguments={"help": True}),
    "api-key": RoleEdit(arguments={"api-key": "secret"}),
    "enable-metrics": RoleEdit(arguments={"enable-metrics": None}),
    "one server": RoleEdit(count=2),
    "LD_PRELOAD": RoleEdit(environment={"LD_PRELOAD": "x.so"}),
    "SGLANG_HOST_IP": RoleEdit(environment={"SGLANG_HOST_IP": "1"}),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_fault_of_the_edit_is_bad_input_for_a_person_and_a_failed_build_for_a_run(said: str, setup: Setup) -> None:
    """Never BROKEN, which would be tried again for ever."""
    hypothesis = setup.hypothesis(FAULTS[said])
    with pytest.raises(BadInput, match=said):
        check_edit(hypothesis)
    assert said in (build_stack(hypothesis).failure or "")


def test_an_edit_that_validate_finds_an_error_in_is_a_failed_build_and_never_starts(setup: Setup) -> None:
    """One in a combination of options; the options themselves are ones that SGLang has."""
    hypothesis = setup.hypothesis(RoleEdit(arguments={"device": "cuda"}))
    with pytest.raises(BadInput, match=r"`roles\.server\.resources\.gpus`"):
        check_edit(hypothesis)
    assert "`roles.server.resources.gpus`: `0` GPUs for 1 rank" in (build_stack(hypothesis).failure or "")
    with pytest.raises(BadInput, match="ranks"):
        measure_service(hypothesis)


def test_warnings_about_a_stack_are_said_and_stop_nothing(setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
    measure_service(setup.hypothesis(), recall=known_noise)
    assert "s: `roles.server.arguments.max-total-tokens`: no `max-total-tokens`" in caplog.text


@pytest.mark.parametrize(
    "edit",
    [
        RoleEdit(arguments={"chunked-prefill-size": 512}),
        RoleEdit(arguments={"chunked-prefill-size": "512"}),
        RoleEdit(arguments={"chunked-prefill-size": 64, "page-size": 1}),
        RoleEdit(environment={"OMP_NUM_THREADS": None}),
        RoleEdit(count=1),
    ],
)
def test_an_edit_to_what_the_stack_states_already_is_a_failed_build(edit: RoleEdit, setup: Setup) -> None:
    assert "changes nothing" in (build_stack(setup.hypothesis(edit)).failure or "")


PATH, FUNCTION = "pack/mod.py", "pack.mod:f"
OURS = Overlay({PATH: b"def f(): ...\n"}, counted=(FUNCTION,))
ALONE = Interval(
    observable="time_us", unit="%", workload="shape", estimate=-80, low=-82, high=-78, confidence=0.95, blocks=9, method="m"
)  # fmt: skip


def patching(setup: Setup) -> Hypothesis:
    change = CodePatch(package="pack", version="1", diff="d")
    return Hypothesis.model_validate(setup.hypothesis().model_dump() | {"change": change})


def engaged(setup: Setup, folder: Path, calls: int = 5, modules: dict[str, str] | None = None) -> None:
    """Both arms' processes, as they would tell; the arms run one stack."""
    own = {"pack.mod": OURS.digests[PATH]} if modules is None else modules
    for arm, seen in ((Arm.INCUMBENT, {"pack.mod": digest("as installed")}), (Arm.CANDIDATE, own)):
        setup.engines[arm].info = INFO[Arm.INCUMBENT]
        setup.witnesses[arm] = told(folder / arm, seen, {FUNCTION: (calls, 1000 * calls)})


def test_code_that_runs_in_the_candidate_alone_is_proved_and_its_gain_is_predicted_first(
    setup: Setup, tmp_path: Path
) -> None:
    engaged(setup, tmp_path)
    evidence = measure_service(patching(setup), recall=known_noise, code=Code(OURS, ALONE))
    assert [(p.arm, p.what, p.proved) for p in evidence.engagement] == [
        (Arm.CANDIDATE, f"server.code.{PATH}", True),
        (Arm.INCUMBENT, f"server.code.{PATH}", True),
        (Arm.CANDIDATE, f"server.calls.{FUNCTION}", True),
    ]
    assert evidence.predicted is not None
    assert evidence.predicted.alone_pct == (-82, -80, -78)
    assert len(requests_of(setup, Arm.INCUMBENT)) == len(requests_of(setup, Arm.CANDIDATE))
    assert any(file.path.endswith("predicted.json") for file in evidence.files)


def test_blocks_without_a_call_of_the_code_are_broken(setup: Setup, tmp_path: Path) -> None:
    """The counters of these fakes stand still, so the code ran before the traffic and never under it."""
    engaged(setup, tmp_path)
    evidence = measure_service(patching(setup), recall=known_noise, code=Code(OURS))
    judged = judge_service(evidence, load_criteria(setup.scenario, Scenario), True)
    assert judged.outcome is Outcome.BROKEN
    assert "no call" in judged.reason


def test_on_a_gpu_calls_of_a_block_say_nothing_and_predict_nothing(setup: Setup, tmp_path: Path) -> None:
    """A CUDA graph replays a kernel without a call, and a call takes the host as long as a launch does."""
    engaged(setup, tmp_path)
    setup.witnesses = {arm: replace(witness, device="cuda") for arm, witness in setup.witnesses.items()}
    evidence = measure_service(patching(setup), recall=known_noise, code=Code(OURS, ALONE))
    assert evidence.predicted is None
    assert set(values(evidence, "code_calls", Arm.CANDIDATE)) == {None}
    judged = judge_service(evidence, load_criteria(setup.scenario, Scenario), True)
    assert "no call" not in judged.reason


NOT_ENGAGED: dict[str, dict[str, object]] = {
    "is `not imported`": {"modules": {}},
    "should be `called`, is `never called`": {"calls": 0},
    "should be": {"modules": {"pack.mod": digest("another file")}},
}


@pytest.mark.parametrize("said", NOT_ENGAGED)
def test_code_that_was_laid_and_does_not_run_is_broken_before_any_traffic(
    said: str, setup: Setup, tmp_path: Path
) -> None:
    engaged(setup, tmp_path, **NOT_ENGAGED[said])  # type: ignore[arg-type]
    with pytest.raises(Broken, match=said):
        measure_service(patching(setup), recall=known_noise, code=Code(OURS))
    assert not any(engine.seen for engine in setup.engines.values())


def test_an_incumbent_that_runs_the_candidates_code_is_broken(setup: Setup, tmp_path: Path) -> None:
    engaged(setup, tmp_path)
    setup.witnesses[Arm.INCUMBENT] = setup.witnesses[Arm.CANDIDATE]
    with pytest.raises(Broken, match="no proof that the incumbent"):
        measure_service(patching(setup), recall=known_noise, code=Code(OURS))


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


def test_a_patch_that_does_not_fit_is_a_failed_build_with_the_reason(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service_code.engine", lambda: Engine(Path("python"), {"sglang": "0.5.23"}, "x"))
    monkeypatch.setattr("serving.overlay.installed_packages", list)
    hypothesis = patching(setup)
    assert isinstance(hypothesis.change, CodePatch)
    assert "no package `pack`" in (build_patch(hypothesis, hypothesis.change).failure or "")


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


@pytest.mark.parametrize("arm", list(Arm))
def test_a_role_that_is_killed_during_traffic_is_named_and_makes_the_run_broken(
    arm: Arm, setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.service.check_weights", lambda *_, **__: None)
    monkeypatch.setattr("tasks.service.check_stack", lambda _: [])
    monkeypatch.setattr("serving.arguments.router_arguments", lambda: {})
    setup.stack = stack_file(tmp_path)
    edit = StackEdit(roles={"decode": RoleEdit(environment={"OMP_NUM_THREADS": "2"})})
    started: dict[str, Server] = {}
    monkeypatch.setattr("tasks.service.check_breakers", lambda servers: started.update({s.name: s for s in servers}))

    def kill(*_: object) -> bool:
        (decode,) = (part for part in started[arm].parts if part.role == "decode")
        os.kill(decode.pid, signal.SIGKILL)
        return False

    with pytest.raises(EngineEnded, match="`decode` was ended from outside, by SIGKILL"):
        measure_service(setup.hypothesis().model_copy(update={"change": edit}), enough=kill, recall=known_noise)
    assert not any(part.process.alive() for server in started.values() for part in server.parts)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"roles": {"server": {"url": "http://127.0.0.1:31400"}}}, "attached by its `url`"),
        ({"api_key_variable": "STACK_KEY"}, "carry no key"),
    ],
)
def test_a_stack_that_is_attached_or_locked_cannot_be_compared(
    stated: dict[str, object], said: str, setup: Setup
) -> None:
    setup.stack.write_text(yaml.safe_dump(yaml.safe_load(setup.stack.read_text()) | stated))
    with pytest.raises(BadInput, match=said):
        measure_service(setup.hypothesis(RoleEdit(count=1)))
