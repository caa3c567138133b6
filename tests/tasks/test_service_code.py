"""A kernel becomes an overlay by its problem's template, and criteria judge each rung by the file that is for it."""

from pathlib import Path

import pytest
import yaml
from examples import block, build, evidence, experiment, kernel_hypothesis
from service_evidence import guard, pairs, service

from serving.errors import BadInput
from serving.home import REPOSITORY
from tasks.decide import decide
from tasks.hypothesis_file import load_hypothesis
from tasks.native import NativeSource
from tasks.plan import make_plan
from tasks.prediction_table import prediction_lines
from tasks.problem import load_problem
from tasks.records import Arm, Experiment, Outcome, Rung, ServiceGain
from tasks.rejudge import fits, load_any_criteria, rules_under
from tasks.rules import rules_of
from tasks.service_code import spliced
from tasks.service_share import alone

CPU = load_problem("kda_cpu")
SHIPPED = CPU.folder / "hypotheses" / "fused_cpp_service.yaml"
SCENARIO = REPOSITORY / "serving" / "scenarios" / "decode-cpu.yaml"


def test_a_template_in_python_is_installed_after_the_module_that_it_changes() -> None:
    splice = CPU.definition.splice
    assert splice is not None
    overlay = spliced(splice, "splice.py", CPU.folder, NativeSource(source="run = 1", library=b"\x7fELF"))
    assert set(overlay.files) == {"splice.py", "candidate.py", "candidate.cpp.so"}
    assert overlay.install == splice.replaces.rpartition(".")[0]
    assert overlay.counted == (f"{overlay.install}:fused_sigmoid_gating_delta_rule_update",)


def test_launch_options_reach_the_run_that_a_template_calls() -> None:
    splice = CPU.definition.splice
    assert splice is not None
    source = "def run(a, tile):\n    return a, tile\n"
    overlay = spliced(splice, "splice.py", CPU.folder, NativeSource(source=source, launch={"tile": 4}))
    names: dict[str, object] = {}
    exec(overlay.files["candidate.py"], names)
    assert names["run"](1) == (1, 4)  # type: ignore[operator]


@pytest.mark.engine
def test_a_template_that_is_a_patch_takes_the_kernel_beside_the_file_that_it_changes() -> None:
    problem = load_problem("kda_decode")
    splice = problem.definition.splice
    assert splice is not None
    overlay = spliced(splice, "splice.patch", problem.folder, NativeSource(source="def run(): ..."))
    changed, beside = overlay.files
    assert changed.endswith("/kda_triton.py")
    assert beside == changed.replace("kda_triton.py", "infra_agent_candidate.py")
    assert any(name.endswith(":TritonKDAKernel.packed_decode") for name in overlay.counted)


def written(tmp_path: Path, **changes: object) -> Path:
    file = yaml.safe_load(SHIPPED.read_text())
    for key in ("stack", "scenario"):
        file["target"][key] = str((SHIPPED.parent / file["target"][key]).resolve())
    file["change"]["source"] = str(CPU.folder / "fused_cpp.py")
    file["target"] = {k: v for k, v in (file["target"] | changes).items() if v is not None}
    path = tmp_path / "hypothesis.yaml"
    path.write_text(yaml.safe_dump(file))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"timing": "huge"}, "`huge` is no timing"),
        ({"stack": None}, "together"),
        ({"stack": None, "scenario": None}, "together"),
        ({"problem": "cache_quant"}, "does not say how a kernel reaches the engine|no timing"),
    ],
)
def test_a_kernel_is_tried_in_a_service_only_with_all_that_it_takes(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=said):
        load_hypothesis(written(tmp_path, **changes))


def test_the_shipped_hypothesis_goes_from_numerics_by_the_microbench_to_the_service() -> None:
    plan = make_plan(load_hypothesis(SHIPPED))
    assert [step.rung for step in plan.steps] == [Rung.NUMERICS, Rung.MICROBENCH, Rung.SERVICE]
    assert "log-probabilities" in plan.left_out[Rung.ENGINE]


