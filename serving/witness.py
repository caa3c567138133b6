"""What engine processes tell of themselves (serving/watch), read by whoever started them."""

import json
import shutil
import struct
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from serving.errors import Broken
from serving.overlay import Overlay, lay

WATCH = Path(__file__).resolve().parent / "watch"
NOTHING = Overlay({})
SHOWN = 4  # names of a long list


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class File(_Told):
    """The file that a module was made from, as its process read it."""

    path: str
    sha256: str


class Account(_Told):
    """Of one model: keys of the checkpoint that went nowhere, parameters that nothing was written to.

    `left_out`: keys that what we put into the engine has no use for, by what it computes instead.
    """

    unused: tuple[str, ...]
    unfilled: tuple[str, ...]
    left_out: dict[str, tuple[str, ...]] = {}


class Report(_Told):
    """Of one process. `uncounted`: functions whose calls cannot be counted, and why."""

    pid: int
    modules: dict[str, File]
    counted: tuple[str, ...]
    uncounted: dict[str, str]
    weights: tuple[Account, ...] | None


@dataclass(frozen=True)
class Calls:
    """Of one function, summed over the processes of a server, since it started."""

    calls: int
    ns: int


@dataclass(frozen=True)
class Witness:
    """`folder` is the one that a server's processes report into; `functions` are those whose calls are counted there.

    On a GPU a call only launches work, and one that a CUDA graph replays is counted when it is captured: there, neither
    calls nor times of a block say anything.
    """

    folder: Path
    functions: tuple[str, ...]
    device: str = "cpu"

    def reports(self) -> list[Report]:
        """One for each process that had something to tell. Raises Broken for what is no report."""
        try:
            return [Report.model_validate_json(path.read_bytes()) for path in sorted(self.folder.glob("*.json"))]
        except (OSError, ValidationError) as error:
            raise Broken(
                f"an engine process left no readable report in `{self.folder}`: {error}", "run it again"
            ) from error

    def departures(self) -> tuple[str, ...]:
        """What the processes compute otherwise than their model says, because of what we put into the engine."""
        accounts = [account for report in self.reports() for account in report.weights or ()]
        return tuple(sorted({label for account in accounts for label in account.left_out}))

    def calls(self) -> dict[str, Calls]:
        """Every function that is counted; 0 where it was never called or never there."""
        totals = [[0, 0] for _ in self.functions]
        for file in self.folder.glob("*.counts"):
            values = struct.unpack(f"={2 * len(self.functions)}q", file.read_bytes())
            for total, calls, ns in zip(totals, values[::2], values[1::2], strict=True):
                total[0] += calls
                total[1] += ns
        return {name: Calls(*total) for name, total in zip(self.functions, totals, strict=True)}

    def modules(self) -> dict[str, set[str]]:
        """Digests of each watched module that some process imported."""
        found: dict[str, set[str]] = {}
        for report in self.reports():
            for name, file in report.modules.items():
                found.setdefault(name, set()).add(file.sha256)
        return found


def watched(
    folder: Path, device: str = "cpu", watching: Overlay = NOTHING, overlay: Overlay | None = None
) -> tuple[Witness, dict[str, str]]:
    """Where a server will report, and the variables that its processes need for it and for their overlay.

    `watching` says what is looked at: the same in both arms of a comparison. `overlay`: what this arm runs; None for nothing.
    """
    reports = folder / "reports"
    shutil.rmtree(reports, ignore_errors=True)  # of an earlier stack of that name
    reports.mkdir(parents=True)
    path = [str(WATCH)]
    if overlay is not None:
        lay(overlay, folder / "overlay")
        path.append(str(folder / "overlay"))
    asked = {
        "reports": str(reports),
        "modules": watching.modules,
        "functions": watching.counted,
        "install": overlay.install if overlay is not None else None,
    }
    (folder / "watch.json").write_text(json.dumps(asked), encoding="utf-8")
    variables = {
        "INFRA_AGENT_WATCH": str(folder / "watch.json"),
        "PYTHONPATH": ":".join(path),
        # The watching code lies in this repository, linked packages in the engine: neither gets compiled files from here.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return Witness(reports, watching.counted, device), variables


def check_weights(name: str, witness: Witness, several_roles: bool = False) -> None:
    """Raises Broken for what `weights_fault` says, and where no process gave an account."""
    if not _accounts(witness):
        raise Broken(f"`{name}` gave no account of its weights", "its loader is not one that serving/watch knows")
    if (fault := weights_fault(name, witness, several_roles)) is not None:
        raise Broken(fault, "SGLang serves such a model without a word; correct the checkpoint or its config.json")


def weights_fault(name: str, witness: Witness, several_roles: bool = False) -> str | None:
    """Names the parameters that were not filled, or the keys of the checkpoint that were not used; None without such.

    `several_roles`: each process takes its own part of the checkpoint, so that a key is used when one of them uses it.
    """
    accounts = _accounts(witness)
    for account in accounts:
        if account.unfilled:
            return f"`{name}` serves parameters that nothing was loaded into: {_some(account.unfilled)}"
    unused = [set(account.unused) for account in accounts] or [set()]
    left = set.intersection(*unused) if several_roles else set().union(*unused)
    return f"`{name}` made no use of weights in the checkpoint: {_some(tuple(sorted(left)))}" if left else None


def _accounts(witness: Witness) -> list[Account]:
    return [account for report in witness.reports() for account in report.weights or ()]


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + more
