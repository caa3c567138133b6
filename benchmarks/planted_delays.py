"""Is a delay found in the layer that it was planted in, with its size, and the candidate rejected?

Two stacks of encode, prefill, decode and router (`tiny-glm53-epd-cpu`) run side by side. The candidate runs the same code
with a wait in the forward of encode, of prefill and of decode and before the send of the KV cache; a file says which of them
waits, and how long, so that one start serves all plants. A forward waits busily, as a slower kernel would: after a sleep a
prefill itself gets slower. The router is a binary: a proxy before it waits once per request, and layer `router` is all
between the client and decode. The row `none` is the candidate with no wait.

    .venv/bin/python -P benchmarks/planted_delays.py [--layers encode,router] [--pairs 8] [--json FILE] [--page FILE]
"""

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from serving.deployment import deployed_together
from serving.engagement import resolved_by
from serving.engine_env import installed_packages
from serving.errors import Broken
from serving.launch import Server
from serving.overlay import Overlay
from serving.scenario import Scenario
from serving.stack import load_stack
from serving.traffic import send
from tasks.criteria import Criteria, load_criteria
from tasks.decomposition import E2E, decomposed, plain
from tasks.diagnose import where_time_went
from tasks.judge_service import is_decided, judge_service
from tasks.noise import Noise
from tasks.records import Arm, Block, Engagement, Environment, Evidence, Rung, digest
from tasks.service_blocks import Run, send_block
from tasks.service_code import Code
from tasks.service_environment import environment, evaluator_digest
from tasks.service_noise import foresight, measure_noise
from tasks.service_proof import prove_code
from tasks.service_quality import compare_quality

SERVING = Path(__file__).resolve().parents[1] / "serving"
STACK, SCENARIO = SERVING / "stacks" / "tiny-glm53-epd-cpu.yaml", SERVING / "scenarios" / "pictures-cpu.yaml"
NONE, ROUTER = "none", "router"
WAIT_MS = {"encode": 50.0, "prefill": 50.0, "transfer": 50.0, "decode": 10.0, ROUTER: 50.0, NONE: 0.0}
TOLERANCE_PCT = 20.0
WARM_UP = 6  # blocks on each arm: the first dozens of requests get faster and faster
MOST = 2  # times as many pairs, at most, where the first ones decide nothing
WAITING = """import time
def wait(layer):
    with open({file!r}) as file:
        chosen, ms = file.read().split()
    if chosen == layer:
        began = time.perf_counter()
        while layer != "transfer" and time.perf_counter() < began + float(ms) / 1e3:
            pass
        if layer == "transfer":
            time.sleep(float(ms) / 1e3)
        with open({file!r} + ".waited", "a") as file:
            file.write(f"{{1e3 * (time.perf_counter() - began)}}\\n")
"""


@dataclass(frozen=True)
class Place:
    """`wait` is called on a line of its own before `anchor`, which stands once in the file."""

    path: str
    function: str
    anchor: str
    layer: str


PLACES = (
    Place(
        "sglang/srt/disaggregation/encoder/server.py",
        "MMEncoder._compute_direct_embedding",
        "                    mm_embedding: torch.Tensor = ctx.get_feature_fn(mm_items)\n",
        '"encode"',
    ),
    Place(
        "sglang/srt/model_executor/model_runner.py",
        "ModelRunner._forward_raw",
        '        prepare = getattr(self.model, "prepare_for_forward", None)\n',
        '"decode" if forward_batch.forward_mode.is_decode() else "prefill"',
    ),
    Place(
        "sglang/srt/disaggregation/mooncake/conn.py",
        "MooncakeKVManager.send_kvcache",
        "        self._validate_envelope_kv_layout(\n            dst_kv_ptrs, dst_kv_item_len, dst_attn_tp_size\n        )\n"
        "        dst_device_kv_ptrs = None\n",
        '"transfer"',
    ),
)


def overlay_with_waits(control: Path) -> Overlay:
    """Raises Broken when a file of the engine is not the one that the places were found in."""
    files = {"planted_delays.py": WAITING.format(file=str(control)).encode()}
    for place in PLACES:
        text = next(
            folder / place.path for folder in installed_packages() if (folder / place.path).exists()
        ).read_text()
        if text.count(place.anchor) != 1:
            raise Broken(f"`{place.path}` has no single place for a wait", "port the anchors to this SGLang")
        indent = place.anchor[: len(place.anchor) - len(place.anchor.lstrip())]
        waiting = f'{indent}__import__("planted_delays").wait({place.layer})\n'
        files[place.path] = text.replace(place.anchor, waiting + place.anchor).encode()
    counted = tuple(f"{p.path.removesuffix('.py').replace('/', '.')}:{p.function}" for p in PLACES)
    return Overlay(files, counted=counted)


