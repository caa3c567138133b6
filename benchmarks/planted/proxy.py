"""A wait before the router, which is a binary: a proxy that holds requests back."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from planted.waits import ROUTER, waited

from serving.errors import Broken


@contextmanager
def proxy_before(url: str, control: Path) -> Iterator[str]:
    """The URL of a proxy in a thread of its own, which holds the first bytes of each request back as long as `control` says."""
    target, loop, stop, ready = urlsplit(url), asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    port = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(target.hostname, target.port)
        answered = True

        async def forth() -> None:
            nonlocal answered
            while data := await reader.read(1 << 16):
                chosen, ms = control.read_text().split()
                if answered and chosen == ROUTER:
                    began = time.perf_counter()
                    await asyncio.sleep(float(ms) / 1e3)
                    with waited(control).open("a") as file:
                        file.write(f"{1e3 * (time.perf_counter() - began)}\n")
                answered = False
                back.write(data)
                await back.drain()
            back.close()

        async def home() -> None:
            nonlocal answered
            while data := await there.read(1 << 16):
                answered = True
                writer.write(data)
                await writer.drain()
            writer.close()

        await asyncio.gather(forth(), home(), return_exceptions=True)

    async def serve() -> None:
        nonlocal port
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    if not ready.wait(10):
        raise Broken("the proxy before the router did not start", "run it again")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
