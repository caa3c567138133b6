"""Reads machine code without a GPU: identity, instruction counts by kind and source line, access widths, registers, spills.

Counts are of instructions as they stand in the code, for one warp. They equal what a warp executes only where the code
has no loop and calls no function, so `loops` says whether it may; slow paths behind a branch are counted once.
"""

import hashlib
import struct
from collections import Counter
from collections.abc import Iterable, Sequence

from tasks.control_flow import loops, stretches
from tasks.disassembly import Function, Instruction, Unreadable, disassemble
from tasks.records import Record

_WIDE_BYTES = 16
_GLOBAL = {"LDG", "STG", "LDGSTS", "LD", "ST"}
_BULK = {"UTMALDG", "UTMASTG", "UBLKCP", "UTMAREDG"}
_LOCAL = {"LDS", "STS", "LDL", "STL"}
_WIDTHS = {"256": 32, "128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
_PIPES = {
    "mufu": {"MUFU"},
    "tensor": {"HMMA", "HGMMA", "IMMA", "IGMMA", "QGMMA", "QMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "DMMA"},
    "fp32": {"FFMA", "FMUL", "FADD", "FFMA2", "FMUL2", "FADD2", "FADD32I", "FMUL32I", "FFMA32I"},
    "memory": {"LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST", "LDGSTS", "LDSM", "STSM", "ATOM", "ATOMG", "ATOMS",
               "RED", "SHFL", "LDC"},
    "convert": {"F2F", "F2I", "I2F", "F2FP", "I2FP", "FRND"},
    "control": {"BAR", "BRA", "EXIT", "BSSY", "BSYNC", "CALL", "RET", "WARPSYNC", "MEMBAR", "ERRBAR", "DEPBAR",
                "LDGDEPBAR", "S2R", "S2UR", "CS2R", "R2UR", "VOTE", "BMOV", "YIELD", "NANOSLEEP", "SYNCS"},
}  # fmt: skip


class LineWork(Record):
    """What one source line became, within one stretch of code."""

    instructions: int
    mufu: int
    pipes: dict[str, int]


class CodeBlock(Record):
    """A basic block. `always`: every warp passes it. `lines` by number in the candidate's file; 0 is no line."""

    always: bool
    lines: dict[int, LineWork]


class Code(Record):
    """One kernel's machine code. `mufu` counts by function, `widths` by access, such as `LDG.128`.

    `blocks` has one entry per basic block; code that loops is one block.
    """

    name: str
    text_sha256: str
    instructions: int
    mufu: dict[str, int]
    pipes: dict[str, int]
    widths: dict[str, int]
    global_bytes: int
    global_wide_bytes: int
    bulk_copies: int
    registers: int
    spill_bytes: int
    static_shared_bytes: int
    loops: bool
    blocks: tuple[CodeBlock, ...]

    @property
    def lines(self) -> dict[int, LineWork]:
        """All blocks together."""
        found = sorted({line for block in self.blocks for line in block.lines})
        return {line: _sum(block.lines[line] for block in self.blocks if line in block.lines) for line in found}


def text_sections(cubin: bytes) -> dict[str, bytes]:
    """{kernel name: machine code} from the section table of a 64-bit ELF. Raises Unreadable."""
    try:
        (table,) = struct.unpack_from("<Q", cubin, 40)
        entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 58)
        sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, table + i * entry_bytes) for i in range(count)]
        names_at = sections[names_index][4]
        found = {}
        for name_offset, _, _, _, offset, size, *_ in sections:
            start = names_at + name_offset
            name = cubin[start : cubin.index(b"\0", start)].decode()
            if name.startswith(".text."):
                found[name.removeprefix(".text.")] = cubin[offset : offset + size]
    except (struct.error, ValueError, IndexError) as error:
        raise Unreadable(f"not a cubin: {error}") from None
    if not found:
        raise Unreadable("a cubin without machine code")
    return found


def text_sha256(cubin: bytes) -> str:
    """Identity of the code. Not of the cubin, which also holds debug information that changes with paths and lines."""
    sections = text_sections(cubin)
    joined = b"".join(name.encode() + b"\0" + sections[name] for name in sorted(sections))
    return hashlib.sha256(next(iter(sections.values())) if len(sections) == 1 else joined).hexdigest()


def read_code(cubin: bytes) -> Code:
    """Counts of the one kernel in `cubin`. Raises Unreadable, and Broken if the disassembler cannot run."""
    sha = text_sha256(cubin)
    listed = disassemble(cubin)
    kernel = listed.functions[0]
    looping = len(listed.functions) > 1 or loops(kernel.body)
    return _count(kernel, sha, listed.resources, looping)


def _count(kernel: Function, sha: str, resources: dict[str, int], looping: bool) -> Code:
    body = [x for x in kernel.body if x.base != "NOP"]
    moved = [(f"{x.base}.{_width(x)}", x) for x in body if x.base in _GLOBAL | _LOCAL]
    sizes = [(width, _WIDTHS.get(width.split(".")[1], 4)) for width, x in moved if x.base in _GLOBAL]
    return Code(
        name=kernel.name, text_sha256=sha, instructions=len(body), mufu=dict(Counter(map(_function, _mufu(body)))),
        pipes=dict(Counter(_pipe(x.base) for x in body)), widths=dict(Counter(width for width, _ in moved)),
        global_bytes=sum(size for _, size in sizes),
        global_wide_bytes=sum(size for width, size in sizes if size >= _WIDE_BYTES),
        bulk_copies=sum(x.base in _BULK for x in body), registers=resources["REG"],
        spill_bytes=resources["STACK"] + resources["LOCAL"], static_shared_bytes=resources["SHARED"],
        loops=looping, blocks=_blocks(kernel.body, looping),
    )  # fmt: skip


def _blocks(body: Sequence[Instruction], looping: bool) -> tuple[CodeBlock, ...]:
    if looping:
        return (CodeBlock(always=True, lines=_lines(body)),)
    return tuple(CodeBlock(always=x.always, lines=_lines(body[x.start : x.end])) for x in stretches(body))


def _lines(body: Sequence[Instruction]) -> dict[int, LineWork]:
    by_line: dict[int, list[Instruction]] = {}
    for x in body:
        if x.base != "NOP":
            by_line.setdefault(x.line, []).append(x)
    return {
        line: LineWork(
            instructions=len(mine), mufu=len(_mufu(mine)), pipes=dict(Counter(_pipe(x.base) for x in mine))
        )
        for line, mine in sorted(by_line.items())
    }  # fmt: skip


def _sum(parts: Iterable[LineWork]) -> LineWork:
    listed = list(parts)
    pipes: Counter[str] = Counter()
    for part in listed:
        pipes.update(part.pipes)
    return LineWork(
        instructions=sum(x.instructions for x in listed), mufu=sum(x.mufu for x in listed), pipes=dict(pipes)
    )


def _mufu(body: Sequence[Instruction]) -> list[Instruction]:
    return [x for x in body if x.base == "MUFU"]


def _function(instruction: Instruction) -> str:
    """Which special function a MUFU is."""
    return next(iter(instruction.opcode.split(".")[1:]), "?")


def _width(instruction: Instruction) -> str:
    return next((x for x in instruction.opcode.split(".") if x in _WIDTHS), "32")


def _pipe(base: str) -> str:
    for pipe, members in _PIPES.items():
        if base in members:
            return pipe
    return "uniform" if base.startswith("U") else "integer"