def waited(control: Path) -> Path:
    """Each wait as it was, in ms, a line each."""
    return control.with_name(control.name + ".waited")


@contextmanager
def proxy_before(url: str, control: Path) -> Iterator[str]:
    """The URL of a proxy in a thread of its own, which holds the first bytes of each request back as long as `control` says."""
    target, loop, stop, ready = urlsplit(url), asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    port = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(target.hostname, target.port)
        answered = True

        async def forth() -> None:
            nonlocal answered
            while data := await reader.read(1 << 16):
                chosen, ms = control.read_text().split()
                if answered and chosen == ROUTER:
                    began = time.perf_counter()
                    await asyncio.sleep(float(ms) / 1e3)
                    with waited(control).open("a") as file:
                        file.write(f"{1e3 * (time.perf_counter() - began)}\n")
                answered = False
                back.write(data)
                await back.drain()
            back.close()

        async def home() -> None:
            nonlocal answered
            while data := await there.read(1 << 16):
                answered = True
                writer.write(data)
                await writer.drain()
            writer.close()

        await asyncio.gather(forth(), home(), return_exceptions=True)

    async def serve() -> None:
        nonlocal port
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        ready.set()
        async with server:
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    if not ready.wait(10):
        raise Broken("the proxy before the router did not start", "run it again")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


@dataclass(frozen=True)
class Shared:
    """What all plants have in common."""

    criteria: Criteria
    servers: Mapping[str, Server]
    run: Run
    facts: Mapping[str, str]
    noise: Noise
    quality: tuple[Block, ...]
    proofs: tuple[Engagement, ...]


@dataclass(frozen=True)
class Row:
    """`wait_ms` is what each wait was to be, `waits` how many there were a request, `planted_ms` what they were of it in sum.

    `attributed`: ms of a request by layer.
    """

    planted_in: str
    wait_ms: float
    waits: float
    planted_ms: float
    attributed: Mapping[str, float]
    unexplained_ms: float | None
    change_ms: float
    outcome: str
    reason: str
    named: str

    @property
    def hit(self) -> bool:
        """Rejected, in the right layer, with its size."""
        if self.planted_in == NONE:
            return self.named == NONE
        off = abs(self.attributed.get(self.planted_in, 0.0) - self.planted_ms)
        near = off <= TOLERANCE_PCT / 100 * self.planted_ms
        return near and self.outcome == "REJECTED" and self.named == self.planted_in


def plant(layer: str, number: int, pairs: int, control: Path, shared: Shared) -> Row:
    """Traffic with the wait in `layer`, judged as the service rung judges it: `pairs`, and more while they do not decide."""
    control.write_text(f"{layer} {WAIT_MS[layer]}")
    scenario, rng, blocks = shared.criteria.values, random.Random(number), list(shared.quality)
    first = 100 * (number + 1)
    send(shared.servers[Arm.CANDIDATE].base_url, scenario.traffic, first)
    waited(control).write_text("")
    for pair in range(pairs if layer == NONE else MOST * pairs):
        if pair >= pairs and is_decided(tuple(blocks), shared.criteria, shared.noise):
            break
        for place, arm in enumerate(rng.sample(list(Arm), k=2)):
            order = 2 * pair + place
            run = replace(shared.run, prefix=f"{layer}-")
            blocks += send_block(scenario, shared.servers[arm], arm, first + 1 + pair, order, run)
    control.write_text(f"{NONE} 0")
    waits = [float(line) for line in waited(control).read_text().split()]
    requests = sum(b.observable == E2E and b.arm is Arm.CANDIDATE for b in blocks) * scenario.traffic.source.requests
    evidence = Evidence(
        subject=digest(f"{layer} waits {WAIT_MS[layer]} ms"),
        rung=Rung.SERVICE,
        blocks=tuple(blocks),
        engagement=shared.proofs,
        environment=Environment(facts=dict(shared.facts)),
        evaluator_digest=evaluator_digest(),
        seed=scenario.traffic.seed,
        noise=shared.noise,
    )
    judged = judge_service(evidence, shared.criteria, answers=True)
    found = decomposed(evidence.blocks, E2E)
    if found is None or found.missing:
        raise Broken(f"layers are missing: {found.missing if found else 'all'}", "see the metrics in the run's folder")
    named = next((f.locus.name for f in where_time_went(evidence) if f.observable == E2E), NONE)
    return Row(
        planted_in=layer,
        wait_ms=WAIT_MS[layer],
        waits=len(waits) / requests,
        planted_ms=sum(waits) / requests,
        attributed={plain(name): shift for name, shift in found.contributions.items()},
        unexplained_ms=found.unexplained,
        change_ms=found.change,
        outcome=str(judged.outcome),
        reason=judged.reason,
        named=named,
    )


