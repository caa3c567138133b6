"""The instructions of one cubin with the source line that each comes from, as `nvdisasm` prints them.

Where a function was inlined, the line is that of the call in the kernel's own file: a reduction belongs to the line that
asks for it. Needs a cubin that was compiled with line information; without it no instruction has a line.
"""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from serving.errors import Broken
from serving.scratch import scratch
from tasks.records import Record
from tasks.toolchain import triton_tool

INSTRUCTION_BYTES = 16
_TIMEOUT_S = 60
_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\S+?),")
_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)(?: inlined at "([^"]*)", line (\d+))?')
_LABEL = re.compile(r"^(\.L_\w+):")
_CODE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);")
_BRANCH = re.compile(r"(.*?)`\((\.L_\w+)\)")
_RESOURCE = re.compile(r"\b(REG|STACK|SHARED|LOCAL):(\d+)")


class Unreadable(Exception):
    """A cubin that is not one kernel of machine code, in one line. For a candidate's cubin that is its fault."""


class Instruction(Record):
    """`line` is 0 where the compiler names none. `target`: index of the instruction that a branch goes to, if known.

    `conditional`: it has a predicate, before it or, as a uniform branch, among its operands.
    """

    opcode: str
    conditional: bool
    line: int
    target: int | None

    @property
    def base(self) -> str:
        return self.opcode.split(".")[0]


class Function(Record):
    """Without the branch to itself and the padding that end every kernel."""

    name: str
    body: tuple[Instruction, ...]


class Disassembly(Record):
    """`resources`: REG, STACK, SHARED and LOCAL as the assembler counted them."""

    functions: tuple[Function, ...]
    resources: dict[str, int]


def disassemble(cubin: bytes) -> Disassembly:
    """Raises Unreadable, and Broken if a tool cannot run."""
    with scratch() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(cubin)
        listing = _tool("nvdisasm", "--print-line-info-inline", path)
        usage = {name: int(count) for name, count in _RESOURCE.findall(_tool("cuobjdump", "-res-usage", path))}
    functions = parse(listing.splitlines())
    if not functions or not {"REG", "STACK", "SHARED", "LOCAL"} <= set(usage):
        raise Unreadable("the disassembler does not understand the cubin")
    return Disassembly(functions=functions, resources=usage)


def parse(listing: Iterable[str]) -> tuple[Function, ...]:
    """Every function in a listing, in its order. Raises Unreadable where instructions are missing."""
    found: list[_Listed] = []
    listed: _Listed | None = None
    for text in listing:
        if section := _SECTION.match(text):
            listed = _Listed(section[1])
            found.append(listed)
        elif text.startswith("//---"):
            listed = None
        elif listed is not None:
            listed.read(text)
    return tuple(Function(name=x.name, body=x.body()) for x in found)


class _Listed:
    """One function while its listing is read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.file: str | None = None
        self.line = 0
        self.rows: list[tuple[str, bool, int, str]] = []
        self.labels: dict[str, int] = {}

    def read(self, text: str) -> None:
        if mark := _LINE.match(text):
            file, line = (mark[3], mark[4]) if mark[3] else (mark[1], mark[2])
            self.file = self.file or file  # a kernel begins in its own file
            self.line = int(line) if file == self.file else 0
        elif label := _LABEL.match(text):
            self.labels[label[1]] = len(self.rows)
        elif code := _CODE.match(text):
            if int(code[1], 16) != len(self.rows) * INSTRUCTION_BYTES:
                raise Unreadable(f"the disassembler left out an instruction of `{self.name}` before 0x{code[1]}")
            self.rows.append((code[3], code[2] is not None, self.line, code[4]))

    def body(self) -> tuple[Instruction, ...]:
        found = [self._instruction(*row) for row in self.rows]
        end = len(found)
        while end and found[end - 1].base == "NOP":
            end -= 1
        if end and found[end - 1].opcode == "BRA" and found[end - 1].target == end - 1:
            end -= 1
        return tuple(found[:end])

    def _instruction(self, opcode: str, predicated: bool, line: int, operands: str) -> Instruction:
        branch = _BRANCH.search(operands)
        return Instruction(
            opcode=opcode,
            conditional=predicated or bool(branch and branch[1].strip()),
            line=line,
            target=self.labels.get(branch[2]) if branch else None,
        )


def _tool(name: str, option: str, path: Path) -> str:
    try:
        done = subprocess.run(
            [triton_tool(name), option, path],
            capture_output=True,
            text=True,
            errors="replace",
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
