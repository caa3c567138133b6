"""Is an answer to the traffic what the model says? Its tokens as they were streamed, scored by one server, teacher-forced.

Greedy decoding takes the likeliest token. So each token of a right answer is the likeliest one after those before it, or
nearly: its deficit, the log-probability of the likeliest token less its own, is about 0 nats. Two right answers may part
at a near tie and go different ways; their deficits stay small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from serving.errors import Broken
from serving.quality import NO_ANSWER, first_of_each, generate
from serving.requests import Request


@dataclass(frozen=True)
class Scored:
    """Log-probabilities at each token of an answer, in nats: its own, and that of the likeliest token there.

    An unknown one is None. `best` is None where the server tells none at all for the tokens of a prompt.
    """

    given: tuple[float | None, ...]
    best: tuple[float | None, ...] | None


def prompt_ids(url: str, request: Request) -> tuple[int, ...] | None:
    """The prompt in tokens: of a text as the server reads it, None where it does not say. Raises Broken without an answer."""
    if request.text is None:
        return request.input_ids
    told = generate(url, request.text, 1, return_prompt_token_ids=True)
    ids = told.get("prompt_token_ids") if isinstance(told, dict) else None
    return tuple(ids) if isinstance(ids, list) and ids and all(type(token) is int for token in ids) else None


def score(url: str, prompt: Sequence[int], answer: Sequence[int]) -> Scored:
    """Both hold at least one token. Raises Broken where the server does not answer with a number for each token."""
    start = len(prompt) - 1  # the first entry that is told has no number
    told = generate(
        url, [*prompt, *answer], 1, return_logprob=True, logprob_start_len=start, top_logprobs_num=1
    )  # fmt: skip
    try:
        meta = told["meta_info"]
        given = first_of_each(meta["input_token_logprobs"][1:])
        tops = meta.get("input_top_logprobs")
        best = None if not tops else first_of_each(top[0] for top in tops[1:])
    except NO_ANSWER:
        given, best = [], []
    if any(len(told) != len(answer) for told in (given, best) if told is not None):
        raise Broken(
            f"`{url}` gives no log-probabilities for {len(answer)} tokens of an answer after {len(prompt)} of a prompt",
            "see the server's log",
        )
    return Scored(tuple(given), None if best is None else tuple(best))


def deficits(scored: Scored) -> list[float | None]:
    """Of each token, in nats and never below 0; None where a number is missing or not finite."""
    return [
        max(0.0, best - given)
        if given is not None and best is not None and math.isfinite(given) and math.isfinite(best)
        else None
        for given, best in zip(scored.given, scored.best or (None,) * len(scored.given), strict=True)
    ]


def deficits_against(
    own: Scored, scored: Scored, tokens: Sequence[int], own_tokens: Sequence[int]
) -> list[float | None]:
    """Below the tokens of the server's `own` answer, up to and with the first that is another: where no likeliest are told."""
    same = [a == b for a, b in zip(tokens, own_tokens, strict=True)]
    steps = same.index(False) + 1 if False in same else len(same)
    return deficits(Scored(scored.given[:steps], own.given[:steps]))
