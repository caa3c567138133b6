"""Scenarios are criteria: a file that cannot be judged by is refused."""

from pathlib import Path

import pytest
import yaml

from serving.errors import BadInput
from serving.scenario import load_scenario

SCENARIOS = sorted((Path(__file__).parents[2] / "serving" / "scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_the_scenarios_we_ship_can_be_read(path: Path) -> None:
    assert load_scenario(path).name == path.stem


def test_a_comment_does_not_change_the_digest_and_a_limit_does(tmp_path: Path) -> None:
    original = load_scenario(SCENARIOS[0]).digest
    copy = tmp_path / "copy.yaml"
    copy.write_text("# another comment\n" + SCENARIOS[0].read_text())
    assert load_scenario(copy).digest == original
    changed = yaml.safe_load(SCENARIOS[0].read_text()) | {"smallest_effect_of_interest_pct": 1}
    copy.write_text(yaml.safe_dump(changed))
    assert load_scenario(copy).digest != original


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"primary": "happiness"}, "happiness"),
        ({"vetoes": {"smell": 1}}, "smell"),
        ({"vetoes": {"ttft_mean_ms": 1}, "primary": "ttft_mean_ms"}, "cannot be a veto"),
        ({"direction": "sideways"}, "direction"),
        ({"confidence": 1.5}, "confidence"),
        ({"budget": 1}, "budget"),
    ],
)
def test_a_scenario_that_cannot_be_judged_by_is_refused(change: dict, said: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(SCENARIOS[0].read_text()) | change))
    with pytest.raises(BadInput, match=said):
        load_scenario(file)


@pytest.mark.parametrize(
    "arrivals", [{"kind": "closed"}, {"kind": "poisson"}, {"kind": "poisson", "rate_per_s": 1, "concurrency": 1}]
)
def test_arrivals_have_what_their_kind_needs_and_nothing_else(arrivals: dict, tmp_path: Path) -> None:
    content = yaml.safe_load(SCENARIOS[0].read_text())
    content["traffic"]["arrivals"] = arrivals
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(BadInput, match="arrivals"):
        load_scenario(file)
