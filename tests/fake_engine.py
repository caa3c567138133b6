"""A small HTTP server that answers the way SGLang does, with faults on request. In a thread, on a free port.

As a program it stands for a whole engine environment (`engine_folder`): it takes the command line of a server or a router.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

COUNTERS = ("num_requests_total", "prompt_tokens_total", "generation_tokens_total")
HISTOGRAMS = ("time_to_first_token_seconds", "e2e_request_latency_seconds", "queue_time_seconds")


class FakeEngine:
    """`fail_every`: each n-th streamed request answers status 500. `short_by`: tokens kept back.

    `info`: what `/server_info` says. `drift`: added to every log-probability; None makes them null.
    `cut_after`: events after which a stream ends without a word. `says`: lines to send in place of an answer.
    `hang`: takes requests and never answers. `flushes`: whether the prefix cache can be flushed.
    `breakers`: of a router, the state for each worker's URL. Its model repeats the last token of a prompt.
    `streamed`: what a streamed answer has in place of its token ids. `incremental`: events bring new ids alone.
    `tops`: whether it tells the likeliest tokens of a prompt.
    """

    def __init__(
        self,
        fail_every: int = 0,
        short_by: int = 0,
        gap_s: float = 0.001,
        info: dict | None = None,
        drift: float | None = 0.0,
        cut_after: int | None = None,
        says: tuple[str, ...] = (),
        hang: bool = False,
        flushes: bool = True,
        streamed: Callable[[list[int]], object] | None = None,
        incremental: bool = False,
        tops: bool = True,
    ) -> None:
        self.fail_every, self.short_by, self.gap_s = fail_every, short_by, gap_s
        self.info, self.drift = info or {}, drift
        self.streamed, self.incremental, self.tops = streamed or (lambda ids: ids), incremental, tops
        self.key: str | None = None
        self.cut_after, self.says, self.hang, self.flushes = cut_after, says, hang, flushes
        self.seen: list[dict] = []
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.breakers: dict[str, int] = {}
        self.counted = dict.fromkeys(COUNTERS, 0)
        self.most_at_once = self._at_once = 0
        self.base_url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.paths.append(head.split(b" ")[1].decode())
        self.heads.append(head.decode())
        if head.startswith(b"GET /server_info"):
            self._say(writer, json.dumps(self.info))
        elif head.startswith(b"GET /metrics"):
            self._say(writer, self._metrics())
        elif head.startswith(b"GET /health"):
            self._say(writer, "")
        elif head.startswith(b"GET "):
            self._say(writer, "", "404 Not Found")
        else:
            await self._answer_post(head, reader, writer)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def _answer_post(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads the body whatever it answers: a connection that is closed with bytes unread is reset."""
        lengths = [x.split(b":")[1] for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")]
        given = await reader.readexactly(int(lengths[0]) if lengths else 0)
        if self.key and f"Bearer {self.key}".encode() not in head:
            self._say(writer, "", "401 Unauthorized")
        elif head.startswith(b"POST /flush_cache"):
            self._say(writer, "", "200 OK" if self.flushes else "400 Bad Request")
        else:
            body = json.loads(given)
            if body.get("stream"):
                await self._stream(reader, writer, body)
            else:
                self._say(writer, json.dumps(self._whole(body)))

    @staticmethod
    def _say(writer: asyncio.StreamWriter, text: str, status: str = "200 OK") -> None:
        writer.write(f"HTTP/1.1 {status}\r\nconnection: close\r\n\r\n{text}".encode())

    def _whole(self, body: dict) -> dict:
        ids, count = self._read(body), body["sampling_params"]["max_new_tokens"]
        logprobs = [[None if self.drift is None else -token / 100 + self.drift, token, None] for token in ids]
        since = body.get("logprob_start_len", 0)
        meta = {"input_token_logprobs": logprobs[since:], "output_token_logprobs": [logprobs[-1]] * count}
        if self.tops and body.get("top_logprobs_num"):
            best = [own if own[1] == last else [0.0, last, None] for last, own in zip(ids, logprobs[1:], strict=False)]
            meta["input_top_logprobs"] = [None, *([top] for top in best)][since:]
        return {"output_ids": [ids[-1]] * count, "prompt_token_ids": ids, "meta_info": meta}

    @staticmethod
    def _read(body: dict) -> list[int]:
        return body["input_ids"] if "input_ids" in body else list(body["text"].encode())

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: dict) -> None:
        self.seen.append(body)
        if self.fail_every and len(self.seen) % self.fail_every == 0:
            self._say(writer, "", "500 Internal Server Error")
            return
        if self.hang:
            await reader.read()  # until the client hangs up
            return
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        self._say(writer, "")
        if self.says:
            writer.write("".join(f"{line}\n\n" for line in self.says).encode())
        elif "messages" in body:
            await self._chat(writer, body)
        else:
            await self._generate(writer, body)
        self._at_once -= 1

    async def _generate(self, writer: asyncio.StreamWriter, body: dict) -> None:
        count = body["sampling_params"]["max_new_tokens"] - self.short_by
        read, last = len(self._read(body)), self._read(body)[-1]
        for done in range(1, count + 1):
            if done - 1 == self.cut_after:
                return
            await asyncio.sleep(self.gap_s)
            meta = {"prompt_tokens": read, "completion_tokens": done, "cached_tokens": 0}
            ids = self.streamed([last] * (1 if self.incremental else done))
            event = {"output_ids": ids, "meta_info": meta}
            writer.write(f"data: {json.dumps(event)}\n\n".encode())
            await writer.drain()
        for name, amount in zip(COUNTERS, (1, read, count), strict=True):
            self.counted[name] += amount
        writer.write(b"data: [DONE]\n\n")

    async def _chat(self, writer: asyncio.StreamWriter, body: dict) -> None:
        for done in range(1, body["max_tokens"] + 1):
            await asyncio.sleep(self.gap_s)
            choice = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
            event = {"choices": [choice], "usage": {"prompt_tokens": 31, "completion_tokens": done}}
            writer.write(f"data: {json.dumps(event)}\n\n".encode())
            await writer.drain()
        writer.write(b"data: [DONE]\n\n")

    def _metrics(self) -> str:
        lines = [f'sglang:{name}{{model_name="m"}} {value}' for name, value in self.counted.items()]
        done = self.counted["num_requests_total"]
        for place, name in enumerate(HISTOGRAMS, start=1):
            lines += [f"sglang:{name}_count {done}", f"sglang:{name}_sum {done * place / 10}"]
        stage = 'sglang:per_stage_req_latency_seconds_{}{{stage="prefill_forward"}} {}'
        lines += [stage.format("count", done), stage.format("sum", done / 20)]
        lines += [f'smg_worker_cb_state{{worker="{url}"}} {state}' for url, state in self.breakers.items()]
        return "\n".join(lines) + "\n"


