"""The planner picks the cheapest rung that answers the question, and the gates before it."""

import pytest
from examples import kernel_hypothesis, stack_hypothesis
from hypothesis import given
from strategies import hypotheses

from serving.errors import BadInput
from tasks.plan import ANSWERS, COST, make_plan, stage_pools, stage_steps
from tasks.records import Hypothesis, Question, Rung


@pytest.mark.parametrize(
    ("question", "rungs"),
    [
        (Question.SAME_RESULTS, ["numerics"]),
        (Question.LESS_WORK, ["numerics", "static"]),
        (Question.FEWER_BYTES, ["numerics"]),
        (Question.FASTER_KERNEL, ["numerics", "static", "microbench"]),
        (Question.SOUND_ENGINE, ["numerics", "static", "engine"]),
        (Question.BETTER_SERVICE, ["numerics", "static", "microbench", "engine", "service"]),
    ],
)
def test_changing_only_the_question_changes_the_rungs_of_a_kernel(question: Question, rungs: list[str]) -> None:
    assert [step.rung for step in make_plan(kernel_hypothesis(question)).steps] == rungs


def on_cpu(question: Question) -> Hypothesis:
    asked = kernel_hypothesis(question)
    return asked.model_copy(update={"target": asked.target.model_copy(update={"runs_on": "cpu"})})


@pytest.mark.parametrize(
    ("question", "rungs"),
    [(Question.SAME_RESULTS, ["numerics"]), (Question.FASTER_KERNEL, ["numerics", "microbench"])],
)
def test_a_kernel_that_runs_on_cpu_is_timed_there_and_static_says_nothing(question: Question, rungs: list[str]) -> None:
    plan = make_plan(on_cpu(question))
    assert [(step.rung, step.pool) for step in plan.steps] == [(rung, "cpu-build") for rung in rungs]
    assert "runs on CPU" in plan.left_out[Rung.STATIC]


@pytest.mark.parametrize("question", [Question.LESS_WORK, Question.FEWER_BYTES])
def test_what_a_compiler_counts_cannot_be_asked_of_a_kernel_that_runs_on_cpu(question: Question) -> None:
    with pytest.raises(BadInput, match="runs on CPU") as refused:
        make_plan(on_cpu(question))
    assert "faster kernel" in refused.value.hint


def test_a_stack_edit_goes_straight_to_the_rung_that_answers() -> None:
    assert [step.rung for step in make_plan(stack_hypothesis()).steps] == ["service"]


def test_a_question_that_no_rung_answers_for_this_change_names_those_that_can_be_asked() -> None:
    with pytest.raises(BadInput) as refused:
        make_plan(stack_hypothesis(Question.LESS_WORK))
    assert "less emitted work" in refused.value.message
    assert "better service" in refused.value.hint


@given(hypotheses())
def test_every_plan_ends_with_the_rung_that_answers_and_gives_a_reason_for_all_six(hypothesis: Hypothesis) -> None:
    rung, kinds, _ = ANSWERS[hypothesis.question]
    if hypothesis.change.kind not in kinds:
        with pytest.raises(BadInput):
            make_plan(hypothesis)
        return
    plan = make_plan(hypothesis)
    assert plan.steps[-1].rung == rung
    assert [step.purpose for step in plan.steps].count("answer") == 1
    assert {step.rung for step in plan.steps} | set(plan.left_out) == set(Rung)
    assert all(step.why for step in plan.steps)
    assert all(plan.left_out.values())
    staged = [step for stage in ("microbench", "validate", "deploy") for step in stage_steps(plan, stage)]
    assert tuple(staged) == plan.steps, "the stages run the plan's steps in the plan's order"


@pytest.mark.parametrize("upto", list(Rung))
def test_upto_leaves_out_every_dearer_rung_and_says_so(upto: Rung) -> None:
    plan = make_plan(kernel_hypothesis(Question.FASTER_KERNEL), upto=upto)
    assert all(COST.index(step.rung) <= COST.index(upto) for step in plan.steps)
    assert any("--upto" in why for why in plan.left_out.values()) == (COST.index(upto) < COST.index(Rung.MICROBENCH))


def test_the_plan_is_the_same_for_the_same_question_whatever_the_names() -> None:
    one, other = make_plan(kernel_hypothesis()), make_plan(kernel_hypothesis(title="another", rationale="other"))
    assert one.steps == other.steps


def test_a_stage_is_split_by_pool_in_the_plan_s_order() -> None:
    plan = make_plan(kernel_hypothesis(Question.BETTER_SERVICE))
    visited = {stage: stage_pools(plan, stage) for stage in ("build", "microbench", "validate", "deploy")}
    assert visited == {
        "build": ("cpu-build",),
        "microbench": ("cpu-build", "gpu-microbench"),
        "validate": ("gpu-validation",),
        "deploy": ("gpu-deployment",),
    }
    assert stage_pools(make_plan(stack_hypothesis()), "microbench") == ()


@given(hypotheses())
def test_the_parts_of_a_stage_run_the_steps_of_the_whole_stage(hypothesis: Hypothesis) -> None:
    if hypothesis.change.kind not in ANSWERS[hypothesis.question][1]:
        return
    plan = make_plan(hypothesis)
    for stage in ("microbench", "validate", "deploy"):
        steps = stage_steps(plan, stage)
        parts = [step for pool in stage_pools(plan, stage) for step in steps if step.pool == pool]
        assert tuple(parts) == steps
