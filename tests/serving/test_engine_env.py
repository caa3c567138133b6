"""Where the engine is, and what of our environment its processes see."""

from pathlib import Path

import pytest

from serving.engine_env import CPU_STAND_INS, MEETING, SGLANG, engine, process_environment, version_in_engine
from serving.errors import Broken


def fake_environment(folder: Path, version: str | None) -> None:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    if version:
        info = site / f"sglang-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")


@pytest.mark.parametrize(("version", "said"), [(None, "no sglang"), ("0.5.22", "0.5.22")])
def test_an_environment_without_the_pinned_sglang_is_broken_and_says_what_to_do(
    version: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_environment(tmp_path, version)
    monkeypatch.setenv("INFRA_AGENT_ENGINE", str(tmp_path))
    with pytest.raises(Broken, match=said) as broken:
        engine()
    assert "make engine" in broken.value.hint


def test_a_missing_environment_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFRA_AGENT_ENGINE", str(tmp_path / "nowhere"))
    with pytest.raises(Broken, match="no engine environment"):
        engine()


def test_the_pinned_version_is_found_without_starting_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_environment(tmp_path, SGLANG)
    monkeypatch.setenv("INFRA_AGENT_ENGINE", str(tmp_path))
    assert engine().versions["sglang"] == SGLANG


def test_an_engine_process_sees_no_key_and_none_of_our_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    monkeypatch.setenv("https_proxy", "http://proxy")
    seen = process_environment("cpu", {"OMP_NUM_THREADS": "1"})
    assert "secret" not in seen.values()
    assert "https_proxy" not in seen
    assert seen["PYTHONPATH"] == str(CPU_STAND_INS)
    assert seen["OMP_NUM_THREADS"] == "1"


def test_the_stand_ins_are_only_for_machines_without_a_gpu() -> None:
    assert "PYTHONPATH" not in process_environment("cuda")
    assert "SGLANG_USE_CPU_ENGINE" not in process_environment("cuda")


def test_what_the_launcher_decides_goes_over_what_a_stack_states() -> None:
    stated = {"SGLANG_HOST_IP": "0.0.0.0", "PYTHONPATH": "/elsewhere", MEETING: "tcp://x", "OMP_NUM_THREADS": "2"}
    seen = process_environment("cpu", stated, {MEETING: "file://meet"})
    assert seen["SGLANG_HOST_IP"] == "127.0.0.1"
    assert seen["PYTHONPATH"] == str(CPU_STAND_INS)
    assert seen[MEETING] == "file://meet"
    assert seen["OMP_NUM_THREADS"] == "2"


def test_the_version_of_a_package_is_known_without_starting_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_environment(tmp_path / "engine", SGLANG)
    monkeypatch.setenv("INFRA_AGENT_ENGINE", str(tmp_path / "engine"))
    assert version_in_engine("sglang") == SGLANG
    assert version_in_engine("triton") is None
    monkeypatch.setenv("INFRA_AGENT_ENGINE", str(tmp_path / "nowhere"))
    assert version_in_engine("sglang") is None
