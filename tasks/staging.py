"""The folder that a sandboxed process works in: what goes in, and how what comes out is read without trusting it."""

import json
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from serving.scratch import scratch
from tasks.ending import Ending, Limits, limit_in
from tasks.sandbox import run_sandboxed

Result = TypeVar("Result", bound=BaseModel)
_MAX_RESULT_BYTES = 64 << 20


class UntrustedResult(Exception):
    """What a candidate's process left behind is not what it was asked for. A fault of the candidate, in one line."""


@contextmanager
def staged(files: dict[str, str | bytes], request: dict[str, Any]) -> Iterator["Stage"]:
    """A private folder with `files` and request.json, removed at the end."""
    with scratch() as folder:
        stage = Stage(folder, secrets.token_hex(16))
        for name, content in files.items():
            (stage.path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        (stage.path / "request.json").write_text(json.dumps({**request, "nonce": stage.nonce}))
        yield stage


class Stage:
    def __init__(self, path: Path, nonce: str) -> None:
        self.path = path
        self.nonce = nonce

    def run(self, script: str, limits: Limits) -> Ending:
        """Run one of our workers here. Raises Broken as `run_sandboxed` does."""
        return run_sandboxed(script, [], self.path, limits)

    def read(self, name: str, max_bytes: int = _MAX_RESULT_BYTES) -> bytes:
        """A file that the process left. Raises UntrustedResult for a link, a device, a huge file, or nothing."""
        path = self.path
        for part in Path(name).parts:
            path = path / part
            if path.is_symlink():
                raise UntrustedResult(f"the process left a link in place of `{name}`")
        try:
            status = path.lstat()
        except OSError:
            raise UntrustedResult(f"the process ended without leaving `{name}`") from None
        if not stat.S_ISREG(status.st_mode) or status.st_size > max_bytes:
            raise UntrustedResult(f"`{name}` is not a file of at most {max_bytes} bytes")
        return path.read_bytes()

    def result(self, model: type[Result]) -> Result:
        """result.json as `model`, whose `nonce` must be the one of the request. Raises UntrustedResult."""
        try:
            result = model.model_validate_json(self.read("result.json"))
        except ValidationError as error:
            raise UntrustedResult(f"result.json is malformed: {error.errors()[0]['msg']}") from None
        if getattr(result, "nonce", None) != self.nonce:
            raise UntrustedResult("result.json does not carry the nonce of the request")
        return result


def fault_of(ending: Ending, fault: str | None, limits: Limits) -> str | None:
    """What the candidate did wrong, if anything; a limit is named even where the candidate met it as an exception."""
    if ending.kind != "ok":
        return ending.reason
    return (limit_in(fault, limits) or fault) if fault is not None else None
