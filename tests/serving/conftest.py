"""fake_engine.py by name, and the engine environment for the tests that start the real server."""

import sys
from pathlib import Path

import pytest

from serving.engine_env import engine
from serving.errors import Broken

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        engine()
    except Broken as missing:
        for item in items:
            if item.get_closest_marker("engine"):
                item.add_marker(pytest.mark.skip(reason=str(missing)))
