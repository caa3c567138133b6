"""What a stage costs beside its work: in the flow's own process, and as a flow run on a pool, with where the time goes.

    .venv/bin/python -P benchmarks/stage_overhead.py [--runs N] [--json FILE]

Needs a Prefect server at PREFECT_API_URL, set up as in docs/operating.md, and workers on `cpu-build` and `gpu-microbench` that
share this INFRA_AGENT_HOME. The stage is `build` of a candidate that the cache knows; on the GPU pool it is `microbench`,
which without a GPU only says so, but takes and gives back the device. Shown is the run with the median overhead, so that its
parts add up, after one that is not counted.
"""

import argparse
import json
import os
import time
from pathlib import Path

from flows.local import use_server
from serving.errors import BadInput
from serving.home import REPOSITORY
from tasks.hypothesis_file import load_hypothesis
from tasks.ledger import default_url
from tasks.opening import new_experiment
from tasks.records import Experiment, Question
from tasks.stages import open_experiment, run_stage

HYPOTHESIS = REPOSITORY / "kernels" / "kda_decode" / "hypotheses" / "hoist_gate.yaml"
PARTS = ("to the worker", "process and imports", "ledger and device", "work", "ending", "noticed by the parent")
Row = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    try:
        use_server()
    except BadInput as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from None
    load_before = os.getloadavg()[0]
    local = middle([local_row() for _ in range(chosen.runs + 1)][1:])
    pools = {
        part: middle([pool_row(*part.split(" on ")) for _ in range(chosen.runs + 1)][1:])
        for part in ("build on cpu-build", "microbench on gpu-microbench")
    }
    load = f"load {load_before:.1f} before and {os.getloadavg()[0]:.1f} after"
    print(f"{os.cpu_count()} cores, {load}; {chosen.runs} runs, the middle one in s")
    print(f"| stage | {' | '.join(PARTS)} | overhead |\n|---|{'---:|' * (len(PARTS) + 1)}")
    print(f"| build, local | | | | {local['work']:.2f} | | | {local['overhead']:.2f} |")
    for part, row in pools.items():
        print(f"| {part} | {' | '.join(f'{row[name]:.2f}' for name in PARTS)} | {row['overhead']:.2f} |")
    if chosen.json:
        chosen.json.write_text(json.dumps({"load": load, "local_s": local, "pools_s": pools}, indent=2) + "\n")


def middle(rows: list[Row]) -> Row:
    return sorted(rows, key=lambda row: row["overhead"])[len(rows) // 2]


def opened() -> Experiment:
    """A new attempt, built, so that any stage can be the next."""
    asked = load_hypothesis(HYPOTHESIS).model_copy(update={"question": Question.FASTER_KERNEL})
    return open_experiment(new_experiment(asked, default_url()), default_url())


def local_row() -> Row:
    """A stage as a task of a flow: what Prefect adds to its work."""
    from prefect import flow

    from flows.dispatch import stage_task

    view, took = opened(), {}

    @flow(name="overhead of a local stage")
    def one_stage() -> None:
        began = time.monotonic()
        took["all"] = -began
        took["work"] = stage_task("build", view, default_url()).build.wall_s
        took["all"] += time.monotonic()

    one_stage()
    return {"work": took["work"], "overhead": took["all"] - took["work"]}


def pool_row(stage: str, pool: str) -> Row:
    """From asking for a stage on a pool to having its records, by the times that Prefect keeps."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, FlowRunFilterIdempotencyKey

    from flows.pools import run_on_pool

    view = opened()
    if stage != "build":
        view = run_stage("build", view, default_url())
    asked = time.time()
    run_on_pool(stage, pool, view, default_url())
    noticed = time.time()
    with get_client(sync_client=True) as client:
        key = FlowRunFilterIdempotencyKey(any_=[f"{view.hypothesis_id}/{view.attempt}/{stage}/{pool}"])
        (run,) = client.read_flow_runs(flow_run_filter=FlowRunFilter(idempotency_key=key))
        entered = {state.name: state.timestamp.timestamp() for state in client.read_flow_run_states(run.id)}
        (task,) = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run.id])))
    assert task.start_time
    assert task.end_time
    began, ended = task.start_time.timestamp(), task.end_time.timestamp()
    marks = (asked, entered["Pending"], entered["Running"], began, ended, entered["Completed"], noticed)
    row = {name: later - earlier for name, earlier, later in zip(PARTS, marks[:-1], marks[1:], strict=True)}
    return row | {"overhead": noticed - asked - row["work"]}


if __name__ == "__main__":
    main()