@contextmanager
def listening(engine: FakeEngine) -> Iterator[FakeEngine]:
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        server = await asyncio.start_server(engine.answer, "127.0.0.1", 0)
        engine.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        async with server:
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    assert ready.wait(10)
    try:
        yield engine
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def engine_folder(folder: Path) -> Path:
    """A folder that a role may name as its `engine`: its Python is this program, whatever it is asked to run."""
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    python.chmod(0o755)
    return folder


def main() -> None:
    """Listens on `--port` and `--disaggregation-bootstrap-port`, with a child of its own.

    Variables: SGLANG_FAKE_ERROR is printed as an exception, and it ends; SGLANG_FAKE_DEAF keeps it from being healthy;
    SGLANG_FAKE_BREAKERS is the state of a router's circuit breakers, 0 by default;
    SGLANG_FAKE_UNFILLED is a parameter that it tells its watcher nothing was loaded into.
    """
    if error := os.environ.get("SGLANG_FAKE_ERROR"):
        sys.exit(f"RuntimeError: {error}")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("--port", "--disaggregation-bootstrap-port", "--prometheus-port"):
        parser.add_argument(name, type=int)
    parser.add_argument("--host", default="127.0.0.1")
    for name in ("--prefill", "--decode"):
        parser.add_argument(name, nargs="+", action="append", default=[])
    asked, _ = parser.parse_known_args(sys.argv[1:])
    if unfilled := os.environ.get("SGLANG_FAKE_UNFILLED"):
        told = {"pid": 1, "modules": {}, "counted": [], "uncounted": {}}
        weights = [{"unused": [], "unfilled": [unfilled]}]
        reports = Path(json.loads(Path(os.environ["INFRA_AGENT_WATCH"]).read_text())["reports"])
        (reports / "1.json").write_text(json.dumps({**told, "weights": weights}))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    engine = FakeEngine()
    engine.key = os.environ.get("INFRA_AGENT_ENGINE_KEY")
    state = int(os.environ.get("SGLANG_FAKE_BREAKERS", "0"))
    engine.breakers = {worker[0]: state for worker in (*asked.prefill, *asked.decode)}

    # On loopback it tries for more, as parts of SGLang do.
    where = "0.0.0.0" if asked.host == "127.0.0.1" else asked.host

    async def serve() -> None:
        for port in (asked.disaggregation_bootstrap_port, asked.prometheus_port, asked.port):
            if port is not None and "SGLANG_FAKE_DEAF" not in os.environ:
                await asyncio.start_server(engine.answer, where, port)
        await asyncio.Event().wait()

    try:
        asyncio.run(serve())
    finally:
        child.kill()


if __name__ == "__main__":
    main()
