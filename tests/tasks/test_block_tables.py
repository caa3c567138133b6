"""Raw blocks as people read them in the terminal."""

from examples import block

from tasks.block_tables import block_tables
from tasks.records import Arm

ERROR = block(Arm.CANDIDATE, "out_rel_error", 1.234567e-7).model_copy(update={"workload": "slow", "part": "float32"})


def test_parts_of_which_the_same_was_observed_are_rows_of_one_table() -> None:
    fast = ERROR.model_copy(update={"workload": "fast", "value": 2e-7})
    moved = ERROR.model_copy(update={"observable": "unique_bytes", "unit": "B", "value": 84544.0, "part": "step"})
    assert block_tables([ERROR, moved, fast]).splitlines() == [
        "workload  part     out_rel_error",
        "slow      float32      1.235e-07",
        "fast      float32          2e-07",
        "",
        "workload  part  unique_bytes B",
        "slow      step          84,544",
    ]


def test_what_is_unknown_says_why_once_and_a_column_of_unknowns_is_left_out() -> None:
    gone = ERROR.model_copy(update={"observable": "state_rel_error", "value": None, "reason": "not finite"})
    fast = [x.model_copy(update={"workload": "fast"}) for x in (ERROR, gone)]
    assert block_tables([ERROR, gone, *fast]).splitlines()[1:] == [
        "slow      float32      1.235e-07",
        "fast      float32      1.235e-07",
        "state_rel_error: unknown (not finite)",
    ]


def test_one_unknown_among_known_values_keeps_its_column() -> None:
    gone = ERROR.model_copy(update={"workload": "fast", "value": None, "reason": "not finite"})
    assert block_tables([ERROR, gone]).splitlines()[1:] == [
        "slow      float32      1.235e-07",
        "fast      float32        unknown",
        "out_rel_error: unknown (not finite)",
    ]


def test_where_only_unknowns_are_there_the_reason_stands_alone() -> None:
    assert block_tables([ERROR.model_copy(update={"value": None, "reason": "not finite"})]) == (
        "out_rel_error: unknown (not finite)"
    )
