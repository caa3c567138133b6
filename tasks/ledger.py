"""The ledger: one immutable JSON object per record, `<hypothesis>/<seq>-<kind>.json`, behind an fsspec URL.

Each object carries its own digest and is written whole or not at all, so a crash loses no finished stage and a damaged
object is reported without hiding another. There is no index and no lock: everything else is derived from the objects.
"""

import json
import os
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from pydantic import ValidationError

from serving.errors import BadInput, Broken
from serving.home import home
from tasks.noise import Noise
from tasks.proposals import Proposals
from tasks.records import Build, Evidence, Hypothesis, Plan, Record, Refusal, Text, Verdict, digest

KINDS: dict[str, type[Record]] = {
    "hypothesis": Hypothesis,
    "plan": Plan,
    "build": Build,
    "evidence": Evidence,
    "verdict": Verdict,
    "noise": Noise,
    "refusal": Refusal,
    "proposals": Proposals,
}
PROTOCOLS = ("file", "s3", "gs", "abfs", "memory")
FOLDER_CHARS = 16  # of the hypothesis id, as the folder name


class Entry(Record):
    """One object of the ledger. Only here do times and attempts stand: ids are free of them."""

    kind: Text
    hypothesis_id: Text
    attempt: Text
    seq: int
    written_at: Text
    record_id: Text
    record: dict[str, Any]
    sha256: Text = ""

    def sealed(self) -> "Entry":
        return self.model_copy(update={"sha256": self.seal()})

    def seal(self) -> str:
        return digest(self.model_dump(mode="json", exclude={"sha256"}))


class Damage(Record):
    path: Text
    reason: Text


class Contents(Record):
    """Everything that one look at the ledger found."""

    entries: tuple[Entry, ...]
    damaged: tuple[Damage, ...]


def default_url() -> str:
    """`INFRA_AGENT_LEDGER`, else a folder under `INFRA_AGENT_HOME`."""
    return os.environ.get("INFRA_AGENT_LEDGER") or f"file://{home()}/ledger"


class Ledger:
    """Raises `BadInput` for a URL that fsspec does not know, `Broken` when the storage cannot be reached."""

    def __init__(self, url: str) -> None:
        self.url = url
        protocol = url.split("://", 1)[0] if "://" in url else "file"
        if protocol not in PROTOCOLS or "::" in url:
            raise BadInput(f"no ledger is kept at `{url}`", f"use one of {', '.join(p + '://' for p in PROTOCOLS)}")
        try:
            self.fs, root = fsspec.core.url_to_fs(url)
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"the ledger URL `{url}` is not understood: {error}", "use file:// or s3://") from error
        except (ImportError, OSError) as error:
            raise Broken(f"cannot open the ledger `{url}`: {error}", "install the storage's fsspec package") from error
        self.root: str = root.rstrip("/")

    def check_writable(self) -> None:
        """Write, read and remove a probe object. Raises `Broken`."""
        probe = f"{self.root}/.probe-{uuid.uuid4().hex}"
        try:
            self.fs.makedirs(self.root, exist_ok=True)
            self.fs.pipe_file(probe, b"probe")
            self.fs.rm_file(probe)
        except (OSError, NotImplementedError) as error:
            raise Broken(
                f"the ledger `{self.url}` is not writable: {error}", "set INFRA_AGENT_LEDGER to a URL you can write"
            ) from error

    def append(self, hypothesis_id: str, attempt: str, record: Record) -> Entry:
        """Store one record as the next object of its experiment. Raises `Broken` when that fails."""
        kind = next(name for name, model in KINDS.items() if type(record) is model)
        folder = f"{self.root}/{hypothesis_id[:FOLDER_CHARS]}"
        try:
            self.fs.makedirs(folder, exist_ok=True)
            seq = self._last_seq(folder) + 1
            while True:
                entry = Entry(
                    kind=kind,
                    hypothesis_id=hypothesis_id,
                    attempt=attempt,
                    seq=seq,
                    written_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                    record_id=record.id,
                    record=record.model_dump(mode="json"),
                ).sealed()
                try:
                    self._create(f"{folder}/{seq:04d}-{kind}.json", entry.model_dump_json(indent=1).encode())
                    return entry
                except FileExistsError:  # another writer took this number
                    seq += 1
        except OSError as error:
            raise Broken(f"cannot write to the ledger `{self.url}`: {error}", "nothing stored was changed") from error

    def _last_seq(self, folder: str) -> int:
        self.fs.invalidate_cache(folder)
        names = [path.rsplit("/", 1)[-1] for path in self.fs.ls(folder, detail=False)]
        found = [re.match(r"([0-9]+)-", name) for name in names]
        return max((int(number.group(1)) for number in found if number), default=0)

    def _create(self, path: str, content: bytes) -> None:
        """Exclusive and whole. A local link appears at once and fails if the name is taken."""
        if not isinstance(self.fs, LocalFileSystem):
            self.fs.pipe_file(path, content, mode="create")
            return
        part = f"{path}.{uuid.uuid4().hex}.part"
        try:
            with open(part, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(part, path)
        finally:
            if os.path.exists(part):
                os.unlink(part)

    def read(self, prefix: str = "") -> Contents:
        """All objects of the experiments whose hypothesis id starts with `prefix`, in order."""
        entries: list[Entry] = []
        damaged: list[Damage] = []
        for path in self._paths(prefix[:FOLDER_CHARS]):
            found = self._load(path)
            if isinstance(found, Damage):
                damaged.append(found)
            elif found.hypothesis_id.startswith(prefix):
                entries.append(found)
        return Contents(entries=tuple(entries), damaged=tuple(damaged))

    def _paths(self, prefix: str) -> Iterator[str]:
        try:
            if not self.fs.exists(self.root):
                return
            self.fs.invalidate_cache()
            found = [path for path, info in self.fs.find(self.root, detail=True).items() if info["type"] == "file"]
        except OSError as error:
            raise Broken(
                f"cannot read the ledger `{self.url}`: {error}", "check the URL and its permissions"
            ) from error
        for path in sorted(found):
            folder, _, name = path.removeprefix(self.root).lstrip("/").rpartition("/")
            if folder.startswith(prefix) and folder and name.endswith((".json", ".part")):
                yield path

    def _load(self, path: str) -> Entry | Damage:
        name = path.removeprefix(self.root).lstrip("/")
        if path.endswith(".part"):
            return Damage(path=name, reason="a write that never finished")
        try:
            entry = Entry.model_validate_json(self.fs.cat_file(path))
            if entry.seal() != entry.sha256:
                return Damage(path=name, reason="content does not match its digest")
            KINDS[entry.kind].model_validate(entry.record)
            return entry
        except OSError as error:
            return Damage(path=name, reason=f"cannot be read: {error}")
        except (ValidationError, json.JSONDecodeError, KeyError, UnicodeDecodeError) as error:
            return Damage(path=name, reason=f"not a record: {str(error).splitlines()[0]}")
