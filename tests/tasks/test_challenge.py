"""What is not worth a build is refused with a reason, and nothing else is."""

from pathlib import Path

import pytest
from examples import PREDICTIONS, kernel_hypothesis

from serving.errors import BadInput
from serving.home import REPOSITORY
from tasks.challenge import challenge
from tasks.hypothesis_file import load_hypothesis
from tasks.past import Asked, Past
from tasks.problem import load_problem
from tasks.records import (
    Hypothesis,
    KernelCandidate,
    KernelTarget,
    Prediction,
    Question,
    RefusedFor,
    digest,
)

CATALOGUE = sorted([*REPOSITORY.glob("kernels/*/hypotheses/*.yaml"), *REPOSITORY.glob("serving/hypotheses/*.yaml")])
INCUMBENT = load_problem("kda_decode").incumbent.source
OTHER = INCUMBENT.replace("tl.sqrt", "tl.sqrt_rn")
EMPTY = Past()


def asks(
    source: str = OTHER, problem: str = "kda_decode", launch: dict[str, object] | None = None, **changes: object
) -> Hypothesis:
    target = KernelTarget(problem=problem, incumbent_digest=digest(load_problem(problem).incumbent.source))
    change = KernelCandidate.model_validate({"source_name": "a.py", "source": source, "launch": launch or {}})
    question = changes.pop("question", Question.LESS_WORK)
    return kernel_hypothesis(question, **{"target": target, "change": change, "origin": "model"} | changes)  # type: ignore[arg-type]


def reason(hypothesis: Hypothesis, past: Past = EMPTY) -> RefusedFor | None:
    refusal = challenge(hypothesis, past)
    return refusal.reason if refusal else None


@pytest.mark.parametrize("path", CATALOGUE, ids=lambda p: f"{p.parent.parent.name}/{p.stem}")
def test_no_hypothesis_of_the_catalogue_is_refused(path: Path) -> None:
    assert challenge(load_hypothesis(path), EMPTY) is None


def test_none_of_the_catalogue_is_taken_for_another() -> None:
    past = EMPTY
    for path in CATALOGUE:
        asked = load_hypothesis(path)
        assert challenge(asked, past) is None, path
        past = past.with_accepted(asked.model_copy(update={"title": f"again: {asked.title}"}))
        refusal = challenge(asked, past)
        assert refusal is not None
        assert refusal.reason is RefusedFor.DUPLICATE


def test_a_duplicate_is_refused_with_the_id_of_the_earlier_one_and_how_it_ended() -> None:
    earlier = asks(title="earlier")
    refusal = challenge(
        asks(OTHER.replace("query", "q1") + "\n# new\n", launch={"BV": 32}), EMPTY.with_accepted(earlier)
    )
    assert refusal is not None
    assert refusal.reason is RefusedFor.DUPLICATE
    assert earlier.id[:12] in refusal.says
    assert "accepted a moment ago" in refusal.says
    assert "ledger show" not in refusal.hint, "it is not in the ledger yet"
    settled = Past(settled=(Asked(hypothesis=earlier, says="REJECTED: more work"),))
    refusal = challenge(asks(), settled)
    assert refusal is not None
    assert "REJECTED: more work" in refusal.says
    assert f"ledger show {earlier.id[:12]}" in refusal.hint


@pytest.mark.parametrize(
    "near",
    [
        {"launch": {"BV": 16}},
        {"source": OTHER.replace("1e-6", "1e-5")},
        {"question": Question.SAME_RESULTS},
        {"question": Question.FASTER_KERNEL},
    ],
    ids=str,
)
def test_another_option_constant_or_question_is_no_duplicate(near: dict[str, object]) -> None:
    assert reason(asks(**near), EMPTY.with_accepted(asks())) is None  # type: ignore[arg-type]


def test_the_same_change_of_another_incumbent_is_no_duplicate() -> None:
    old = asks()
    old = old.model_copy(update={"target": old.target.model_copy(update={"incumbent_digest": digest("old")})})
    assert reason(asks(), EMPTY.with_accepted(old)) is None


