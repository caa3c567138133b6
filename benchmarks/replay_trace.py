"""Sends a scenario's traffic to a stack, writes what a client saw of each request, and prints it in numbers.

    .venv/bin/python -P benchmarks/replay_trace.py [SCENARIO] [--stack FILE | --url URL [--devices N]] [--requests N]
        [--trace FILE] [--rates R ...] [--out FOLDER]

By default: the first 200 requests of Mooncake's conversation trace to `tiny-glm-cpu` with its prefix cache on, as one block.
`--rates` sends the same requests once at each mean rate (per s), and says the highest goodput per device. In the folder, for
each run: `NAME.requests.jsonl`, a line per request, and `NAME.json`, a summary under the names of `bench_serving`.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import httpx

from serving.bench_summary import bench_summary
from serving.devices import devices_of
from serving.documents import validate
from serving.errors import BadInput, Broken, InfraAgentError
from serving.goodput import Point, at_rate, best, doubt_of, sweep
from serving.home import REPOSITORY
from serving.jsonl import write_jsonl
from serving.launch import running
from serving.metrics import resolved_arguments
from serving.request_record import Batch
from serving.scenario import Objectives, Scenario, Traffic, load_scenario
from serving.sources import Trace
from serving.stack import apply_edit, load_stack
from serving.stack_rules import url_fault
from serving.summary import summarise_batch
from serving.trace import shared_tokens, window
from serving.traffic import send
from tasks.records import RoleEdit

SCENARIO = REPOSITORY / "serving" / "scenarios" / "mooncake-conversation-cpu.yaml"
STACK = REPOSITORY / "serving" / "stacks" / "tiny-glm-cpu.yaml"
CACHE_ON = {"server": RoleEdit(arguments={"disable-radix-cache": None})}
WARM_UP = 1_000_000  # a block number that no run reaches
COLUMNS = ("rate/s", "requests", "completed", "failed", "cancelled", "within", "goodput/device/s", "attained %")
LATENCIES = ("TTFT p50 ms", "TTFT p95 ms", "TPOT p95 ms", "send lag p95 ms", "loop lag p95 ms")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").partition("\n")[0])
    add = made.add_argument
    add("scenario", type=Path, nargs="?", default=SCENARIO, help=f"what is sent (default: {SCENARIO.name})")
    add("--stack", type=Path, default=STACK, help=f"start this one server, its prefix cache on (default: {STACK.name})")
    add("--url", help="send to a server or router that runs already, and start nothing")
    add("--devices", type=int, help="of the whole deployment, where a router answers at the URL")
    add("--requests", type=int, default=200, help="so many a block (default: 200)")
    add("--trace", type=Path, help="another file in the format of the Mooncake traces, for a scenario that replays one")
    add("--rates", type=float, nargs="+", default=[], help="mean rates in requests/s: send the block once at each")
    add("--out", type=Path, help="the folder for the results (default: a new one, which is printed)")
    return made


def main() -> None:
    chosen = parser().parse_args()
    try:
        scenario = asked(load_scenario(chosen.scenario), chosen.requests, chosen.trace)
        for rate in chosen.rates:
            at_rate(scenario.traffic, rate)
        reachable(chosen.url, chosen.devices)
        if len({f"{rate:g}" for rate in chosen.rates}) < len(chosen.rates):
            raise BadInput("`--rates`: two of them would write the same files", "give each rate once")
        out = made(chosen.out)
        with served(chosen.url, chosen.stack, out) as url:
            devices = chosen.devices or counted_devices(url)
            replay(url, scenario, devices, chosen.rates, out)
    except InfraAgentError as error:
        print(error, file=sys.stderr)
        sys.exit(2 if isinstance(error, BadInput) else 4)


def reachable(url: str | None, devices: int | None) -> None:
    """Raises BadInput for what is no address of a server or no number of devices."""
    if url is not None and (fault := url_fault(url.rstrip("/"))):
        raise BadInput(f"`--url` {fault}", "as in `--url http://127.0.0.1:30000`")
    if devices is not None and devices < 1:
        raise BadInput(f"`--devices` is `{devices}`", "all devices of the deployment, at least 1")


def made(out: Path | None) -> Path:
    """The folder for the results, by default a new one. Raises BadInput where it cannot be made."""
    try:
        folder = out or Path(tempfile.mkdtemp(prefix="replay-"))
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"`--out`: cannot make `{out}`: {error.strerror}", "name a folder that can be made") from error
    return folder


def asked(scenario: Scenario, requests: int, trace: Path | None) -> Scenario:
    """The scenario with another number of requests a block, or another trace, where its source has such."""
    written = scenario.model_dump()
    source = written["traffic"]["source"]
    if "requests" in source:
        source["requests"] = requests
    if trace is not None:
        if source["kind"] != "trace":
            raise BadInput(f"`--trace`: the source of `{scenario.name}` is `{source['kind']}`", "leave it out")
        source["file"] = str(trace.resolve())
    return validate(written, Scenario, scenario.name)


@contextmanager
def served(url: str | None, stack: Path, out: Path) -> Iterator[str]:
    """The address of a server: one that runs, or one of our own with its prefix cache on, gone at the end."""
    if url is not None:
        yield answering(url.rstrip("/"))
        return
    with running(apply_edit(load_stack(stack), CACHE_ON), out, "server") as server:
        print(f"{stack.stem} ready after {server.ready_s:.0f} s", flush=True)
        yield server.base_url


def answering(url: str) -> str:
    """The url. Raises Broken where nobody answers, whatever the answer."""
    try:
        httpx.get(f"{url}/health", timeout=30, trust_env=False)
    except httpx.HTTPError as error:
        hint = "is the stack up? `infra-agent stack status` lists what is, with its URL"
        raise Broken(f"no answer at `{url}`: {type(error).__name__}: {error}", hint) from error
    return url


def counted_devices(url: str) -> int:
    """From what the server says it runs with. Raises BadInput where it does not say, as a router does not."""
    try:
        resolved = resolved_arguments(url)
    except Broken as error:
        if not isinstance(error.__cause__, httpx.HTTPStatusError):
            raise
        raise BadInput(error.message, "a router does not know them: give `--devices`, encoders included") from error
    cache = "off" if resolved.get("disable_radix_cache") else "on"
    print(f"prefix cache {cache}")
    return devices_of([resolved])


def replay(url: str, scenario: Scenario, devices: int, rates: list[float], out: Path) -> None:
    """Raises Broken for a run that says nothing about the server."""
    print(f"{devices} device(s); prefix cache {scenario.traffic.prefix_cache} between blocks")
    warm_up(url, scenario)
    if rates:
        points = []
        for point, batch in sweep(scenario, rates, devices, lambda traffic: send(url, traffic, 0)):
            points.append(point)
            keep(
                batch,
                at_rate(scenario.traffic, point.rate_per_s),
                scenario.objectives,
                out,
                f"rate-{point.rate_per_s:g}",
            )
        show(points, scenario, out)
        return
    batch = send(url, scenario.traffic, 0)
    keep(batch, scenario.traffic, scenario.objectives, out, scenario.name)
    found = summarise_batch(batch, scenario.objectives, devices)
    for name, measured in found.items():
        shown = f"{measured.value:.2f}" if measured.value is not None else f"unknown ({measured.reason})"
        print(f"  {name:<26} {shown}")
    hits = [r for r in batch.records if r.cached_tokens]
    print(
        f"{len(batch.records)} requests: {sum(r.completed for r in batch.records)} completed, "
        f"{sum(r.error is not None for r in batch.records)} failed, "
        f"{sum(r.cancelled is not None for r in batch.records)} cancelled; {len(hits)} found cached tokens, "
        f"the most {max((r.cached_tokens or 0 for r in hits), default=0)}; wall {batch.wall_s:.1f} s, "
        f"load {os.getloadavg()[0]:.1f}\nwritten to {out}"
    )
    source = scenario.traffic.source
    if isinstance(source, Trace):
        shared = shared_tokens(source, window(source, 0).lines)
        print(f"the trace's hashes find {sum(shared)} prompt tokens in earlier requests, sent or still under way")
    doubt = doubt_of(batch, found, scenario)
    if doubt is not None:
        raise Broken(doubt, "leave a core to the client, or send more slowly; the records say why requests failed")


def warm_up(url: str, scenario: Scenario) -> None:
    """A few requests of a block that is not counted; the cache is emptied afterwards where the scenario says so."""
    source = scenario.traffic.source
    few = source.model_copy(update={"requests": 8}) if "requests" in type(source).model_fields else source
    send(url, scenario.traffic.model_copy(update={"source": few}), WARM_UP)


def keep(batch: Batch, traffic: Traffic, objectives: Objectives, out: Path, name: str) -> None:
    write_jsonl(out / f"{name}.requests.jsonl", batch.records)
    summary = bench_summary(batch, traffic, objectives)
    (out / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")


def show(points: list[Point], scenario: Scenario, out: Path) -> None:
    """Raises Broken if each rate has a doubt."""
    print("  ".join((*COLUMNS, *LATENCIES)))
    for p in points:
        counts = (f"{p.rate_per_s:g}", p.requests, p.completed, p.failed, p.cancelled, p.within)
        rates = (f"{p.goodput_per_device_per_s:.2f}", f"{p.attainment_pct:.0f}")
        times = (p.ttft_p50_ms, p.ttft_p95_ms, p.tpot_p95_ms, p.send_lag_p95_ms, p.loop_lag_p95_ms)
        cells = (*counts, *rates, *("-" if t is None else f"{t:.1f}" for t in times))
        line = "  ".join(f"{cell!s:>{len(head)}}" for cell, head in zip(cells, (*COLUMNS, *LATENCIES), strict=True))
        print(f"{line}  {'' if p.doubt is None else 'BROKEN: ' + p.doubt}".rstrip())
    (out / "sweep.json").write_text(json.dumps([asdict(p) for p in points], indent=1) + "\n")
    print(f"written to {out}")
    if all(p.doubt is not None for p in points):
        raise Broken("no rate gave a measurement", "the table says why")
    wanted = scenario.objectives
    within = f"TTFT {wanted.ttft_ms:g} ms and TPOT {wanted.tpot_ms:g} ms"
    found = best(points, wanted.attained_pct)
    if found is None:
        print(f"no rate of these has {wanted.attained_pct:g} % of its requests within {within}: try lower ones")
        return
    print(
        f"goodput per device: {found.goodput_per_device_per_s:.2f} requests/s at {found.rate_per_s:g}/s sent "
        f"({found.within} of {found.requests} requests within {within}, in {found.wall_s:.1f} s on "
        f"{found.devices} device(s))"
    )


if __name__ == "__main__":
    main()
