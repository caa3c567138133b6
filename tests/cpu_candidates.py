"""Candidates that run on CPU, read from tests/candidates/cpu: adversaries with the trap that they play, and honest ones.

The docstring of each ends with `trap:` (ids of docs/traps.md), `rung:` (which must catch it, or `none`) and `reason:`
(what it must be named for). `from incumbent import run as honest` stands for the source of the incumbent.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tasks.problem import KERNELS
from tasks.records import KernelCandidate

FOLDER = Path(__file__).parent / "candidates" / "cpu"
IMPORT = "from incumbent import run as honest\n"


@dataclass(frozen=True)
class Played:
    """One file. `rung` is `none` for a candidate that nothing is wrong with."""

    name: str
    rung: str
    reason: str
    traps: tuple[str, ...]
    source: str

    @property
    def candidate(self) -> KernelCandidate:
        return KernelCandidate(source_name=f"{self.name}.py", source=self.source)


def played() -> list[Played]:
    """Every file of the folder. Raises ValueError for one without its header."""
    return [_read(path) for path in sorted(FOLDER.glob("*.py"))]


def _read(path: Path) -> Played:
    text = path.read_text()
    found = re.match(r'r?""".*?\n\ntrap: ?([^\n]*)\nrung: ([^\n]*)\nreason: ?([^\n]*)\n"""', text, re.DOTALL)
    if found is None:
        raise ValueError(f"{path.name} has no header with trap, rung and reason")
    honest = (KERNELS / "kda_cpu" / "incumbent.py").read_text().replace("def run(", "def honest(")
    traps, rung, reason = (x.strip() for x in found.groups())
    return Played(path.stem, rung, reason, tuple(traps.split(", ")), text.replace(IMPORT, honest))


def source_of(name: str) -> str:
    """A source of kernels/kda_cpu."""
    return (KERNELS / "kda_cpu" / f"{name}.py").read_text()
