"""What calls to a model used, and whether another one may be made. Unknown is None, and never counts as nothing."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tasks.accounting import known_sum
from tasks.model_file import Caps, Price
from tasks.records import Record

Count = Annotated[int, Field(ge=0)]
MOST_TOKENS = 10**9  # no message takes so many
BYTES_IN_A_TOKEN = 64  # more than any tokenizer puts into one on average: usage below that is no usage


class CallEnd(StrEnum):
    ANSWERED = "answered"
    BUSY = "busy"  # 429, 503, 529: not served
    TURNED_DOWN = "turned down"  # any other 4xx: not served, and asking again is no use
    NOT_REACHED = "not reached"  # not served
    BROKEN_OFF = "broken off"  # a dropped stream or a server error, after which what was used is unknown
    TIMED_OUT = "timed out"  # as BROKEN_OFF


NOT_SERVED = (CallEnd.BUSY, CallEnd.TURNED_DOWN, CallEnd.NOT_REACHED)
CUT_SHORT = (CallEnd.BROKEN_OFF, CallEnd.TIMED_OUT)


class Tokens(Record):
    input: Count
    output: Count

    @property
    def total(self) -> int:
        return self.input + self.output


class Call(Record):
    """One request. `says`: what went wrong, if anything. Tokens are as the response says, None where it does not or cannot
    be believed. `sent_bytes` and `asked_tokens` bound them: no tokenizer makes more than one token of a byte."""

    ended: CallEnd
    status: int | None
    says: str
    wall_s: float
    input_tokens: Count | None
    output_tokens: Count | None
    sent_bytes: Count
    asked_tokens: Count

    @property
    def _began(self) -> bool:
        """Whether the server counted something before it turned the request down."""
        return self.input_tokens is not None or self.output_tokens is not None

    def used(self) -> Tokens | None:
        """As far as it is known: nothing, where the server did not serve."""
        if self.ended in NOT_SERVED and not self._began:
            return Tokens(input=0, output=0)
        if self.input_tokens is None or self.output_tokens is None or self.ended is not CallEnd.ANSWERED:
            return None
        return Tokens(input=self.input_tokens, output=self.output_tokens)

    def at_most(self) -> Tokens | None:
        """What a cap counts. A call that was cut short is charged with all that it could have used; an answer that keeps
        its usage to itself is None."""
        if self.ended in CUT_SHORT or (self.ended in NOT_SERVED and self._began):
            return Tokens(input=self.input_tokens or self.sent_bytes, output=self.asked_tokens)
        return self.used()


class Spent(Record):
    """Sums over calls, None where one of them is unknown. `most_*`: what caps count."""

    calls: int
    wall_s: float
    input_tokens: int | None
    output_tokens: int | None
    usd: float | None
    most_tokens: int | None
    most_usd: float | None


def spent_on(calls: Iterable[Call], price: Price | None) -> Spent:
    listed = list(calls)
    used, most = [call.used() for call in listed], [call.at_most() for call in listed]
    return Spent(
        calls=len(listed),
        wall_s=sum(call.wall_s for call in listed),
        input_tokens=_whole(x.input if x else None for x in used),
        output_tokens=_whole(x.output if x else None for x in used),
        usd=known_sum(_usd(x, price) for x in used),
        most_tokens=_whole(x.total if x else None for x in most),
        most_usd=known_sum(_usd(x, price) for x in most),
    )


def total_spent(several: Iterable[Spent]) -> Spent:
    """Of several asks; what is unknown in one is unknown in all."""
    listed = list(several)
    return Spent(
        calls=sum(x.calls for x in listed),
        wall_s=sum(x.wall_s for x in listed),
        input_tokens=_whole(x.input_tokens for x in listed),
        output_tokens=_whole(x.output_tokens for x in listed),
        usd=known_sum(x.usd for x in listed),
        most_tokens=_whole(x.most_tokens for x in listed),
        most_usd=known_sum(x.most_usd for x in listed),
    )


def cap_in_the_way(spent: Spent, elapsed_s: float, caps: Caps, price: Price | None, coming: Tokens) -> str | None:
    """Which cap forbids another call that may use as much as `coming`, or None."""
    if spent.calls >= caps.calls:
        return f"the cap of {caps.calls} calls"
    if elapsed_s >= caps.seconds:
        return f"the cap of {caps.seconds:g} s"
    if caps.tokens is not None:
        if spent.most_tokens is None:
            return f"the cap of {caps.tokens} tokens: an answer did not say what it used"
        if spent.most_tokens + coming.total > caps.tokens:
            return f"the cap of {caps.tokens} tokens: another call may use {coming.total} after {spent.most_tokens}"
    if caps.usd is not None:
        dollars = _usd(coming, price)
        if spent.most_usd is None or dollars is None:
            return f"the cap of {caps.usd:g} USD: what was spent is unknown"
        if spent.most_usd + dollars > caps.usd:
            return f"the cap of {caps.usd:g} USD: another call may cost {dollars:.2f} after {spent.most_usd:.2f}"
    return None


def believable(reported: int | None, content_bytes: int) -> int | None:
    """Tokens that a response reports, or None if so much text cannot be so few of them, or no message so many."""
    if reported is None or reported > MOST_TOKENS or reported * BYTES_IN_A_TOKEN < content_bytes:
        return None
    return reported


def _usd(tokens: Tokens | None, price: Price | None) -> float | None:
    return None if tokens is None or price is None else price.usd(tokens.input, tokens.output)


def _whole(values: Iterable[int | None]) -> int | None:
    found = known_sum(values)
    return None if found is None else int(found)
