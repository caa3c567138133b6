"""Folders for what is thrown away, each written down with its owner first: what a killed owner leaves can be removed.

The notes lie under `INFRA_AGENT_HOME/scratch`; the folders where temporary files belong on this machine.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from serving.home import home
from serving.identity import ProcessId, identity, still_there, this_machine, was_before_boot

PREFIX = "infra-agent-"


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    machine: str
    owner: ProcessId

    @property
    def left_over(self) -> bool:
        """Whether nobody can use the folder any more: never one of another machine or container, or of a living owner."""
        if was_before_boot(self.machine):
            return True
        return self.machine == this_machine() and still_there(self.owner) is None


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder of our own, gone when the block is left. What killed owners have left goes first."""
    remove_left_over()
    owner = identity(os.getpid())
    assert owner is not None, "this process is there"
    outer = Path(tempfile.gettempdir()) / f"{PREFIX}{secrets.token_hex(8)}"
    note = _notes() / f"{outer.name}.json"
    note.write_text(_Note(folder=str(outer), machine=this_machine(), owner=owner).model_dump_json(), encoding="utf-8")
    try:
        outer.mkdir(mode=0o700)
        with tempfile.TemporaryDirectory(dir=outer) as folder:
            yield Path(folder)
    finally:
        with suppress(FileNotFoundError):
            outer.rmdir()
        note.unlink(missing_ok=True)


def remove_left_over() -> list[str]:
    """Removes the folders of owners that are gone, and says which. What cannot be removed keeps its note."""
    removed = []
    for file in sorted(_notes().glob("*.json")):
        note = _read(file)
        if note is None or not note.left_over:
            continue
        folder = Path(note.folder)
        if folder.name.startswith(PREFIX) and not folder.is_symlink() and folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
            if folder.exists():
                continue
            removed.append(note.folder)
        file.unlink(missing_ok=True)
    return removed


def _notes() -> Path:
    made = home() / "scratch"
    made.mkdir(exist_ok=True)
    return made


def _read(file: Path) -> _Note | None:
    """None for one that is gone, or that its owner has not finished."""
    try:
        return _Note.model_validate_json(file.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
