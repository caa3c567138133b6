"""The exported folder, read and run by the package that it is for."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from flashinfer_bench.data import TraceSet, Workload

from tasks.flashinfer_trace import export, notes, variants
from tasks.folder import write_folder
from tasks.problem import known_problems, load_problem
from tasks.trace_sources import inputs_of, reference_source

# Runs solutions of a folder in the Triton interpreter with the package's own builder and inputs; prints an error each.
RUN = """
import sys, torch
from pathlib import Path
from flashinfer_bench.bench.evaluators.utils import allocate_outputs
from flashinfer_bench.bench.utils import gen_inputs, load_safetensors
from flashinfer_bench.compile import BuilderRegistry
from flashinfer_bench.data import TraceSet
folder, name, uuid = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
found, registry = TraceSet.from_path(str(folder)), BuilderRegistry.get_instance()
definition = found.definitions[name]
workload = next(x.workload for x in found.workloads[name] if x.workload.uuid == uuid)
stored = load_safetensors(definition, workload, folder)
exact = registry.build_reference(definition)(*gen_inputs(definition, workload, "cpu", stored))
for solution in found.solutions[name]:
    inputs = gen_inputs(definition, workload, "cpu", stored)
    outputs = allocate_outputs(definition, inputs, "cpu")
    registry.build(definition, solution)(*inputs, *outputs)
    error = max(((x.double() - y.double()).norm() / y.double().norm()).item() for x, y in zip(outputs, exact))
    print(solution.name.split("__")[-1], error)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "dataset"
    write_folder(export(load_problem("kda_decode")).files, folder)
    return folder


@pytest.fixture(scope="module")
def loaded(exported: Path) -> TraceSet:
    return TraceSet.from_path(str(exported))


def test_the_package_loads_every_definition_workload_and_solution(loaded: TraceSet) -> None:
    problem = load_problem("kda_decode")
    names = {"kda_decode__float32", "kda_decode__bfloat16"}
    names |= {f"{name}__no_lower_bound" for name in names}
    assert set(loaded.definitions) == set(loaded.workloads) == set(loaded.solutions) == names
    workloads = [x for found in loaded.workloads.values() for x in found]
    assert len(workloads) == len(problem.workloads.checks) + len(problem.workloads.timings)
    assert len({x.workload.uuid for x in workloads}) == len(workloads)
    for solutions in loaded.solutions.values():
        assert {x.name.split("__")[-1] for x in solutions} >= {"incumbent", "hoist_gate", "reciprocal"}
    assert not loaded.traces


def test_a_definition_has_the_dtypes_of_its_variant_and_no_scalar_that_is_null(loaded: TraceSet) -> None:
    bounded, unbounded = (loaded.definitions[f"kda_decode__bfloat16{x}"] for x in ("", "__no_lower_bound"))
    assert {x: bounded.inputs[x].dtype.value for x in ("q", "A_log", "state_index", "scale")} == {
        "q": "bfloat16", "A_log": "float32", "state_index": "int32", "scale": "float32",
    }  # fmt: skip
    assert bounded.inputs["scale"].shape is None
    assert set(bounded.inputs) - set(unbounded.inputs) == {"lower_bound"}
    assert list(bounded.outputs) == ["out", "state_after"]
    assert bounded.const_axes == {"K": 128, "V": 128}


def test_what_the_format_cannot_say_stands_in_every_description(loaded: TraceSet) -> None:
    said = notes(load_problem("kda_decode"))
    assert any("`state` is changed in place" in note for note in said)
    for definition in loaded.definitions.values():
        assert all(note in (definition.description or "") for note in said)


def workload(loaded: TraceSet, definition: str, axes: dict[str, int]) -> Workload:
    return next(x.workload for x in loaded.workloads[definition] if x.workload.axes == axes)


