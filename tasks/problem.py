"""A kernel problem: what is computed (definition), on what (workloads), against what (incumbent), and what must hold
(criteria). Read from a folder under `kernels/`, which is never imported.
"""

import json
from math import prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from serving.documents import read_document, read_text, validate
from serving.errors import BadInput
from serving.home import located
from tasks.bubblewrap import SCRIPTS
from tasks.criteria import Criteria, CriteriaFile, load_criteria
from tasks.definition import Definition, Number, Tensor, Timing, Workloads
from tasks.records import KernelCandidate, KernelTarget, Scalar, Text, digest

EIGHT_BITS = {"int8", "float8_e4m3fn", "float8_e5m2"}
CACHE = "cache"
KERNELS = Path(__file__).resolve().parent.parent / "kernels"


class Result(BaseModel):
    """Something that a step computes: an output, or a tensor that it changes in place (then `slots` may be set)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Text
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: str
    in_place: bool
    slots: str | None

    @property
    def integer(self) -> bool:
        """Counts and positions, which are right or wrong; int8 is a code for a number."""
        return self.dtype == "int32"


class Problem(BaseModel):
    """`evaluator_digest` covers everything that judges: definition, reference, workloads, criteria and our workers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Text
    folder: Path
    definition: Definition
    workloads: Workloads
    criteria: Criteria[CriteriaFile]
    incumbent: KernelCandidate
    reference: Text
    evaluator_digest: Text

    def tuned(self, candidate: KernelCandidate) -> "Problem":
        """This problem with the tunable axes and the dtype `cache` that an arm chose by its launch options. Raises BadInput."""
        axes = dict(self.definition.axes)
        for name in self._tunable & set(candidate.launch) & set(axes):
            size = candidate.launch[name]
            if not isinstance(size, int) or size < 1:
                raise BadInput(f"the launch option `{name}: {size}` is no size", "give a whole number of at least 1")
            axes[name] = axes[name].model_copy(update={"value": size})
        definition = self.definition.model_copy(update={"axes": axes})
        workloads = self.workloads
        if CACHE in self._tunable & set(candidate.launch):
            workloads = workloads.stored_in(candidate.launch[CACHE])
        return self.model_copy(update={"definition": definition, "workloads": workloads})

    def options_of(self, candidate: KernelCandidate) -> dict[str, Scalar]:
        """The launch options that `run` takes: those that choose no axis."""
        return {name: x for name, x in candidate.launch.items() if name not in self._tunable}

    @property
    def _tunable(self) -> set[str]:
        cached = any(x.dtype == CACHE for x in self.definition.tensors.values())
        return {name for name, axis in self.definition.axes.items() if axis.tunable} | ({CACHE} if cached else set())

    def cycle_of(self, workload: Timing) -> int:
        """Steps after which the work repeats."""
        return self.axes_of(workload)[workload.cycle] if isinstance(workload.cycle, str) else workload.cycle

    def axes_of(self, workload: Timing) -> dict[str, int]:
        """Every axis with its size."""
        const = {name: axis.value for name, axis in self.definition.axes.items() if axis.value is not None}
        return {**const, **workload.axes}

    def kind_of(self, workload: Timing) -> dict[str, object]:
        """What decides about the kernel, other than by how much of it runs: some sizes, dtypes, scalars."""
        sizes = {x: size for x, size in self.axes_of(workload).items() if self.definition.axes[x].scaling == "any"}
        return {**sizes, "activation": workload.activation, "cache": workload.cache, **self.scalars_of(workload)}

    def batch_of(self, workload: Timing) -> int:
        """The size that work is proportional to."""
        return prod(size for x, size in workload.axes.items() if self.definition.axes[x].scaling == "work")

    def scalars_of(self, workload: Timing) -> dict[str, Number | None]:
        return {name: workload.scalars.get(name, x.value) for name, x in self.definition.scalars.items()}

    def for_reference(self, workload: Timing) -> dict[str, Any]:
        """What reference.py needs to know of a workload, as JSON. Among its scalars is the dtype of the cache."""
        return {
            **workload.model_dump(mode="json", exclude_none=True),
            "axes": self.axes_of(workload),
            "scalars": self.reference_scalars(workload),
            "results": [result.model_dump(mode="json") for result in self.results_of(workload)],
            "copies": self.definition.copies,
        }

    def reference_scalars(self, workload: Timing) -> dict[str, Number | str | None]:
        """The scalars of `run`, and the dtype of the cache, which `run` sees by its tensors."""
        return {**self.scalars_of(workload), **({CACHE: workload.cache} if workload.cache else {})}

    def shape_of(self, tensor: Tensor, workload: Timing) -> tuple[int, ...]:
        sizes = self.axes_of(workload)
        return tuple(sizes[axis] for axis in tensor.shape)

    def arguments_of(self, workload: Timing) -> list[dict[str, Any]]:
        """What `run` takes, in order, for the workers: name, shape, axes, dtype and role of a tensor; value of a scalar.

        Roles: `Definition.role_of`.
        """
        tensors = [
            {
                "name": name,
                "shape": self.shape_of(x, workload),
                "axes": x.shape,
                "dtype": self.dtype_of(x, workload),
                "role": self.definition.role_of(name),
            }
            for name, x in self.definition.tensors.items()
            if name != self.definition.copies
        ]
        return [*tensors, *({"name": name, "value": x} for name, x in self.scalars_of(workload).items())]

    def results_of(self, workload: Timing) -> tuple[Result, ...]:
        """What a step of this workload computes, in the order of the definition."""
        return tuple(
            Result(
                name=name,
                shape=self.shape_of(x, workload),
                axes=x.shape,
                dtype=self.dtype_of(x, workload),
                in_place=x.in_place,
                slots=x.slots,
            )
            for name, x in self.definition.tensors.items()
            if self.definition.role_of(name) in ("out", "in_place")
        )

    @staticmethod
    def dtype_of(tensor: Tensor, workload: Timing) -> str:
        if tensor.dtype == "activation":
            return workload.activation
        return workload.cache or "" if tensor.dtype == "cache" else tensor.dtype


