"""What each precision of the affine chain costs in accuracy, by regime, length and split: docs/results/kda_state_chain.md.

    .venv/bin/python -P benchmarks/kda_state_chain.py [--tokens 1024 8192] [--ranks 1 8] [--out FILE]

The sources of kernels/kda_state_chain run in the interpreter as on the numerics rung; only lengths and splits are others.
Nothing here ran on a GPU: how tensor cores cut operands and sums is assumed, so each assumption has a column of its own.
"""

import argparse
import sys
from pathlib import Path

from serving.errors import Broken
from tasks.build import DEFAULT_ARCH
from tasks.definition import Check, Distribution, TensorCores
from tasks.interpreted import interpret, make_expected
from tasks.numerics import relative_error
from tasks.problem import Problem, load_problem
from tasks.recorded import record
from tasks.records import KernelCandidate, digest
from tasks.toolchain import environment
from tasks.twins import assumed_name

CHUNK, SEED = 64, 2026
MOST_TOKENS = 65536  # of one process: 128 KB of inputs for each chunk
UPSTREAM_LIMIT = 8e-3  # relative RMSE that the test of flash-linear-attention allowed
# Means of decay and of beta: half of the largest decay, and of the largest beta.
REGIMES = {
    "decay ≤ 0.05, β = sigmoid": (0.025, 0.5),
    "decay ≤ 5e-4, β = sigmoid": (2.5e-4, 0.5),
    "decay ≤ 5e-4, β ≤ 0.1": (2.5e-4, 0.05),
    "decay ≤ 2e-5, β ≤ 0.01": (1e-5, 0.005),
}
ARMS: dict[str, tuple[TensorCores, ...]] = {
    "tf32": ("round_operands", "toward_zero"),
    "tf32x3": ("toward_zero",),
    "ieee": (),
}
HEAD = """| regime | tokens | ranks | tf32 | tf32, rounded | tf32, sums cut | tf32x3 | tf32x3, sums cut | ieee | tf32 ≤ 8e-3 |
|---|---|---|---|---|---|---|---|---|---|"""


Key = tuple[str, int, int]  # regime, tokens, ranks


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    problem = load_problem("kda_state_chain")
    keys = [(name, tokens, ranks) for name in REGIMES for tokens in chosen.tokens for ranks in chosen.ranks]
    found: dict[Key, list[float]] = {key: [] for key in keys}
    for arm, kinds in ARMS.items():
        for tokens in chosen.tokens:
            here = [key for key in keys if key[1] == tokens]
            batch = max(1, MOST_TOKENS // tokens)
            for group in (here[i : i + batch] for i in range(0, len(here), batch)):
                for key, errors in errors_of(problem, arm, kinds, group).items():
                    found[key] += errors
            print(f"{arm} at {tokens} tokens: done", file=sys.stderr, flush=True)
    lines = [HEAD]
    for (name, tokens, ranks), errors in found.items():
        figures = " | ".join(f"{x:.1e}" for x in errors)
        lines.append(
            f"| {name} | {tokens:,} | {ranks} | {figures} | {'yes' if errors[0] <= UPSTREAM_LIMIT else 'no'} |"
        )
    print("\n".join(lines))
    if chosen.out:
        chosen.out.write_text("\n".join(lines) + "\n")


def errors_of(problem: Problem, arm: str, kinds: tuple[TensorCores, ...], keys: list[Key]) -> dict[Key, list[float]]:
    """Relative Frobenius errors of the final state against fp64: as usual, then on each of `kinds`."""
    checks = tuple(
        Check(
            name=f"chain{i}", axes={"H": 1, "C": tokens // CHUNK}, activation="float32", steps=1,
            scalars={"ranks": ranks}, tensor_cores=kinds,
            inputs={x: Distribution(mean=mean) for x, mean in zip(("decay", "beta"), REGIMES[name], strict=True)},
        )
        for i, (name, tokens, ranks) in enumerate(keys)
    )  # fmt: skip
    workloads = problem.workloads.model_copy(update={"checks": checks})
    # Other checks judge: recordings of the problem itself are not theirs.
    own = digest([problem.evaluator_digest, [x.model_dump(mode="json") for x in checks]])
    alone = problem.model_copy(update={"workloads": workloads, "evaluator_digest": own})
    candidate = KernelCandidate(source_name=f"{arm}.py", source=(problem.folder / f"{arm}.py").read_text())
    recorded = record(alone, candidate, environment(DEFAULT_ARCH))
    hint = f"run `infra-agent check numerics` on {arm}.py"
    if recorded.recording is None:
        raise Broken(f"`{arm}` does not run: {recorded.failure}", hint)
    expected = make_expected(alone, SEED)
    result = interpret(alone, recorded.recording, expected.inputs)
    if result.fault:
        raise Broken(f"`{arm}` gave no result: {result.fault}", hint)
    return {
        key: [
            finite(relative_error(result.arrays[f"{run}/state"], expected.exact[f"{check.name}/state"]))
            for run in (check.name, *(assumed_name(check, x) for x in kinds))
        ]
        for key, check in zip(keys, checks, strict=True)
    }


def finite(error: float | None) -> float:
    return float("inf") if error is None else error


if __name__ == "__main__":
    main()
