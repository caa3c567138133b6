"""A candidate is compiled by calling its own `run`; what it does wrong is named, and nothing it leaves is trusted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kernel_sources import DO_NOT_COMPILE, ODD_BUT_HONEST, around, candidate, catalogue

from tasks.build import artifact_digest
from tasks.compiled import compile_arm
from tasks.problem import Problem
from tasks.records import KernelCandidate
from tasks.sass import text_sha256
from tasks.toolchain import environment

pytestmark = pytest.mark.usefixtures("shared_builds")


def failure(problem: Problem, source: KernelCandidate) -> str:
    compiled = compile_arm(problem, source, environment(90))
    assert compiled.failure is not None
    return compiled.failure


@pytest.mark.parametrize("name", DO_NOT_COMPILE)
def test_a_candidate_that_misbehaves_when_compiled_is_refused_with_its_fault(tiny: Problem, name: str) -> None:
    source, words = DO_NOT_COMPILE[name]
    assert words in failure(tiny, candidate(source))


@pytest.mark.parametrize(
    ("body", "limits", "words"),
    [
        ("while True: pass", {"cpu_s": 5}, "limit of 5 s CPU time"),
        ("import time\ntime.sleep(60)", {"wall_s": 6}, "limit of 6 s wall time"),
        ("bytearray(20 << 30)", {}, "more memory than the limit of"),
        ("import torch\ntorch.empty(20 << 30, dtype=torch.uint8)", {}, "more memory than the limit of"),
        ("print('x' * (8 << 20), flush=True)", {}, "limit of 1048576 bytes of output"),
        ("open('big', 'wb').truncate(2 << 30)\n{ALL}", {}, "file larger than the limit of"),
    ],
)
def test_a_candidate_that_breaks_a_limit_is_refused_with_the_name_of_the_limit(
    make_problem: Callable[..., Problem], body: str, limits: dict[str, int], words: str
) -> None:
    assert words in failure(make_problem(**limits), candidate(around(body)))


@pytest.mark.parametrize("name", ODD_BUT_HONEST)
def test_honest_code_in_an_odd_style_compiles_to_the_incumbents_machine_code(tiny: Problem, name: str) -> None:
    facts = environment(90)
    odd, plain = (compile_arm(tiny, x, facts) for x in (candidate(ODD_BUT_HONEST[name]), tiny.incumbent))
    assert odd.failure is None
    texts = [
        [text_sha256(arm.cubin(launch)) for found in arm.workloads.values() for launch in found] for arm in (odd, plain)
    ]
    assert texts[0] == texts[1]


def test_the_launch_description_holds_grid_buffers_scalars_and_scratch_memory(tiny: Problem) -> None:
    compiled = compile_arm(tiny, catalogue("hoist_gate"), environment(90))
    first, second = compiled.workloads["tp8_b8"]
    assert (first.kernel, first.grid, second.grid) == ("prologue", (8, 8, 1), (4, 8, 8))
    assert [x.buffer for x in first.arguments[:3]] == ["q", "k", "a"]
    assert [x.value for x in first.arguments[-2:]] == [128**-0.5, -5.0]
    assert sorted(first.scratch_bytes.values()) == [8 * 8 * 4, *[8 * 8 * 128 * 4] * 3]
    assert [x.buffer for x in second.arguments[:4]] == list(first.scratch_bytes)


def test_launch_options_change_tile_and_warps(tiny: Problem) -> None:
    (launch,) = compile_arm(tiny, candidate(tiny.incumbent.source, BV=64, num_warps=4), environment(90)).workloads[
        "tp8_b8"
    ]
    assert (launch.grid, launch.num_warps, launch.constexprs["BV"]) == ((2, 8, 8), 4, 64)


def test_a_build_is_found_again_and_a_damaged_one_is_made_again(
    tiny: Problem, own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRA_AGENT_HOME", str(own_home))
    facts = environment(90)
    made = compile_arm(tiny, tiny.incumbent, facts)
    assert not made.cached
    told = artifact_digest(made)
    assert compile_arm(tiny, tiny.incumbent, facts).cached
    next((made.folder / "cubins").iterdir()).write_bytes(b"\x7fELF damaged")
    again = compile_arm(tiny, tiny.incumbent, facts)
    assert not again.cached
    assert artifact_digest(again) == told
    (kept,) = (own_home / "recordings").iterdir()
    for altered in (again.folder / "launches.json", kept):
        altered.write_bytes(altered.read_bytes().replace(b'"num_warps":', b'"num_warps":3', 1))
    last = compile_arm(tiny, tiny.incumbent, facts)
    assert not last.cached
    assert artifact_digest(last) == told
