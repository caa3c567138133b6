"""Responses are read without trust: streamed and whole ones alike, and nonsense gives an answer that is not complete."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_model import events

from tasks.answer import Answer, read_answer

MESSAGE: dict[str, Any] = {
    "type": "message",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "Here they are."},
        {"type": "tool_use", "id": "t", "name": "propose", "input": {"proposals": [{"title": "é"}]}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 90, "cache_read_input_tokens": 10, "output_tokens": 20},
}
STREAMABLE = {**MESSAGE, "content": MESSAGE["content"][1:]}


def streamed(message: dict[str, Any], most: int | None = None) -> bytes:
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events(message)[:most]).encode()


def test_a_streamed_message_and_a_whole_one_say_the_same() -> None:
    whole, parts = read_answer(json.dumps(STREAMABLE).encode()), read_answer(streamed(STREAMABLE))
    assert whole == parts
    assert whole.complete
    assert (whole.input_tokens, whole.output_tokens) == (100, 20)
    assert whole.calls[0].arguments == {"proposals": [{"title": "é"}]}
    assert whole.text == "Here they are."


def test_what_a_model_thinks_is_no_answer() -> None:
    assert read_answer(json.dumps(MESSAGE).encode()).text == "Here they are."


@pytest.mark.parametrize("most", range(len(events(STREAMABLE))))
def test_a_stream_that_breaks_off_anywhere_is_not_complete_and_keeps_its_usage(most: int) -> None:
    answer = read_answer(streamed(STREAMABLE, most))
    assert not answer.complete
    assert answer.input_tokens == (100 if most else None)


def test_an_error_in_a_stream_is_the_fault_even_if_an_end_follows() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "busy\nnow"}}
    answer = read_answer(streamed(STREAMABLE) + f"data: {json.dumps(error)}\n\n".encode())
    assert answer.fault == "overloaded_error: busy now"
    assert not answer.complete


NO_MESSAGES = (
    b"", b"<html>busy</html>", b"{", b"{}", b"[]", b'{"type": "error"}', b"data: nonsense\n\n", b"\xff\xfe", b"data: [1]",
)  # fmt: skip


@pytest.mark.parametrize("body", NO_MESSAGES)
def test_what_is_no_message_is_not_complete(body: bytes) -> None:
    assert not read_answer(body).complete


@pytest.mark.parametrize(
    "usage",
    [None, {}, [], "many", {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": -1, "output_tokens": -1},
     {"input_tokens": "9", "output_tokens": 1.5}, {"input_tokens": True, "output_tokens": None}],
)  # fmt: skip
def test_a_usage_that_is_none_is_unknown(usage: object) -> None:
    for body in (json.dumps({**STREAMABLE, "usage": usage}).encode(), streamed({**STREAMABLE, "usage": usage})):
        answer = read_answer(body)
        assert answer.complete
        assert (answer.input_tokens, answer.output_tokens) == (None, None)


def test_arguments_that_are_no_json_are_none() -> None:
    cut = json.dumps(events(STREAMABLE)[-4]).replace("partial_json", "other")
    answer = read_answer(streamed(STREAMABLE).replace(json.dumps(events(STREAMABLE)[-4]).encode(), cut.encode()))
    assert answer.calls[0].arguments is None


@pytest.mark.parametrize("depth", [200, 300, 1000, 100_000])
def test_arguments_nested_without_end_are_no_json(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    whole = json.dumps({**STREAMABLE, "content": [{"type": "tool_use", "name": "propose", "input": "DEEP"}]}).replace(
        '"DEEP"', nested
    )
    delta = {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": nested}}
    cut = streamed({**STREAMABLE, "content": [{"type": "tool_use", "name": "propose", "input": {}}]}, 3)
    for body in (whole.encode(), cut + f"data: {json.dumps(delta)}\n\n".encode()):
        answer = read_answer(body)
        assert answer.model_dump_json()
        assert depth < 250 or not any(isinstance(call.arguments, list) for call in answer.calls)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_without_end_are_left_to_whoever_reads_the_arguments(number: str) -> None:
    message = {**STREAMABLE, "content": [{"type": "tool_use", "name": "propose", "input": {"size": "SIZE"}}]}
    whole = json.dumps(message).replace('"SIZE"', number).encode()
    parts = streamed(message).replace(b'\\"SI', number.encode()).replace(b'ZE\\"', b"")
    for body in (whole, parts):
        (call,) = read_answer(body).calls
        assert not math.isfinite(call.arguments["size"])


def test_only_line_feeds_and_returns_end_a_line_of_events() -> None:
    content = [{"type": "text", "text": "a\u2028b\x85c\x0bd"}]
    told = "".join(
        f"data: {json.dumps(e, ensure_ascii=False)}\r\n\r\n" for e in events({**MESSAGE, "content": content})
    )
    assert read_answer(told.encode()).text == "a\u2028b\x85c\x0bd"


def test_arguments_may_come_in_one_piece_with_the_start_of_their_block() -> None:
    start, *rest = events({**STREAMABLE, "content": []})
    block = {"type": "content_block_start", "index": 0, "content_block": STREAMABLE["content"][1]}
    told = "".join(f"data: {json.dumps(e)}\n\n" for e in (start, block, *rest)).encode()
    assert read_answer(told).calls[0].arguments == {"proposals": [{"title": "é"}]}


def test_half_a_character_comes_no_further() -> None:
    text = json.dumps({**STREAMABLE, "content": [{"type": "text", "text": "HALF"}]}).replace("HALF", "\\ud800")
    assert read_answer(text.encode()).text == ""
    assert not read_answer(text.encode()).complete


@given(st.binary(max_size=300))
def test_any_bytes_give_an_answer(body: bytes) -> None:
    assert isinstance(read_answer(b"data: " + body), Answer)
    assert isinstance(read_answer(b"{" + body), Answer)


NAMES = ("content", "usage", "message", "delta", "index", "content_block", "stop_reason", "model", "input", "text")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.sampled_from(NAMES), x, max_size=4),
    max_leaves=12,
)
KINDS = (
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "error",
    "message",
)


@given(st.lists(st.tuples(st.sampled_from(KINDS), JSON), max_size=5))
def test_any_events_give_an_answer(told: list[tuple[str, Any]]) -> None:
    stream = [{**(rest if isinstance(rest, dict) else {}), "type": kind} for kind, rest in told]
    assert isinstance(read_answer("".join(f"data: {json.dumps(e)}\n\n" for e in stream).encode()), Answer)
    for event in stream:
        assert isinstance(read_answer(json.dumps(event).encode()), Answer)
