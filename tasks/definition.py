"""What a kernel problem computes, and on what: definition.yaml and workloads.json, as people write them.

The vocabulary is FlashInfer-Bench's where it has the word: axes, inputs, outputs, op_type.
"""

from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.errors import BadInput
from tasks.records import Text

Dtype = Literal["float32", "bfloat16", "int32", "int8", "float8_e4m3fn", "float8_e5m2"]
Activation = Literal["float32", "bfloat16"]
Cache = Literal["float32", "bfloat16", "int8", "float8_e4m3fn", "float8_e5m2"]
TensorCores = Literal["toward_zero", "round_operands"]
Number = float | int


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Axis(_Part):
    """`scaling` says what a larger size means for the launches: `work` in proportion, `none` at all, or `any` thing.

    An arm may choose the size of a `tunable` axis, by a launch option of its name: it is an argument of the engine.
    """

    type: Literal["var", "const"]
    value: Annotated[int, Field(ge=1)] | None = None
    scaling: Literal["any", "work", "none"] = "any"
    tunable: bool = False
    description: str = ""


class Tensor(_Part):
    """`dtype: activation` and `dtype: cache` are those that the workload names; an arm may choose another `cache` by its
    launch option of that name: it is an argument of the engine.

    `each_step`: new values at each step; by default for what has the dtype of activations. `slots` names the input that
    says which entries of the first axis may change; all others must stay as they are, bit for bit.
    """

    shape: tuple[Text, ...]
    dtype: Dtype | Literal["activation", "cache"]
    in_place: bool = False
    each_step: bool | None = None
    slots: Text | None = None
    description: str = ""


class ScalarArgument(_Part):
    """`value` holds where a workload says nothing else; None is passed as None."""

    dtype: Literal["float32", "int32"]
    value: Number | None


class Splice(_Part):
    """Where the kernel lives in the engine: what a winner replaces there, and how.

    `patch` is a template file of the problem's folder that makes the engine call the candidate's `run`.
    """

    package: Text
    version: Text
    replaces: Text
    patch: Text | None = None