def test_a_form_of_the_incumbent_that_is_spelled_out_is_the_same_target() -> None:
    past = EMPTY.with_accepted(asks())
    spelled, other = (asks(title=str(bv)) for bv in (32, 16))
    for asked, bv in ((spelled, 32), (other, 16)):
        target = asked.target.model_copy(update={"incumbent_launch": {"BV": bv}})
        expected = RefusedFor.DUPLICATE if bv == 32 else None
        assert reason(asked.model_copy(update={"target": target}), past) is expected


@pytest.mark.parametrize(
    ("origin", "expected"), [("person", None), ("catalogue", None), ("model", RefusedFor.DUPLICATE)]
)
def test_a_person_may_ask_the_very_same_again_and_a_model_may_not(origin: str, expected: RefusedFor | None) -> None:
    asked = asks(origin=origin)
    assert reason(asked, EMPTY.with_accepted(asked)) is expected


def test_a_person_who_spells_it_another_way_asks_a_duplicate() -> None:
    past = EMPTY.with_accepted(asks(origin="person"))
    assert reason(asks(OTHER + "# again\n", origin="person"), past) is RefusedFor.DUPLICATE


@pytest.mark.parametrize(
    ("source", "launch", "expected"),
    [
        (INCUMBENT, {}, RefusedFor.NO_CHANGE),
        (INCUMBENT, {"BV": 32, "num_warps": 1}, RefusedFor.NO_CHANGE),
        (INCUMBENT.replace("memory", "cell"), {}, RefusedFor.ONLY_RENAMES),
        (INCUMBENT + "\n# faster\n", {}, RefusedFor.ONLY_RENAMES),
        (INCUMBENT.replace("BV=32", "BV=16"), {"BV": 32}, RefusedFor.ONLY_RENAMES),
        (INCUMBENT, {"BV": 16}, None),
        (INCUMBENT.replace("BV=32", "BV=16"), {}, None),
        ("def run(:", {}, None),
    ],
)
def test_a_candidate_that_is_the_incumbent_is_refused(
    source: str, launch: dict[str, object], expected: RefusedFor | None
) -> None:
    """A source that is no Python is for the build to judge."""
    assert reason(asks(source, launch=launch)) is expected


def test_the_default_of_a_tunable_axis_is_no_change() -> None:
    source = load_problem("kda_replay_decode").incumbent.source
    assert reason(asks(source, problem="kda_replay_decode", launch={"L": 16})) is RefusedFor.NO_CHANGE
    assert reason(asks(source, problem="kda_replay_decode", launch={"L": 8})) is None
    assert reason(asks(source, problem="kda_replay_decode", launch={"L": 0})) is RefusedFor.UNKNOWN_ARGUMENT


def test_an_option_that_run_does_not_take_is_refused_with_those_that_it_takes() -> None:
    refusal = challenge(asks(launch={"BLOCK": 16}), EMPTY)
    assert refusal is not None
    assert refusal.reason is RefusedFor.UNKNOWN_ARGUMENT
    assert "`BLOCK`" in refusal.says
    assert "`BV`, `num_stages`, `num_warps`" in refusal.hint
    assert reason(asks("def run(*args, **options): ...", launch={"BLOCK": 16})) is None


@pytest.mark.parametrize("name", ["../reference.py", "/etc/a.py", "a/b.py", "..", "a\\b.py"])
def test_a_candidate_in_another_place_than_its_own_file_is_refused(name: str) -> None:
    asked = asks()
    assert (
        reason(asked.model_copy(update={"change": asked.change.model_copy(update={"source_name": name})}))
        is RefusedFor.FORBIDDEN_FILE
    )


@pytest.mark.parametrize(
    ("question", "problem", "expected"),
    [
        (Question.MORE_OVERLAP, "kda_decode", RefusedFor.WRONG_QUESTION),
        (Question.FEWER_BYTES, "w8a8_linear", RefusedFor.WRONG_QUESTION),
        (Question.FEWER_BYTES, "kda_decode", None),
        (Question.BETTER_SERVICE, "kda_state_chain", RefusedFor.WRONG_QUESTION),
        (Question.SOUND_ENGINE, "kda_state_chain", RefusedFor.WRONG_QUESTION),
        (Question.BETTER_SERVICE, "kda_decode", None),
        (Question.FASTER_KERNEL, "kda_state_chain", None),
    ],
)
def test_a_question_that_the_change_cannot_answer_is_refused(
    question: Question, problem: str, expected: RefusedFor | None
) -> None:
    assert reason(asks(problem=problem, question=question)) is expected


