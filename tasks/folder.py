"""A new folder of files, written whole or not at all."""

import os
import shutil
import tempfile
from pathlib import Path

from serving.errors import BadInput


def check_target(folder: Path) -> Path:
    """The folder, made absolute; it is not there or empty, and its parent can be written to. Raises BadInput."""
    hint = "name a folder that does not exist yet, in one that can be written"
    try:
        target = folder.absolute().resolve()
        if target.exists() and not target.is_dir():
            raise BadInput(f"`{folder}` is not a folder", hint)
        if target.is_dir() and any(target.iterdir()):
            raise BadInput(f"the folder `{folder}` is not empty", "name another one: nothing is overwritten")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name[:64]}."):
            pass
    except (OSError, RuntimeError, ValueError) as error:
        raise BadInput(f"cannot write to `{folder}`: {error}", hint) from error
    return target


def write_folder(files: dict[str, bytes], folder: Path) -> None:
    """All files or none: they are made beside `folder` and moved there in one rename. Raises BadInput."""
    target = check_target(folder)
    making = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:64]}."))
    try:
        for name, content in files.items():
            (making / name).parent.mkdir(parents=True, exist_ok=True)
            (making / name).write_bytes(content)
        making.chmod(0o755)
        os.rename(making, target)
    except OSError as error:
        raise BadInput(f"cannot write to `{folder}`: {error}", "free some space or name another folder") from error
    finally:
        shutil.rmtree(making, ignore_errors=True)
