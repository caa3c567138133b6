"""What engine processes would have told of themselves, written as they write it."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from serving.witness import Witness

WHOLE = {"unused": [], "unfilled": []}


def told(
    folder: Path,
    modules: dict[str, str] | None = None,
    calls: dict[str, tuple[int, int]] | None = None,
    weights: Mapping[str, object] | None = None,
    uncounted: dict[str, str] | None = None,
) -> Witness:
    """`modules`: name to sha256. `calls`: function to calls and nanoseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    functions = tuple(calls or {})
    report = {
        "pid": 1,
        "modules": {name: {"path": f"/overlay/{name}", "sha256": sha} for name, sha in (modules or {}).items()},
        "counted": list(functions),
        "uncounted": uncounted or {},
        "weights": [weights or WHOLE],
    }
    (folder / "1.json").write_text(json.dumps(report))
    numbers = [number for pair in (calls or {}).values() for number in pair]
    (folder / "1.counts").write_bytes(struct.pack(f"={len(numbers)}q", *numbers))
    return Witness(folder, functions)
