"""A picture of one comparison: the ratio of each pair of blocks, and the interval that the verdict quotes."""

import io
import math

from tasks.paired import log_ratios
from tasks.records import Evidence, Experiment, Interval

SIZE_INCHES, DPI = (6.4, 2.6), 100


def comparison_png(experiment: Experiment, interval: Interval) -> bytes:
    """PNG of candidate / incumbent in percent: a dot for each pair in order, the estimate and the interval as a band."""
    from matplotlib.figure import Figure  # slow to import, and only needed where something was measured

    evidence = _source(experiment, interval)
    ratios = log_ratios(evidence.blocks, interval.observable, interval.workload) if evidence else []
    changes = [100 * math.expm1(ratio) for ratio in ratios]
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    confidence = f"{100 * interval.confidence:g} %"
    axes.axvspan(interval.low, interval.high, color="#4477aa", alpha=0.25, label=f"interval, {confidence}")
    axes.axvline(interval.estimate, color="#4477aa", label=f"estimate {interval.estimate:+.1f} {interval.unit}")
    axes.axvline(0, color="black", linewidth=1, linestyle=":", label="no difference")
    axes.plot(changes, range(1, len(changes) + 1), "o", color="#cc6677", markersize=4, label="pairs")
    axes.set_xlabel(f"candidate against incumbent, {interval.unit}")
    axes.set_ylabel("pair")
    axes.set_title(f"{interval.observable} at {interval.workload}", fontsize="medium")
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _source(experiment: Experiment, interval: Interval) -> Evidence | None:
    """The evidence that the interval is about: the confirmation, unless the interval says that it is of the first run."""
    holding = [
        evidence
        for evidence in experiment.evidence
        if any(b.observable == interval.observable and b.workload == interval.workload for b in evidence.blocks)
    ]
    if not holding:
        return None
    return holding[0] if interval.method.endswith("first run") else holding[-1]
