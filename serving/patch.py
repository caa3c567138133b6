"""A unified diff applied to texts: exactly where it says, or not at all.

A patch names the version of its package, so a line that is not where the patch expects it means that the patch is of
another version. Tools that search for a place nearby would hide that.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_OTHER_KINDS = ("rename ", "copy ", "new file mode", "deleted file mode", "GIT binary patch", "Binary files")


class PatchFault(Exception):
    """What a patch does wrong, in one line."""


@dataclass(frozen=True)
class Patched:
    """The new text of a file, and the numbers of the lines in it that are new or follow a line that was taken away."""

    text: str
    changed: frozenset[int]


@dataclass(frozen=True)
class _Hunk:
    """`start`: number of its first line in the old file. `lines`: each with its mark, ` `, `-` or `+`."""

    start: int
    lines: tuple[str, ...]


def apply_patch(diff: str, read: Callable[[str], str]) -> dict[str, Patched]:
    """Each file of the patch with its hunks applied, by path. `read` gives the text of a path, or raises PatchFault.

    Raises PatchFault for a patch that is none, that does not fit, changes nothing, or makes, moves or deletes files.
    """
    if (fault := shape_fault(diff)) is not None:
        raise PatchFault(fault)
    hunks = _hunks_by_path(diff)
    return {path: _applied(path, read(path), found) for path, found in hunks.items()}


def shape_fault(diff: str) -> str | None:
    """Why the diff could be applied to no files at all, or None: it makes, moves or deletes some, or is none."""
    try:
        return (
            None
            if _hunks_by_path(diff)
            else "the diff holds no hunk: it needs `--- a/path`, `+++ b/path` and `@@` lines"
        )
    except PatchFault as fault:
        return str(fault)


def touched_functions(patched: Patched) -> tuple[str, ...]:
    """Qualified names of the functions and methods that hold a changed line, the outermost of nested ones.

    Raises PatchFault for a text that is no Python.
    """
    try:
        tree = ast.parse(patched.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise PatchFault(f"{type(error).__name__}: {getattr(error, 'msg', error)}{where}") from None
    return tuple(dict.fromkeys(_touched(tree, patched.changed, "")))


def _touched(scope: ast.AST, changed: frozenset[int], prefix: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in changed):
                yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from _touched(node, changed, f"{prefix}{node.name}.")
        else:
            yield from _touched(node, changed, prefix)


def _hunks_by_path(diff: str) -> dict[str, list[_Hunk]]:
    found: dict[str, list[_Hunk]] = {}
    path: str | None = None
    lines = iter(diff.split("\n"))
    for line in lines:
        if line.startswith(_OTHER_KINDS):
            raise PatchFault(f"`{line.strip()}`: a patch changes lines of files that are there, nothing else")
        if line.startswith("--- "):
            path = _path(line, next(lines, ""))
            if path in found:
                raise PatchFault(f"`{path}` stands twice in the diff")
            found[path] = []
        elif header := _HUNK.match(line):
            if path is None:
                raise PatchFault(f"`{line}` stands before any `--- a/path`")
            found[path].append(_hunk(path, header, lines))
        elif path is not None and line.strip() and not line.startswith(("diff ", "index ")):
            raise PatchFault(f"`{line[:80]}` is no line of a unified diff")
    return found


def _path(old: str, new: str) -> str:
    """The one path that both header lines name, without `a/` and `b/`."""
    if not new.startswith("+++ "):
        raise PatchFault(f"`{old}` is not followed by `+++ b/path`")
    before, after = (line[4:].partition("\t")[0].strip() for line in (old, new))
    if "/dev/null" in (before, after):
        raise PatchFault("`/dev/null`: a patch changes lines of files that are there; it makes and deletes none")
    if before.removeprefix("a/") != after.removeprefix("b/"):
        raise PatchFault(f"`{before}` and `{after}` are two files: a patch moves none")
    return after.removeprefix("b/")


def _hunk(path: str, header: re.Match[str], lines: Iterator[str]) -> _Hunk:
    left = [int(header[2] or 1), int(header[4] or 1)]
    found: list[str] = []
    while max(left) > 0 and min(left) >= 0:
        line = next(lines, None)
        mark = " " if line == "" else (line or "?")[0]
        if line is None or mark not in " -+":
            raise PatchFault(f"the hunk `{header[0]}` of `{path}` has fewer lines than it says")
        left[0] -= mark in " -"
        left[1] -= mark in " +"
        found.append(line or " ")
    if any(left):
        raise PatchFault(f"the hunk `{header[0]}` of `{path}` has more lines than it says")
    return _Hunk(int(header[1]) + (1 if header[2] == "0" else 0), tuple(found))


def _applied(path: str, text: str, hunks: list[_Hunk]) -> Patched:
    old, new, changed, at = text.split("\n"), list[str](), set[int](), 0
    for hunk in hunks:
        if not at <= hunk.start - 1 <= len(old):
            raise PatchFault(f"a hunk of `{path}` is at line {hunk.start}, which the file does not have or is taken")
        new += old[at : hunk.start - 1]
        at = hunk.start - 1
        for line in hunk.lines:
            mark, content = line[0], line[1:]
            if mark != "+":
                seen = old[at] if at < len(old) else None
                if seen != content:
                    shown = "its end" if seen is None else f"`{seen.strip()}`"
                    spaces = " with other spaces or another end" if seen and seen.split() == content.split() else ""
                    raise PatchFault(
                        f"does not fit `{path}` at line {at + 1}: wants `{content.strip()}`, finds {shown}{spaces}"
                    )
                at += 1
            if mark != "-":
                new.append(content)
            if mark != " ":
                changed.add(len(new) + (mark == "-"))
    result = "\n".join([*new, *old[at:]])
    if result == text:
        raise PatchFault(f"changes nothing in `{path}`")
    return Patched(result, frozenset(changed))