def climbed(change_pct: float = -85.0, predicted: ServiceGain | None = None) -> Experiment:
    """The shipped hypothesis with evidence of every rung."""
    asked = load_hypothesis(SHIPPED)
    plan = make_plan(asked)
    view = Experiment(hypothesis_id=asked.id, attempt="20260101T000000Z-aaaaaa", hypothesis=asked, plan=plan)
    right = evidence(Rung.NUMERICS, *(block(arm, "out_rel_error", 1e-8, workload="default_fp32") for arm in Arm))
    timed = [
        block(arm, "time_us", 100.0 * (1 if arm is Arm.INCUMBENT else 1 + change_pct / 100) * (1 + pair % 3 / 100),
              workload=workload, order=2 * pair + place)
        for workload in ("glm_b1", "production mix") for pair in range(12) for place, arm in enumerate(Arm)
    ]  # fmt: skip
    bench = evidence(Rung.MICROBENCH, *timed, gate=right.id)
    scenario = rules_of(view)[Rung.SERVICE]
    primary = str(scenario.cite("primary").value)
    blocks = [
        one.model_copy(update={"workload": "decode-cpu"}) if one.workload == "mixed-lengths-cpu" else one
        for one in guard() + pairs({primary: -30.0, "e2e_mean_ms": -30.0, "ttft_mean_ms": 0.0})
    ]
    served = service(blocks, predicted=predicted, noise=None)
    for record in (build(asked), right, bench, served):
        view = view.with_record(record)
    return view


PREDICTED = ServiceGain(
    observable="e2e_mean_ms", estimate_pct=-30, low_pct=-32, high_pct=-28, timing="glm_b1",
    alone_pct=(-86, -85, -84), share_pct=(34, 35, 36),
)  # fmt: skip


def test_each_rung_is_judged_by_the_file_that_is_for_it() -> None:
    verdict = decide(climbed(), rules_of(climbed()))
    assert verdict is not None
    assert verdict.outcome is Outcome.PASSED, verdict.reason
    assert verdict.decided_by is not None
    assert verdict.decided_by.file.endswith("decode-cpu.yaml")


def test_a_kernel_that_is_not_faster_by_itself_never_reaches_the_service() -> None:
    verdict = decide(climbed(change_pct=20.0), rules_of(climbed()))
    assert verdict is not None
    assert verdict.outcome is Outcome.REJECTED
    assert verdict.reason.startswith("microbench: slower")


def test_other_criteria_replace_those_of_their_kind_alone() -> None:
    view = climbed()
    scenario, kernel = (load_any_criteria(path) for path in (SCENARIO, CPU.folder / "criteria.yaml"))
    assert fits(view, scenario)
    assert fits(view, kernel)
    assert not fits(experiment(kernel_hypothesis()), scenario)
    for given in (scenario, kernel):
        rules = rules_under(view, given)
        assert isinstance(rules, dict)
        assert rules == rules_of(view)


def test_the_gain_by_itself_is_taken_at_the_shape_that_the_service_has() -> None:
    found = alone(climbed())
    assert found is not None
    assert found.workload == "glm_b1"
    assert found.estimate == pytest.approx(-85, abs=1)


@pytest.mark.parametrize(("estimate", "words"), [(-30.0, "they agree"), (-2.0, "a miss")])
def test_a_prediction_of_the_service_is_held_against_it_in_one_table_and_a_finding(estimate: float, words: str) -> None:
    said = PREDICTED.model_copy(update={"estimate_pct": estimate, "low_pct": estimate - 1, "high_pct": estimate + 1})
    view = climbed(predicted=said)
    verdict = decide(view, rules_of(view))
    assert verdict is not None
    (found,) = [finding for finding in verdict.findings if finding.locus.name == "service prediction"]
    assert words in found.implies
    text = "\n".join(prediction_lines(view.with_record(verdict)))
    assert ("agree" in text) == (words == "they agree")
    for figure in ("glm_b1", "-85.0", "+35.0", f"{estimate:+.1f}", "measured"):
        assert figure in text


def test_without_a_prediction_there_is_no_table() -> None:
    assert prediction_lines(climbed()) == []
