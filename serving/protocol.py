"""What we say to SGLang and what its streams say back: `/generate` for text and tokens, the chat endpoint for pictures."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from serving.requests import Request

MOST_TOKENS = 10**9  # of a prompt or an answer; above it the server does not count
GENERATE, CHAT = "/generate", "/v1/chat/completions"


@dataclass(frozen=True)
class Call:
    """One HTTP request, encoded before any clock runs."""

    path: str
    body: bytes


def call_of(request: Request) -> Call:
    """Greedy, streamed, and as long as the request says: an end-of-text token does not end it."""
    if request.image_uri is not None:
        return Call(CHAT, json.dumps(_chat(request)).encode())
    prompt = {"input_ids": request.input_ids} if request.text is None else {"text": request.text}
    sampling = {"max_new_tokens": request.output_tokens, "temperature": 0, "ignore_eos": True}
    return Call(GENERATE, json.dumps({**prompt, "sampling_params": sampling, "stream": True}).encode())


def _chat(request: Request) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": request.image_uri}}
    return {
        "model": "default",
        "messages": [{"role": "user", "content": [picture, {"type": "text", "text": request.text}]}],
        "max_tokens": request.output_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


@dataclass
class Answer:
    """What has been heard of one answer so far. `event_times_s`: when tokens came, by the clock of the caller.

    `prompt_tokens` and `cached_tokens` are the server's counts, None as long as it gives none. `ids`: the tokens themselves as
    it says them, unread, where its events carry them. `whole`: it said that this was all.
    """

    event_times_s: list[float] = field(default_factory=list)
    tokens: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    ids: list[object] = field(default_factory=list)
    error: str | None = None
    whole: bool = False

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Nothing unless all of them are numbers."""
        ids = tuple(token for token in self.ids if type(token) is int)
        return ids if len(ids) == len(self.ids) else ()

    def hear(self, line: str, now_s: float) -> None:
        """Takes in one line of the stream. What cannot be understood becomes the answer's error."""
        if not line.startswith("data:"):
            return
        said = line.removeprefix("data:").strip()
        if said == "[DONE]":
            self.whole = True
            return
        try:
            event = json.loads(said)
            if "error" in event:
                self.error = f"server: {words(event['error'])}"
            elif "meta_info" in event:
                self._hear_generate(event["meta_info"], event.get("output_ids"), now_s)
            else:
                self._hear_chat(event, now_s)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self.error = f"an event that is none of SGLang's: `{words(said[:100])}`"

    def _hear_generate(self, meta: Mapping[str, Any], ids: object, now_s: float) -> None:
        """Each event has all the tokens so far or, under `--incremental-streaming-output`, those that are new."""
        self._count(meta, meta.get("cached_tokens"), now_s)
        if isinstance(ids, list):
            self.ids = ids if len(ids) >= meta["completion_tokens"] else [*self.ids, *ids]
        self._end(meta.get("finish_reason"))

    def _hear_chat(self, event: Mapping[str, Any], now_s: float) -> None:
        """A router may drop the running counts: then each piece of text is one token, until the last event has the sum."""
        choices, usage = event["choices"], event.get("usage")
        if usage is not None:
            details = usage.get("prompt_tokens_details") or {}
            self._count(usage, details.get("cached_tokens"), now_s if choices else None)
        elif choices and choices[0]["delta"].get("content"):
            self.event_times_s.append(now_s)
            self.tokens += 1
        if choices:
            self._end(choices[0].get("finish_reason"))

    def _count(self, counts: Mapping[str, Any], cached: object, now_s: float | None) -> None:
        done = _number(counts["completion_tokens"])
        if done > self.tokens and now_s is not None:
            self.event_times_s.append(now_s)
        self.tokens = max(self.tokens, done)
        read = counts.get("prompt_tokens")
        self.prompt_tokens = self.prompt_tokens if read is None else _number(read)
        self.cached_tokens = self.cached_tokens if cached is None else _number(cached)

    def _end(self, reason: Any) -> None:
        kind = reason.get("type") if isinstance(reason, dict) else reason
        if kind == "abort":
            self.error = f"the server aborted it: {words(reason)}"


def words(said: Any) -> str:
    """What a server says of a fault, as text that can be printed and written down."""
    message = said.get("message", said) if isinstance(said, dict) else said
    return "".join(character if character.isprintable() else "?" for character in str(message)[:200])


def _number(count: object) -> int:
    """Raises ValueError for what counts no tokens."""
    if type(count) is not int or not 0 <= count <= MOST_TOKENS:
        raise ValueError("no count of tokens")
    return count


def fault_of(answer: Answer, request: Request) -> str | None:
    """Why an answer that has ended is not the one that was asked for, or None."""
    if answer.error is not None:
        return answer.error
    if not answer.whole:
        return f"the stream ended early, after {answer.tokens} of {request.output_tokens} tokens"
    if answer.tokens != request.output_tokens:
        return f"{answer.tokens} tokens instead of {request.output_tokens}"
    if request.prompt_tokens is not None and answer.prompt_tokens not in (None, request.prompt_tokens):
        return f"the server read {answer.prompt_tokens} prompt tokens, {request.prompt_tokens} were sent"
    if not answer.event_times_s:
        return "no event of the stream carried a token"
    return None
