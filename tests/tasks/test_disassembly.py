"""A listing becomes instructions with the line that asked for them, where branches go, and which are conditional."""

import pytest

from tasks.disassembly import Unreadable, parse

LISTING = """
	.section	.debug_line,"",@progbits
.L_2:
//--------------------- .text.k          --------------------------
	.section	.text.k,"ax",@progbits
k:
.text.k:
	//## File "/stage/candidate.py", line 10
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "/usr/standard.py", line 263 inlined at "/usr/standard.py", line 293
	//## File "/usr/standard.py", line 293 inlined at "/stage/candidate.py", line 12
        /*0010*/               @P0 BRA `(.L_x_1) ;
	//## File "/usr/standard.py", line 5
        /*0020*/                   MUFU.EX2 R3, R4 ;
        /*0030*/                   BRA.U UP0, `(.L_x_1) ;
.L_x_1:
	//## File "/stage/candidate.py", line 13
        /*0040*/                   EXIT ;
.L_x_2:
        /*0050*/                   BRA `(.L_x_2);
        /*0060*/                   NOP;
//--------------------- .nv.constant0.k  --------------------------
	.section	.nv.constant0.k,"a",@progbits
        /*0000*/                   LOST ;
"""


def test_an_inlined_function_belongs_to_the_line_of_the_kernel_that_calls_it() -> None:
    (function,) = parse(LISTING.splitlines())
    assert function.name == "k"
    assert [(x.opcode, x.line) for x in function.body] == [
        ("LDC", 10), ("BRA", 12), ("MUFU.EX2", 0), ("BRA.U", 0), ("EXIT", 13),
    ]  # fmt: skip


def test_branches_have_a_target_and_may_have_their_condition_before_or_among_the_operands() -> None:
    (function,) = parse(LISTING.splitlines())
    assert [(x.conditional, x.target) for x in function.body if x.base == "BRA"] == [(True, 4), (True, 4)]


def test_a_listing_that_lacks_an_instruction_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="left out an instruction of `k`"):
        parse(LISTING.replace("        /*0020*/                   MUFU.EX2 R3, R4 ;\n", "").splitlines())
