"""Reads machine code without a GPU: identity, instruction counts by kind, access widths, registers and spills.

Counts are of instructions as they stand in the code, for one warp. They equal what a warp executes only where the code
has no loop and calls no function, so `loops` says whether it may; slow paths behind a branch are counted once.
"""

import hashlib
import json
import re
import struct
import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from serving.errors import Broken
from tasks.records import Record
from tasks.toolchain import triton_tool

_TIMEOUT_S = 60
_GLOBAL = {"LDG", "STG", "LDGSTS", "LD", "ST"}
_BULK = {"UTMALDG", "UTMASTG", "UBLKCP", "UTMAREDG"}
_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
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


class Code(Record):
    """One kernel's machine code. `mufu` counts by function, `widths` by access, such as `LDG.128`."""

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


class Unreadable(Exception):
    """A cubin that is not one kernel of machine code, in one line. For a candidate's cubin that is its fault."""


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
    with TemporaryDirectory(prefix="infra-agent-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        listing = _tool("nvdisasm", "-json", path)
        usage = dict(re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", _tool("cuobjdump", "-res-usage", path)))
    try:
        functions = json.loads(listing)[1]
        bodies = [_body(function["sass-instructions"]) for function in functions]
        resources = {name: int(usage[name]) for name in ("REG", "STACK", "SHARED", "LOCAL")}
    except (ValueError, LookupError, TypeError) as error:
        raise Unreadable(f"the disassembler does not understand the cubin: {error!r}") from None
    code = _count(str(functions[0]["function-name"]), sha, bodies[0], resources)
    return code if len(bodies) == 1 else code.model_copy(update={"loops": True})


def _tool(name: str, option: str, path: Path) -> str:
    try:
        done = subprocess.run(
            [triton_tool(name), option, path],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except OSError as error:
        raise Broken(f"`{name}` does not run: {error}", "reinstall triton: the tool is part of the wheel") from error
    except subprocess.TimeoutExpired:
        raise Unreadable(f"`{name}` did not finish within {_TIMEOUT_S} s") from None
    if done.returncode != 0:
        raise Unreadable(f"`{name}` refuses the cubin (status {done.returncode})")
    return done.stdout


def _body(instructions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the branch to itself and the padding that end every kernel."""
    end = len(instructions)
    while end and instructions[end - 1]["opcode"].startswith("NOP"):
        end -= 1
    if end and instructions[end - 1]["opcode"] == "BRA" and _target(instructions[end - 1]) == end - 1:
        end -= 1
    return instructions[:end]


def _target(instruction: dict[str, Any]) -> int | None:
    """Index of the instruction a branch goes to; addresses are bytes, and an instruction has 16."""
    last = str(instruction.get("operands", "")).split(",")[-1].strip(" `()")
    return int(last, 16) // 16 if re.fullmatch(r"0x[0-9a-f]+", last) else None


def _count(name: str, sha: str, body: list[dict[str, Any]], resources: dict[str, int]) -> Code:
    mufu: Counter[str] = Counter()
    pipes: Counter[str] = Counter()
    widths: Counter[str] = Counter()
    total = wide = bulk = counted = 0
    loops = False
    for index, instruction in enumerate(body):
        base, *modifiers = instruction["opcode"].split(".")
        if base == "NOP":
            continue
        counted += 1
        pipes[_pipe(base)] += 1
        bulk += base in _BULK
        if base == "MUFU":
            mufu[modifiers[0] if modifiers else "?"] += 1
        elif base in _GLOBAL or base in ("LDS", "STS", "LDL", "STL"):
            width = next((x for x in modifiers if x in _WIDTHS), "32")
            widths[f"{base}.{width}"] += 1
            if base in _GLOBAL:
                total += _WIDTHS.get(width, 4)
                wide += 16 if width == "128" else 0
        elif base in ("BRA", "BRX", "JMP"):
            target = _target(instruction)
            loops |= target is None or target <= index
    return Code(
        name=name, text_sha256=sha, instructions=counted, mufu=dict(mufu), pipes=dict(pipes), widths=dict(widths),
        global_bytes=total, global_wide_bytes=wide, bulk_copies=bulk, registers=resources["REG"],
        spill_bytes=resources["STACK"] + resources["LOCAL"], static_shared_bytes=resources["SHARED"], loops=loops,
    )  # fmt: skip


def _pipe(base: str) -> str:
    for pipe, members in _PIPES.items():
        if base in members:
            return pipe
    return "uniform" if base.startswith("U") else "integer"
