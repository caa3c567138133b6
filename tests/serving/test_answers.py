"""Answers are scored token by token, on the ids that were streamed."""

import pytest
from fake_engine import FakeEngine, listening

from serving.answers import Scored, deficits, deficits_against, prompt_ids, score
from serving.errors import Broken
from serving.requests import Request


def test_a_token_that_is_not_the_likeliest_one_has_a_deficit_and_the_others_have_none() -> None:
    """The fake's model repeats the last token: 7 after 6 costs, and what follows is judged after the 7 that was given."""
    with listening(FakeEngine()) as engine:
        right = deficits(score(engine.base_url, (5, 6), (6, 6, 6)))
        wrong = deficits(score(engine.base_url, (5, 6), (6, 7, 7)))
    assert right == [0.0, 0.0, 0.0]
    assert wrong == [0.0, pytest.approx(0.07), 0.0]


def test_a_server_that_tells_no_likeliest_tokens_of_a_prompt_is_told_from_one_whose_numbers_are_missing() -> None:
    with listening(FakeEngine(tops=False)) as engine:
        scored = score(engine.base_url, (5, 6), (6, 6))
    assert scored.best is None
    assert scored.given == (-0.06, -0.06)


@pytest.mark.parametrize("told", [None, {}, {"meta_info": {"input_token_logprobs": [None, [-1.0]]}}, {"meta_info": []}])
def test_an_answer_without_a_number_for_each_token_is_broken(told: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.answers.generate", lambda *_, **__: told)
    with pytest.raises(Broken, match="no log-probabilities for 2 tokens"):
        score("http://a", (5, 6), (6, 6))


def test_a_number_that_is_missing_or_not_finite_gives_no_deficit() -> None:
    assert deficits(Scored((-1.0, None, float("-inf")), (-0.5, -0.5, -0.5))) == [0.5, None, None]
    assert deficits(Scored((-1.0,), (float("nan"),))) == [None]


def test_the_tokens_of_a_text_are_those_that_the_server_reads() -> None:
    with listening(FakeEngine()) as engine:
        assert prompt_ids(engine.base_url, Request("0-0", "prompts", 2, text="Hi")) == (72, 105)
    assert prompt_ids("http://nobody", Request("0-0", "chat", 2, (5, 6))) == (5, 6)


def test_a_server_that_does_not_say_what_it_reads_in_a_text_leaves_the_prompt_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("serving.answers.generate", lambda *_, **__: {"output_ids": [5]})
    assert prompt_ids("http://a", Request("0-0", "prompts", 2, text="Hi")) is None


def test_against_an_answer_of_its_own_a_server_counts_up_to_the_first_token_that_is_another() -> None:
    """What follows answers another question, and no number says what its right answer was."""
    own, other = Scored((-1.0, -1.0, -1.0), None), Scored((-1.0, -1.5, -9.0), None)
    assert deficits_against(own, other, (5, 7, 8), (5, 6, 8)) == [0.0, 0.5]
    assert deficits_against(own, own, (5, 6, 8), (5, 6, 8)) == [0.0] * 3
