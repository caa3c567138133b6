"""What is said to SGLang, and what is made of what its streams say."""

import json

import pytest

from serving.protocol import CHAT, GENERATE, Answer, call_of, fault_of
from serving.requests import Request

ASKED = Request("0-0", "chat", 2, (5, 6, 7))


def event(**content: object) -> str:
    return f"data: {json.dumps(content)}"


def generated(tokens: int, **more: object) -> str:
    return event(text="x", meta_info={"completion_tokens": tokens, "prompt_tokens": 3, "cached_tokens": 1, **more})


def chat(content: str, usage: dict | None = None, finish: str | None = None) -> str:
    return event(choices=[{"index": 0, "delta": {"content": content}, "finish_reason": finish}], usage=usage)


def heard(*lines: str) -> Answer:
    answer = Answer()
    for second, line in enumerate(lines):
        answer.hear(line, float(second))
    return answer


def test_tokens_go_to_the_generate_endpoint_and_nothing_ends_the_answer_early() -> None:
    call = call_of(ASKED)
    assert call.path == GENERATE
    assert json.loads(call.body) == {
        "input_ids": [5, 6, 7],
        "sampling_params": {"max_new_tokens": 2, "temperature": 0, "ignore_eos": True},
        "stream": True,
    }
    assert json.loads(call_of(Request("0-0", "prompts", 2, text="Hi")).body)["text"] == "Hi"


def test_a_picture_goes_to_the_chat_endpoint_before_its_question() -> None:
    call = call_of(Request("0-0", "images", 2, text="what", image_uri="data:image/png;base64,AA=="))
    body = json.loads(call.body)
    assert call.path == CHAT
    assert [part["type"] for part in body["messages"][0]["content"]] == ["image_url", "text"]
    assert body["max_tokens"] == 2
    assert body["stream_options"]["include_usage"]


def test_an_event_counts_when_it_brings_a_token() -> None:
    answer = heard(generated(1), "", ": ping", generated(1), generated(2), "data: [DONE]")
    assert answer == Answer(event_times_s=[0.0, 4.0], tokens=2, prompt_tokens=3, cached_tokens=1, whole=True)
    assert fault_of(answer, ASKED) is None


def test_token_ids_are_kept_whether_events_repeat_the_answer_or_bring_what_is_new() -> None:
    def event_with(ids: object, tokens: int) -> str:
        return event(output_ids=ids, meta_info={"completion_tokens": tokens, "prompt_tokens": 3})

    repeated = heard(event_with([7], 1), event_with([7, 8], 2), event_with([7, 8, 9], 3))
    new = heard(event_with([7], 1), event_with([8, 9], 3), event_with([], 3))
    assert repeated.token_ids == new.token_ids == (7, 8, 9)
    assert heard(event_with(["x", 8], 2)).token_ids == heard(generated(2)).token_ids == ()


def test_running_counts_of_a_chat_tell_tokens_and_the_last_event_is_no_token() -> None:
    usage = {"prompt_tokens": 31, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    answer = heard(
        chat("", usage),
        chat("two at once", usage | {"completion_tokens": 3}, "length"),
        event(choices=[], usage=usage | {"completion_tokens": 3}),
        "data: [DONE]",
    )
    assert answer == Answer(event_times_s=[0.0, 1.0], tokens=3, prompt_tokens=31, cached_tokens=8, whole=True)


def test_without_running_counts_each_piece_of_text_is_a_token_until_the_sum_comes() -> None:
    usage = {"prompt_tokens": 31, "completion_tokens": 5}
    answer = heard(chat(""), chat("a"), chat("b", None, "length"), event(choices=[], usage=usage), "data: [DONE]")
    assert answer == Answer(event_times_s=[1.0, 2.0], tokens=5, prompt_tokens=31, whole=True)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "ended early, after 0 of 2"),
        ((generated(1),), "ended early, after 1 of 2"),
        ((generated(1), "data: [DONE]"), "1 tokens instead of 2"),
        ((generated(3), "data: [DONE]"), "3 tokens instead of 2"),
        ((generated(2, prompt_tokens=2), "data: [DONE]"), "read 2 prompt tokens, 3 were sent"),
        ((event(error={"message": "out of memory"}),), "server: out of memory"),
        ((generated(1, finish_reason={"type": "abort", "message": "too long"}),), "aborted it: too long"),
        ((chat("", None, "abort"),), "aborted it"),
        (("data: {nonsense",), "none of SGLang's"),
        (("data: [1, 2]",), "none of SGLang's"),
        (('data: {"meta_info": 3}',), "none of SGLang's"),
        (('data: {"choices": [{}]}',), "none of SGLang's"),
        ((event(choices=[], usage={"completion_tokens": 2}), "data: [DONE]"), "no event of the stream carried a token"),
    ],
)
def test_an_answer_that_is_not_what_was_asked_for_says_why(lines: tuple[str, ...], said: str) -> None:
    assert said in (fault_of(heard(*lines), ASKED) or "")
