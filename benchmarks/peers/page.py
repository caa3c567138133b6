"""The page of benchmarks/kernel_peers.py."""

from collections.abc import Callable
from typing import Any

Found = dict[str, Any]
HEAD = """# KDA decode kernels beside those of FLA and SGLang

Made by `benchmarks/kernel_peers.py` on {date}: {machine}; {versions}.

All kernels are called through their own Python in the sandbox, compiled by the same Triton for the same production shapes,
and run in the same interpreter on the same inputs. Instructions are those of all warps as the code stands: what is in a
loop or behind a branch counts once. The loops of FLA and of SGLang's recurrent kernel are over tokens and run once in a decode
step; SGLang's ReplaySSM goes over two tiles of K, and it and ours hold a flush that runs in one step of 16, so there totals do
not compare. Counts say nothing of speed, and those of two architectures do not compare. Peers' Python may use torch operations;
those that compute count as launches. SGLang's module is asked to believe that it is on an H200, with programmatic dependent
launch off. `floor` is the bytes that a step must move; its time is an estimate from the vendor's bandwidth. GPU times: {times}.
"""


def page(found: Found) -> str:
    """Markdown."""
    timed = any(row["time_us"] for problem in found["problems"] for row in problem["rows"])
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    times = "below, median of each pair" if timed else "not run (no GPU)"
    parts = [HEAD.format(**found | {"versions": versions, "times": times})]
    for problem in found["problems"]:
        parts += [f"## {problem['problem']}", _kernels(problem, found["bytes_at"]), _errors(problem)]
        parts += [_by_shape(problem, arch) for arch in problem["rows"][0]["sm"]]
        parts.append(_fill(problem))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _kernels(problem: Found, at: str) -> str:
    """Per kernel, at the largest production shape of one GPU, sm_90."""
    head = ["kernel, sm_90", "version", "instructions per head and token", "loops", "MUFU", "registers", "spilled B",
            "programs per SM", "launches", "of which torch", "unique bytes / floor", "worst fp32 error"]  # fmt: skip
    rows = []
    for row in problem["rows"]:
        built, checked = row["sm"]["sm_90"], row["checked"]
        if built["fault"]:
            rows.append([row["name"], row["of"], built["fault"], *["-"] * (len(head) - 3)])
            continue
        x = built["counts"]["tp1_b256"]
        tokens = 256 * 64
        errors = [e for name, e in checked["errors"].items() if not name.endswith("bf16/out")]
        worst = "not finite" if None in errors else f"{max(errors):.1e}" if errors else checked["fault"] or "-"
        rows.append([
            row["name"], row["of"], f"{x['instructions'] / tokens:,.0f}", "yes" if x["loops"] else "no",
            f"{x['mufu'] / tokens:.0f}", str(x["registers"]), str(x["spill_bytes"]), str(x["programs_per_sm"]),
            str(x["launches"]), str(x["torch_operations"]), _bytes(problem, checked, at), worst,
        ])  # fmt: skip
    return _table(head, rows)


def _bytes(problem: Found, checked: Found, at: str) -> str:
    """Unique bytes of a step over the floor, where whole cycles were counted."""
    moved = checked["unique_bytes"].get(at)
    return f"{moved / problem['floor_bytes'][at]:.3f}" if moved else "-"


def _errors(problem: Found) -> str:
    names = [f"{check}/{result}" for check in problem["checks"] for result in ("out", "state")]
    rows = []
    for name in names:
        check, result = name.split("/")
        cells = [row["checked"]["errors"].get(name, row["checked"]["fault"] or "-") for row in problem["rows"]]
        shown = ["not finite" if x is None else x if isinstance(x, str) else f"{x:.2e}" for x in cells]
        rows.append([check, result, f"{problem['ieee'][check][result]:.2e}", *shown])
    head = ["relative error against fp64", "result", "IEEE fp32", *(row["name"] for row in problem["rows"])]
    return _table(head, rows)


def _by_shape(problem: Found, arch: str) -> str:
    def cell(counts: Found, base: Found) -> str:
        ours, theirs = base["instructions"], counts["instructions"]
        return f"{theirs:,} ({100 * (theirs / ours - 1):+.1f} %)" if theirs != ours else f"{theirs:,}"

    return _shapes(problem, arch, f"warp instructions, {arch}", cell)


def _fill(problem: Found) -> str:
    floors = problem["floor_us"]
    times = {row["name"]: row["time_us"] for row in problem["rows"]}
    body = _shapes(problem, "sm_90", "programs (warps), sm_90", lambda x, _: f"{x['programs']:,} ({x['warps']:,})")
    rows = [[name, f"{us:.2f}", *(f"{t[name]:.2f}" if t else "not run" for t in times.values())]
            for name, us in floors.items()]  # fmt: skip
    return body + "\n\n" + _table(["GPU time, µs", "floor (estimate, H200)", *times], rows)


def _shapes(problem: Found, arch: str, title: str, cell: Callable[[Found, Found], str]) -> str:
    built = [row["sm"][arch] for row in problem["rows"]]
    rows = []
    for name in problem["floor_us"]:
        base = built[0]["counts"][name]
        rows.append([name, *(cell(x["counts"][name], base) if not x["fault"] else "-" for x in built)])
    return _table([title, *(row["name"] for row in problem["rows"])], rows)
