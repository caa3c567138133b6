"""Folders for what is thrown away: gone at the end, and after a kill as soon as somebody looks."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
from fake_stack import python

from serving.home import home
from serving.scratch import remove_left_over, scratch

OWNER = """
import time
from serving.scratch import scratch
with scratch() as folder:
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_text("x")
    print(folder, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def notes() -> list[Path]:
    return list((home() / "scratch").glob("*.json"))


def left_by_a_killed_owner() -> Path:
    with python(OWNER) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert remove_left_over() == []
        assert (folder / "deep" / "file").exists()
        owner.kill()
    assert (folder / "deep" / "file").exists()
    return folder


def test_a_folder_is_private_and_is_gone_with_its_note_however_the_block_ends(own_temporary_files: Path) -> None:
    with scratch() as folder:
        (folder / "x").write_text("x")
        (outer,) = own_temporary_files.iterdir()
        assert folder.is_relative_to(outer)
        assert stat.S_IMODE(outer.stat().st_mode) == 0o700
        assert len(notes()) == 1
    with pytest.raises(ZeroDivisionError), scratch():
        _ = 1 / 0
    assert list(own_temporary_files.iterdir()) == []
    assert notes() == []


def test_what_a_killed_owner_left_goes_and_what_a_living_one_has_stays(own_temporary_files: Path) -> None:
    folder = left_by_a_killed_owner()
    with scratch() as ours:
        assert not folder.exists()
        assert [path.name for path in own_temporary_files.iterdir()] == [ours.parent.name]
        assert remove_left_over() == []
        assert ours.exists()
    assert notes() == []


def test_a_note_of_another_machine_is_left_alone_and_one_that_names_any_other_folder_removes_nothing(
    own_temporary_files: Path,
) -> None:
    folder = left_by_a_killed_owner()
    (note,) = notes()
    text, precious = note.read_text(), own_temporary_files / "precious"
    precious.mkdir()
    note.write_text(text.replace(os.uname().nodename, "elsewhere"))
    assert remove_left_over() == []
    note.write_text(text.replace(str(folder.parent), str(precious)))
    assert remove_left_over() == []
    assert precious.exists()
    link = own_temporary_files / "infra-agent-link"
    link.symlink_to(precious)
    note.write_text(text.replace(str(folder.parent), str(link)))
    assert remove_left_over() == []
    assert precious.exists()
    note.write_text("{")
    assert remove_left_over() == []
    note.write_text(text)
    assert remove_left_over() == [str(folder.parent)]
