"""What an experiment costs, with everything in it: builds, noise, failed rungs, and stages that a fault of ours ended."""

from collections.abc import Iterable

from tasks.records import Experiment, Record


class Cost(Record):
    """Wall seconds, and device seconds of GPUs held; None is unknown, which no budget may take for nothing."""

    wall_s: float
    device_s: float | None


def cost_of(experiment: Experiment) -> Cost:
    """Of one attempt, whatever became of it."""
    wall = experiment.build.wall_s if experiment.build else 0.0
    wall += sum(evidence.wall_s for evidence in experiment.evidence)
    wall += experiment.verdict.lost_s if experiment.verdict else 0.0
    return Cost(wall_s=wall, device_s=known_sum(evidence.device_s for evidence in experiment.evidence))


def total(costs: Iterable[Cost]) -> Cost:
    """Sum of several; one unknown makes the sum unknown."""
    listed = list(costs)
    return Cost(wall_s=sum(cost.wall_s for cost in listed), device_s=known_sum(cost.device_s for cost in listed))


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum, or None if any part of it is not known."""
    found = list(values)
    return None if any(value is None for value in found) else sum(value for value in found if value is not None)
