"""prefect.yaml, infra/pools.yaml and the planner agree: nothing can be dispatched that has no deployment, pool or limit."""

import importlib
from typing import Any

import pytest
import yaml
from prefect import Flow
from prefect.events.schemas.automations import AutomationCore

from serving.documents import read_document
from serving.home import REPOSITORY
from tasks.plan import POOLS, STAGE_RUNGS
from tasks.pools_file import PoolsFile

WRITTEN: dict[str, Any] = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())
DEPLOYMENTS: list[dict[str, Any]] = WRITTEN["deployments"]
DECLARED = read_document(REPOSITORY / "infra" / "pools.yaml", PoolsFile).pools


def flow_of(deployment: dict[str, Any]) -> Flow[Any, Any]:
    module, _, name = deployment["entrypoint"].rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Flow)
    return found


def test_every_part_of_a_stage_has_a_deployment_on_its_pool() -> None:
    named = {f"{flow_of(d).name}/{d['name']}": d["work_pool"]["name"] for d in DEPLOYMENTS if "stage" in d["tags"]}
    parts = {f"{stage}/{POOLS[rung]}": POOLS[rung] for stage, rungs in STAGE_RUNGS.items() for rung in rungs}
    assert named == parts | {"build/cpu-build": "cpu-build"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d["entrypoint"] + " on " + d["name"])
def test_a_deployment_fits_its_pool(deployment: dict[str, Any]) -> None:
    pool = deployment["work_pool"]
    declared = DECLARED[pool["name"]]
    assert pool.get("work_queue_name", "default") in (*declared.queues, "default")
    gpu = pool["name"].startswith("gpu-")
    environment = pool["job_variables"]["env"]
    assert ("CUDA_VISIBLE_DEVICES" in environment) == gpu == (declared.limit is not None)
    assert environment["PREFECT_FLOWS_HEARTBEAT_FREQUENCY"] == "30"
    assert ("INFRA_AGENT_PROFILE" in environment) == (pool["name"] == "orchestrator"), "only those that wait dispatch"
    flow_of(deployment).validate_parameters(deployment.get("parameters", {})) if "stage" not in deployment[
        "tags"
    ] else None


def test_the_manual_trigger_and_what_runs_at_night_have_the_names_that_people_know() -> None:
    named = {f"{flow_of(d).name}/{d['name']}": d for d in DEPLOYMENTS if "stage" not in d["tags"]}
    assert set(named) == {"experiment/one-hypothesis", "propose/one-target", "campaign/nightly", "selfcheck/nightly"}
    for name in ("campaign/nightly", "selfcheck/nightly"):
        assert named[name]["schedules"][0]["cron"]


def test_a_lost_machine_is_noticed_before_two_heartbeats_more_than_it_takes() -> None:
    (one,) = yaml.safe_load((REPOSITORY / "infra" / "automations.yaml").read_text())["automations"]
    automation = AutomationCore.model_validate(one)
    assert automation.enabled
    assert automation.trigger.within.total_seconds() == 3 * 30  # type: ignore[union-attr]
