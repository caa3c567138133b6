"""The requests of one block of traffic, in sending order: a function of the scenario's traffic and the block's number alone."""

import random
from dataclasses import dataclass, replace

from serving import trace
from serving.images import noise_png_uri
from serving.scenario import Traffic
from serving.sources import Classes, Images, Prompts, RandomLengths, Span, Trace


@dataclass(frozen=True)
class Request:
    """The prompt is `input_ids`, or `text`, or a picture (`image_uri`) with `text` as the question.

    `due_s`: when it is to be sent, in s after the block begins; None where a client sends it when it is free.
    """

    id: str
    class_name: str
    output_tokens: int
    input_ids: tuple[int, ...] = ()
    text: str | None = None
    image_uri: str | None = None
    due_s: float | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """None where only the server knows."""
        return len(self.input_ids) or None


def plan_requests(traffic: Traffic, block: int) -> tuple[Request, ...]:
    """The requests of block number `block`. Raises BadInput for a data file that is no longer what it was."""
    rng = random.Random(f"{traffic.seed}:{block}")
    match traffic.source:
        case Classes():
            found = _of_classes(traffic.source, traffic.token_ids, rng, block)
        case RandomLengths():
            found = _of_random_lengths(traffic.source, traffic.token_ids, rng, block)
        case Trace():
            found = _of_trace(traffic.source, traffic.token_ids, traffic.seed, block)
        case Prompts():
            found = _of_prompts(traffic.source, rng, block)
        case Images():
            found = _of_images(traffic.source, rng, block)
    return _arriving(traffic, found, block)


def _of_classes(source: Classes, token_ids: Span, rng: random.Random, block: int) -> list[Request]:
    names = [name for name, part in source.classes.items() for _ in range(part.requests)]
    rng.shuffle(names)
    found = []
    for place, name in enumerate(names):
        chosen = source.classes[name]
        length = _drawn(chosen.prompt_tokens, rng)
        ids = _unlike_any_other(token_ids, block * len(names) + place, length, rng)
        found.append(Request(f"{block}-{place}", name, _drawn(chosen.output_tokens, rng), ids))
    return found


def _of_random_lengths(source: RandomLengths, token_ids: Span, rng: random.Random, block: int) -> list[Request]:
    spans = [
        Span(low=max(int(full * source.range_ratio), 1), high=full)
        for full in (source.prompt_tokens, source.output_tokens)
    ]
    found = []
    for place in range(source.requests):
        prompt, output = (_drawn(span, rng) for span in spans)
        ids = _unlike_any_other(token_ids, block * source.requests + place, prompt, rng)
        found.append(Request(f"{block}-{place}", "random", output, ids))
    return found


def _of_trace(source: Trace, token_ids: Span, seed: int, block: int) -> list[Request]:
    window = trace.window(source, block)
    first_ms = window.lines[0].timestamp
    return [
        Request(
            f"{block}-{place}",
            "trace",
            trace.output_tokens(source, line),
            trace.prompt(source, line, token_ids, seed, window.round),
            due_s=(line.timestamp - first_ms) / 1e3,
        )
        for place, line in enumerate(window.lines)
    ]


def _of_prompts(source: Prompts, rng: random.Random, block: int) -> list[Request]:
    lines, found = source.lines(), []
    for place in range(source.requests):
        line = lines[(block * source.requests + place) % len(lines)]
        output = line.output_tokens or _drawn(source.output_tokens, rng)
        found.append(Request(f"{block}-{place}", "prompts", output, line.input_ids or (), line.text))
    return found


def _of_images(source: Images, rng: random.Random, block: int) -> list[Request]:
    found = []
    for place in range(source.requests):
        uri = noise_png_uri(_drawn(source.width_px, rng), _drawn(source.height_px, rng), rng)
        output = _drawn(source.output_tokens, rng)
        found.append(Request(f"{block}-{place}", "images", output, text=source.question, image_uri=uri))
    return found


def _arriving(traffic: Traffic, requests: list[Request], block: int) -> tuple[Request, ...]:
    """With the times at which they are due. The first is due at once."""
    arrivals = traffic.arrivals
    if arrivals.speed is not None:
        return tuple(replace(r, due_s=(r.due_s or 0.0) / arrivals.speed) for r in requests)
    if arrivals.rate_per_s is None:
        return tuple(replace(r, due_s=None) for r in requests)
    rng, now, found = random.Random(f"arrivals:{traffic.seed}:{block}"), 0.0, []
    for request in requests:
        found.append(replace(request, due_s=now))
        now += rng.expovariate(arrivals.rate_per_s)
    return tuple(found)


def _drawn(span: Span, rng: random.Random) -> int:
    return rng.randint(span.low, span.high)


def _unlike_any_other(token_ids: Span, ordinal: int, length: int, rng: random.Random) -> tuple[int, ...]:
    """Tokens that differ from those of every other ordinal from the second on, so that no prefix is shared by accident."""
    low, span = token_ids.low, token_ids.high - token_ids.low + 1
    head = (low + ordinal % span, low + ordinal // span % span)
    return (*head, *rng.choices(range(low, low + span), k=max(length - 2, 0)))[:length]
