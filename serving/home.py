"""Where this installation keeps what it makes: the ledger, caches, tiny checkpoints, run folders and logs."""

import os
from pathlib import Path

from serving.errors import Broken


def home() -> Path:
    """`INFRA_AGENT_HOME`, by default `~/.local/share/infra-agent`; made if absent.

    Raises Broken when the folder cannot be made or written to.
    """
    chosen = os.environ.get("INFRA_AGENT_HOME")
    folder = (Path(chosen) if chosen else Path.home() / ".local" / "share" / "infra-agent").expanduser().resolve()
    hint = "set `INFRA_AGENT_HOME` to a folder that this user can write to"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Broken(f"cannot make the folder `{folder}`: {error.strerror}", hint) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise Broken(f"the folder `{folder}` cannot be written to", hint)
    return folder
