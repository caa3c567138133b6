"""A small HTTP server that streams tokens the way SGLang does, with faults on request. In a thread, on a free port."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class FakeEngine:
    """`fail_every`: each n-th request answers status 500. `short_by`: tokens kept back. `seen`: bodies received."""

    def __init__(self, fail_every: int = 0, short_by: int = 0, gap_s: float = 0.001) -> None:
        self.fail_every, self.short_by, self.gap_s = fail_every, short_by, gap_s
        self.seen: list[dict] = []
        self.most_at_once = self._at_once = 0
        self.base_url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length"))
        body = json.loads(await reader.readexactly(length))
        self.seen.append(body)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        broken = self.fail_every and len(self.seen) % self.fail_every == 0
        status = "500 Internal Server Error" if broken else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".encode())
        for count in range(1, body["sampling_params"]["max_new_tokens"] + 1 - self.short_by):
            await asyncio.sleep(self.gap_s)
            event = {"meta_info": {"completion_tokens": count, "cached_tokens": 0}}
            writer.write(f"data: {json.dumps(event)}\n\n".encode())
            await writer.drain()
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        self._at_once -= 1
        writer.close()
        await writer.wait_closed()


@contextmanager
def listening(engine: FakeEngine) -> Iterator[FakeEngine]:
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop: asyncio.Event = asyncio.Event()

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
