"""Where results are written: whole or not at all, through links, and into pipes and devices without replacing them."""

import os
import stat
import threading
from pathlib import Path

import pytest

from flows.result_file import check_writable, write_whole
from serving.errors import BadInput


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("an older and longer text")
    write_whole(tmp_path / "out.json", "new")
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]
    assert (tmp_path / "out.json").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "out.json").stat().st_mode) == 0o644


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "out.json")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "out.json").read_text() == "new"


def test_a_pipe_behind_a_link_is_written_to_and_both_stay(tmp_path: Path) -> None:
    """As with /dev/stdout, which root could replace for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    heard = list[str]()
    reader = threading.Thread(target=lambda: heard.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    check_writable(tmp_path / "link")
    write_whole(tmp_path / "link", "new")
    reader.join(30)
    assert heard == ["new"]
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "pipe").is_fifo()


def test_a_pipe_of_a_process_is_written_to_by_the_link_that_the_kernel_shows(tmp_path: Path) -> None:
    """What such a link resolves to is no name of a file."""
    read_end, write_end = os.pipe()
    (tmp_path / "link").symlink_to(f"/proc/self/fd/{write_end}")
    write_whole(tmp_path / "link", "new")
    os.close(write_end)
    with os.fdopen(read_end) as end:
        assert end.read() == "new"
    assert (tmp_path / "link").is_symlink()


def test_a_terminal_behind_a_link_is_written_to_and_both_stay(tmp_path: Path) -> None:
    other, terminal = os.openpty()
    (tmp_path / "link").symlink_to(os.ttyname(terminal))
    write_whole(tmp_path / "link", "new")
    assert os.read(other, 100) == b"new"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "link").is_char_device()
    os.close(terminal)
    os.close(other)


@pytest.mark.parametrize("name", ["nowhere/out.json", ".", "loop", "z" * 300])
def test_what_cannot_be_written_is_bad_input_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for refused in (lambda: check_writable(tmp_path / name), lambda: write_whole(tmp_path / name, "new")):
        with pytest.raises(BadInput, match=r"write|regular"):
            refused()
    assert [file.name for file in tmp_path.iterdir()] == ["loop"]
