"""What all tests share: examples of records, a home folder that no test shares with another, and builds that all may share."""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from serving.errors import Broken
from tasks.sandbox import sandbox_mode

sys.path.insert(0, str(Path(__file__).parent))  # strategies.py and examples.py, by name

signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background inherits SIGINT ignored
settings.register_profile("no-clock", deadline=None)  # a busy machine must not fail a test
settings.load_profile("no-clock")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("INFRA_AGENT_HOME", str(home))
    monkeypatch.delenv("INFRA_AGENT_LEDGER", raising=False)
    return home


@pytest.fixture(scope="session")
def sandbox() -> str:
    try:
        return sandbox_mode()
    except Broken as fault:
        pytest.skip(f"no sandbox on this machine ({fault.message}); check with: bwrap --unshare-all --ro-bind / / true")


@pytest.fixture
def shared_builds(
    sandbox: str, own_home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Builds are kept by content, so sharing them makes no test depend on another; workers of one run share them, too."""
    folder = tmp_path_factory.getbasetemp()
    home = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "shared-home"
    monkeypatch.setenv("INFRA_AGENT_HOME", str(home))
    return home