def known_problems() -> list[str]:
    """Names of the folders under kernels/ that hold a definition."""
    return sorted(path.parent.name for path in KERNELS.glob("*/definition.yaml"))


def load_problem(name_or_folder: str | Path) -> Problem:
    """The problem of that name under kernels/, or in that folder (relative to the repository). Raises BadInput."""
    folder = Path(name_or_folder)
    folder = KERNELS / folder if folder.name == str(name_or_folder) else located(str(folder))
    try:
        found = (folder / "definition.yaml").is_file()
    except (OSError, ValueError):  # a name too long, or with characters that no file has
        found = False
    if not found:
        known = ", ".join(f"`{name}`" for name in known_problems()) or "none"
        raise BadInput(f"unknown kernel problem `{name_or_folder}`", f"known problems: {known}")
    definition = read_document(folder / "definition.yaml", Definition)
    workloads = _workloads(folder / "workloads.json", definition)
    reference = read_text(folder / "reference.py")
    judging = ("definition.yaml", "reference.py", "workloads.json", "criteria.yaml")
    criteria = load_criteria(folder / "criteria.yaml", CriteriaFile)
    problem = Problem(
        name=definition.name,
        folder=folder,
        definition=definition,
        workloads=workloads,
        criteria=criteria,
        incumbent=KernelCandidate(source_name="incumbent.py", source=read_text(folder / "incumbent.py")),
        reference=reference,
        evaluator_digest=_digest_of([*(folder / name for name in judging), *sorted(SCRIPTS.glob("*.py"))]),
    )
    if definition.runs_on == "gpu" and criteria.values.static is None:
        raise BadInput(f"`{folder / 'criteria.yaml'}` has no limits for `static`", "every GPU problem needs them")
    results = [x for name, x in definition.tensors.items() if definition.role_of(name) in ("out", "in_place")]
    coded = {x.dtype for x in results} & {CACHE, *EIGHT_BITS}
    lacking = criteria.values.numerics.lacks(workloads, coded=bool(coded))
    if lacking is not None:
        raise BadInput(
            f"`{folder / 'criteria.yaml'}` has no limit `numerics.{lacking}`", "the workloads need one: set it"
        )
    return problem


def problem_of(target: KernelTarget) -> Problem:
    """The problem of a hypothesis, with the incumbent in the form that it names. Raises BadInput."""
    problem = load_problem(target.problem)
    incumbent = problem.incumbent.model_copy(update={"launch": target.incumbent_launch})
    return problem.model_copy(update={"incumbent": incumbent})


def _digest_of(paths: list[Path]) -> str:
    return digest([[path.name, digest(read_text(path))] for path in paths])


def _workloads(path: Path, definition: Definition) -> Workloads:
    try:
        document = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise BadInput(f"`{path}` is not valid JSON at line {error.lineno}", "check commas and quotes") from error
    if not isinstance(document, dict):
        raise BadInput(f"`{path}` does not hold a JSON object", "start with `version`, `checks` and `timings`")
    workloads = validate(document, Workloads, str(path))
    misfit = workloads.misfit(definition)
    if misfit is not None:
        raise BadInput(f"{misfit} (in `{path}`)", "make workloads.json and definition.yaml agree")
    return workloads