def table(rows: list[Row]) -> str:
    layers = list(rows[0].attributed)
    lines = [
        f"| planted in | waits of a request | sum | {' | '.join(layers)} | unexplained | end to end | verdict | layer named | "
        f"within {TOLERANCE_PCT:g} % |",
        "|" + "---|" * (len(layers) + 8),
    ]
    for row in rows:
        parts = [f"{row.attributed[name]:+.1f}" for name in layers]
        cells = [row.planted_in, f"{row.waits:.1f} of {row.wait_ms:g} ms", f"{row.planted_ms:.1f}", *parts]
        cells += [f"{row.unexplained_ms:+.1f}", f"{row.change_ms:+.1f}", row.outcome, row.named]
        lines.append(f"| {' | '.join([*cells, 'yes' if row.hit else '**no**'])} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--layers", default=",".join(WAIT_MS))
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    chosen, began = parser.parse_args(), time.monotonic()
    criteria = load_criteria(SCENARIO, Scenario)
    stack = load_stack(STACK)
    with tempfile.TemporaryDirectory() as folder:
        control = Path(folder) / "planted"
        control.write_text(f"{NONE} 0")
        overlay, run = overlay_with_waits(control), Run(Path(folder))
        specs = {str(Arm.INCUMBENT): stack, str(Arm.CANDIDATE): stack.beside()}
        with deployed_together(specs, run.folder, {str(Arm.CANDIDATE): overlay}) as found:
            ready_s = time.monotonic() - began
            print(f"both stacks ready after {ready_s:.0f} s", flush=True)
            with proxy_before(found[Arm.CANDIDATE].base_url, control) as url:
                servers = {**found, str(Arm.CANDIDATE): replace(found[Arm.CANDIDATE], base_url=url)}
                shared = prepared(criteria, servers, run, overlay)
                rows = []
                for number, layer in enumerate(chosen.layers.split(",")):
                    rows.append(plant(layer, number, chosen.pairs, control, shared))
                    keep(rows, shared, f"{ready_s:.0f} s to start both stacks", chosen)
    return 0 if all(row.hit for row in rows) else 1


def keep(rows: list[Row], shared: Shared, started: str, chosen: argparse.Namespace) -> None:
    """Prints what is known so far, and writes it where it was asked for."""
    facts = shared.facts
    machine = f"{facts['cpu']}, {facts['cores']} cores, SGLang {facts['sglang']}, {platform.system()}"
    told = f"{machine}; {started}, {shared.run.elapsed_s:.0f} s in all, load {os.getloadavg()[0]:.1f} at the end."
    print(f"\n{table(rows)}\n\n{told}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps([vars(row) for row in rows], indent=1), encoding="utf-8")
    if chosen.page:
        chosen.page.write_text(page(rows, told, foresight(shared.noise, shared.criteria.values)), encoding="utf-8")


def prepared(criteria: Criteria, servers: Mapping[str, Server], run: Run, overlay: Overlay) -> Shared:
    """Same outputs, warm, proved to run other code, and the noise of the incumbent against itself known."""
    scenario = criteria.values
    resolved = {part.role: resolved_by(part) for part in servers[Arm.INCUMBENT].parts}
    facts = environment(load_stack(STACK), scenario, servers[Arm.INCUMBENT].checkpoint.digest, resolved["prefill"])
    quality = compare_quality(scenario, servers)
    for block in range(WARM_UP):
        for arm in Arm:
            send(servers[arm].base_url, scenario.traffic, block)
    proofs = prove_code(Code(overlay), servers, run.folder / "code.json")
    noise = measure_noise(scenario, servers[Arm.INCUMBENT], random.Random(0), run, facts)
    return Shared(criteria, servers, run, facts, noise, quality.blocks, proofs)


def page(rows: list[Row], told: str, noise: str) -> str:
    return f"""# Planted delays

A wait is planted in one layer of the candidate at a time; the judge must reject the candidate, and the decomposition must give
the wait back in that layer within {TOLERANCE_PCT:g} % of its size. `benchmarks/planted_delays.py --page` makes this page.

{told}
A tiny random model on a CPU: nothing here says anything of a GPU, which was not run.

Milliseconds of a request, candidate minus incumbent, mean over all blocks; layers and `unexplained` add up to `end to end`.
`sum` is what the waits of a request were by their own clock; decode waits at each step. A forward waits busily, as a slower
kernel would: after a sleep a prefill itself gets slower. The wait of `router` is in a proxy before the router, which is a
binary; the layer is all between the client and decode.

{table(rows)}

In `none` nothing waits: it shows how far the figures stray by themselves, and no layer may be named. {noise}.
"""


if __name__ == "__main__":
    sys.exit(main())
