"""Recipes of srt-slurm become stacks, and nothing of them is lost without a word."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.documents import read_mapping
from serving.errors import BadInput
from serving.recipe import Imported, as_yaml, imported
from serving.stack import load_stack
from serving.validate import faults_of, faults_of_file

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("known_options")]

PUBLISHED = Path(__file__).parents[3] / "shared" / "data" / "recipes"
RECIPES = sorted(path for path in PUBLISHED.glob("glm5*.yaml"))

OPTIONS = {"tensor-parallel-size": 8, "quantization": "fp8", "kv_cache_dtype": "fp8_e4m3", "trust-remote-code": True}
SMALL: dict[str, Any] = {
    "name": "Small_one",
    "model": {"path": "hf:zai-org/GLM-5.3-Flash-FP8", "container": "image", "precision": "fp8"},
    "resources": {
        "gpu_type": "h200",
        "gpus_per_node": 8,
        "prefill_workers": 1,
        "decode_workers": 2,
        "prefill_nodes": 1,
    },
    "backend": {
        "type": "sglang",
        "prefill_environment": {"SGLANG_TIMEOUT_KEEP_ALIVE": "900", "HF_TOKEN": "hf_secret"},
        "decode_environment": {"SGLANG_SIMULATE_ACC_LEN": "2.99"},
        "sglang_config": {
            "prefill": {**OPTIONS, "disaggregation-mode": "prefill", "disaggregation-transfer-backend": "mooncake"},
            "decode": {
                **OPTIONS,
                "disaggregation-mode": "decode",
                "disaggregation-transfer-backend": "mooncake",
                "data-parallel-size": 8,
                "enable-dp-attention": True,
                "enable-dp-lm-head": True,
                "cuda-graph-bs": [1, 2, 4],
                "enable-linear-replayssm": True,
                "nsa-decode-backend": "flashmla_kv",
                "gone-in-this-release": 1,
            },
        },
    },
    "health_check": {"max_attempts": 60, "interval_seconds": 10},
    "benchmark": {"type": "sa-bench", "concurrencies": "8"},
}


def again(made: Imported, folder: Path) -> Path:
    file = folder / "imported.yaml"
    file.write_text(as_yaml(made.spec, "recipe.yaml"))
    return file


@pytest.fixture
def made() -> Imported:
    return imported(SMALL)


def test_roles_ranks_and_facts_that_both_roles_share_are_expressed(made: Imported) -> None:
    spec = made.spec
    assert (spec.name, spec.model, spec.ready_timeout_s) == ("small-one", "zai-org/GLM-5.3-Flash-FP8", 600)
    assert set(spec.roles) == {"prefill", "decode", "router"}
    assert (spec.quantization.weights, spec.quantization.kv, spec.transfer.backend) == ("fp8", "fp8_e4m3", "mooncake")
    decode = spec.roles["decode"]
    assert (decode.count, decode.parallelism.tp, decode.parallelism.attention_dp) == (2, 8, 8)
    assert decode.parallelism.lm_head == "attention_group"
    assert (decode.resources.gpus, decode.resources.gpu, decode.resources.gpu_memory_gb) == (8, "h200", 141)
    assert decode.arguments["cuda-graph-bs-decode"] == (1, 2, 4)
    assert decode.arguments["dsa-decode-backend"] == "flashmla_kv"
    assert spec.roles["prefill"].environment == {"SGLANG_TIMEOUT_KEEP_ALIVE": "900"}


def test_what_cannot_be_expressed_is_kept_with_a_warning_each_and_no_secret(made: Imported) -> None:
    told = {note.field.removeprefix("unmapped."): note for note in made.notes}
    for place in (
        "model.container",
        "benchmark",
        "backend.prefill_environment.HF_TOKEN",
        "backend.decode_environment.SGLANG_SIMULATE_ACC_LEN",
        "backend.sglang_config.decode.gone-in-this-release",
        "backend.sglang_config.decode.enable-linear-replayssm",
    ):
        assert place in made.spec.unmapped
        assert told[place].severity == "warning"
    assert "hf_secret" not in as_yaml(made.spec, "x")
    assert "not wired" in told["backend.sglang_config.decode.enable-linear-replayssm"].message


def test_an_option_of_an_earlier_release_is_read_under_its_new_name_and_said(made: Imported) -> None:
    place = "backend.sglang_config.decode.nsa-decode-backend"
    assert ["`dsa-decode-backend`" in note.message for note in made.notes if note.field == place] == [True]


def test_simulated_acceptance_is_a_trap_of_measuring(made: Imported) -> None:
    trap = next(note for note in made.notes if note.field.endswith("SGLANG_SIMULATE_ACC_LEN"))
    assert "no evidence of accuracy" in trap.message


def test_acceptance_that_is_simulated_by_three_variables_is_said_once() -> None:
    names = ("SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD", "SGLANG_SIMULATE_ACC_TOKEN_MODE")
    backend = {**SMALL["backend"], "decode_environment": dict.fromkeys(names, "1")}
    (trap,) = (note for note in imported({**SMALL, "backend": backend}).notes if "simulated" in note.message)
    assert all(name in trap.field + trap.message for name in names)


def test_the_reason_of_each_part_that_is_left_stays_in_the_stack(made: Imported) -> None:
    assert set(made.spec.unmapped_why) == set(made.spec.unmapped)
    assert made.spec.unmapped_why["backend.prefill_environment.HF_TOKEN"] == "it is not one that may be changed"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"environment": {"sglang_simulate_acc_len": 3}}, "environment.sglang_simulate_acc_len"),
        ({"frontend": {"env": {"SGLANG_SIMULATE_ACC_METHOD": "x"}}}, "frontend.env.SGLANG_SIMULATE_ACC_METHOD"),
        ({"benchmark": {"command": "SGLANG_SIMULATE_ACC_LEN=3 python bench.py"}}, "benchmark.command"),
        ({"setup": ["export SGLANG_SIMULATE_ACC_LEN=3"]}, "setup.0"),
        (
            {"backend": {**SMALL["backend"], "decode_environment": {}, "environment": {"SGLANG_SIMULATE_ACC_LEN": 3}}},
            "backend.environment.SGLANG_SIMULATE_ACC_LEN",
        ),
    ],
    ids=lambda change: change if isinstance(change, str) else "",
)
def test_simulated_acceptance_is_found_wherever_and_however_it_is_written(change: dict[str, Any], place: str) -> None:
    honest = {**SMALL, "backend": {**SMALL["backend"], "decode_environment": {}}}
    assert not [note for note in imported(honest).notes if "simulated" in note.message]
    found = [note.field for note in imported({**honest, **change}).notes if "simulated" in note.message]
    assert found == [f"unmapped.{place}"]


def test_what_nothing_reads_is_kept_with_a_warning_wherever_it_stands() -> None:
    backend = SMALL["backend"]
    more = {
        "backend": {
            **backend,
            "aggregated_environment": {"A": "1"},
            "shared": 1,
            "sglang_config": {**backend["sglang_config"], "router": {"policy": "x"}},
        },
        "resources": {**SMALL["resources"], "network": "ib", "agg_nodes": 3},
        "health_check": {**SMALL["health_check"], "path": "/x"},
        "engine": {"type": "sglang", "image": "y"},
    }
    made = imported({"base": {**SMALL, **more}, "override_x": {"name": "x"}, "notes_of_ours": "z"})
    expected = {
        "backend.aggregated_environment", "backend.shared", "backend.sglang_config.router", "resources.network",
        "resources.agg_nodes", "health_check.path", "engine.image", "notes_of_ours",
    }  # fmt: skip
    assert set(made.spec.unmapped) >= expected
    assert {note.field.removeprefix("unmapped.") for note in made.notes} >= expected


def test_no_secret_is_kept_however_deep_it_stands_and_no_count_of_tokens_is_taken_for_one() -> None:
    told = {
        "frontend": {
            "env": {"HF_TOKEN": "hf_secret", "apiKey": "hf_secret"},
            "args": ["--api-key hf_secret", {"password": "hf_secret"}],
        },
        "setup": "export HF_TOKEN=hf_secret && run",
    }
    config = {**SMALL["backend"]["sglang_config"]["decode"], "max-lost-tokens": 77}
    backend = {**SMALL["backend"], "sglang_config": {**SMALL["backend"]["sglang_config"], "decode": config}}
    made = imported({**SMALL, **told, "backend": backend})
    assert "hf_secret" not in as_yaml(made.spec, "x")
    assert made.spec.unmapped["setup"] == "export HF_TOKEN=(not kept) && run"
    assert made.spec.unmapped["backend.sglang_config.decode.max-lost-tokens"] == 77


def test_an_imported_stack_loads_again_and_has_no_error(made: Imported, tmp_path: Path) -> None:
    file = again(made, tmp_path)
    assert load_stack(file).digest == made.spec.digest
    assert [fault for fault in faults_of_file(file) if fault.severity == "error"] == []


def test_the_second_layout_with_roles_args_and_env_reads_the_same() -> None:
    config = SMALL["backend"]["sglang_config"]
    roles = {
        "prefill": {
            "nodes": 1,
            "workers": 1,
            "args": config["prefill"],
            "env": SMALL["backend"]["prefill_environment"],
        },
        "decode": {"nodes": 2, "workers": 2, "args": config["decode"], "env": SMALL["backend"]["decode_environment"]},
    }
    rest = {name: value for name, value in SMALL.items() if name != "backend"}
    second = imported({**rest, "schema": 2, "engine": "sglang", "roles": roles}).spec
    first = imported(SMALL).spec
    nothing: dict[str, Any] = {"unmapped": {}, "unmapped_why": {}}
    assert second.model_copy(update=nothing) == first.model_copy(update=nothing)


def test_an_aggregated_recipe_is_one_server() -> None:
    aggregated = {**SMALL["backend"]["sglang_config"]["prefill"], "disaggregation-mode": None}
    backend = {"sglang_config": {"aggregated": aggregated}, "aggregated_environment": {}}
    made = imported({**SMALL, "backend": backend, "resources": {"agg_workers": 3, "gpu_type": "h200"}})
    assert set(made.spec.roles) == {"server"}
    assert made.spec.unmapped["resources.agg_workers"] == 3
    assert [fault for fault in faults_of(made.spec) if fault.severity == "error"] == []


def test_variants_are_merged_zipped_and_chosen_by_name() -> None:
    document = {
        "base": SMALL,
        "override_small": {"backend": {"sglang_config": {"prefill": {"kv_cache_dtype": None}}}},
        "zip_override_ranks": {
            "backend": {"sglang_config": {"prefill": {"tensor-parallel-size": [4, 8], "mem-fraction-static": [0.8]}}}
        },
    }
    first = imported(document)
    assert first.spec.name == "small-one-small"
    assert any("zip_override_ranks[1]" in note.message for note in first.notes)
    second = imported(document, "zip_override_ranks[0]").spec
    assert second.name == "small-one-ranks-0"
    assert second.roles["prefill"].parallelism.tp == 4
    assert second.roles["prefill"].arguments["mem-fraction-static"] == 0.8
    assert imported(document, "base").spec.name == "small-one"
    with pytest.raises(BadInput, match="no variant `override_large`") as refused:
        imported(document, "override_large")
    assert "`override_small`" in refused.value.hint


def test_the_first_point_of_a_sweep_is_taken_and_said() -> None:
    config = {"prefill": {**OPTIONS, "mem-fraction-static": "{mem}"}, "decode": OPTIONS}
    swept = {**SMALL, "backend": {"sglang_config": config}, "sweep": {"mem": [0.7, 0.8]}}
    made = imported(swept)
    assert made.spec.roles["prefill"].arguments["mem-fraction-static"] == 0.7
    assert any("mem = 0.7" in note.message for note in made.notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backend": {"type": "vllm", "sglang_config": {}}}, "`backend.type` is `vllm`"),
        ({"backend": None}, "no `backend.sglang_config`"),
        ({"backend": [1]}, "`backend` is no mapping"),
        ({"backend": {"sglang_config": {"prefill": OPTIONS}}}, "`prefill`"),
        ({"backend": {"sglang_config": {"prefill": [1], "decode": OPTIONS}}}, "no mapping of options"),
        ({"model": None}, "`model.path` is missing"),
        ({"model": {"container": "x"}}, "`model.path` is missing"),
        ({"resources": {"prefill_workers": "many"}}, "`resources.prefill_workers` is `many`"),
        ({"resources": 8}, "`resources` is no mapping"),
    ],
)
def test_what_is_no_recipe_for_sglang_is_bad_input_that_says_why(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as refused:
        imported({**SMALL, **change})
    assert words in refused.value.message


def test_lists_of_different_lengths_cannot_be_zipped() -> None:
    change = {"resources": {"prefill_nodes": [1, 2], "decode_nodes": [1, 2, 3]}}
    with pytest.raises(BadInput, match="side by side"):
        imported({"base": SMALL, "zip_override_x": change})


@pytest.mark.skipif(not RECIPES, reason=f"no published recipes: put them into {PUBLISHED.parent.name}/{PUBLISHED.name}")
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_published_recipe_becomes_a_stack_that_loads_and_has_no_error(path: Path, tmp_path: Path) -> None:
    made = imported(read_mapping(path))
    file = again(made, tmp_path)
    assert load_stack(file) == made.spec
    assert [fault for fault in faults_of_file(file) if fault.severity == "error"] == []
    simulated = "SGLANG_SIMULATE_ACC_LEN" in path.read_text()
    assert any("accuracy" in note.message for note in made.notes) == simulated
    stated = yaml.safe_load(path.read_text())["backend"]["sglang_config"]
    expressed = {name for role in made.spec.roles.values() for name in role.arguments} | set(made.spec.unmapped)
    assert expressed
    assert all(len(options) > 3 for options in stated.values())
