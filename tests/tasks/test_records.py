"""Records: ids name what was asked, and combinations that make no sense cannot be built."""

import json
import random

import pytest
from examples import block, evidence, experiment, kernel_hypothesis
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from strategies import hypotheses

from tasks.records import (
    Arm,
    Block,
    Build,
    Evidence,
    Finding,
    Hypothesis,
    LocusKind,
    Outcome,
    Prediction,
    RoleEdit,
    Rung,
    Verdict,
    digest,
)


def shuffled(value: object, seed: int) -> object:
    """The same JSON with the keys of every mapping in another order."""
    if isinstance(value, dict):
        keys = list(value)
        random.Random(seed).shuffle(keys)
        return {key: shuffled(value[key], seed) for key in keys}
    return [shuffled(item, seed) for item in value] if isinstance(value, list) else value


@given(hypotheses(), st.integers())
def test_an_id_does_not_depend_on_the_order_of_fields(hypothesis: Hypothesis, seed: int) -> None:
    again = Hypothesis.model_validate(shuffled(hypothesis.model_dump(mode="json"), seed))
    assert again.id == hypothesis.id


@given(hypotheses())
def test_a_record_survives_a_round_trip_through_json(hypothesis: Hypothesis) -> None:
    assert Hypothesis.model_validate_json(hypothesis.model_dump_json()) == hypothesis


@given(hypotheses(), hypotheses())
def test_two_hypotheses_share_an_id_only_if_they_are_equal(one: Hypothesis, other: Hypothesis) -> None:
    assert (one.id == other.id) == (one.model_dump_json() == other.model_dump_json())


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(-1e6, 1e6))
def test_the_id_of_evidence_is_free_of_times_and_values(wall: float, started: float, value: float) -> None:
    plain = evidence(Rung.STATIC, block(Arm.CANDIDATE, "x", 1.0))
    other = evidence(Rung.STATIC, block(Arm.CANDIDATE, "x", value, started_s=started), wall_s=wall, device_s=wall)
    assert plain.id == other.id


@given(st.floats(0, 1e6), st.booleans())
def test_the_id_of_a_build_does_not_say_when_it_ran_or_whether_it_was_cached(wall: float, cached: bool) -> None:
    fields = {
        "hypothesis_id": digest("h"),
        "artifact": "a",
        "artifact_digest": digest("a"),
        "log": "",
        "environment": {"facts": {}},
    }
    assert Build(**fields, wall_s=1.0).id == Build(**fields, wall_s=wall, cached=cached).id


def test_a_digest_does_not_depend_on_key_order_or_on_text_against_bytes() -> None:
    assert digest({"a": 1, "b": 2}) == digest(json.loads('{"b": 2, "a": 1}'))
    assert digest("text") == digest(b"text")


IMPOSSIBLE = {
    "a value and a reason for its absence": lambda: Block(
        arm=Arm.CANDIDATE, observable="x", unit="1", workload="w", value=1.0, order=0, reason="none"
    ),
    "neither value nor reason": lambda: Block(
        arm=Arm.CANDIDATE, observable="x", unit="1", workload="w", value=None, order=0
    ),
    "a value that is no number": lambda: block(Arm.CANDIDATE, "x", float("nan")),
    "evidence of nothing": lambda: evidence(Rung.NUMERICS),
    "blocks of a rung that did not run": lambda: evidence(
        Rung.STATIC, block(Arm.CANDIDATE, "x", 1.0), not_run="no GPU"
    ),
    "a timing without a gate": lambda: evidence(Rung.MICROBENCH, block(Arm.CANDIDATE, "time_us", 1.0)),
    "PASSED without evidence": lambda: Verdict(hypothesis_id=digest("h"), outcome=Outcome.PASSED, reason="good"),
    "a verdict without a reason": lambda: Verdict(hypothesis_id=digest("h"), outcome=Outcome.REJECTED, reason=""),
    "a prediction without a size": lambda: Prediction(observable="x", direction="down", size=0, unit="%"),
    "a delta that is not the difference": lambda: Finding.model_validate(
        {"locus": {"kind": "kernel", "name": "k"}, "observable": "x", "unit": "1", "incumbent": 1, "candidate": 2,
         "delta": 2, "status": "measured", "implies": "y"}
    ),
    "a locus of an eighth kind": lambda: Finding.model_validate(
        {"locus": {"kind": "vibe", "name": "k"}, "observable": "x", "unit": "1", "incumbent": 1, "candidate": 2,
         "delta": 1, "status": "measured", "implies": "y"}
    ),
    "a stack edit of a kernel": lambda: kernel_hypothesis(
        change={"kind": "stack_edit", "roles": {"server": {"arguments": {"x": 1}}}}
    ),
    "an edit that changes nothing": lambda: kernel_hypothesis(change={"kind": "stack_edit", "roles": {"server": {}}}),
    "a key that nobody knows": lambda: kernel_hypothesis(colour="red"),
}  # fmt: skip


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_records_cannot_be_built(what: str) -> None:
    with pytest.raises(ValidationError):
        IMPOSSIBLE[what]()


def test_records_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        experiment().hypothesis.title = "another"  # type: ignore[misc]


def test_a_build_is_either_built_or_failed() -> None:
    fields = {"hypothesis_id": digest("h"), "artifact": "a", "log": "", "environment": {"facts": {}}, "wall_s": 1.0}
    for wrong in ({"artifact_digest": None}, {"artifact_digest": digest("a"), "failure": "no"}):
        with pytest.raises(ValidationError):
            Build(**fields, **wrong)


def test_evidence_that_says_not_run_needs_no_blocks() -> None:
    assert Evidence.model_validate_json(
        evidence(Rung.MICROBENCH, not_run="no GPU", engagement=()).model_dump_json()
    ).not_run


@pytest.mark.parametrize(
    "fields",
    [
        {"environment": {"A=B": "1"}},
        {"environment": {"A\0": "1"}},
        {"environment": {"1A": "1"}},
        {"environment": {"A": "\0"}},
        {"environment": {"A": "\ud800"}},
        {"arguments": {"dtype": "\0"}},
        {"arguments": {"\udfff": 1}},
    ],
)
def test_an_edit_that_no_process_can_be_given_is_no_record(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RoleEdit.model_validate(fields)


@pytest.mark.parametrize(
    ("incumbent", "candidate", "delta", "status"),
    [
        (3.0, 5.0, 2.0, "measured"),
        (None, 5.0, None, "measured"),
        (3.0, None, None, "measured"),
        (None, None, None, "unknown"),
    ],
)
def test_a_finding_at_a_locus_has_the_difference_of_the_arms_and_is_unknown_without_any_value(
    incumbent, candidate, delta, status
):
    found = Finding.at(LocusKind.KERNEL, "kda_decode", "median_us", "us", incumbent, candidate, "slower", "ask again")
    assert (found.locus.name, found.delta, found.status, found.next_test) == ("kda_decode", delta, status, "ask again")


def test_a_finding_that_is_inferred_says_so_whatever_its_values():
    assert Finding.at(LocusKind.KERNEL, "k", "x", "1", 1.0, 2.0, "y", status="inferred").status == "inferred"
