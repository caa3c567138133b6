"""Evidence of the static rung: counts of a kernel's programs, launches and repeated lines."""

from examples import block, evidence

from tasks.records import Arm, Evidence, Rung

LINES = "kda_decode lines 29-33 along axis 0"


def static(programs: tuple[float, float] = (64.0, 64.0), repeated: tuple[float, float] = (1.0, 1.0)) -> Evidence:
    blocks = []
    for arm, grid, times in zip(Arm, programs, repeated, strict=True):
        blocks += [
            block(arm, "warp_instructions", 1000.0),
            block(arm, "warp_instructions", 1000.0, part="k"),
            block(arm, "programs", grid),
            block(arm, "launches", 1.0 if arm is Arm.INCUMBENT else 2.0),
            block(arm, "repetitions", times),
        ]
        if times > 1:
            blocks += [block(arm, "repetitions", times, part=LINES)]
            blocks += [block(arm, f"repeated_{x}", 10.0, part=LINES) for x in ("warp_instructions", "mufu")]
    return evidence(Rung.STATIC, *blocks)
