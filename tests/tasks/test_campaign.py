"""A campaign tries what is open, remembers by the ledger alone, and ends with its budget."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from examples import block, evidence, experiment, kernel_hypothesis

from serving.errors import BadInput
from serving.home import REPOSITORY
from tasks.campaign import (
    BudgetPart,
    CampaignFile,
    Catalogue,
    load_campaign,
    read_catalogue,
    report,
    report_text,
    still_open,
)
from tasks.decide import broken
from tasks.ledger import Ledger
from tasks.records import Arm, Experiment, Outcome, Rung, Verdict

KDA = REPOSITORY / "kernels" / "kda_decode"
CAMPAIGN = CampaignFile(title="night", hypotheses=("*.yaml",), budget=BudgetPart(experiments=2))


def titled(title: str) -> Experiment:
    return experiment(kernel_hypothesis(title=title))


def ended(view: Experiment, outcome: Outcome) -> Experiment:
    if outcome is Outcome.BROKEN:
        return view.with_record(broken(view, "the port was taken"))
    return view.with_record(Verdict(hypothesis_id=view.hypothesis_id, outcome=outcome, reason="so it was"))


def store(url: str, view: Experiment) -> None:
    for record in (view.hypothesis, view.plan, *([view.verdict] if view.verdict else [])):
        Ledger(url).append(view.hypothesis_id, view.attempt, record)


def catalogue(*views: Experiment) -> Catalogue:
    return Catalogue(hypotheses=tuple(view.hypothesis for view in views), refused=())


def test_what_is_decided_is_never_tried_again_and_what_broke_or_never_ended_is(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/l"
    rejected, inconclusive, broke, cut_off, new = (titled(name) for name in "abcde")
    store(url, ended(rejected, Outcome.REJECTED))
    store(url, ended(inconclusive, Outcome.INCONCLUSIVE))
    store(url, ended(broke, Outcome.BROKEN))
    store(url, cut_off)
    everything = catalogue(rejected, inconclusive, broke, cut_off, new)
    assert [h.title for h in still_open(everything, Ledger(url).read())] == ["c", "d", "e"]


def test_a_decided_hypothesis_stays_decided_when_a_later_attempt_broke(tmp_path: Path) -> None:
    url, view = f"file://{tmp_path}/l", titled("a")
    store(url, ended(view, Outcome.REJECTED))
    store(url, ended(view.model_copy(update={"attempt": "20270101T000000Z-bbbbbb"}), Outcome.BROKEN))
    assert not still_open(catalogue(view), Ledger(url).read())


@pytest.mark.parametrize(
    ("budget", "experiments", "seconds", "words"),
    [
        (BudgetPart(experiments=2), 2, 0.0, "2 experiments"),
        (BudgetPart(seconds=60), 0, 60.0, "60 s"),
        (BudgetPart(experiments=9, seconds=60), 1, 61.0, "60 s"),
    ],
)
def test_the_first_budget_to_end_is_named(budget: BudgetPart, experiments: int, seconds: float, words: str) -> None:
    assert words in (budget.ended(experiments, seconds) or "")
    assert budget.ended(0, 0.0) is None


def written(folder: Path, name: str, change: Callable[[str], str] = str) -> None:
    text = (KDA / "hypotheses" / "hoist_gate.yaml").read_text().replace("../hoist_gate.py", str(KDA / "hoist_gate.py"))
    (folder / name).write_text(change(text))


def test_the_same_hypothesis_in_two_files_is_tried_once_and_a_bad_file_stops_no_other(tmp_path: Path) -> None:
    written(tmp_path, "a.yaml")
    written(tmp_path, "b.yaml")
    written(tmp_path, "c.yaml", lambda text: text + "colour: red\n")
    written(tmp_path, "d.yaml", lambda text: text.replace("less emitted work", "more overlap"))
    campaign = CAMPAIGN.model_copy(update={"hypotheses": ("*.yaml", "e.yaml")})
    found = read_catalogue(campaign, tmp_path)
    assert len(found.hypotheses) == 1
    assert [refused.file for refused in found.refused] == ["c.yaml", "d.yaml", "e.yaml"]
    assert "colour" in found.refused[0].message
    assert "more overlap" in found.refused[1].message


@pytest.mark.parametrize("pattern", ["*.yaml", "[ab].yaml", "**/?.yaml", "a.yaml", "{folder}/a*"])
def test_wildcards_of_every_kind_are_understood(pattern: str, tmp_path: Path) -> None:
    written(tmp_path, "a.yaml")
    campaign = CAMPAIGN.model_copy(update={"hypotheses": (pattern.format(folder=tmp_path),)})
    assert len(read_catalogue(campaign, tmp_path).hypotheses) == 1


def test_a_campaign_without_a_hypothesis_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="names no hypothesis"):
        read_catalogue(CAMPAIGN, tmp_path)


def test_a_campaign_needs_an_end(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"title": "x", "hypotheses": ["*.yaml"], "budget": {}}))
    with pytest.raises(BadInput, match="a budget of"):
        load_campaign(tmp_path / "c.yaml")


def test_the_shipped_campaign_names_the_whole_catalogue() -> None:
    path = REPOSITORY / "campaigns" / "nightly.yaml"
    found = read_catalogue(load_campaign(path), path.parent)
    files = [*REPOSITORY.glob("kernels/*/hypotheses/*.yaml"), *REPOSITORY.glob("serving/hypotheses/*.yaml")]
    assert len(found.hypotheses) == len(files)
    assert not found.refused


def test_the_report_counts_outcomes_and_says_what_a_budget_left() -> None:
    views = [titled(name) for name in "abc"]
    seen = evidence(Rung.STATIC, block(Arm.CANDIDATE, "warp_instructions", 1.0), device_s=2.5)
    done = [ended(views[0].with_record(seen), Outcome.REJECTED), ended(views[1], Outcome.BROKEN)]
    made = report(CAMPAIGN, catalogue(*views), [view.hypothesis for view in views], done, wall_s=12.0)
    assert (made.count(Outcome.REJECTED), made.count(Outcome.BROKEN), made.count(Outcome.PASSED)) == (1, 1, 0)
    assert (made.left, made.device_s) == (("c",), 2.5)
    text = report_text(made)
    assert "tried 2: passed 0, rejected 1, inconclusive 0, broken 1" in text
    assert "ended by: the budget of 2 experiments" in text
    assert "device time: 2.5 s" in text


def test_device_time_that_is_not_known_is_not_nothing() -> None:
    seen = evidence(Rung.STATIC, block(Arm.CANDIDATE, "warp_instructions", 1.0), device_s=None)
    view = titled("a")
    done = [ended(view.with_record(seen), Outcome.REJECTED)]
    made = report(CAMPAIGN, catalogue(view), [view.hypothesis], done, wall_s=1.0)
    assert made.device_s is None
    assert "device time: unknown" in report_text(made)
    assert made.ended_by == "nothing was left to try"
