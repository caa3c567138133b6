"""Where this installation keeps what it makes: the ledger, caches, tiny checkpoints, run folders and logs."""

import os
from pathlib import Path

from serving.errors import Broken

REPOSITORY = Path(__file__).resolve().parents[1]


def home() -> Path:
    """`INFRA_AGENT_HOME`, by default `~/.local/share/infra-agent`; made if absent.

    Raises Broken when the folder cannot be made or written to.
    """
    chosen = os.environ.get("INFRA_AGENT_HOME")
    hint = "set `INFRA_AGENT_HOME` to a folder that this user can write to"
    try:
        folder = (Path(chosen) if chosen else Path.home() / ".local" / "share" / "infra-agent").expanduser().resolve()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise Broken(f"cannot make the folder `{chosen or '~/.local/share/infra-agent'}`: {error}", hint) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Broken(f"the folder `{folder}` cannot be written to", hint)
    return folder


def portable(path: Path) -> str:
    """A path for a record: relative to the repository where it lies inside, so that a record does not name a machine."""
    whole = path.resolve()
    return whole.relative_to(REPOSITORY).as_posix() if whole.is_relative_to(REPOSITORY) else whole.as_posix()


def located(recorded: str) -> Path:
    """The file that a record's path means on this machine."""
    return REPOSITORY / recorded
