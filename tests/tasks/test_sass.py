"""Machine code is identified by its `.text`, and read only if it is a cubin."""

import shutil
from pathlib import Path

import pytest

from tasks import bubblewrap
from tasks.compiled import Compiled, compile_arm
from tasks.disassembly import Unreadable
from tasks.problem import Problem
from tasks.sass import read_code, text_sections, text_sha256
from tasks.toolchain import environment

pytestmark = pytest.mark.usefixtures("shared_builds")


def cubins(compiled: Compiled) -> list[bytes]:
    return [compiled.cubin(launch) for found in compiled.workloads.values() for launch in found]


def test_text_is_the_same_from_two_cold_caches_in_two_folders(
    tiny: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for name in ("one", "two"):
        monkeypatch.setenv("INFRA_AGENT_HOME", str(tmp_path / name))
        compiled = compile_arm(tiny, tiny.incumbent, environment(90))
        assert not compiled.cached
        digests.append([text_sha256(cubin) for cubin in cubins(compiled)])
        shutil.rmtree(tmp_path / name)
    assert digests[0] == digests[1]


def test_text_is_the_same_with_and_without_line_information(
    tiny: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRA_AGENT_HOME", str(tmp_path / "with"))
    usual = cubins(compile_arm(tiny, tiny.incumbent, environment(90)))
    fixed = bubblewrap._environment()
    monkeypatch.setattr(bubblewrap, "_environment", lambda: fixed | {"TRITON_DISABLE_LINE_INFO": "1"})
    monkeypatch.setenv("INFRA_AGENT_HOME", str(tmp_path / "without"))
    bare = cubins(compile_arm(tiny, tiny.incumbent, environment(90)))
    assert usual != bare
    assert [text_sha256(cubin) for cubin in usual] == [text_sha256(cubin) for cubin in bare]
    with_lines, without = read_code(usual[0]), read_code(bare[0])
    assert set(without.lines) == {0}
    assert 0 not in with_lines.lines
    assert without.instructions == with_lines.instructions


def test_counts_of_the_incumbent_are_plausible(tiny: Problem) -> None:
    compiled = compile_arm(tiny, tiny.incumbent, environment(90))
    code = read_code(compiled.cubin(compiled.workloads["tp8_b8"][0]))
    assert code.name == "kda_decode"
    assert 500 < code.instructions < 3000
    assert code.instructions == sum(code.pipes.values())
    # Two norms, K/32 gates per lane and one beta: a root each, an exponential and a reciprocal each.
    assert code.mufu["SQRT"] == 2
    assert code.mufu["EX2"] >= 5
    assert code.mufu["RCP"] >= 5
    # 32 rows of 128 fp32 by 32 lanes: 128 values a lane, 4 in a 16-byte access.
    assert code.widths["STG.128"] == 32
    assert code.widths["LDG.128"] >= 32
    assert code.spill_bytes == 0
    assert not code.loops


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF" + b"\0" * 200, b"not a cubin at all" * 20])
def test_what_is_no_cubin_is_unreadable(content: bytes) -> None:
    with pytest.raises(Unreadable):
        read_code(content)


def test_a_truncated_cubin_is_unreadable(tiny: Problem) -> None:
    compiled = compile_arm(tiny, tiny.incumbent, environment(90))
    whole = cubins(compiled)[0]
    assert list(text_sections(whole)) == ["kda_decode"]
    with pytest.raises(Unreadable):
        read_code(whole[: len(whole) // 2])
