"""What came back from `/v1/messages`, streamed or whole, read without trust: a body may be malformed, cut off, or too large."""

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from tasks.one_line import one_line
from tasks.records import Record

MOST_BYTES = 4_000_000  # of a body; a kernel source has some thousand


class ToolCall(Record):
    """`arguments`: None if they are no JSON. A number in them may be NaN or endless: whoever reads them says what is wrong."""

    name: str
    arguments: Any


class Answer(Record):
    """`complete`: the message came to its end. `fault`: an error that the server sent, after which there is no end.

    `content_bytes`: of text and arguments. Tokens are None where the response does not say a whole number above 0.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop_reason: str | None = None
    model: str | None = None
    complete: bool = False
    fault: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    content_bytes: int = 0


def read_answer(body: bytes) -> Answer:
    """An answer from the bytes of a response. A server that does not stream answers with the message itself."""
    text = body.decode("utf-8", "replace")
    if not text.lstrip().startswith("{"):
        return _from_events(_events(text))
    message = _mapping(read_json(text))
    if message.get("type") != "message":
        return Answer(fault="the response is no message")
    blocks = [_mapping(block) for block in _list(message.get("content"))]
    parts = [{**block, "input": json.dumps(block.get("input"))} for block in blocks]
    return _answer(parts, message, _mapping(message.get("usage")), message.get("stop_reason"), True, None)


def _from_events(events: Iterator[dict[str, Any]]) -> Answer:
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    stop: Any = None
    complete, fault = False, None
    for event in events:
        match event.get("type"):
            case "message_start":
                message = _mapping(event.get("message"))
                usage |= _known(message.get("usage"))
            case "content_block_start":
                block = _mapping(event.get("content_block"))
                whole = block.get("input")  # of a server that sends arguments in one piece; else empty
                blocks[str(event.get("index"))] = {**block, "input": json.dumps(whole) if whole else ""}
            case "content_block_delta":
                block, delta = (
                    blocks.setdefault(str(event.get("index")), {"type": "text"}),
                    _mapping(event.get("delta")),
                )
                block["text"] = f"{block.get('text') or ''}{delta.get('text') or ''}"
                block["input"] = f"{block.get('input') or ''}{delta.get('partial_json') or ''}"
            case "message_delta":
                stop = _mapping(event.get("delta")).get("stop_reason") or stop
                usage |= _known(event.get("usage"))
            case "message_stop":
                complete = True
            case "error":
                error = _mapping(event.get("error"))
                fault = one_line(f"{error.get('type')}: {error.get('message')}", 300)
    return _answer(list(blocks.values()), message, usage, stop, complete, fault)


def _answer(
    blocks: list[dict[str, Any]],
    message: dict[str, Any],
    usage: dict[str, Any],
    stop: object,
    complete: bool,
    fault: str | None,
) -> Answer:
    texts = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
    tools = [block for block in blocks if block.get("type") == "tool_use"]
    hidden = ("cache_creation_input_tokens", "cache_read_input_tokens")  # input, too, where a server counts it apart
    inputs = _count(usage.get("input_tokens"), *(usage.get(name) or 0 for name in hidden))
    return Answer(
        text="\n".join(texts),
        calls=tuple(ToolCall(name=str(b.get("name")), arguments=read_json(str(b.get("input")))) for b in tools),
        stop_reason=stop if isinstance(stop, str) else None,
        model=one_line(message["model"], 80) if isinstance(message.get("model"), str) else None,
        complete=complete and fault is None,
        fault=fault,
        input_tokens=inputs,
        output_tokens=_count(usage.get("output_tokens")),
        content_bytes=sum(len(x.encode("utf-8", "replace")) for x in (*texts, *(str(b.get("input")) for b in tools))),
    )


def _events(text: str) -> Iterator[dict[str, Any]]:
    """The data of server-sent events that are JSON objects; each names its own type, so the `event:` lines say no more."""
    for line in re.split(r"[\r\n]", text):  # and no other: U+2028 and its like may stand inside of a line
        if line.startswith("data:"):
            event = read_json(line.removeprefix("data:"))
            if isinstance(event, dict):
                yield event


def read_json(text: str) -> Any:
    """None for what is no JSON, is nested too deeply, or holds half a character."""
    try:
        return from_json(text.encode("utf-8", "replace"))
    except ValueError:
        return None


def _count(*parts: object) -> int | None:
    """The sum, if all of them are whole numbers and it is above 0: no message takes nothing."""
    whole = [part for part in parts if isinstance(part, int) and not isinstance(part, bool) and part >= 0]
    return sum(whole) or None if len(whole) == len(parts) else None


def _known(usage: object) -> dict[str, Any]:
    """Later events state totals; what one of them leaves out stands as an earlier one said."""
    return {name: value for name, value in _mapping(usage).items() if value is not None}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
