"""Stages on work pools: a real Prefect server and real workers on this machine, without a GPU."""

import json
import os
import shutil
import signal
import socket
import time
import zlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import prefect_site as sites
import psutil
import pytest
import yaml
from examples import PREDICTIONS, kernel_hypothesis
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Cancelling

from tasks.history import attempts, latest
from tasks.ledger import Ledger
from tasks.opening import new_experiment
from tasks.plan import POOLS
from tasks.records import Experiment, Outcome, Question, Rung
from tasks.stages import open_experiment

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(900),  # of a busy machine; a quiet one takes a fraction
    pytest.mark.filterwarnings("ignore"),  # of Prefect's own
]
KDA = sites.ROOT / "kernels" / "kda_decode"
SERVING = sites.ROOT / "serving"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sites.Site]:
    with sites.serve(tmp_path_factory.mktemp("site")) as served:
        yield served


@pytest.fixture(scope="module")
def small_problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kda_decode with one timing, and the one check that speaks for it."""
    folder = tmp_path_factory.mktemp("problem") / "kda_decode"
    shutil.copytree(KDA, folder, ignore=shutil.ignore_patterns("hypotheses"))
    workloads = json.loads((KDA / "workloads.json").read_text())
    workloads["checks"] = [{**x, "steps": 2} for x in workloads["checks"] if x["name"] == "tp8_bf16"]
    workloads["timings"] = [x for x in workloads["timings"] if x["name"] == "tp8_b1"]
    (folder / "workloads.json").write_text(json.dumps(workloads))
    return folder


def kernel_question(question: str, title: str, problem: Path = KDA) -> dict[str, object]:
    """The shipped example with another question, as somebody would write it into the form."""
    written: dict[str, Any] = yaml.safe_load((KDA / "hypotheses" / "hoist_gate.yaml").read_text())
    written["target"]["problem"], written["change"]["source"] = str(problem), str(problem / "hoist_gate.py")
    said = PREDICTIONS.get(Question(question), PREDICTIONS[Question.SAME_RESULTS])
    return written | {"question": question, "prediction": said.model_dump(), "title": title}


def stack_on_port(port: int, folder: Path) -> dict[str, object]:
    """The shipped example with its servers on another port."""
    stack: dict[str, Any] = yaml.safe_load((SERVING / "stacks" / "tiny-glm-cpu.yaml").read_text())
    stack["roles"]["server"]["port"] = port
    (folder / "stack.yaml").write_text(yaml.safe_dump(stack))
    written: dict[str, Any] = yaml.safe_load((SERVING / "hypotheses" / "chunked_prefill.yaml").read_text())
    scenario = str(SERVING / "scenarios" / "mixed-lengths-cpu.yaml")
    target = {"kind": "stack", "stack": str(folder / "stack.yaml"), "scenario": scenario}
    return written | {"title": "servers on a port that is taken", "target": target}


def campaign_file(folder: Path, *titles: str) -> Path:
    """A campaign of hypotheses with these titles, in this order."""
    folder.mkdir()
    for number, title in enumerate(titles):
        written: dict[str, Any] = kernel_question("same results", title)
        written["change"]["launch"] = {"num_stages": zlib.crc32(title.encode())}  # the same change again is a duplicate
        (folder / f"{number}.yaml").write_text(yaml.safe_dump(written))
    path = folder / "campaign.yaml"
    path.write_text(yaml.safe_dump({"title": "test", "hypotheses": ["[0-9]*.yaml"], "budget": {"experiments": 9}}))
    return path


def under(site: sites.Site, title: str) -> list[Experiment]:
    """All attempts at the hypothesis with this title."""
    return [found for found in attempts(Ledger(site.ledger_url).read()) if found.hypothesis.title == title]


def test_infra_apply_says_what_it_changes_and_then_nothing(site: sites.Site) -> None:
    first = (site.folder / "applied.txt").read_text()
    for pool in {*POOLS.values(), "orchestrator"}:
        assert f"pool `{pool}` created" in first
    assert "limit `gpu-microbench` created: 1" in first
    assert "automation `crash-lost-runs` created" in first
    again = site.run("infra", "apply")
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.engine
def test_each_stage_runs_on_its_own_pool_with_the_verdicts_of_the_local_profile(
    site: sites.Site, small_problem: Path, tmp_path: Path
) -> None:
    """Without a GPU, microbench and engine say that they did not run; a port that is taken ends the service rung at once."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asked = [
            kernel_question("faster kernel", "a faster kernel", small_problem),
            kernel_question("sound engine", "a sound engine", small_problem),
            stack_on_port(taken.getsockname()[1], tmp_path),
        ]
        runs = [site.trigger("experiment/one-hypothesis", hypothesis=written) for written in asked]
        ended = [site.ended(run.id) for run in runs]
        locally = [run_locally(site, written, tmp_path) for written in asked]
    visited: dict[str, set[str]] = {}
    for run, local in zip(ended, locally, strict=True):
        assert run.state_type is StateType.COMPLETED, run.state
        assert run.name == local.hypothesis.title
        (on_pools,) = under(site, run.name)
        assert on_pools.verdict is not None
        assert local.verdict is not None
        assert on_pools.verdict.model_dump(exclude={"lost_s"}) == local.verdict.model_dump(exclude={"lost_s"})
        assert {f"outcome:{local.verdict.outcome}", f"question:{local.hypothesis.question}"} <= set(run.tags)
        for child in site.children(run.id):
            stage, _, pool = child.name.partition(":")[0].partition(" on ")
            assert (child.work_pool_name, child.work_queue_name) == (pool, "cpu" if "gpu" in pool else "default")
            visited.setdefault(pool, set()).add(stage)
    assert visited == {
        "cpu-build": {"build", "microbench"},
        "gpu-microbench": {"microbench"},
        "gpu-validation": {"validate"},
        "gpu-deployment": {"deploy"},
    }


