"""The blocks of static evidence as a table."""

from tasks.records import Arm, Block

WORK = "warp_instructions"


class Table:
    """Blocks of one architecture by arm, observable, workload and part. `arch` None is that of the environment."""

    def __init__(self, blocks: tuple[Block, ...], arch: str | None = None) -> None:
        mine = [b for b in blocks if b.arch == arch]
        self.arch = arch
        self._values = {(b.arm, b.observable, b.workload, b.part): b.value for b in mine}
        self.units = {b.observable: b.unit for b in mine}
        self._reasons = {(b.observable, b.workload): b.reason for b in mine if b.reason is not None}
        self.workloads = list(dict.fromkeys(b.workload for b in mine))

    def value(self, arm: Arm, observable: str, workload: str, part: str | None = None) -> float | None:
        return self._values.get((arm, observable, workload, part))

    def reason(self, workload: str) -> str:
        """Why the work at a workload is not known."""
        return self._reasons.get((WORK, workload)) or "one arm has no figure"

    def parts(self, arm: Arm, observable: str, workload: str) -> dict[str, float]:
        return {
            part: value
            for (a, o, w, part), value in self._values.items()
            if (a, o, w) == (arm, observable, workload) and part is not None and value is not None
        }

    def ratios(self, observable: str) -> dict[str, float]:
        """Candidate over incumbent, for the workloads where both are known and above zero."""
        found = {}
        for workload in self.workloads:
            ours = self.value(Arm.INCUMBENT, observable, workload)
            theirs = self.value(Arm.CANDIDATE, observable, workload)
            if ours and theirs:
                found[workload] = theirs / ours
        return found

    @property
    def largest(self) -> str:
        """The workload with the most work: the one whose absolute figures are quoted."""
        return max(self.workloads, key=lambda w: self.value(Arm.CANDIDATE, WORK, w) or 0.0)


def tables(blocks: tuple[Block, ...]) -> list[Table]:
    """One for each architecture, that of the environment first. They are never compared with each other."""
    found = dict.fromkeys([None, *(b.arch for b in blocks)])
    return [Table(blocks, arch) for arch in found]
