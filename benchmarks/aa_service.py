"""The service rung against itself: two identical SGLang servers, reused, and decisions about nothing.

    .venv/bin/python -P benchmarks/aa_service.py [--decisions N] [--scenario FILE] [--record FILE] [--json FILE]

Each decision is made as in a real run, with pairs in drawn order and the same criteria: none may say better, and none may say
worse. The blocks are short ones of the mix of `mixed-lengths-cpu`, so that many fit; with `--scenario` they are that file's
own, and the servers have their prefix cache on where it wants it flushed. `--record` keeps the values of every block, in order
of time, for decision_quality.py to resample.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from flows.local import show_progress
from serving.beside import beside
from serving.home import REPOSITORY
from serving.launch import Server, running_together
from serving.metrics import resolved_arguments
from serving.scenario import Scenario
from serving.sources import Classes
from serving.stack import StackSpec, apply_edit, load_stack
from tasks.criteria import Criteria, load_criteria
from tasks.judge_service import effect
from tasks.noise import Noise
from tasks.paired import mean_of
from tasks.records import Arm, Block, Outcome, RoleEdit
from tasks.service_blocks import Run, send_block
from tasks.service_environment import environment
from tasks.service_noise import foresight, measure_noise

SERVING = REPOSITORY / "serving"
REQUESTS = {"chat": 4, "document": 1}


def short(scenario: Scenario) -> Scenario:
    """The same mix with fewer and shorter requests a block: half a second instead of three."""
    source = scenario.traffic.source
    assert isinstance(source, Classes)
    classes = {
        name: part.model_copy(
            update={
                "requests": REQUESTS[name],
                "prompt_tokens": part.prompt_tokens.model_copy(update={"low": 16, "high": 400}),
                "output_tokens": part.output_tokens.model_copy(update={"low": 4, "high": 10}),
            }
        )
        for name, part in source.classes.items()
    }
    shorter = source.model_copy(update={"classes": classes})
    return scenario.model_copy(update={"traffic": scenario.traffic.model_copy(update={"source": shorter})})


def asked(file: Path | None) -> Criteria[Scenario]:
    written = load_criteria(file or SERVING / "scenarios" / "mixed-lengths-cpu.yaml", Scenario)
    return written if file else written.model_copy(update={"values": short(written.values)})


def stack_for(scenario: Scenario) -> StackSpec:
    stack = load_stack(SERVING / "stacks" / "tiny-glm-cpu.yaml")
    if scenario.traffic.prefix_cache == "kept":
        return stack
    return apply_edit(stack, {"server": RoleEdit(arguments={"disable-radix-cache": None})})


def decide_once(
    servers: dict[str, Server], criteria: Criteria[Scenario], noise: Noise, rng: random.Random, run: Run, first: int
) -> tuple[str, list[Block]]:
    """One decision: pairs until it is made or the scenario's number is reached."""
    scenario, blocks = criteria.values, list[Block]()
    for pair in range(scenario.traffic.pairs):
        for place, arm in enumerate(rng.sample(list(Arm), k=2)):
            blocks += send_block(scenario, servers[arm], arm, first + pair, 2 * pair + place, run)
        print(f"pair {pair + 1} of {scenario.traffic.pairs}", file=sys.stderr)
        found = effect(tuple(blocks), criteria, noise)
        if found.outcome is Outcome.PASSED:
            return "better", blocks
        if found.outcome is Outcome.REJECTED:
            return ("worse" if found.key.startswith("vetoes") else "not better by the smallest effect"), blocks
    return "inconclusive", blocks


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--decisions", type=int, default=20)
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--json", type=Path)
    chosen, started = parser.parse_args(), time.monotonic()
    show_progress()
    criteria = asked(chosen.scenario)
    scenario, rng = criteria.values, random.Random(0)
    stack = stack_for(scenario)
    other = beside(stack)
    outcomes, recorded = Counter[str](), list[dict[str, object]]()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        with running_together({str(Arm.INCUMBENT): stack, str(Arm.CANDIDATE): other}, run.folder) as servers:
            resolved = resolved_arguments(servers[Arm.INCUMBENT].base_url)
            facts = environment(stack, scenario, servers[Arm.INCUMBENT].checkpoint.digest, resolved)
            for warm in range(4 if chosen.scenario is None else scenario.traffic.warmup_blocks):
                for arm in Arm:
                    send_block(scenario, servers[arm], arm, warm, 0, run)
            noise = measure_noise(scenario, servers, rng, run, facts)
            print(foresight(noise, scenario), flush=True)
            for number in range(chosen.decisions):
                said, blocks = decide_once(servers, criteria, noise, rng, run, 1000 * (number + 1))
                outcomes[said] += 1
                used = sum(b.observable == scenario.primary for b in blocks) // 2
                hits = "/".join(f"{mean_of(tuple(blocks), 'cached_tokens', arm) or 0:.0f}" for arm in Arm)
                print(
                    f"{number + 1}: {said} after {used} pairs ({time.monotonic() - started:.0f} s), {hits} cached tokens",
                    flush=True,
                )
                names = (scenario.primary, *scenario.vetoes)
                recorded += [
                    {"decision": number, "arm": b.arm, "order": b.order, "observable": b.observable, "value": b.value}
                    for b in blocks
                    if b.observable in names
                ]
    print(dict(outcomes), f"load {os.getloadavg()[0]:.1f}")
    primary = [row["value"] for row in recorded if row["observable"] == scenario.primary]
    whole = {
        "what": "A/A on one reused pair of servers",
        "facts": facts,
        "observable": scenario.primary,
        "values": primary,
    }
    if chosen.record:
        chosen.record.parent.mkdir(exist_ok=True)
        chosen.record.write_text(json.dumps({**whole, "blocks": recorded}, indent=0, default=str) + "\n")
    if chosen.json:
        chosen.json.write_text(
            json.dumps({"outcomes": outcomes, "decisions": chosen.decisions, "facts": facts}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