def run_locally(site: sites.Site, written: dict[str, object], folder: Path) -> Experiment:
    (folder / "asked.yaml").write_text(yaml.safe_dump(written))
    arguments = ("--ledger", f"file://{folder}/local", "--json", str(folder / "local.json"))
    site.run("run", str(folder / "asked.yaml"), *arguments)
    return Experiment.model_validate_json((folder / "local.json").read_text())


def test_a_stage_that_is_killed_ends_broken_and_the_campaign_goes_on(site: sites.Site, tmp_path: Path) -> None:
    path = campaign_file(tmp_path / "killed", "killed, never ends", "killed, the next")
    with site.doubles():
        run = site.trigger("campaign/nightly", campaign=str(path))
        stage = site.running_stage(run.id, "killed, never ends")
        os.kill(sites.pid_of(stage), signal.SIGKILL)
        killed = time.time()
        assert site.ended(run.id).state_type is StateType.COMPLETED
    (broken,), (next_one,) = under(site, "killed, never ends"), under(site, "killed, the next")
    assert broken.verdict is not None
    assert broken.verdict.outcome is Outcome.BROKEN
    assert "did not finish: Crashed" in broken.verdict.reason
    assert next_one.verdict is not None
    assert next_one.verdict.outcome is Outcome.REJECTED
    written = [e for e in Ledger(site.ledger_url).read(broken.hypothesis_id).entries if e.kind == "verdict"]
    print(f"\nBROKEN {datetime.fromisoformat(written[0].written_at).timestamp() - killed:.1f} s after SIGKILL")


