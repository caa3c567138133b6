"""Do two servers compute the same? Log-probabilities of the same tokens, in prefill and in decode steps.

Prefill is teacher-forced, so that no early difference spreads. Decode cannot be: its steps are compared up to the first
at which the servers choose different tokens, whose log-probabilities are no further apart than the servers' are.
"""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from serving.errors import Broken
from serving.scenario import Guard
from serving.sources import Span

TIMEOUT_S = 120.0
# What reading an answer of another shape raises.
NO_ANSWER = (KeyError, TypeError, ValueError, IndexError, OverflowError)


@dataclass(frozen=True)
class Probe:
    """One prompt. `drift`: largest absolute difference of a log-probability between the arms, in nats.

    `floor` is the same between two calls of the incumbent. The candidate is asked twice, too, so that no arm is warmer than the
    other, and the worse answer counts. `drift` is None, with a reason, if the candidate gave none.
    """

    prompt_tokens: int
    floor: float
    drift: float | None
    greedy_mismatches: int
    reason: str | None = None


@dataclass(frozen=True)
class Decoded:
    """Greedy tokens with the log-probability of each, None where the server gave none."""

    tokens: tuple[int, ...]
    logprobs: tuple[float | None, ...]


def probe(incumbent: str, candidate: str, guard: Guard, token_ids: Span, seed: int) -> tuple[Probe, ...]:
    """Both servers by base URL. Raises Broken when one does not answer, or the incumbent not with finite numbers."""
    return tuple(
        _probe(incumbent, candidate, _prompt(length, token_ids, seed), guard.greedy_tokens)
        for length in guard.prompt_tokens
    )


def _prompt(length: int, token_ids: Span, seed: int) -> list[int]:
    return random.Random(f"guard:{seed}:{length}").choices(range(token_ids.low, token_ids.high + 1), k=length)


def _probe(incumbent: str, candidate: str, prompt: list[int], greedy_tokens: int) -> Probe:
    calls = (incumbent, incumbent, candidate, candidate)
    ours, repeated, *theirs = (_greedy(url, prompt, greedy_tokens) for url in calls)
    forced = prompt + list(ours.tokens)
    first, again, *others = (_logprobs(url, forced) for url in calls)
    floor = _largest(largest_difference(first, again), decode_difference(ours, repeated))
    if floor is None:
        raise Broken(
            f"the incumbent gives no {greedy_tokens} tokens or no finite log-probabilities for {len(prompt)} prompt tokens",
            "the incumbent must be sound before anything is compared with it",
        )
    prefill, decode = (
        (largest_difference(first, other) for other in others),
        (decode_difference(ours, x) for x in theirs),
    )
    drift = _largest(*prefill, *decode)
    return Probe(
        prompt_tokens=len(prompt),
        floor=floor,
        drift=drift,
        greedy_mismatches=max(sum(a != b for a, b in itertools.zip_longest(ours.tokens, x.tokens)) for x in theirs),
        reason=None if drift is not None else "the candidate's tokens or log-probabilities are missing or not finite",
    )


def largest_difference(first: Sequence[float | None], second: Sequence[float | None]) -> float | None:
    """In the unit of the values; None if the lengths differ, nothing is there, or a value is absent or not finite."""
    if len(first) != len(second) or not first:
        return None
    largest = 0.0
    for a, b in zip(first, second, strict=True):
        if a is None or b is None or not (math.isfinite(a) and math.isfinite(b)):
            return None
        largest = max(largest, abs(a - b))
    return largest


def decode_difference(first: Decoded, second: Decoded) -> float | None:
    """In nats, up to and with the first step at which other tokens were chosen; None as in `largest_difference`."""
    if len(first.tokens) != len(second.tokens):
        return None
    same = [a == b for a, b in zip(first.tokens, second.tokens, strict=True)]
    steps = same.index(False) + 1 if False in same else len(same)
    return largest_difference(first.logprobs[:steps], second.logprobs[:steps])


def _largest(*differences: float | None) -> float | None:
    known = [difference for difference in differences if difference is not None]
    return max(known) if len(known) == len(differences) else None


def _greedy(url: str, prompt: list[int], count: int) -> Decoded:
    """Nothing where the answer is not of `count` tokens: what that means depends on whose it is."""
    answer = generate(url, prompt, count, return_logprob=True)
    try:
        tokens = tuple(int(token) for token in answer["output_ids"])
        logprobs = first_of_each(answer["meta_info"]["output_token_logprobs"])
    except NO_ANSWER:
        return Decoded((), ())
    return Decoded(tokens, tuple(logprobs)) if len(tokens) == len(logprobs) == count else Decoded((), ())


def _logprobs(url: str, tokens: list[int]) -> list[float | None]:
    """Of each token after the first, given those before it; empty where the answer has none."""
    answer = generate(url, tokens, 1, return_logprob=True, logprob_start_len=0)
    try:
        return first_of_each(answer["meta_info"]["input_token_logprobs"][1:])
    except NO_ANSWER:
        return []


def first_of_each(entries: Any) -> list[float | None]:
    """The number that each entry of SGLang's log-probabilities begins with. Raises one of NO_ANSWER for another shape."""
    return [None if entry[0] is None else float(entry[0]) for entry in entries]


def generate(url: str, prompt: list[int] | str, count: int, **options: object) -> Any:
    """The answer to token ids or to a text, None if it is no JSON. Raises Broken without an answer."""
    sampling = {"max_new_tokens": count, "temperature": 0, "ignore_eos": True}
    asked = {"text" if isinstance(prompt, str) else "input_ids": prompt}
    body = {**asked, "sampling_params": sampling, **options}
    try:
        answer = httpx.post(f"{url}/generate", json=body, timeout=TIMEOUT_S, trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        raise Broken(f"`{url}/generate`: {type(error).__name__}: {error}", "see the server's log") from error
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None
