"""Rules about counts: what repeats, what must move, which launch leaves multiprocessors idle."""

from examples import block, evidence
from static_evidence import LINES, static

from tasks import diagnose_static as rules
from tasks.records import Arm, Rung

INC, CAN = Arm


def test_lines_that_tiles_repeat_are_a_code_path_with_their_multiple() -> None:
    (finding,) = rules.repeated_work(static(repeated=(4.0, 1.0)))
    assert finding.locus.name == LINES
    assert (finding.incumbent, finding.candidate) == (4.0, 1.0)
    assert "in the incumbent each of 4 programs computes the same" in finding.implies
    assert finding.status == "inferred"
    assert finding.next_test is None


def test_lines_that_the_candidate_still_repeats_ask_for_a_next_test() -> None:
    (finding,) = rules.repeated_work(static(repeated=(4.0, 8.0)))
    assert (finding.incumbent, finding.candidate) == (4.0, 8.0)
    assert "merge the tiles" in str(finding.next_test)


def test_a_kernel_without_repeated_lines_has_no_such_finding() -> None:
    assert rules.repeated_work(static()) == []


def test_the_least_time_to_move_the_bytes_is_an_estimate_that_says_where_it_was_counted() -> None:
    moved = [
        block(arm, f"{kind}_bytes", value, unit="B", part="counted at tp1_bf16")
        for arm, unique in ((INC, 4.8e9), (CAN, 2.4e9))
        for kind, value in (("unique", unique), ("requested", 2 * unique))
    ]
    (finding,) = rules.memory_floor(evidence(Rung.STATIC, *static().blocks, *moved))
    assert "estimate, no time was measured" in finding.implies
    assert "1e+03 → 500 us on H200 (4.8 TB/s)" in finding.implies
    assert "600 → 300 us on B200 (8 TB/s)" in finding.implies
    assert "counted at tp1_bf16" in finding.implies
    assert finding.status == "inferred"
    assert rules.memory_floor(static()) == []


def test_a_grid_that_leaves_multiprocessors_idle_is_named_by_its_shape() -> None:
    (finding,) = rules.idle_multiprocessors(static((256.0, 64.0)))
    assert finding.locus.kind == "input_condition"
    assert rules.idle_multiprocessors(static((64.0, 64.0))) == []


def test_another_launch_is_a_cost_that_instructions_do_not_show() -> None:
    assert rules.launches_and_parts(static())[0].delta == 1.0
