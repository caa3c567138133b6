"""Traffic that tests send: a few short requests."""

from serving.scenario import Arrivals, Traffic
from serving.sources import Classes, Images, RequestClass, Span

CLOSED = Arrivals(kind="closed", concurrency=2)
POISSON = Arrivals(kind="poisson", rate_per_s=200.0)
IMAGES = Images(
    kind="images",
    requests=2,
    width_px=Span(low=28, high=28),
    height_px=Span(low=28, high=28),
    question="what is it",
    output_tokens=Span(low=3, high=3),
)


def traffic(arrivals: Arrivals = CLOSED, **changes: object) -> Traffic:
    classes = {
        "chat": RequestClass(requests=4, prompt_tokens=Span(low=3, high=9), output_tokens=Span(low=2, high=5)),
        "document": RequestClass(requests=2, prompt_tokens=Span(low=40, high=50), output_tokens=Span(low=1, high=1)),
    }
    return Traffic(
        seed=7,
        pairs=2,
        noise_pairs=4,
        warmup_blocks=1,
        arrivals=arrivals,
        token_ids=Span(low=300, high=400),
        source=Classes(kind="classes", classes=classes),
        request_timeout_s=10,
    ).model_copy(update=changes)
