"""A site for tests: a real Prefect server and real workers on this machine, with everything in one folder."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterParentFlowRunId
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-P", "-c", "from flows.cli import main; main()"]
WORKERS = (  # pool, and how many runs at a time: those of the orchestrator only wait
    ("orchestrator", 4), ("cpu-build", 1), ("gpu-microbench", 1), ("gpu-microbench", 1), ("gpu-validation", 1),
    ("gpu-deployment", 1),
)  # fmt: skip
Found = TypeVar("Found")


@dataclass(frozen=True)
class Site:
    folder: Path
    environment: dict[str, str]
    client: SyncPrefectClient

    @property
    def ledger_url(self) -> str:
        return f"file://{self.folder}/home/ledger"

    def run(self, *arguments: str, command: Sequence[str] = COMMAND) -> "subprocess.CompletedProcess[str]":
        """A command from the root of the repository, to its end."""
        return subprocess.run(
            [*command, *arguments], cwd=ROOT, env=self.environment, text=True, capture_output=True, check=False
        )

    def trigger(self, deployment: str, **parameters: object) -> FlowRun:
        found = self.client.read_deployment_by_name(deployment)
        return self.client.create_flow_run_from_deployment(found.id, parameters=dict(parameters))

    def ended(self, run_id: UUID, limit_s: float = 500) -> FlowRun:
        """The flow run when it has ended."""
        return wait(lambda: run if (run := self.client.read_flow_run(run_id)).state.is_final() else None, limit_s)  # type: ignore[union-attr]

    def children(self, run_id: UUID) -> list[FlowRun]:
        asked = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[run_id]))
        return self.client.read_flow_runs(flow_run_filter=asked)

    def descendants(self, run_id: UUID) -> list[FlowRun]:
        below = self.children(run_id)
        return [*below, *(run for child in below for run in self.descendants(child.id))]

    def running_stage(self, run_id: UUID, title: str) -> FlowRun:
        """The flow run of a stage of the hypothesis with this title, once its process is at work."""

        def at_work() -> FlowRun | None:
            named = [run for run in self.descendants(run_id) if run.work_pool_name and title in run.name]
            return next((run for run in named if run.state and run.state.is_running()), None)

        return wait(at_work)

    @contextmanager
    def doubles(self) -> Iterator[None]:
        """Deployments of stages run `pool_doubles` instead of `flows.stage`."""
        changed = []
        for deployment in self.client.read_deployments():
            module, _, name = (deployment.entrypoint or "").rpartition(".")
            if module == "flows.stage":
                changed.append((deployment.id, deployment.entrypoint))
                self.client.update_deployment(deployment.id, DeploymentUpdate(entrypoint=f"pool_doubles.{name}"))
        try:
            yield
        finally:
            for deployment_id, entrypoint in changed:
                self.client.update_deployment(deployment_id, DeploymentUpdate(entrypoint=entrypoint))


def wait(look: Callable[[], Found | None], limit_s: float = 300) -> Found:
    """What `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + limit_s
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"nothing found in {limit_s} s"
        time.sleep(0.3)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pid_of(run: FlowRun) -> int:
    """Of the process that a worker started for this run on this machine."""
    assert run.infrastructure_pid
    return int(run.infrastructure_pid.rpartition(":")[2])


@contextmanager
def serve(folder: Path) -> Iterator[Site]:
    """A server that `infra apply` and `prefect deploy` have set up, with all workers."""
    port = free_port()
    environment = _environment(folder, f"http://127.0.0.1:{port}/api")
    processes: list[Any] = []

    def start(name: str, *arguments: str) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, "-P", "-m", "prefect", *arguments]
            processes.append(
                subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
            )

    try:
        start("server", "server", "start", "--host", "127.0.0.1", "--port", str(port))
        wait(lambda: _healthy(environment["PREFECT_API_URL"]))
        patient = temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 20})
        with patient, SyncPrefectClient(api=environment["PREFECT_API_URL"]) as client:
            site = Site(folder, environment, client)
            applied = site.run("infra", "apply")
            assert applied.returncode == 0, applied.stderr
            (folder / "applied.txt").write_text(applied.stdout)
            deployed = site.run("--no-prompt", "deploy", "--all", command=[sys.executable, "-P", "-m", "prefect"])
            assert deployed.returncode == 0, deployed.stdout + deployed.stderr
            for (
                deployment
            ) in client.read_deployments():  # else tests at two in the morning wait for the nightly campaign
                client.pause_deployment(deployment.id)
            for number, (pool, limit) in enumerate(WORKERS):
                named = ("--pool", pool, "--name", f"w{number}", "--limit", str(limit))
                start(f"w{number}-{pool}", "worker", "start", *named)
            yield site
    finally:
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _environment(folder: Path, api_url: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "INFRA_AGENT_"))}
    kept = {name: value for name, value in os.environ.items() if name == "INFRA_AGENT_ENGINE"}
    return inherited | kept | {
        "INFRA_AGENT_HOME": str(folder / "home"),
        "INFRA_AGENT_HARDWARE": "cpu",
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_API_URL": api_url,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_CLIENT_MAX_RETRIES": "20",
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",  # SQLite: a busy machine keeps its lock for long
        "PREFECT_SERVER_CONCURRENCY_MAXIMUM_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
        "PYTHONSAFEPATH": "1",
    }  # fmt: skip


def _healthy(url: str) -> bool | None:
    try:
        return httpx.get(f"{url}/health", timeout=2, trust_env=False).status_code == httpx.codes.OK or None
    except httpx.HTTPError:
        return None
