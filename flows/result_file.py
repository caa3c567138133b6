"""The files that a person names for results: whole or not at all, and never in place of a link, a device or a pipe."""

import os
import stat
import tempfile
from pathlib import Path

from serving.errors import BadInput

HINT = "name a file in a folder that exists and can be written"


def check_writable(file: Path | None) -> None:
    """Raises `BadInput` before anything runs for a file that could not be written in the end."""
    if file is None:
        return
    try:
        if _is_stream(file):
            if not os.access(file, os.W_OK):
                raise BadInput(f"cannot write `{file}`: permission denied", HINT)
            return
        target = file.absolute().resolve()
        if target.exists() and not target.is_file():
            raise BadInput(f"`{file}` is not a regular file", HINT)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}."):
            pass
    except (OSError, RuntimeError) as error:
        raise BadInput(f"cannot write `{file}`: {error}", HINT) from error


def write_whole(file: Path, text: str) -> None:
    """Whole or not at all; a link keeps pointing to the file. A device or a pipe is written to.

    Raises `BadInput` where it cannot be written.
    """
    check_writable(file)
    try:
        if _is_stream(file):
            with open(file, "w", encoding="utf-8", opener=_as_it_is) as stream:
                stream.write(text)
            return
        _replace(file.absolute().resolve(), text)
    except OSError as error:
        raise BadInput(f"cannot write `{file}`: {error}", HINT) from error


def _replace(target: Path, text: str) -> None:
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(part, 0o644)
        os.replace(part, target)
    except OSError:
        Path(part).unlink(missing_ok=True)
        raise


def _is_stream(file: Path) -> bool:
    """Asked of the name as it is given: what a link of /proc to a pipe resolves to is no file. A disk is no stream."""
    try:
        mode = file.stat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _as_it_is(path: str, flags: int) -> int:
    """Neither made nor cut: some systems refuse to open the pipe of another user as a file that may be made."""
    return os.open(path, os.O_WRONLY)
