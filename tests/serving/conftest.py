"""Tests that start the real server or ask the engine are skipped, with the command that helps, where there is none."""

import pytest

from serving import arguments
from serving.engine_env import engine
from serving.errors import Broken


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        engine()
    except Broken as missing:
        for item in items:
            if item.get_closest_marker("engine"):
                item.add_marker(pytest.mark.skip(reason=str(missing)))


@pytest.fixture(scope="session")
def options_of_sglang(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, arguments.Option]]:
    """Read once: each test has a home of its own, and asking SGLang takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFRA_AGENT_HOME", str(tmp_path_factory.mktemp("options")))
        return arguments._options()


@pytest.fixture
def known_options(options_of_sglang: dict[str, dict[str, arguments.Option]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of the installed SGLang, without asking it again."""
    monkeypatch.setattr(arguments, "_options", lambda: options_of_sglang)
