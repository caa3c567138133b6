"""Tests that start the real server are skipped, with the command that helps, where there is no engine."""

import pytest

from serving.engine_env import engine
from serving.errors import Broken


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    try:
        engine()
    except Broken as missing:
        for item in items:
            if item.get_closest_marker("engine"):
                item.add_marker(pytest.mark.skip(reason=str(missing)))
