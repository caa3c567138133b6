"""The bounded text that a model is asked with. It is made of files and of the ledger alone: the same ledger, the same bytes.

Everything that others wrote stands between marks that are a digest of it, so no text can hold its own end. The guard behind
that is another: whatever comes back is validated and challenged like a stranger's file.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from string import Template

from serving.documents import read_text
from serving.engine_env import SGLANG
from serving.errors import BadInput
from serving.home import located
from serving.observables import OBSERVABLES
from serving.stack_rules import HARMLESS_PREFIXES, REFUSED_ARGUMENTS
from tasks.brief import BYTES_PER_TOKEN
from tasks.findings_text import Entries, catalogue_entries, experiment_entries, refusal_entries
from tasks.history import attempts
from tasks.ledger import Contents
from tasks.model_file import ModelFile
from tasks.proposal import questions_of
from tasks.records import Digest, Record, Text, digest
from tasks.subject import KernelSubject, Subject

PROMPTS = Path(__file__).resolve().parent / "prompts"
MARK_CHARS = 16
LAST_LINE_BYTES = 800  # kept for what was left out: at most one phrase for each section


class Section(Record):
    """Data under one name. Entries are kept whole and from the front; a `required` section is kept or nothing is asked."""

    name: Text
    entries: tuple[str, ...]
    required: bool = False
    most_tokens: int | None = None
    left_out: tuple[str, ...] = ()


class Prompt(Record):
    """`ids`: of the experiments in it, which a proposal may name as its parent. `left_out`: what did not fit."""

    system: Text
    user: Text
    left_out: tuple[str, ...]
    ids: tuple[Digest, ...]

    @property
    def size_bytes(self) -> int:
        return len(self.system.encode()) + len(self.user.encode())


def prompt_for(subject: Subject, contents: Contents, n: int, bounds: ModelFile, feedback: Sequence[str] = ()) -> Prompt:
    """`feedback`: what was wrong with the answers before. Raises `BadInput` if what must be in it does not fit."""
    experiments = experiment_entries(subject, attempts(contents))
    told = (Section(name="your answers so far", entries=tuple(feedback)),) if feedback else ()
    sections = (*_needed(subject), *told, *_memory(subject, contents, experiments, bounds), *_background(subject))
    system = (PROMPTS / "rules.md").read_text()
    head = _head(subject, n, "0" * MARK_CHARS)
    room = bounds.prompt_tokens * BYTES_PER_TOKEN - len((system + head).encode()) - LAST_LINE_BYTES
    kept = _fitted([x for x in sections if x.entries or x.left_out], room)
    mark = digest([section.model_dump() for section in kept])[:MARK_CHARS]
    left_out = tuple(what for section in kept for what in section.left_out)
    user = "\n\n".join([_head(subject, n, mark), *(_shown(x, mark) for x in kept if x.entries), _said(left_out)])
    ids = tuple(x for x in experiments.ids if f"experiment {x}" in user)
    return Prompt(system=system, user=user, left_out=left_out, ids=ids)


def _head(subject: Subject, n: int, mark: str) -> str:
    shared = {"n": n, "name": subject.name, "mark": mark, "questions": _quoted(q.value for q in questions_of(subject))}
    if isinstance(subject, KernelSubject):
        forms = "; ".join(json.dumps(form, sort_keys=True) if form else "{} (its defaults)" for form in subject.forms)
        return _filled("kernel.md", forms=forms, **shared)
    scenario = subject.criteria.values
    return _filled(
        "stack.md",
        sglang=SGLANG,
        roles=_quoted(subject.spec.roles),
        prefixes=", ".join(HARMLESS_PREFIXES),
        refused=", ".join(sorted(REFUSED_ARGUMENTS)),
        primary=scenario.primary,
        direction=scenario.direction,
        observables=", ".join(OBSERVABLES),
        **shared,
    )


def _filled(file: str, **values: object) -> str:
    return Template((PROMPTS / file).read_text()).substitute(values).rstrip()


def _quoted(names: object) -> str:
    return ", ".join(f"`{name}`" for name in names)  # type: ignore[attr-defined]


def _needed(subject: Subject) -> tuple[Section, ...]:
    """What nobody could propose without."""
    if isinstance(subject, KernelSubject):
        criteria = read_text(located(subject.problem.criteria.file))
        files = {"incumbent.py": subject.problem.incumbent.source, "criteria.yaml": criteria}
    else:
        files = {"stack": read_text(subject.stack), "scenario and criteria": read_text(subject.scenario)}
    return tuple(Section(name=name, entries=(text,), required=True) for name, text in files.items())


def _memory(subject: Subject, contents: Contents, experiments: Entries, bounds: ModelFile) -> tuple[Section, ...]:
    """What the ledger and the catalogue know, the most telling first."""
    refused = refusal_entries(subject, contents)
    known = catalogue_entries(subject, attempts(contents))
    damaged = f"{len(contents.damaged)} objects of the ledger that cannot be read"
    return (
        Section(
            name="findings so far",
            entries=experiments.texts,
            most_tokens=bounds.findings_tokens,
            left_out=(*experiments.left_out, *([damaged] if contents.damaged else [])),
        ),
        Section(name="refused before", entries=refused.texts, most_tokens=bounds.findings_tokens // 4),
        Section(name="catalogue", entries=known.texts, left_out=known.left_out),
    )


def _background(subject: Subject) -> tuple[Section, ...]:
    """Helpful, and the first to be left out."""
    if not isinstance(subject, KernelSubject):
        return ()
    files = ("definition.yaml", "reference.py", "workloads.json")
    return tuple(Section(name=name, entries=(read_text(subject.problem.folder / name),)) for name in files)


def _fitted(sections: Sequence[Section], room: int) -> list[Section]:
    """Each section with as many of its entries as fit into what those before it left."""
    kept = []
    for section in sections:
        most = min(room, section.most_tokens * BYTES_PER_TOKEN) if section.most_tokens else room
        count = _fitting(section, most)
        left = len(section.entries) - count
        if left and section.required:
            raise BadInput(
                f"the prompt does not hold `{section.name}`: it is too large for `prompt_tokens`",
                "raise `prompt_tokens` in the model file, as far as the model's context allows",
            )
        said = (*section.left_out, *([f"{left} of {len(section.entries)} of `{section.name}`"] if left else []))
        kept.append(section.model_copy(update={"entries": section.entries[:count], "left_out": said}))
        room -= len(_shown(kept[-1], "0" * MARK_CHARS).encode()) + 2 if count else 0
    return kept


def _fitting(section: Section, most: int) -> int:
    """How many entries from the front take at most so many bytes."""
    used = len(_shown(section.model_copy(update={"entries": ()}), "0" * MARK_CHARS).encode()) + 2
    for count, entry in enumerate(section.entries):
        used += len(entry.encode()) + 2
        if used > most:
            return count
    return len(section.entries)


def _shown(section: Section, mark: str) -> str:
    text = "\n\n".join(entry.rstrip() for entry in section.entries)
    return f"-----data {mark} {section.name}-----\n{text}\n-----end {mark}-----"


def _said(left_out: Sequence[str]) -> str:
    return f"Left out: {'; '.join(left_out) if left_out else 'nothing'}."
