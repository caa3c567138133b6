"""One call to an endpoint that speaks the Messages API. Its key stays here: no record, log line or message holds it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from serving.errors import BadInput
from tasks.answer import MOST_BYTES
from tasks.one_line import one_line
from tasks.spending import CallEnd

if TYPE_CHECKING:
    import httpx2

BUSY = (429, 503, 529)
LEAST_SECRET_CHARS = 12
MOST_SAID = 300  # characters
HINT = (
    "set ANTHROPIC_BASE_URL (such as http://127.0.0.1:31400 of your own SGLang), INFRA_AGENT_MODEL and ANTHROPIC_API_KEY "
    "(any word, where the server asks for none); docs/proposing.md"
)


@dataclass(frozen=True)
class Endpoint:
    base_url: str
    model: str
    key: str = field(repr=False)

    def without_key(self, text: bytes) -> bytes:
        """What a server sends may repeat the key. A short one is a word that a server of one's own takes for a key."""
        return text.replace(self.key.encode(), b"[key]") if len(self.key) >= LEAST_SECRET_CHARS else text


@dataclass(frozen=True)
class Reply:
    """`body`: what came, at most MOST_BYTES of it. `retry_after_s`: what a busy server asks for."""

    ended: CallEnd
    says: str = ""
    status: int | None = None
    retry_after_s: float | None = None
    body: bytes = b""
    wall_s: float = 0.0


def endpoint_of(environment: Mapping[str, str]) -> Endpoint:
    """The endpoint that the environment names. Raises `BadInput` for one that is none, or for what is missing."""
    key = environment.get("ANTHROPIC_API_KEY") or environment.get("ANTHROPIC_AUTH_TOKEN") or ""
    url, model = environment.get("ANTHROPIC_BASE_URL") or "", environment.get("INFRA_AGENT_MODEL") or ""
    missing = [name for name, value in (("endpoint", url), ("model", model), ("key", key)) if not value.strip()]
    if missing:
        raise BadInput(f"no model can be asked: there is no {' and no '.join(missing)}", HINT)
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and not parts.username and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise BadInput(
            "ANTHROPIC_BASE_URL is no http or https address without a user in it",
            "such as http://127.0.0.1:31400; a key belongs in ANTHROPIC_API_KEY",
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput("the key holds characters that no header can carry", "set ANTHROPIC_API_KEY anew")
    return Endpoint(base_url=url, model=model, key=key)


def call(endpoint: Endpoint, request: Mapping[str, Any], within_s: float) -> Reply:
    """Send one request and take what comes back in `within_s` seconds, however it drips. Never raises for a server."""
    began = time.monotonic()
    body = bytearray()
    try:
        reply = asyncio.run(asyncio.wait_for(_call(endpoint, request, within_s, body), within_s))
    except TimeoutError:
        reply = Reply(CallEnd.TIMED_OUT, f"no end within {within_s:.0f} s", body=bytes(body))
    says = endpoint.without_key(reply.says.encode("utf-8", "replace")).decode()
    shown, received = one_line(says, MOST_SAID), endpoint.without_key(reply.body)  # cut after: half a key is one, too
    return replace(reply, says=shown, body=received, wall_s=time.monotonic() - began)


async def _call(endpoint: Endpoint, request: Mapping[str, Any], within_s: float, body: bytearray) -> Reply:
    import anthropic  # takes seconds, and only those who ask a model need it
    import httpx2

    http = anthropic.DefaultAsyncHttpxClient(
        follow_redirects=False,  # a key goes nowhere but where it was meant for
        event_hooks={"response": [_bounded]},
        headers={"accept-encoding": "identity"},
    )
    async with anthropic.AsyncAnthropic(
        base_url=endpoint.base_url, api_key=endpoint.key, max_retries=0, timeout=within_s, http_client=http
    ) as client:
        try:
            async with client.messages.with_streaming_response.create(**request, stream=True) as response:
                async for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        del body[MOST_BYTES:]
                        return Reply(CallEnd.BROKEN_OFF, f"more than {MOST_BYTES} bytes came", body=bytes(body))
            return Reply(CallEnd.ANSWERED, status=200, body=bytes(body))
        except anthropic.APIStatusError as error:
            return _status(error.status_code, _said(error.body) or error.message, error.response.headers)
        except (anthropic.APITimeoutError, httpx2.TimeoutException):
            return Reply(CallEnd.TIMED_OUT, f"no end within {within_s:.0f} s", body=bytes(body))
        except anthropic.APIConnectionError as error:
            if isinstance(error.__cause__, httpx2.ConnectError | httpx2.UnsupportedProtocol):
                return Reply(CallEnd.NOT_REACHED, f"cannot reach it: {error.__cause__}")
            return Reply(CallEnd.BROKEN_OFF, f"the connection broke off: {error.__cause__!r}")
        except httpx2.HTTPError as error:
            return Reply(CallEnd.BROKEN_OFF, f"the connection broke off: {error!r}", body=bytes(body))


async def _bounded(response: "httpx2.Response") -> None:
    """Take a little more than MOST_BYTES of any response, an error's included, and unpack nothing: it may swell."""
    import httpx2

    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    whole: httpx2.AsyncByteStream = stream

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MOST_BYTES + 1
            async for chunk in whole:
                yield chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return

        async def aclose(self) -> None:
            await whole.aclose()

    response.stream = Bounded()
    response.headers.pop("content-encoding", None)


def _said(body: object) -> str:
    """The message of an error in the form of the Messages API, or nothing."""
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message") or "") if isinstance(error, dict) else ""


def _status(status: int, message: str, headers: Mapping[str, str]) -> Reply:
    says = f"status {status}: {message}"
    if status in BUSY:
        return Reply(CallEnd.BUSY, says, status, _retry_after_s(headers.get("retry-after")))
    return Reply(CallEnd.BROKEN_OFF if status >= 500 or status == 408 else CallEnd.TURNED_DOWN, says, status)


def _retry_after_s(value: str | None) -> float | None:
    """Seconds, or a date; None for anything else."""
    if value is None:
        return None
    try:
        return max(0.0, float(value)) if value.strip()[:1].isdigit() else _until(value)
    except (ValueError, OverflowError):
        return None


def _until(date: str) -> float:
    when = parsedate_to_datetime(date)
    return max(0.0, (when.astimezone(UTC) - datetime.now(UTC)).total_seconds())
