"""A folder is written whole or not at all, and never over something."""

from pathlib import Path

import pytest

from serving.errors import BadInput
from tasks import folder
from tasks.folder import check_target, write_folder


def test_a_folder_with_content_a_file_and_a_folder_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(BadInput, match="not empty"):
        check_target(tmp_path)
    with pytest.raises(BadInput, match="not a folder"):
        check_target(tmp_path / "file")
    with pytest.raises(BadInput, match="cannot write"):
        check_target(tmp_path / "nowhere" / "dataset")
    with pytest.raises(BadInput, match="cannot write"):
        check_target(Path("/proc/dataset"))
    assert [x.name for x in tmp_path.iterdir()] == ["file"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    write_folder({"a/b": b"x"}, tmp_path)
    assert (tmp_path / "a" / "b").read_bytes() == b"x"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder.os, "rename", full)
    with pytest.raises(BadInput, match="No space left"):
        write_folder({"a/b": b"x"}, tmp_path / "dataset")
    assert not list(tmp_path.iterdir())
