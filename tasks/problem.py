"""A kernel problem: what is computed (definition), on what (workloads), against what (incumbent), and what must hold
(criteria). Read from a folder under `kernels/`, which is never imported.
"""

import json
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.documents import read_document, read_text, validate
from serving.errors import BadInput
from serving.home import located
from tasks.bubblewrap import SCRIPTS
from tasks.criteria import Criteria, CriteriaFile, load_criteria
from tasks.records import KernelCandidate, Text, digest

KERNELS = Path(__file__).resolve().parent.parent / "kernels"
Dtype = Literal["float32", "bfloat16", "int32"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Axis(_Part):
    """`scaling` says what a larger size means for the launches: `work` in proportion, `none` at all, or `any` thing."""

    type: Literal["var", "const"]
    value: Annotated[int, Field(ge=1)] | None = None
    scaling: Literal["any", "work", "none"] = "any"
    description: str = ""


class Tensor(_Part):
    """`dtype: activation` is the dtype that the workload names."""

    shape: tuple[Text, ...]
    dtype: Dtype | Literal["activation"]
    in_place: bool = False
    description: str = ""


class ScalarArgument(_Part):
    dtype: Literal["float32", "int32"]
    value: float | int


class Splice(_Part):
    """Where the kernel lives in the engine."""

    package: Text
    version: Text
    replaces: Text


class Definition(_Part):
    """Order is meaning: `run` takes inputs, outputs and scalars in the order of the file."""

    name: Text
    op_type: Text
    description: Text
    axes: Annotated[dict[str, Axis], Field(min_length=1)]
    inputs: Annotated[dict[str, Tensor], Field(min_length=1)]
    outputs: Annotated[dict[str, Tensor], Field(min_length=1)]
    scalars: dict[str, ScalarArgument] = {}
    splice: Splice | None = None

    @model_validator(mode="after")
    def _axes_are_known(self) -> Self:
        for name, tensor in {**self.inputs, **self.outputs}.items():
            unknown = [axis for axis in tensor.shape if axis not in self.axes]
            if unknown:
                raise ValueError(f"`{name}` has the axis `{unknown[0]}`, which `axes` does not list")
        if any((axis.type == "const") != (axis.value is not None) for axis in self.axes.values()):
            raise ValueError("a const axis has a value, a var axis has none")
        return self


class Distribution(_Part):
    mean: float | None = None
    std: Annotated[float, Field(ge=0)] | None = None


class Timing(_Part):
    """A production shape. Sizes of the const axes come from the definition."""

    name: Text
    axes: dict[str, Annotated[int, Field(ge=1)]]
    activation: Literal["float32", "bfloat16"]


class Check(Timing):
    """A regime for numerics: `steps` calls in a row that hand the state on, inputs drawn from the distributions."""

    steps: Annotated[int, Field(ge=1)]
    inputs: dict[str, Distribution] = {}


class Workloads(_Part):
    version: int
    checks: Annotated[tuple[Check, ...], Field(min_length=1)]
    timings: Annotated[tuple[Timing, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [workload.name for workload in (*self.checks, *self.timings)]
        if len(set(names)) != len(names):
            raise ValueError("two workloads have the same name")
        return self


class Problem(_Part):
    """`evaluator_digest` covers everything that judges: definition, reference, workloads, criteria and our workers."""

    name: Text
    folder: Path
    definition: Definition
    workloads: Workloads
    criteria: Criteria[CriteriaFile]
    incumbent: KernelCandidate
    reference: Text
    evaluator_digest: Text

    def axes_of(self, workload: Timing) -> dict[str, int]:
        """Every axis with its size."""
        const = {name: axis.value for name, axis in self.definition.axes.items() if axis.value is not None}
        return {**const, **workload.axes}

    def fixed_axes_of(self, workload: Timing) -> dict[str, int]:
        """The sizes that decide about the kernel, other than by how much of it runs."""
        return {x: size for x, size in self.axes_of(workload).items() if self.definition.axes[x].scaling == "any"}

    def batch_of(self, workload: Timing) -> int:
        """The size that work is proportional to."""
        return prod(size for x, size in workload.axes.items() if self.definition.axes[x].scaling == "work")

    def shape_of(self, tensor: Tensor, workload: Timing) -> tuple[int, ...]:
        sizes = self.axes_of(workload)
        return tuple(sizes[axis] for axis in tensor.shape)

    def arguments_of(self, workload: Timing) -> list[dict[str, Any]]:
        """What `run` takes, in order, for the workers: name, shape, dtype and role of a tensor; value of a scalar.

        Roles: `step` has new values at each step, `fixed` is the same at all of them, `in_place` is handed on, `out`
        is written.
        """
        tensors = [
            {
                "name": name,
                "shape": self.shape_of(x, workload),
                "dtype": self._dtype(x, workload),
                "role": self._role(name, x),
            }
            for name, x in {**self.definition.inputs, **self.definition.outputs}.items()
        ]
        return [*tensors, *({"name": name, "value": x.value} for name, x in self.definition.scalars.items())]

    def _dtype(self, tensor: Tensor, workload: Timing) -> str:
        return workload.activation if tensor.dtype == "activation" else tensor.dtype

    def _role(self, name: str, tensor: Tensor) -> str:
        if name in self.definition.outputs:
            return "out"
        if tensor.in_place:
            return "in_place"
        return "step" if tensor.dtype == "activation" else "fixed"


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
    return Problem(
        name=definition.name,
        folder=folder,
        definition=definition,
        workloads=workloads,
        criteria=load_criteria(folder / "criteria.yaml", CriteriaFile),
        incumbent=KernelCandidate(source_name="incumbent.py", source=read_text(folder / "incumbent.py")),
        reference=reference,
        evaluator_digest=_digest_of([*(folder / name for name in judging), *sorted(SCRIPTS.glob("*.py"))]),
    )


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
    free = {name for name, axis in definition.axes.items() if axis.type == "var"}
    for workload in (*workloads.checks, *workloads.timings):
        if set(workload.axes) != free:
            raise BadInput(
                f"the workload `{workload.name}` in `{path}` sizes other axes than the definition's",
                f"give {sorted(free)}",
            )
    return workloads
