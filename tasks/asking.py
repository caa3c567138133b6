"""A metered line to a model: every call counts, failed ones too, and none is made that could break a cap."""

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from tasks.answer import Answer, read_answer
from tasks.endpoint import Endpoint, Reply, call
from tasks.model_file import ModelFile
from tasks.prompt import Prompt
from tasks.proposals import Ended
from tasks.spending import Call, CallEnd, Spent, Tokens, believable, cap_in_the_way, spent_on

log = logging.getLogger(__name__)
TRIES = 4  # of one ask, if the endpoint is busy, out of reach, or breaks off
# Errors inside a stream, after its status was 200, that asking again would not change.
NO_USE = ("invalid_request_error", "authentication_error", "permission_error", "not_found_error", "billing_error")
BACKOFF_S = 1.0  # doubles; where a busy server does not say how long to wait


class Line:
    """`ended`, `says`: why the line went dead, once it did."""

    def __init__(
        self,
        endpoint: Endpoint,
        bounds: ModelFile,
        send: Callable[[Endpoint, Mapping[str, Any], float], Reply] = call,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.endpoint, self.bounds, self.send, self.wait = endpoint, bounds, send, wait
        self.price = bounds.price_of(endpoint.model)
        self.began: float | None = None
        self.calls: list[Call] = []
        self.answered_as: list[str] = []
        self.ended, self.says = Ended.FINISHED, ""

    @property
    def spent(self) -> Spent:
        return spent_on(self.calls, self.price)

    def ask(self, prompt: Prompt, tool: Mapping[str, Any]) -> Answer | None:
        """The next whole answer, or None once the line is dead."""
        self.began = self.began or time.monotonic()  # loading the client is not asking
        request = self._request(prompt, tool)
        size = len(json.dumps(request, ensure_ascii=False).encode())
        for attempt in range(TRIES):
            if not self._may_call(size):
                return None
            reply = self._sent(request, prompt.size_bytes, size)
            answer = self._without_key(read_answer(reply.body))
            made = self._counted(reply, answer, prompt.size_bytes, size)
            if made.ended is CallEnd.ANSWERED:
                return answer
            if made.ended is CallEnd.TURNED_DOWN:
                self._stop(Ended.TURNED_DOWN, made.says)
                return None
            if attempt + 1 < TRIES and not self._paused(reply.retry_after_s or BACKOFF_S * 2**attempt, made):
                return None
        self._stop(Ended.UNAVAILABLE, f"{TRIES} tries: {self.calls[-1].says}")
        return None

    def _without_key(self, answer: Answer) -> Answer:
        """Once more where the parts are joined and escapes are undone."""
        return Answer.model_validate_json(self.endpoint.without_key(answer.model_dump_json().encode()))

    def _sent(self, request: Mapping[str, Any], prompt_bytes: int, size: int) -> Reply:
        """A call that is interrupted enters the account, too."""
        began = time.monotonic()
        try:
            return self.send(self.endpoint, request, self._left_s())
        except BaseException:
            cut = Reply(CallEnd.BROKEN_OFF, "interrupted", wall_s=time.monotonic() - began)
            self._counted(cut, Answer(), prompt_bytes, size)
            raise

    def _request(self, prompt: Prompt, tool: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "model": self.endpoint.model,
            "max_tokens": self.bounds.answer_tokens,
            "system": prompt.system,
            "messages": [{"role": "user", "content": prompt.user}],
            "tools": [dict(tool)],
            "tool_choice": {"type": "tool", "name": tool["name"]},
        }

    def _may_call(self, size: int) -> bool:
        coming = Tokens(input=size, output=self.bounds.answer_tokens)
        elapsed_s = self.bounds.caps.seconds - self._left_s()
        cap = cap_in_the_way(self.spent, elapsed_s, self.bounds.caps, self.price, coming)
        if cap is not None:
            self._stop(Ended.CAP, cap)
        return cap is None

    def _counted(self, reply: Reply, answer: Answer, prompt_bytes: int, size: int) -> Call:
        """The call as it enters the account. A message without its end was broken off, whatever the connection says."""
        whole = reply.ended is not CallEnd.ANSWERED or answer.complete
        no_use = (answer.fault or "").startswith(NO_USE)
        made = Call(
            ended=reply.ended if whole else CallEnd.TURNED_DOWN if no_use else CallEnd.BROKEN_OFF,
            status=reply.status,
            says=reply.says if whole else answer.fault or "the response ended before the message did",
            wall_s=reply.wall_s,
            input_tokens=believable(answer.input_tokens, prompt_bytes),
            output_tokens=believable(answer.output_tokens, answer.content_bytes),
            sent_bytes=size,
            asked_tokens=self.bounds.answer_tokens,
        )
        self.calls.append(made)
        if answer.model is not None and answer.model not in self.answered_as:
            self.answered_as.append(answer.model)
        log.info("call %d: %s %s", len(self.calls), made.ended, made.says)
        return made

    def _paused(self, seconds: float, made: Call) -> bool:
        """Wait before another try, unless that would take longer than is left."""
        if seconds >= self._left_s():
            cap = f"the cap of {self.bounds.caps.seconds:g} s"
            self._stop(Ended.CAP, f"{cap}: another try would have to wait {seconds:.0f} s ({made.says})")
            return False
        log.info("waiting %.1f s before another try", seconds)
        self.wait(seconds)
        return True

    def _left_s(self) -> float:
        return (self.began or time.monotonic()) + self.bounds.caps.seconds - time.monotonic()

    def _stop(self, ended: Ended, says: str) -> None:
        self.ended, self.says = ended, says
