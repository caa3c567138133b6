"""The published kernel case as a conversation: ReplaySSM, then the division, then the prologue hoisted. Each proposal runs
through the cheap rungs, and the next prompt holds what came of it. The model is a script: this is about the loop alone.
"""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from scripted_model import ScriptedModel, Turn, proposing

from tasks.asking import Line
from tasks.endpoint import endpoint_of
from tasks.golden import STAGES
from tasks.ledger import Ledger
from tasks.model_file import Caps, ModelFile
from tasks.opening import admit, new_experiment
from tasks.problem import KERNELS
from tasks.propose import propose
from tasks.records import Experiment, Hypothesis, Outcome
from tasks.stages import run_stage
from tasks.subject import read_subject

pytestmark = pytest.mark.usefixtures("shared_builds")
BOUNDS = ModelFile(caps=Caps(calls=8, seconds=60), prompt_tokens=60_000, findings_tokens=12_000, answer_tokens=8_000)
REPLAY = KERNELS / "kda_replay_decode"
CHECKS = {"one_cycle_bf16": 18, "two_cycles_fp32": 18, "tp8_bf16": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The problem with few checks and timings, and of its catalogue the hypothesis that names the form without a ring."""
    made = tmp_path / "kda_replay_decode"
    (made / "hypotheses").mkdir(parents=True)
    for name in ("definition.yaml", "reference.py", "incumbent.py"):
        shutil.copy(REPLAY / name, made)
    shutil.copy(REPLAY / "hypotheses" / "replay.yaml", made / "hypotheses")
    target = {"kind": "kernel", "problem": str(made), "incumbent_launch": {"L": 1}}
    stated = yaml.safe_load((REPLAY / "hypotheses" / "replay.yaml").read_text())
    (made / "hypotheses" / "replay.yaml").write_text(yaml.safe_dump({**stated, "target": target}))
    workloads = json.loads((REPLAY / "workloads.json").read_text())
    kept = [x for x in workloads["checks"] if x["name"] in CHECKS]
    workloads["checks"] = [{**x, "steps": CHECKS[x["name"]], "twins": []} for x in kept]
    workloads["timings"] = [x for x in workloads["timings"] if x["name"] in ("tp8_b1", "tp8_b8")]
    (made / "workloads.json").write_text(json.dumps(workloads))
    shutil.copy(REPLAY / "criteria.yaml", made)
    return made


def turn(name: str, **changes: object) -> Turn:
    """The hypothesis of the catalogue with that name, as a model would state it."""
    stated = yaml.safe_load((REPLAY / "hypotheses" / f"{name}.yaml").read_text())
    said = {key: stated[key] for key in ("title", "rationale", "question", "prediction", "mechanism")}
    source = None if "source" in changes else (REPLAY / f"{name}.py").read_text()
    return proposing({**said, "source": source, **changes})


def climbed(hypothesis: Hypothesis, url: str) -> Experiment:
    experiment = admit(new_experiment(hypothesis, url), url)
    for stage in STAGES:
        if experiment.verdict is None:
            experiment = run_stage(stage, experiment, url)
    return experiment


def test_three_proposals_in_turn_each_knowing_what_came_of_the_last(folder: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/ledger"
    script = [
        turn("replay", source=None, incumbent_launch=[{"name": "L", "value": 1}]),
        turn("reciprocal"),
        turn("hoist"),
        proposing(),
    ]
    ended: list[Experiment] = []
    with ScriptedModel(script) as model:
        for number in range(3):
            line = Line(endpoint_of(model.environment), BOUNDS)
            proposals = propose(read_subject(str(folder)), 1, Ledger(url), line)
            (hypothesis,) = proposals.accepted
            assert hypothesis.origin == "model"
            sent = model.prompt(number)
            for earlier in ended:
                assert earlier.verdict is not None
                assert f"experiment {earlier.hypothesis_id}" in sent
                assert earlier.verdict.reason in sent
                assert all(finding.implies in sent for finding in earlier.verdict.findings[:1])
            ended.append(climbed(hypothesis, url))
    replay, division, hoist = (e.verdict for e in ended)
    assert replay
    assert replay.outcome is Outcome.PASSED
    assert "fewer bytes moved" in replay.reason
    assert division
    assert "warp instructions" in division.reason
    assert hoist
    assert "16-byte" in hoist.reason
    assert all("speed" in verdict.not_run for verdict in (replay, division, hoist))
