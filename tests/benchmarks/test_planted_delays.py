"""A wait in one layer of a live stack of encode, prefill, decode and router is found there, and the candidate never passes."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "planted_delays.py"


@pytest.fixture(scope="module")
def planted_delays() -> ModuleType:
    spec = importlib.util.spec_from_file_location("planted_delays", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.engine
def test_every_place_for_a_wait_is_in_the_installed_engine(planted_delays: ModuleType, tmp_path: Path) -> None:
    overlay = planted_delays.overlay_with_waits(tmp_path / "control")
    assert len(overlay.counted) == 3
    for path, content in overlay.files.items():
        compile(content, path, "exec")


@pytest.mark.engine
@pytest.mark.live
@pytest.mark.timeout(600)
def test_waits_in_prefill_and_before_the_router_are_found_there_and_never_passed(tmp_path: Path) -> None:
    """A busy machine may leave the verdict open; which layer it is shows all the same."""
    told = tmp_path / "rows.json"
    command = [sys.executable, "-P", str(SCRIPT), "--layers", "prefill,router", "--pairs", "4", "--json", str(told)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.exists(), ended.stdout + ended.stderr
    for row in json.loads(told.read_text()):
        assert row["outcome"] in ("REJECTED", "INCONCLUSIVE"), row
        assert row["named"] == row["planted_in"], row
        assert max(row["attributed"], key=lambda layer: row["attributed"][layer]) == row["planted_in"], row