def test_cancelling_a_campaign_leaves_no_child_running(site: sites.Site, tmp_path: Path) -> None:
    path = campaign_file(tmp_path / "cancelled", "cancelled, never ends", "cancelled, the next")
    with site.doubles():
        run = site.trigger("campaign/nightly", campaign=str(path))
        stage = site.running_stage(run.id, "cancelled, never ends")
        process = psutil.Process(sites.pid_of(stage))
        since = time.monotonic()
        site.client.set_flow_run_state(run.id, Cancelling())
        assert site.ended(run.id).state_type is StateType.CANCELLED
        states = [site.ended(child.id).state_type for child in site.descendants(run.id)]
        print(f"\nall cancelled {time.monotonic() - since:.1f} s after the campaign was")
    assert set(states) == {StateType.CANCELLED}
    sites.wait(lambda: True if not process.is_running() else None, limit_s=60)
    assert not under(site, "cancelled, the next")


def test_a_campaign_that_is_killed_goes_on_without_repeating_or_losing_one(site: sites.Site, tmp_path: Path) -> None:
    titles = ("resumed, the first", "resumed, never ends")
    path = campaign_file(tmp_path / "resumed", *titles)
    with site.doubles():
        run = site.trigger("campaign/nightly", campaign=str(path))
        stage = site.running_stage(run.id, titles[1])
        os.kill(sites.pid_of(site.client.read_flow_run(run.id)), signal.SIGKILL)
        assert site.ended(run.id).state_type is StateType.CRASHED
        site.ended(stage.id)
        second = site.trigger("campaign/nightly", campaign=str(path))
        os.kill(sites.pid_of(site.running_stage(second.id, titles[1])), signal.SIGKILL)
        assert site.ended(second.id).state_type is StateType.COMPLETED
    (first,), (killed, again) = (under(site, title) for title in titles)
    assert first.verdict
    assert first.verdict.outcome is Outcome.REJECTED
    assert killed.attempt != again.attempt
    assert again.verdict
    assert again.verdict.outcome is Outcome.BROKEN


def test_two_workers_never_hold_a_device_of_one_pool_at_a_time(site: sites.Site) -> None:
    opened = []
    for title in ("device, one", "device, two"):
        hypothesis = kernel_hypothesis(Question.FASTER_KERNEL, title=title, rationale=title, mechanism=title)
        opened.append(open_experiment(new_experiment(hypothesis, site.ledger_url), site.ledger_url))
    with site.doubles():
        runs = [site.trigger("microbench/gpu-microbench", **part(site, view)) for view in opened]
        ended = [site.ended(run.id) for run in runs]
    assert {run.state_type for run in ended} == {StateType.COMPLETED}
    processes, held = [(run.start_time, run.end_time) for run in ended], [held_during(site, run) for run in ended]
    assert overlap(*processes), "both runs had a worker at the same time, or this shows nothing"
    assert not overlap(*held)


def test_a_limit_that_is_missing_is_an_error_and_not_no_limit(site: sites.Site) -> None:
    hypothesis = kernel_hypothesis(Question.FASTER_KERNEL, title="no limit", rationale="no limit")
    view = open_experiment(new_experiment(hypothesis, site.ledger_url), site.ledger_url)
    site.client.delete_global_concurrency_limit_by_name("gpu-microbench")
    try:
        with site.doubles():
            ended = site.ended(site.trigger("microbench/gpu-microbench", **part(site, view)).id)
    finally:
        assert site.run("infra", "apply").stdout == "limit `gpu-microbench` created: 1\n"
    assert ended.state_type is StateType.FAILED
    assert latest(Ledger(site.ledger_url), view.hypothesis_id).of(Rung.MICROBENCH) is None


def part(site: sites.Site, view: Experiment) -> dict[str, str]:
    """Parameters of the run that a stage's flow run on `gpu-microbench` gets."""
    ids = {"hypothesis_id": view.hypothesis_id, "attempt": view.attempt, "ledger_url": site.ledger_url}
    return {"stage": "microbench", "pool": "gpu-microbench", **ids}


def held_during(site: sites.Site, run: FlowRun) -> tuple[datetime, datetime]:
    """While the run's task was at work: it is inside of the lease."""
    (task,) = site.client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id])))
    assert task.start_time
    assert task.end_time
    return task.start_time, task.end_time


def overlap(one: tuple[datetime, datetime], other: tuple[datetime, datetime]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
