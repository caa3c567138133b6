"""One block of traffic on one arm, as blocks of evidence: what the client saw, and what the server says of it."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from serving.devices import devices_of
from serving.engagement import resolved_by
from serving.jsonl import write_jsonl
from serving.launch import Server
from serving.layers import Client, Window, layers
from serving.metrics import disagreement
from serving.nvml import sampled
from serving.observables import OBSERVABLES
from serving.request_record import RequestRecord
from serving.roles_seen import look_again, look_at, rates, texts, uses, window
from serving.scenario import Scenario, Traffic
from serving.sources import Images
from serving.summary import Measured, summarise, summarise_batch
from serving.traffic import send
from serving.witness import Calls, Witness
from tasks.records import Arm, Block
from tasks.service_answers import keep_answers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Where a run keeps its files, and its clock. `prefix` tells the files of an A/A run from those of the comparison."""

    folder: Path
    began: float = field(default_factory=time.monotonic)
    prefix: str = ""

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began


def send_block(scenario: Scenario, server: Server, arm: Arm, number: int, order: int, run: Run) -> list[Block]:
    """One block of traffic on one arm. Request records, both scrapes and, in a comparison, a sample of the answers are kept in
    the folder of the run."""
    devices = devices_of([resolved_by(part) for part in server.parts if part.role != "router"])
    psutil.cpu_percent()
    started_s = run.elapsed_s
    counted = server.witness.calls()
    before = look_at(server)
    with sampled({part.name: part.process.alive() for part in server.parts}) as gpus:
        batch = send(server.base_url, scenario.traffic, number, ended=server.ended)
    machine = Measured(psutil.cpu_percent())
    completed = [record for record in batch.records if record.completed]
    after = look_again(server, before, len(completed))
    name = f"{run.prefix}{order:03d}-{arm}"
    write_jsonl(run.folder / f"{name}.requests.jsonl", batch.records)
    if not run.prefix:
        keep_answers(scenario, arm, number, order, batch.records, run.folder)
    for when, look in (("before", before), ("after", after)):
        for part, text in texts(look).items():
            (run.folder / f"{name}.{part}.{when}.prom").write_text(text, encoding="utf-8")
    seen = summarise_batch(batch, scenario.objectives, devices)
    whole = {**seen, **_layers(window(server, before, after), batch.records, seen, scenario.traffic)}
    whole |= {**rates(server, after, seen), "machine_cpu_pct": machine}
    whole |= summarise_calls(server.witness, counted, batch.wall_s)
    found = _blocks(whole, arm, scenario.name, order, started_s)
    for part in sorted({record.class_name for record in batch.records}):
        values = summarise([record for record in batch.records if record.class_name == part])
        found += _blocks(values, arm, scenario.name, order, started_s, part)
    for role, used in uses(server, before, after, batch.wall_s).items():
        of_gpus = gpus.told([part.name for part in server.parts if part.role == role])
        found += _blocks({**used, **of_gpus}, arm, scenario.name, order, started_s, role)
    value = whole[scenario.primary].value
    shown = "unknown" if value is None else f"{value:.1f}"
    which = f"noise block {order}" if run.prefix else f"block {order}, {arm}"
    log.info("%s: %s %s, %.1f s", which, scenario.primary, shown, batch.wall_s)
    return found


def _layers(
    window: Window, records: tuple[RequestRecord, ...], seen: Mapping[str, Measured], traffic: Traffic
) -> dict[str, Measured]:
    """Where the time went, if the server that answers counted what the client did."""
    found = layers(
        window, Client(len(records), seen["ttft_mean_ms"], seen["e2e_mean_ms"], isinstance(traffic.source, Images))
    )
    span = window["decode" if "decode" in window else "server"]
    assert span.before is not None, "what answers the clients always tells its metrics"
    assert span.after is not None
    doubt = disagreement(span.before, span.after, records)
    return found if doubt is None else {name: Measured(None, doubt) for name in found}


def summarise_calls(witness: Witness, before: Mapping[str, Calls], wall_s: float) -> dict[str, Measured]:
    """Calls of the functions that are counted since `before`, their mean time and their share of the block.

    Nothing without such functions.
    """
    after = witness.calls()
    if not after:
        return {}
    if witness.device != "cpu":
        unknown = Measured(None, "on a GPU a call only launches work, and graphs replay without one: take a profile")
        return dict.fromkeys(("code_calls", "code_us", "code_share_pct"), unknown)
    calls = sum(after[name].calls - before[name].calls for name in after)
    ns = sum(after[name].ns - before[name].ns for name in after)
    return {
        "code_calls": Measured(float(calls)),
        "code_us": Measured(ns / calls / 1e3) if calls else Measured(None, "none was called"),
        "code_share_pct": Measured(100 * ns / 1e9 / wall_s),
    }


def _blocks(
    values: Mapping[str, Measured], arm: Arm, workload: str, order: int, started_s: float, part: str | None = None
) -> list[Block]:
    """An observable of one class of requests carries the class in its name: nobody averages it with the whole."""
    return [
        Block(
            arm=arm,
            observable=observable if part is None else f"{part}.{observable}",
            unit=OBSERVABLES[observable].unit,
            workload=workload,
            value=measured.value,
            order=order,
            part=part,
            started_s=started_s,
            reason=measured.reason,
        )
        for observable, measured in values.items()
    ]
