"""A recorded trace in the format of Mooncake as prompts for a model of any size: equal hash ids become equal tokens."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from serving.sources import Span, Trace, TraceLine

HEAD = 3


@dataclass(frozen=True)
class Window:
    """The lines of one block. `round`: how often the trace has been gone through before."""

    lines: tuple[TraceLine, ...]
    round: int


def window(source: Trace, block: int) -> Window:
    """The n-th run of `requests` lines; lines that fill no whole window at the end are left out."""
    lines = source.lines()
    whole = len(lines) // source.requests
    start = block % whole * source.requests
    return Window(lines[start : start + source.requests], block // whole)


def recorded_rate_per_s(source: Trace) -> float | None:
    """Requests a second over the whole file as recorded; None if all of them came at the same time."""
    lines = source.lines()
    span_s = (lines[-1].timestamp - lines[0].timestamp) / 1e3
    return (len(lines) - 1) / span_s if span_s > 0 else None


def prompt_tokens(source: Trace, line: TraceLine) -> int:
    """Rounded up, so that a prompt has as many blocks as it has hash ids, and at least one token."""
    return -(-line.input_length * source.block_tokens // source.recorded_block_tokens)


def output_tokens(source: Trace, line: TraceLine) -> int:
    return max(1, round(line.output_length * source.output_scale))


def shared_tokens(source: Trace, lines: Sequence[TraceLine]) -> tuple[int, ...]:
    """For each line the tokens at the front of its prompt that the hashes find in the prompts before it: what a prefix cache
    without limits would hold if each answer were there before the next request."""
    seen, found = set[int](), []
    for line in lines:
        blocks = next((place for place, h in enumerate(line.hash_ids) if h not in seen), len(line.hash_ids))
        seen.update(line.hash_ids)
        found.append(min(blocks * source.block_tokens, prompt_tokens(source, line)))
    return tuple(found)


def prompt(source: Trace, line: TraceLine, token_ids: Span, seed: int, round_: int) -> tuple[int, ...]:
    """Tokens of a prompt: block after block, the last one cut to length."""
    count = prompt_tokens(source, line)
    ids = [
        token
        for hash_id in line.hash_ids
        for token in block_ids(f"{seed}:{round_}", hash_id, source.block_tokens, token_ids)
    ]
    return tuple(ids[:count])


@lru_cache(maxsize=1 << 16)
def block_ids(salt: str, hash_id: int, count: int, token_ids: Span) -> tuple[int, ...]:
    """`count` tokens that are the block's own: the first `HEAD` of them spell the hash id, the others are drawn.

    So two blocks of a salt that are long enough begin with at most two equal tokens, for ids below the third power of the
    span.
    """
    rng = random.Random(f"block:{salt}:{hash_id}")
    span, rest = token_ids.high - token_ids.low + 1, hash_id
    head = []
    for _ in range(HEAD):
        head.append(token_ids.low + rest % span)
        rest //= span
    return (*head, *rng.choices(range(token_ids.low, token_ids.high + 1), k=max(count - HEAD, 0)))[:count]
