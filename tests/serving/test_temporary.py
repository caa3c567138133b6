"""A folder for temporary files is one of ours, for one user, and is all that is ever removed."""

import stat
import tempfile
from pathlib import Path

import pytest

from serving.errors import Broken
from serving.temporary import is_one, new_folder, remove


def test_a_folder_is_made_where_the_engine_would_have_its_files_and_for_its_user_alone(tmp_path: Path) -> None:
    folder = new_folder({"TMPDIR": str(tmp_path)})
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "left").write_text("")
    remove(folder)
    assert not list(tmp_path.iterdir())
    remove(folder)


def test_without_a_variable_it_is_where_ours_are() -> None:
    folder = new_folder({})
    assert folder.parent == Path(tempfile.gettempdir())
    remove(folder)


def test_a_folder_that_cannot_be_made_is_broken_and_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="No such file or directory") as broken:
        new_folder({"TMPDIR": str(tmp_path / "gone")})
    assert "TMPDIR" in broken.value.hint


@pytest.mark.parametrize("name", ["infra-agent-1234567", "infra-agent-12345678x", "other", "infra-agent-1234567G"])
def test_another_folder_is_never_removed(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert not is_one(tmp_path / name)
    remove(tmp_path / name)
    assert (tmp_path / name).exists()


def test_what_a_link_in_its_place_leads_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    (tmp_path / "infra-agent-12345678").symlink_to(kept)
    remove(tmp_path / "infra-agent-12345678")
    assert (kept / "file").exists()
