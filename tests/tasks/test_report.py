"""What people read in the terminal."""

from examples import block

from tasks.records import Arm
from tasks.report import block_lines


def test_what_was_observed_of_one_part_is_one_line_and_an_unknown_says_why() -> None:
    error = block(Arm.CANDIDATE, "out_rel_error", 1.234567e-7).model_copy(
        update={"workload": "slow", "part": "float32"}
    )
    unknown = error.model_copy(update={"observable": "state_rel_error", "value": None, "reason": "not finite"})
    moved = error.model_copy(update={"observable": "unique_bytes", "unit": "B", "value": 84544.0, "part": "step"})
    assert block_lines([error, moved, unknown]) == [
        "slow, float32: out_rel_error 1.23457e-07, state_rel_error unknown (not finite)",
        "slow, step: unique_bytes 84544 B",
    ]
