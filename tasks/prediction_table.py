"""What was predicted of a service and what it did, in one table."""

from tasks.paired import mean_of
from tasks.records import Arm, Evidence, Experiment, ServiceGain

CALL_TIME = "code_us"


def prediction_lines(experiment: Experiment) -> list[str]:
    """A line for each figure, change and range in percent; nothing where no gain of a service was predicted."""
    verdict = experiment.verdict
    found = next((e for e in reversed(experiment.evidence) if e.predicted is not None), None)
    if found is None or found.predicted is None:
        return []
    said = found.predicted
    seen = next((i for i in verdict.intervals if i.observable == said.observable), None) if verdict else None
    rows = [
        ("kernel alone, predicts", said.timing, said.alone_pct[1], said.alone_pct[0], said.alone_pct[2]),
        ("its share of the time", "incumbent", said.share_pct[1], said.share_pct[0], said.share_pct[2]),
        ("predicted", said.observable, said.estimate_pct, said.low_pct, said.high_pct),
    ]
    lines = [f"{'':<24}{'of':<16}{'%':>8}  range", *(_row(*row) for row in rows)]
    if seen is None:
        return [*lines, f"{'measured':<24}{said.observable:<16}not decided"]
    lines.append(_row("measured", said.observable, seen.estimate, seen.low, seen.high))
    return [*lines, *_in_service(found), _met(said, seen.low, seen.high)]


def _row(what: str, of: str, middle: float, low: float, high: float) -> str:
    return f"{what:<24}{of:<16}{middle:>+8.1f}  [{low:+.1f}, {high:+.1f}]"


def _in_service(evidence: Evidence) -> list[str]:
    """What a call took under traffic: where a miss comes from."""
    before, after = (mean_of(evidence.blocks, CALL_TIME, arm) for arm in (Arm.INCUMBENT, Arm.CANDIDATE))
    if not before or after is None:
        return []
    change = f"{100 * (after / before - 1):>+8.1f}  {before:,.0f} us to {after:,.0f} us"
    return [f"{'kernel, in the service':<24}{'a call':<16}{change}"]


def _met(said: ServiceGain, low: float, high: float) -> str:
    met = said.low_pct <= high and low <= said.high_pct
    return "prediction and result agree" if met else "prediction and result do not meet: see the finding"
