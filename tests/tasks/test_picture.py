"""The picture of a comparison shows every pair and the interval."""

import io

import numpy as np
import pytest
from examples import block, evidence, experiment, stack_hypothesis
from PIL import Image

from tasks.picture import comparison_png
from tasks.records import Arm, Experiment, Interval, Rung

INTERVAL = Interval(
    observable="ttft_ms", unit="%", workload="w", estimate=-20, low=-30, high=-10, confidence=0.95, blocks=3, method="m"
)


def measured(*ratios: float) -> Experiment:
    view = experiment(stack_hypothesis())
    blocks = [
        block(
            arm,
            "ttft_ms",
            100.0 * (ratio if arm is Arm.CANDIDATE else 1),
            unit="ms",
            order=2 * n + (arm is Arm.CANDIDATE),
        )
        for n, ratio in enumerate(ratios)
        for arm in Arm
    ]
    return view.with_record(evidence(Rung.SERVICE, *blocks))


def pixels(view: Experiment, interval: Interval) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    return np.asarray(Image.open(io.BytesIO(comparison_png(view, interval))).convert("RGB"))


def test_a_picture_is_a_png_small_enough_for_an_artifact() -> None:
    png = comparison_png(measured(0.7, 0.8, 0.9), INTERVAL)
    assert png.startswith(b"\x89PNG")
    assert len(png) < 100_000
    assert Image.open(io.BytesIO(png)).size == (640, 260)


@pytest.mark.parametrize("other", [measured(0.7, 0.8, 0.5), measured(0.7, 0.8), experiment(stack_hypothesis())])
def test_pairs_are_in_the_picture(other: Experiment) -> None:
    assert not np.array_equal(pixels(measured(0.7, 0.8, 0.9), INTERVAL), pixels(other, INTERVAL))


def test_the_interval_is_in_the_picture() -> None:
    wider = INTERVAL.model_copy(update={"low": -60.0})
    assert not np.array_equal(pixels(measured(0.7, 0.8), INTERVAL), pixels(measured(0.7, 0.8), wider))


def test_the_first_run_and_its_confirmation_have_pictures_of_their_own() -> None:
    view = measured(0.7, 0.8, 0.9)
    (first,) = view.evidence
    again = measured(0.95, 0.96, 0.97).evidence[0].model_copy(update={"confirms": first.id})
    both, of_first = view.with_record(again), INTERVAL.model_copy(update={"method": "m; first run"})
    assert np.array_equal(pixels(both, of_first), pixels(view, INTERVAL))
    assert not np.array_equal(pixels(both, INTERVAL), pixels(view, INTERVAL))
