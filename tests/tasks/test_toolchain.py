"""Which Triton may compile: the versions whose output was read, and newer ones. Others are refused by name."""

import pytest

from serving.errors import Broken
from tasks import toolchain


@pytest.mark.parametrize("found", ["3.6.0", "3.8.0", "3.9.0", "3.10.1+git1234", "4.0.0"])
def test_versions_that_were_read_and_newer_ones_are_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "version", lambda package: found)
    assert toolchain.triton_version() == found


@pytest.mark.parametrize("found", ["2.1.0", "3.5.1", "3.7.0", "unknown"])
def test_other_versions_are_refused_by_name(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "version", lambda package: found)
    with pytest.raises(Broken, match=f"Triton `{found}` is not supported") as broken:
        toolchain.environment(90)
    assert "3.6, 3.8 or newer" in broken.value.hint
