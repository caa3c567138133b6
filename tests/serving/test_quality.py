"""The guard compares what two servers compute, on the same token ids."""

import pytest

from serving import quality
from serving.errors import Broken
from serving.scenario import Guard
from serving.sources import Span


def test_the_guard_compares_token_ids_and_never_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding and encoding again would make mismatches that no server made (V18)."""
    bodies: list[dict[str, object]] = []

    class Answer:
        def __init__(self, body: dict[str, object]) -> None:
            self.body = body

        def raise_for_status(self) -> "Answer":
            return self

        def json(self) -> dict[str, object]:
            ids = self.body["input_ids"]
            assert isinstance(ids, list)
            logprobs = [[None, 0, None], *([-1.0, token, None] for token in ids[1:])]
            told = {"input_token_logprobs": logprobs, "output_token_logprobs": logprobs[-2:]}
            return {"output_ids": [5, 6], "text": "not looked at", "meta_info": told}

    def post(url: str, *, json: dict[str, object], **_: object) -> Answer:
        bodies.append(json)
        return Answer(json)

    monkeypatch.setattr("serving.quality.httpx.post", post)
    guard = Guard(prompt_tokens=(4,), greedy_tokens=2, greatest_logprob_drift=0.1)
    (found,) = quality.probe("http://a", "http://b", guard, Span(low=10, high=20), seed=1)
    assert all("text" not in body for body in bodies)
    forced = [body["input_ids"] for body in bodies if "logprob_start_len" in body]
    assert len(forced) == 4  # twice of each: none is warmer, or has more in its cache
    assert all(ids == forced[0] and ids[-2:] == [5, 6] for ids in forced)  # type: ignore[index]
    assert (found.floor, found.drift, found.greedy_mismatches) == (0.0, 0.0, 0)


def test_a_candidate_that_is_right_the_first_time_and_wrong_the_second_drifts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def logprobs(url: str, tokens: list[int]) -> list[float | None]:
        asked.append(url)
        return [-1.5 if url == "http://b" and asked.count(url) == 2 else -1.0 for _ in tokens]

    monkeypatch.setattr("serving.quality._greedy", lambda *_: quality.Decoded((5, 6), (-1.0, -1.0)))
    monkeypatch.setattr("serving.quality._logprobs", logprobs)
    guard = Guard(prompt_tokens=(4,), greedy_tokens=2, greatest_logprob_drift=0.1)
    (found,) = quality.probe("http://a", "http://b", guard, Span(low=10, high=20), seed=1)
    assert (found.floor, found.drift) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("tokens", "logprobs", "largest"),
    [((1, 2, 3), (-1.0, -1.0, -1.0), 0.0), ((1, 9, 9), (-1.0, -1.5, -9.0), 0.5), ((9, 2, 3), (None, -1.0, -1.0), None)],
)
def test_decode_steps_are_compared_up_to_the_first_with_another_token(
    tokens: tuple[int, ...], logprobs: tuple[float | None, ...], largest: float | None
) -> None:
    """A kernel that only decode calls would otherwise compute anything without being seen."""
    ours = quality.Decoded((1, 2, 3), (-1.0, -1.0, -1.0))
    assert quality.decode_difference(ours, quality.Decoded(tokens, logprobs)) == largest


@pytest.mark.parametrize(
    ("first", "second", "largest"),
    [
        ([-1.0, -2.0], [-1.0, -2.5], 0.5),
        ([], [], None),
        ([-1.0], [-1.0, -2.0], None),
        ([-1.0], [None], None),
        ([-1.0], [float("nan")], None),
    ],
)
def test_a_difference_that_cannot_be_known_is_none(
    first: list[float | None], second: list[float | None], largest: float | None
) -> None:
    assert quality.largest_difference(first, second) == largest


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {"output_ids": None},
        {"output_ids": [5], "meta_info": {"output_token_logprobs": [[-1.0, 5, None]]}},
        {"output_ids": [5, 6], "meta_info": {"output_token_logprobs": None}},
        {"output_ids": [5, 6], "meta_info": {"output_token_logprobs": [[-1.0], []]}},
        {"output_ids": [5, 6], "meta_info": {"output_token_logprobs": [["x"], [-1.0]]}},
    ],
)
def test_an_answer_without_the_tokens_or_their_numbers_is_the_fault_of_who_gave_it(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"output_token_logprobs": [[-1.0, 5, None], [-2.0, 6, None]], "input_token_logprobs": [[None], [-1.0]]}
    sound = {"output_ids": [5, 6], "meta_info": whole}
    guard = Guard(prompt_tokens=(4,), greedy_tokens=2, greatest_logprob_drift=0.1)

    def probed(bad: str) -> quality.Probe:
        monkeypatch.setattr(quality, "generate", lambda url, *_, **__: answer if url == bad else sound)
        (found,) = quality.probe("http://a", "http://b", guard, Span(low=10, high=20), seed=1)
        return found

    assert probed("nobody").drift == 0.0
    assert (probed("http://b").drift, "candidate" in str(probed("http://b").reason)) == (None, True)
    with pytest.raises(Broken, match="the incumbent gives no 2 tokens"):
        probed("http://a")
