"""A loopback server that speaks the Messages API and plays a model by a script. It shows what our side sends and how it takes
what comes; it says nothing about any real model."""

import contextlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

KEY = "sk-scripted-0123456789-never-in-a-record"
MODEL = "scripted-1"


@dataclass
class Turn:
    """What the server does with one request. `streams`: as events, even if not asked; None: as asked.

    `drops_after`: so many events, then the connection goes. `hangs`: nothing comes until the server is closed.
    `drips`: pings without end.
    `usage`: None takes it away; by default it is what the texts make at four bytes to a token. `raw`: a body as it stands.
    """

    blocks: list[dict[str, Any]] = field(default_factory=list)
    stop: str = "tool_use"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    streams: bool | None = None
    drops_after: int | None = None
    hangs: bool = False
    drips: bool = False
    usage: object = "counted"
    raw: bytes | None = None


def proposing(*proposals: object, **changes: Any) -> Turn:
    """The model uses the tool as it was told."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "propose", "input": {"proposals": list(proposals)}}
    return Turn(blocks=[call], **changes)


def saying(text: str, stop: str = "end_turn", **changes: Any) -> Turn:
    return Turn(blocks=[{"type": "text", "text": text}], stop=stop, **changes)


def failing(status: int, kind: str, text: str = "no", **headers: str) -> Turn:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": text}}).encode()
    return Turn(status=status, raw=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


class ScriptedModel:
    """`seen`: headers and body of each request, in order. After the last turn, each request is answered with status 500."""

    def __init__(self, turns: Iterable[Turn]) -> None:
        self.turns, self.seen = list(turns), list[tuple[dict[str, str], dict[str, Any]]]()
        self.closed = threading.Event()
        model = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                model.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
                turn = model.turns.pop(0) if model.turns else failing(500, "api_error", "the script is over")
                with contextlib.suppress(OSError):  # the client hung up, which is what some tests are about
                    model.play(turn, self, body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Self:
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closed.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": KEY, "INFRA_AGENT_MODEL": MODEL}

    def prompt(self, number: int) -> str:
        """What the request of this number said, system text included."""
        body = self.seen[number][1]
        return f"{body['system']}\n{body['messages'][0]['content']}"

    def play(self, turn: Turn, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        if turn.hangs:
            self.closed.wait()
            return
        handler.send_response(turn.status)
        for name, value in turn.headers.items():
            handler.send_header(name, value)
        usage = counted(turn, body) if turn.usage == "counted" else turn.usage
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": turn.blocks,
                   "stop_reason": turn.stop, "stop_sequence": None, "usage": usage}  # fmt: skip
        streams = bool(body.get("stream")) if turn.streams is None else turn.streams
        if turn.raw is not None or not streams:
            handler.send_header("content-type", "application/json")
            handler.end_headers()
            handler.wfile.write(turn.raw if turn.raw is not None else json.dumps(message).encode())
            return
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        while turn.drips and not self.closed.wait(0.02):
            handler.wfile.write(b'event: ping\ndata: {"type": "ping"}\n\n')
        for event in events(message)[: turn.drops_after]:
            handler.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


def counted(turn: Turn, body: dict[str, Any]) -> dict[str, int]:
    prompt = len(body["system"]) + len(body["messages"][0]["content"])
    return {"input_tokens": prompt // 4, "output_tokens": max(1, len(json.dumps(turn.blocks)) // 4)}


def events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The message as server-sent events, with a ping, and each block in three deltas."""
    usage = message["usage"]
    start = {**message, "content": [], "stop_reason": None}
    told: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for index, block in enumerate(message["content"]):
        is_text = block["type"] == "text"
        whole = block["text"] if is_text else json.dumps(block["input"])
        empty = {**block, **({"text": ""} if is_text else {"input": {}})}
        told.append({"type": "content_block_start", "index": index, "content_block": empty})
        third = len(whole) // 3 + 1
        for part in (whole[:third], whole[third : 2 * third], whole[2 * third :]):
            delta = (
                {"type": "text_delta", "text": part} if is_text else {"type": "input_json_delta", "partial_json": part}
            )
            told.append({"type": "content_block_delta", "index": index, "delta": delta})
        told.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    told.append({"type": "message_delta", "delta": ended, **({"usage": usage} if usage is not None else {})})
    return [*told, {"type": "message_stop"}]
