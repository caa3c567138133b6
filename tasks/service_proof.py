"""The proof that the code under test is what the candidate's processes run, and that the incumbent's do not.

From what the processes read themselves, from their memory maps, and from the counters of the functions that are changed.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import psutil

from serving.errors import Broken
from serving.launch import Server
from serving.overlay import Overlay, module_of
from serving.witness import Report
from tasks.records import Arm, Engagement, digest
from tasks.service_code import Code

ABSENT = "not imported"


def prove_code(code: Code, servers: Mapping[str, Server], report: Path) -> tuple[Engagement, ...]:
    """That the candidate's processes run every file of the overlay and call what it changes, and the incumbent's do not.

    To be asked after both have generated tokens. All that was told goes to `report`. Raises Broken without that proof.
    """
    told = {arm: servers[arm].witness.reports() for arm in Arm}
    calls = {arm: servers[arm].witness.calls() for arm in Arm}
    report.write_text(
        json.dumps(
            {
                "files": code.overlay.digests,
                "reports": {arm: [one.model_dump(mode="json") for one in told[arm]] for arm in Arm},
                "calls": {arm: {name: [c.calls, c.ns] for name, c in calls[arm].items()} for arm in Arm},
            },
            sort_keys=True,
        ),
        encoding="utf-8",
    )
    proofs = [*_files(code.overlay, servers), *_calls(code.overlay, servers, told[Arm.CANDIDATE])]
    for proof in proofs:
        if not proof.proved:
            raise Broken(
                f"no proof that the {proof.arm} is what ran: `{proof.what}` should be `{proof.expected}`, is `{proof.seen}`",
                f"see {report}: the code was laid over the package, and this traffic does not reach it",
            )
    return tuple(proofs)


def _files(overlay: Overlay, servers: Mapping[str, Server]) -> list[Engagement]:
    """Python files as the processes read them, libraries as they have them mapped; none of them in the incumbent."""
    found = []
    seen = {arm: servers[arm].witness.modules() for arm in Arm}
    for path, expected in overlay.digests.items():
        if path.endswith(".py"):
            digests = {arm: " and ".join(sorted(seen[arm].get(module_of(path), ()))) or ABSENT for arm in Arm}
        else:
            digests = {arm: _mapped(servers[arm], path) for arm in Arm}
        ours = digests[Arm.INCUMBENT]
        what = f"server.code.{path}"
        found.append(Engagement(arm=Arm.CANDIDATE, what=what, expected=expected, seen=digests[Arm.CANDIDATE]))
        without = ours if ours != expected else "the installed file"
        found.append(Engagement(arm=Arm.INCUMBENT, what=what, expected=without, seen=ours))
    return found


def _mapped(server: Server, path: str) -> str:
    """sha256 of the file of this name that a process of the server has in its memory map."""
    own = [part.process for part in server.parts] or [server.process]
    for process in (process for engine in own for process in engine.alive()):
        try:
            maps = [Path(region.path) for region in process.memory_maps()]
        except psutil.Error:  # it has ended, or is another user's: then it proves nothing
            continue
        found = next((file for file in maps if file.as_posix().endswith(f"/overlay/{path}")), None)
        if found is not None:
            return digest(found.read_bytes())
    return ABSENT


def _calls(overlay: Overlay, servers: Mapping[str, Server], told: list[Report]) -> list[Engagement]:
    """Each changed function was called in the candidate; one that cannot be counted proves nothing."""
    uncounted = {name: why for report in told for name, why in report.uncounted.items()}
    called = servers[Arm.CANDIDATE].witness.calls()
    return [
        Engagement(
            arm=Arm.CANDIDATE,
            what=f"server.calls.{name}",
            expected="called",
            seen="called" if called[name].calls else uncounted.get(name, "never called"),
        )
        for name in overlay.counted
    ]