def test_less_work_of_a_kernel_that_runs_on_cpu_is_a_wrong_question() -> None:
    asked = asks(problem="kda_cpu")
    on_cpu = asked.model_copy(update={"target": asked.target.model_copy(update={"runs_on": "cpu"})})
    assert reason(on_cpu) is RefusedFor.WRONG_QUESTION


def predicts(observable: str, direction: str, size: float, unit: str) -> Prediction:
    return Prediction.model_validate({"observable": observable, "direction": direction, "size": size, "unit": unit})


@pytest.mark.parametrize(
    ("question", "prediction", "fine"),
    [
        (Question.LESS_WORK, predicts("warp_instructions", "down", 5, "%"), True),
        (Question.LESS_WORK, predicts("mufu", "down", 128, "1"), True),
        (Question.LESS_WORK, predicts("warp_instructions", "same", 0, "%"), False),
        (Question.LESS_WORK, predicts("warp_instructions", "down", 150, "%"), False),
        (Question.LESS_WORK, predicts("warp_instructions", "up", 150, "%"), True),
        (Question.LESS_WORK, predicts("time_us", "down", 5, "%"), False),
        (Question.LESS_WORK, predicts("warp_instructions", "down", 5, "ms"), False),
        (Question.FEWER_BYTES, predicts("unique_bytes", "down", 4096, "bytes"), True),
        (Question.FEWER_BYTES, predicts("out_rel_error", "down", 1, "%"), False),
        (Question.SAME_RESULTS, predicts("out_rel_error", "same", 0, "1"), True),
        (Question.SAME_RESULTS, predicts("state_rel_error", "same", 0, "1"), True),
        (Question.SAME_RESULTS, predicts("differing_elements", "same", 0, "1"), True),
        (Question.SAME_RESULTS, predicts("beauty_rel_error", "same", 0, "1"), False),
        (Question.FASTER_KERNEL, predicts("time_us", "down", 2, "us"), True),
        (Question.FASTER_KERNEL, predicts("tokens_per_s", "up", 2, "%"), False),
        (Question.BETTER_SERVICE, predicts("output_tokens_per_s", "up", 300, "%"), True),
        (Question.BETTER_SERVICE, predicts("ttft_mean_ms", "down", 300, "ms"), True),
        (Question.SOUND_ENGINE, predicts("anything", "same", 0, "1"), True),
    ],
    ids=str,
)
def test_a_prediction_is_of_what_is_observed_with_a_size(
    question: Question, prediction: Prediction, fine: bool
) -> None:
    assert reason(asks(question=question, prediction=prediction)) is (None if fine else RefusedFor.EMPTY_PREDICTION)


@pytest.mark.parametrize(
    ("mechanism", "fine"),
    [
        ("It is faster.", False),
        ("Hoist the gate!", False),
        ("hoist the gate, so the kernel gets much faster and performance improves", False),
        ("MUFU falls to a quarter", True),
        ("Six operators less in a call.", True),
        ("no SHFL left", True),
    ],
)
def test_a_mechanism_says_more_than_the_title_and_praise(mechanism: str, fine: bool) -> None:
    asked = asks(title="hoist the gate", mechanism=mechanism)
    assert reason(asked) is (None if fine else RefusedFor.EMPTY_MECHANISM)


def test_a_target_that_does_not_exist_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no_such_problem"):
        challenge(
            kernel_hypothesis(target=KernelTarget(problem="no_such_problem", incumbent_digest=digest("x"))), EMPTY
        )


def test_what_every_rung_observes_can_be_predicted() -> None:
    for question, prediction in PREDICTIONS.items():
        assert reason(asks(question=question, prediction=prediction)) is None
