"""Files that evidence refers to, kept by content under the home folder."""

import json
import os
from uuid import uuid4

from serving.home import home
from tasks.records import FileRef, digest


def keep_json(content: object) -> FileRef:
    """Store `content` as JSON under its own digest and name it, with a path relative to the home folder."""
    data = json.dumps(content, sort_keys=True, indent=1, allow_nan=False).encode()
    sha = digest(data)
    folder = home() / "artifacts"
    folder.mkdir(exist_ok=True)
    making = folder / f"{sha}.{uuid4().hex}"
    making.write_bytes(data)
    os.replace(making, folder / f"{sha}.json")
    return FileRef(path=f"artifacts/{sha}.json", sha256=sha, size_bytes=len(data))
