"""A unified diff as far as a challenge reads it: which files it touches, and what it changes in them."""

import io
import re
import tokenize

from tasks.records import Record

NOWHERE = "/dev/null"
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Edit(Record):
    """Lines that are replaced by others, in one spelling each. `after`: the last line of context before them."""

    after: str
    removed: tuple[str, ...]
    added: tuple[str, ...]


class FilePatch(Record):
    """`old` and `new` are paths without `a/` and `b/`; one of them is /dev/null where a file is added or deleted."""

    old: str
    new: str
    edits: tuple[Edit, ...]


def read_patch(diff: str) -> tuple[FilePatch, ...] | None:
    """The files of a unified diff with the edits that are more than spaces and comments; None if it is no such diff."""
    files: list[FilePatch] = []
    pieces = re.split(r"(?m)^--- (?=[^\n]*\n\+\+\+ )", diff)
    if len(pieces) < 2:
        return None
    for piece in pieces[1:]:
        old, new, *body = piece.splitlines()
        hunks = re.split(r"(?m)^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@.*$", "\n".join(body))
        if len(hunks) < 2:
            return None
        python = _path(new).endswith(".py") or _path(old).endswith(".py")
        edits = tuple(edit for hunk in hunks[1:] for edit in _edits(hunk, python))
        files.append(FilePatch(old=_path(old), new=_path(new.removeprefix("+++ ")), edits=edits))
    return tuple(files)


def _path(written: str) -> str:
    path = written.removeprefix("+++ ").split("\t")[0].strip()
    return path if path == NOWHERE else re.sub(r"^[ab]/", "", path)


def _edits(hunk: str, python: bool) -> list[Edit]:
    """Runs of changed lines. A run that says the same in another spelling is none."""
    edits: list[Edit] = []
    after = ""
    removed: list[str] = []
    added: list[str] = []
    for line in [*hunk.split("\n")[1:], " "]:
        if line.startswith(("diff ", "index ", "\\")):
            continue
        if line[:1] in "-+" and line:
            (removed if line[0] == "-" else added).append(_spelled(line[1:], python))
            continue
        before, now = (tuple(x for x in side if x.strip()) for side in (removed, added))
        if before != now:
            edits.append(Edit(after=after, removed=before, added=now))
        removed, added = [], []
        after = _spelled(line[1:], python).strip() or after
    return edits


def _spelled(line: str, python: bool) -> str:
    """A line with its indentation, one space between tokens and no comment. What is no whole statement is kept as it is."""
    code = line.strip()
    indent = line[: len(line) - len(line.lstrip())].replace("\t", " " * 8)
    if not python:
        return indent + " ".join(code.split())
    tokens: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type not in _SILENT:
                tokens.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        if any(quote in code for quote in ('"""', "'''")) or not tokens:
            return indent + code
    return indent + " ".join(tokens) if tokens else ""
