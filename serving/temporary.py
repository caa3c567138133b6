"""The folder for temporary files of one engine: SGLang leaves sockets and empty files there, even after an orderly end.

Named and noted by the owner of the engine; its supervisor removes it, and so does whoever ends what is left of both.
"""

import re
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serving.errors import Broken

# Short, because the path of a socket has 107 bytes at most.
_NAME = "infra-agent-{}"


def new_folder(environment: Mapping[str, str]) -> Path:
    """Made, and for its user alone, where an engine with these variables would have its temporary files.

    Raises Broken where it cannot be made.
    """
    folder = Path(environment.get("TMPDIR") or tempfile.gettempdir()).absolute() / _NAME.format(secrets.token_hex(4))
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        hint = "set `TMPDIR` to a folder that is there and can be written"
        raise Broken(f"cannot make a folder for temporary files: `{folder}`: {error.strerror}", hint) from error
    return folder


def is_one(folder: Path) -> bool:
    """Whether the path is one that `new_folder` makes, and so one that may be removed with all that is in it."""
    return folder.is_absolute() and re.fullmatch(_NAME.format("[0-9a-f]{8}"), folder.name) is not None


def remove(folder: Path) -> None:
    """As far as it is there. Never what a link in its place leads to."""
    if is_one(folder):
        shutil.rmtree(folder, ignore_errors=True)
