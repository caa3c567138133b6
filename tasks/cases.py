"""Candidates whose fate is known: adversaries with the rung and the reason that must catch them, honest ones that must
pass. `infra-agent selfcheck` judges them; they live in tests/candidates/<problem>/{adversaries,honest}/.

A file is a Python source whose docstring is a title, an empty line, and a YAML mapping (`Header`). With a `base`, its
text stands behind that source of the problem, changed by `edits`; if it defines `run`, the base's is called `honest_run`.
"""

import ast
import re
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, field_validator

from serving.documents import read_text, validate
from serving.errors import BadInput
from serving.home import REPOSITORY
from tasks.problem import KERNELS
from tasks.records import KernelCandidate, Outcome, Record, Rung, Scalar, Text

CANDIDATES = REPOSITORY / "tests" / "candidates"


class Edit(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    old: str
    new: str


class Header(BaseModel):
    """`rung` must reject it (or `outcome`) for a reason that matches; an honest candidate has neither rung nor reason.

    `checks`: the regimes that an adversary is judged in, to save time; an honest candidate is judged in all. `quick`: one of
    the few that `selfcheck --quick` takes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trap: tuple[Text, ...] = ()
    rung: Literal["build", "static", "numerics"] | None = None
    reason: str | None = None
    outcome: Outcome = Outcome.REJECTED
    base: str | None = None
    edits: tuple[Edit, ...] = ()
    launch: dict[str, Scalar] = {}
    checks: tuple[Text, ...] = ("default_fp32", "tp8_bf16")
    quick: bool = False

    @field_validator("reason")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return pattern


class Case(Record):
    name: Text
    title: Text
    problem: Text
    honest: bool
    header: Header
    candidate: KernelCandidate

    @property
    def caught_at(self) -> Rung | None:
        """The rung that judges it last; None for a build that fails."""
        return Rung(self.header.rung) if self.header.rung not in (None, "build") else None


def load_cases(folder: Path = CANDIDATES) -> tuple[Case, ...]:
    """Every candidate below `folder`, by name. Raises BadInput if there are none, or for a header that says nonsense."""
    paths = [(path, kind) for kind in ("adversaries", "honest") for path in sorted(folder.glob(f"*/{kind}/*.py"))]
    if not paths:
        raise BadInput(
            f"no candidates to judge in `{folder}`",
            "selfcheck needs a checkout of the repository, with tests/candidates",
        )
    return tuple(_load(path, kind == "honest") for path, kind in paths)


def _load(path: Path, honest: bool) -> Case:
    text = read_text(path)
    try:
        title, _, head = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
        document = yaml.safe_load(head) or {}
    except (SyntaxError, yaml.YAMLError) as error:
        raise BadInput(f"`{path}` has no header: {error}", "begin with a docstring: title, empty line, YAML") from error
    header = validate(document, Header, str(path))
    if honest == (header.rung is not None and header.reason is not None and bool(header.trap)):
        hint = "an adversary has `trap`, `rung` and `reason`; an honest candidate has none of them"
        raise BadInput(f"the header of `{path}` does not fit its folder", hint)
    problem = path.parents[1].name
    source = text if header.base is None else _behind(header, read_text(KERNELS / problem / f"{header.base}.py"), text)
    return Case(
        name=path.stem,
        title=" ".join(title.split()),
        problem=problem,
        honest=honest,
        header=header,
        candidate=KernelCandidate(source_name=path.name, source=source, launch=header.launch),
    )


def _behind(header: Header, base: str, text: str) -> str:
    """The base with its edits, then what the file adds. Raises BadInput for an edit of what is not there."""
    for edit in header.edits:
        if edit.old not in base:
            raise BadInput(f"the base `{header.base}` does not hold `{edit.old}`", "correct `edits` in the candidate")
        base = base.replace(edit.old, edit.new)
    if re.search(r"^def run\(", text, re.MULTILINE):
        base = base.replace("\ndef run(", "\ndef honest_run(")
    return f"{base}\n\n{text}"
