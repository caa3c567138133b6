"""Is a delay found in the layer that it was planted in, with its size, and the candidate rejected?

Two stacks of encode, prefill, decode and router (`tiny-glm53-epd-cpu`) run side by side. The candidate runs the same code
with a wait in the forward of encode, of prefill and of decode and before the send of the KV cache; a file says which of them
waits, and how long, so that one start serves all plants. A forward waits busily, as a slower kernel would: after a sleep a
prefill itself gets slower. The router is a binary: a proxy before it waits once per request, and layer `router` is all
between the client and decode. The row `none` is the candidate with no wait.

    .venv/bin/python -P benchmarks/planted_delays.py [--layers encode,router] [--pairs 12] [--json FILE] [--page FILE]
"""

import argparse
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # with -P a script's folder is not on the path

from planted.page import WHOLE, Row, page, table
from planted.proxy import proxy_before
from planted.waits import NONE, ROUTER, overlay_with_waits, waited

from serving.beside import beside
from serving.deployment import deployed_together
from serving.engagement import resolved_by
from serving.errors import Broken
from serving.launch import Server
from serving.overlay import Overlay
from serving.scenario import Scenario
from serving.stack import load_stack
from serving.traffic import send
from tasks.criteria import Criteria, load_criteria
from tasks.decomposition import E2E, decomposed, margins, plain
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
WAIT_MS = {"encode": 50.0, "prefill": 50.0, "transfer": 50.0, "decode": 10.0, ROUTER: 50.0, NONE: 0.0}
WARM_UP = 6  # blocks on each arm: the first dozens of requests get faster and faster
MOST = 2  # times as many pairs, at most, where the first ones decide nothing


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
    margin = margins(evidence.blocks, E2E, found)
    named = next((f.locus.name for f in where_time_went(evidence) if f.observable == E2E), NONE)
    return Row(
        planted_in=layer,
        wait_ms=WAIT_MS[layer],
        waits=len(waits) / requests,
        planted_ms=sum(waits) / requests,
        attributed={plain(name): shift for name, shift in found.contributions.items()},
        unexplained_ms=found.unexplained,
        change_ms=found.change,
        margins={WHOLE if name == E2E else plain(name): value for name, value in margin.items()},
        outcome=str(judged.outcome),
        reason=judged.reason,
        named=named,
    )


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--layers", default=",".join(WAIT_MS))
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    chosen, began = parser.parse_args(), time.monotonic()
    criteria = load_criteria(SCENARIO, Scenario)
    stack = load_stack(STACK)
    with tempfile.TemporaryDirectory() as folder:
        control = Path(folder) / "planted"
        control.write_text(f"{NONE} 0")
        overlay, run = overlay_with_waits(control), Run(Path(folder))
        specs = {str(Arm.INCUMBENT): stack, str(Arm.CANDIDATE): beside(stack)}
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
    noise = measure_noise(scenario, servers, random.Random(0), run, facts)
    return Shared(criteria, servers, run, facts, noise, quality.blocks, proofs)


if __name__ == "__main__":
    sys.exit(main())