def test_a_production_shape_stores_its_integers_alone(loaded: TraceSet, exported: Path) -> None:
    found = workload(loaded, "kda_decode__bfloat16", {"B": 256, "H": 64, "slots": 256})
    assert {name for name, x in found.inputs.items() if x.type == "safetensors"} == {"state_index"}
    stored = loaded.get_workload_blob_tensor(found.inputs["state_index"].path)
    assert sorted(stored["state_index"].tolist()) == list(range(256))


@pytest.mark.parametrize(
    ("definition", "limit", "wrong"),
    # The interpreter rounds to bf16 by truncation, which costs twice as much as the GPU's rounding.
    [("kda_decode__bfloat16", 7e-3, {"clamp_gate"}), ("kda_decode__float32__no_lower_bound", 1e-5, set[str]())],
)
def test_the_package_builds_and_runs_solutions_and_only_the_wrong_one_is_wrong(
    loaded: TraceSet, exported: Path, tmp_path: Path, definition: str, limit: float, wrong: set[str]
) -> None:
    smallest = min(loaded.workloads[definition], key=lambda x: x.workload.axes["B"] * x.workload.axes["H"])
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, str(exported), definition, smallest.workload.uuid],
        env={**os.environ, "TRITON_INTERPRET": "1", "FIB_CACHE_PATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    errors = {name: float(value) for name, value in (line.split() for line in done.stdout.splitlines())}
    assert {name for name, error in errors.items() if not error < limit} == wrong
    assert {"incumbent", "hoist_gate", "clamp_gate"} <= set(errors)


def test_the_same_problem_gives_the_same_bytes(exported: Path) -> None:
    again = export(load_problem("kda_decode"))
    assert again.files == {
        path.relative_to(exported).as_posix(): path.read_bytes() for path in exported.rglob("*") if path.is_file()
    }


def test_workloads_of_other_dtypes_or_a_null_scalar_are_other_definitions() -> None:
    found = variants(load_problem("kda_decode"))
    assert [x.name for x in found["kda_decode__bfloat16__no_lower_bound"]] == ["unbounded_slow_decay_bf16"]
    assert all(x.activation == "float32" for x in found["kda_decode__float32"])


@pytest.mark.parametrize("name", [x for x in known_problems() if x != "kda_decode"])
def test_every_problem_of_the_repository_can_be_loaded(name: str, tmp_path: Path) -> None:
    problem = load_problem(name)
    found = export(problem)
    write_folder(found.files, tmp_path / "dataset")
    loaded = TraceSet.from_path(str(tmp_path / "dataset"))
    assert set(loaded.definitions) == set(variants(problem))
    for definition in loaded.definitions.values():
        assert problem.definition.copies not in definition.inputs
        solutions = {x.name.split("__")[-1] for x in loaded.solutions[definition.name]}
        assert "incumbent" in solutions
        if name == "cache_quant":  # a candidate that chooses the dtype of a cache stands where it is chosen
            assert ("int8_state" in solutions) == definition.name.endswith("int8")
    if problem.definition.runs_on == "cpu":
        assert any("`fused_cpp.yaml` is left out" in note for note in found.notes)


@pytest.mark.parametrize("name", known_problems())
def test_an_exported_reference_gives_what_the_problems_own_gives(name: str) -> None:
    problem = load_problem(name)
    check = problem.workloads.checks[0]
    scope: dict[str, Any] = {"__name__": "reference"}
    exec(reference_source(problem, check), scope)
    fixed, per_step = scope["make_inputs"](problem.for_reference(check) | {"steps": 1}, problem.axes_of(check), 3)
    tensors = {**fixed, **{x: values[0] for x, values in per_step.items()}}
    scalars = {x: value for x, value in problem.scalars_of(check).items() if value is not None}
    found = scope["run"](*(tensors[x] for x in inputs_of(problem.definition)), *scalars.values())
    exact = scope["step"](tensors, problem.reference_scalars(check), torch.float64)
    names = [*problem.definition.outputs, *(x.name for x in problem.results_of(check) if x.in_place)]
    for result, values in zip(names, found if isinstance(found, tuple) else (found,), strict=True):
        assert torch.equal(values, exact[result].to(values.dtype))