class Definition(_Part):
    """Order is meaning: `run` takes inputs, outputs and scalars in the order of the file.

    `copies` names an input [2] that `run` does not take: before a step the caller copies one slot to another (or -1, -1).
    """

    name: Text
    op_type: Text
    description: Text
    runs_on: Literal["gpu", "cpu"] = "gpu"
    axes: Annotated[dict[str, Axis], Field(min_length=1)]
    inputs: Annotated[dict[str, Tensor], Field(min_length=1)]
    outputs: Annotated[dict[str, Tensor], Field(min_length=1)]
    scalars: dict[str, ScalarArgument] = {}
    copies: Text | None = None
    splice: Splice | None = None

    @model_validator(mode="after")
    def _axes_are_known(self) -> Self:
        for name, tensor in self.tensors.items():
            unknown = [axis for axis in tensor.shape if axis not in self.axes]
            if unknown:
                raise ValueError(f"`{name}` has the axis `{unknown[0]}`, which `axes` does not list")
            if tensor.slots is not None and (not tensor.in_place or tensor.slots not in self.inputs):
                raise ValueError(f"`slots` of `{name}` names no input, or `{name}` is not changed in place")
        if any((axis.type == "const") != (axis.value is not None) for axis in self.axes.values()):
            raise ValueError("a const axis has a value, a var axis has none")
        if any(axis.tunable and axis.type != "const" for axis in self.axes.values()):
            raise ValueError("a tunable axis is a const one")
        if self.runs_on == "cpu" and (self.copies is not None or any(axis.tunable for axis in self.axes.values())):
            raise ValueError("a problem that runs on CPU has no `copies` and no tunable axis")
        if self.copies is not None and self.copies not in self.inputs:
            raise ValueError(f"`copies` names `{self.copies}`, which is no input")
        return self

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Inputs, then outputs."""
        return {**self.inputs, **self.outputs}

    def role_of(self, name: str) -> Literal["out", "in_place", "step", "fixed"]:
        """`step` has new values at each step, `fixed` the same at all, `in_place` is handed on, `out` is written."""
        tensor = self.tensors[name]
        if name in self.outputs:
            return "out"
        if tensor.in_place:
            return "in_place"
        each = tensor.dtype == "activation" if tensor.each_step is None else tensor.each_step
        return "step" if each else "fixed"


class Distribution(_Part):
    mean: float | None = None
    std: Annotated[float, Field(ge=0)] | None = None


class Timing(_Part):
    """A production shape. Sizes of the const axes come from the definition.

    `cycle`: steps after which the kernel's work repeats, or the axis that says so; a timing covers whole cycles and is
    given per step. `share`: its weight in a total, in proportion to how often production takes such a step.
    """

    name: Text
    axes: dict[str, Annotated[int, Field(ge=1)]]
    activation: Activation
    cache: Cache | None = None
    scalars: dict[str, Number | None] = {}
    cycle: Annotated[int, Field(ge=1)] | Text = 1
    share: Annotated[float, Field(gt=0)] = 1.0


class Twin(_Part):
    """A second run of a check that must give the same bits: the entries of an axis in another order, an axis in two
    halves, or other launch options (where the candidate's `run` takes them)."""

    permute: Text | None = None
    split: Text | None = None
    options: dict[str, int] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(x is not None for x in (self.permute, self.split, self.options)) != 1:
            raise ValueError("a twin has one of `permute`, `split`, `options`")
        return self

    @property
    def label(self) -> str:
        """Such as `permute B`, `split H`, `BV=16`."""
        if self.options is not None:
            return ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"permute {self.permute}" if self.permute else f"split {self.split}"

    @property
    def axis(self) -> str | None:
        return self.permute or self.split


class Check(Timing):
    """A regime for numerics: `steps` calls in a row that hand the state on, inputs drawn from the distributions.

    tf32 dots are computed for tensor cores that cut operands off and sum to nearest. No GPU has shown that yet, so errors
    must keep their limit also on `tensor_cores` that sum toward zero, or that round operands, where a check names them.
    `drift_steps`: over so many steps the reference says what the dtype of the cache alone loses.
    """

    steps: Annotated[int, Field(ge=1)]
    inputs: dict[str, Distribution] = {}
    twins: tuple[Twin, ...] = ()
    tensor_cores: tuple[TensorCores, ...] = ()
    drift_steps: Annotated[int, Field(ge=1)] | None = None


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

    def stored_in(self, cache: object) -> "Workloads":
        """The same workloads with another dtype of the cache. Raises BadInput."""
        if cache not in get_args(Cache):
            known = ", ".join(f"`{name}`" for name in get_args(Cache))
            raise BadInput(f"the launch option `cache: {cache}` is no dtype of a cache", f"known: {known}")
        checks = tuple(x.model_copy(update={"cache": cache}) for x in self.checks)
        timings = tuple(x.model_copy(update={"cache": cache}) for x in self.timings)
        return self.model_copy(update={"checks": checks, "timings": timings})

    def misfit(self, definition: Definition) -> str | None:
        """What of the workloads the definition does not know, in words; None if all fits."""
        free = {name for name, axis in definition.axes.items() if axis.type == "var"}
        cached = any(x.dtype == "cache" for x in definition.tensors.values())
        for workload in (*self.checks, *self.timings):
            if set(workload.axes) != free:
                return f"the workload `{workload.name}` sizes other axes than the definition's {sorted(free)}"
            if not set(workload.scalars) <= set(definition.scalars):
                return f"the workload `{workload.name}` sets scalars that the definition does not list"
            if isinstance(workload.cycle, str) and workload.cycle not in definition.axes:
                return (
                    f"`cycle` of the workload `{workload.name}` names the axis `{workload.cycle}`, which there is not"
                )
            if (workload.cache is not None) != cached:
                return f"the workload `{workload.name}` names a `cache` dtype, or lacks one, unlike the definition"
        for check in self.checks:
            for twin in check.twins:
                if twin.axis is not None and twin.axis not in free:
                    return f"a twin of `{check.name}` names the axis `{twin.axis}`, which is not variable"
                if twin.axis is not None and check.axes[twin.axis] < 2:
                    return f"a twin of `{check.name}` needs at least 2 of `{twin.axis}`"
        return None
