"""How far W8A8 takes a tiny model from its unquantised twin, served by SGLang on a CPU: docs/results/w8a8_cpu.md.

    .venv/bin/python -P benchmarks/w8a8_distance.py [--tokens 128] [--prompts 16] [--seed 1] [--out FILE]

Teacher-forced: four servers (unquantised and W8A8, float32 and bfloat16 beside the int8) say the log-probability of the same
random tokens, each given all before it, in prefill. For GLM-5.3-Flash transformers says them as well, in float32 with the same
roundings to int8. Nothing here says how fast W8A8 is, or how good a trained model would remain: the weights are random, and so
are the tokens.
"""

import argparse
import json
import operator
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from serving.checkpoint import checkpoint
from serving.engine_env import run_script
from serving.home import home
from serving.launch import Server, running_together
from serving.ports import port_is_free
from serving.roles import Value
from serving.stack import StackSpec, load_stack
from serving.witness import check_weights

STACKS = Path(__file__).resolve().parents[1] / "serving" / "stacks"
# Model, its quantised twin, a stack that serves them.
TWINS = (
    ("tiny-glm4-moe", "tiny-glm4-moe-w8a8", "tiny-glm-cpu"),
    ("tiny-glm53", "tiny-glm53-w8a8", "tiny-glm53-w8a8-cpu"),
)
F32, BF16, W8A8_F32, W8A8_BF16 = "float32", "bfloat16", "W8A8 float32", "W8A8 bfloat16"
BY_TRANSFORMERS = "W8A8 by transformers"
PAIRS = ((W8A8_F32, F32), (W8A8_BF16, F32), (BF16, F32), (W8A8_BF16, BF16), (W8A8_F32, BY_TRANSFORMERS))
FIRST_PORT, PORTS = 31660, 200
ORDINARY = range(20, 1020)  # of a vocabulary of 1024, without special tokens
HEAD = """| model | pair | mean | 99 % | largest | mean, signed | within 1e-5 | same best token |
|---|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Told:
    """Of every token but the first: its log-probability, and the token that was most probable in its place, if known."""

    logprobs: list[float]
    best: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--tokens", type=int, default=128, help="of a prompt")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    drawn = random.Random(chosen.seed)
    prompts = [drawn.choices(ORDINARY, k=chosen.tokens) for _ in range(chosen.prompts)]
    lines = [HEAD]
    for plain, quantised, stack in TWINS:
        told = told_by_all(plain, quantised, stack, prompts)
        if plain == "tiny-glm53":
            told |= {BY_TRANSFORMERS: told_by_transformers(checkpoint(plain).folder, prompts)}
        lines += rows(plain, told)
    print("\n".join(lines))
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


def told_by_all(plain: str, quantised: str, stack: str, prompts: Sequence[list[int]]) -> dict[str, Told]:
    """By both models in both types. Raises Broken if a server does not start, or leaves weights unused or unfilled."""
    ports = iter(port for port in range(FIRST_PORT, FIRST_PORT + PORTS) if port_is_free(port))
    asked = {F32: (plain, F32), BF16: (plain, BF16), W8A8_F32: (quantised, F32), W8A8_BF16: (quantised, BF16)}
    specs = {name: spec_of(stack, model, dtype, next(ports)) for name, (model, dtype) in asked.items()}
    runs = home() / "runs"
    runs.mkdir(exist_ok=True)
    with running_together(specs, Path(tempfile.mkdtemp(dir=runs, prefix="w8a8-"))) as servers:
        for name, server in servers.items():
            check_weights(name, server.witness)
        return {name: told_by(server, prompts) for name, server in servers.items()}


def spec_of(stack: str, model: str, dtype: str, port: int) -> StackSpec:
    shipped = load_stack(STACKS / f"{stack}.yaml")
    role = shipped.roles["server"]
    arguments: dict[str, Value] = {**role.arguments, "dtype": dtype}
    weights = {"weights": "w8a8_int8" if model.endswith("-w8a8") else None}
    return shipped.model_copy(
        update={
            "model": model,
            "quantization": shipped.quantization.model_copy(update=weights),
            "roles": {"server": role.model_copy(update={"port": port, "arguments": arguments})},
        }
    )


def told_by(server: Server, prompts: Sequence[list[int]]) -> Told:
    found = Told([], [])
    for ids in prompts:
        body = {
            "input_ids": ids,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 1,
        }
        answer = httpx.post(f"{server.base_url}/generate", json=body, timeout=300, trust_env=False)
        meta = answer.raise_for_status().json()["meta_info"]
        found.logprobs.extend(value for value, _, _ in meta["input_token_logprobs"][1:])
        found.best.extend(top[0][1] for top in meta["input_top_logprobs"][1:])
    return found


def told_by_transformers(model: Path, prompts: Sequence[list[int]]) -> Told:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "asked.json").write_text(json.dumps([{"ids": ids} for ids in prompts]))
        run_script("reference_w8a8.py", str(model), "asked.json", "answer.json", cwd=folder, timeout_s=600)
        answers = json.loads((folder / "answer.json").read_text())
    return Told([value for answer in answers for value in answer], [])


def rows(model: str, told: dict[str, Told]) -> list[str]:
    """One for each pair, of absolute differences of log-probabilities in nats; last the spread that they stand beside."""
    pairs = [pair for pair in PAIRS if {*pair} <= {*told}]
    lines = [f"| {model} | {one} from {other} | {figures(told[one], told[other])} |" for one, other in pairs]
    exact = told[F32].logprobs
    spread = f"mean {statistics.fmean(exact):.3f}, standard deviation {statistics.stdev(exact):.3f}"
    return [*lines, f"| {model} | log-probabilities in float32, {len(exact)} tokens | {spread} | | | | | |"]


def figures(one: Told, other: Told) -> str:
    signed = [a - b for a, b in zip(one.logprobs, other.logprobs, strict=True)]
    sizes = sorted(map(abs, signed))
    shown = [f"{size:.4f}" for size in (statistics.fmean(sizes), sizes[int(0.99 * len(sizes))], sizes[-1])]
    both = one.best and other.best
    same = sum(map(operator.eq, one.best, other.best)) / len(sizes)
    shown += [f"{statistics.fmean(signed):+.4f}", f"{100 * sum(size <= 1e-5 for size in sizes) / len(sizes):.1f} %"]
    return " | ".join([*shown, f"{100 * same:.1f} %" if both else "not asked"])


if __name__ == "__main__":
    main()
