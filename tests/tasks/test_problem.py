"""A problem is whole or refused, its digest covers all that judges, and each limit can be cited."""

import shutil
from pathlib import Path

import pytest

from serving.errors import BadInput
from tasks.check import check
from tasks.problem import KERNELS, known_problems, load_problem
from tasks.records import Rung


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(KERNELS / "kda_decode", tmp_path / "kda_decode"))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_problem_of_the_repository_is_found_by_name() -> None:
    problem = load_problem("kda_decode")
    assert problem.name in known_problems()
    assert problem.incumbent.source_name == "incumbent.py"
    assert problem.definition.splice is not None


def test_arguments_come_in_the_order_of_run_with_shapes_dtypes_and_roles() -> None:
    problem = load_problem("kda_decode")
    workload = problem.workloads.timings[0]
    arguments = problem.arguments_of(workload)
    names = ["q", "k", "v", "a", "b", "A_log", "dt_bias", "state", "state_index", "out", "scale", "lower_bound"]
    assert [x["name"] for x in arguments] == names
    by_name = {x["name"]: x for x in arguments}
    assert by_name["state"] == {
        "name": "state", "shape": (1, 64, 128, 128), "axes": ("slots", "H", "V", "K"), "dtype": "float32",
        "role": "in_place",
    }  # fmt: skip
    assert [by_name[x]["role"] for x in ("q", "A_log", "state_index", "out")] == ["step", "fixed", "step", "out"]
    assert by_name["q"]["dtype"] == "bfloat16"
    assert by_name["lower_bound"] == {"name": "lower_bound", "value": -5.0}


def test_production_shapes_cover_both_tensor_parallel_degrees_and_batches_up_to_256() -> None:
    axes = [w.axes for w in load_problem("kda_decode").workloads.timings]
    assert {x["H"] for x in axes} == {8, 64}
    assert {1, 256} <= {x["B"] for x in axes}


def test_an_unknown_problem_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match="unknown kernel problem `kda_encode`") as refused:
        load_problem("kda_encode")
    assert "`kda_decode`" in refused.value.hint


@pytest.mark.parametrize("name", ["criteria.yaml", "workloads.json", "reference.py", "incumbent.py"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(BadInput, match=name):
        load_problem(folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("criteria.yaml", "max_registers: 255", "max_register: 255", "max_register"),
        ("criteria.yaml", "max_registers: 255", "max_registers: many", "max_registers"),
        ("criteria.yaml", "smallest_effect_pct: 1.0", "smallest_effect_pct: -1.0", "smallest_effect_pct"),
        ("workloads.json", '"version": 1,', '"version": 1', "not valid JSON"),
        ("workloads.json", '"axes": {"B": 1, "H": 2, "slots": 4}', '"axes": {"B": 1, "H": 2}', "sizes other axes"),
        ("workloads.json", "slow_decay_bf16", "slow_decay_fp32", "same name"),
        ("workloads.json", '"lower_bound": null', '"upper_bound": null', "sets scalars"),
        ("workloads.json", '{"permute": "B"}', '{"permute": "K"}', "not variable"),
        ("workloads.json", '{"permute": "B"}', '{"permute": "B", "split": "B"}', "one of `permute`"),
        ("workloads.json", '"steps": 3, "activation"', '"cache": "int8", "steps": 3, "activation"', "`cache` dtype"),
        ("workloads.json", '"steps": 4,', '"steps": 4, "tensor_cores": ["toward_zero"],', "toward_zero_max_rel_error"),
        ("workloads.json", '"steps": 4,', '"steps": 4, "drift_steps": 9,', "drift_max_rel_error"),
        ("definition.yaml", "slots: state_index", "slots: index", "names no input"),
        ("definition.yaml", "dtype: float32, in_place", "dtype: int8, in_place", "coded_max_rel_error"),
        ("definition.yaml", "a: {shape: [B, H, K]", "a: {shape: [B, G, K]", "axis `G`"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_named(folder: Path, name: str, old: str, new: str, words: str) -> None:
    edit(folder / name, old, new)
    with pytest.raises(BadInput, match=words):
        load_problem(folder)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("criteria.yaml", "version: 1", "version: 2"),
        ("definition.yaml", "GLM-5.3-Flash", "GLM-5.4"),
        ("workloads.json", '"steps": 4', '"steps": 5'),
        ("reference.py", "1e-6", "1e-5"),
    ],
)
def test_the_evaluator_digest_changes_with_every_file_that_judges(folder: Path, name: str, old: str, new: str) -> None:
    before = load_problem(folder).evaluator_digest
    edit(folder / name, old, new)
    assert load_problem(folder).evaluator_digest != before


def test_the_evaluator_digest_does_not_depend_on_incumbent_or_folder(folder: Path) -> None:
    before = load_problem("kda_decode").evaluator_digest
    edit(folder / "incumbent.py", "BV=32", "BV=64")
    assert load_problem(folder).evaluator_digest == before


def test_a_criterion_is_cited_by_file_digest_key_and_value() -> None:
    criteria = load_problem("kda_decode").criteria
    cited = criteria.cite("static.max_registers")
    assert (cited.file, cited.key, cited.value) == ("kernels/kda_decode/criteria.yaml", "static.max_registers", 255)
    assert cited.digest == criteria.digest
    for unknown in ("static.max_register", "static", "nothing.at.all"):
        with pytest.raises(KeyError):
            criteria.cite(unknown)


def test_a_file_that_is_no_kernel_source_cannot_be_checked() -> None:
    with pytest.raises(BadInput, match="is not a kernel source"):
        check(Rung.NUMERICS, KERNELS / "kda_decode" / "criteria.yaml")
