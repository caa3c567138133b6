"""Hypotheses as the files that people write, so that what a model proposed can be read, changed, and run later."""

import re
from collections.abc import Sequence
from typing import Any

import yaml

from serving.home import located
from tasks.problem import problem_of
from tasks.records import CodePatch, Hypothesis, KernelCandidate, KernelTarget, StackEdit

DIFF = "change.diff"
_MOST = 48  # characters of a folder's name


def files_of(hypotheses: Sequence[Hypothesis]) -> dict[str, bytes]:
    """A folder for each, with hypothesis.yaml and the text of its change, by path. Read again, each has the same id.

    Targets are named by absolute paths on this machine. Raises BadInput for one that is not here.
    """
    files: dict[str, bytes] = {}
    for number, hypothesis in enumerate(hypotheses, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", hypothesis.title.lower()).strip("-")[:_MOST].strip("-")
        folder = f"{number:02}-{slug}" if slug else f"{number:02}"
        change, text = _change(hypothesis)
        document = {
            **hypothesis.model_dump(mode="json", exclude={"target", "change"}),
            "target": _target(hypothesis),
            "change": change,
        }
        files[f"{folder}/hypothesis.yaml"] = yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
        files |= {f"{folder}/{name}": content.encode() for name, content in text.items()}
    return files


def _target(hypothesis: Hypothesis) -> dict[str, Any]:
    target = hypothesis.target
    if not isinstance(target, KernelTarget):
        return {"kind": "stack", "stack": str(located(target.stack)), "scenario": str(located(target.scenario))}
    service = target.service and {
        "stack": str(located(target.service.stack)),
        "scenario": str(located(target.service.scenario)),
    }
    stated = {"incumbent_launch": target.incumbent_launch, "timing": target.timing, **(service or {})}
    return {"kind": "kernel", "problem": str(problem_of(target).folder)} | {k: v for k, v in stated.items() if v}


def _change(hypothesis: Hypothesis) -> tuple[dict[str, Any], dict[str, str]]:
    """The change as a file states it, and the texts that lie beside it."""
    match hypothesis.change:
        case KernelCandidate(source_name=name, source=source, launch=launch):
            return {"kind": "kernel_candidate", "source": name, "launch": launch}, {name: source}
        case StackEdit() as edit:
            return edit.model_dump(mode="json", exclude_defaults=True) | {"kind": edit.kind}, {}
        case CodePatch(package=package, version=version, diff=diff):
            stated = {"kind": "code_patch", "package": package, "version": version, "diff": DIFF}
            return stated, {DIFF: diff}
