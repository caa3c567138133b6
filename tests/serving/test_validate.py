"""Faults planted in a stack that is clean, one at a time: each is found, and its field is named."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.errors import BadInput
from serving.faults import Fault
from serving.scenario import load_scenario
from serving.validate import faults_of_file, memory_of_file

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("known_options")]

STACKS = Path(__file__).parents[2] / "serving" / "stacks"
H200, EPD, CPU, ONE = "glm-5.3-flash-h200", "glm-5.3-flash-epd-h200", "tiny-glm53-epd-cpu", "tiny-glm-cpu"
ABSENT = object()


def faults(stack: str, changes: dict[str, Any], folder: Path) -> list[Fault]:
    """The faults of a shipped stack with `changes` made by path (`/` between keys); `ABSENT` takes a key away."""
    document = copy.deepcopy(yaml.safe_load((STACKS / f"{stack}.yaml").read_text()))
    for path, value in changes.items():
        *way, last = path.split("/")
        part = document
        for key in way:
            part[key] = copy.deepcopy(part.get(key) or {})  # parts may be shared by an anchor
            part = part[key]
        if value is ABSENT:
            del part[last]
        else:
            part[last] = value
    file = folder / "stack.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return faults_of_file(file)


# stack, what is planted, field that must be named, words of the message
PLANTED: list[tuple[str, dict[str, Any], str, str]] = [
    (ONE, {"roles/server/arguments/chunked-prefil-size": 64}, "roles.server.arguments.chunked-prefil-size", "no such"),
    (ONE, {"roles/server/arguments/schedule-policy": "soon"}, "roles.server.arguments.schedule-policy", "not one of"),
    (ONE, {"roles/server/arguments/max-total-tokens": "many"}, "roles.server.arguments.max-total-tokens", "integer"),
    (ONE, {"roles/server/arguments/enable-metrics": False}, "roles.server.arguments.enable-metrics", "must be"),
    (ONE, {"roles/server/arguments/host": "0.0.0.0"}, "roles.server.arguments.host", "launcher"),
    (ONE, {"roles/server/arguments/extra-metric-labels": "{a"}, "roles.server.arguments.extra-metric-labels", "JSON"),
    (
        ONE,
        {"roles/server/arguments/json-model-override-args": "{"},
        "roles.server.arguments.json-model-override-args",
        "JSON",
    ),
    (
        ONE,
        {"roles/server/arguments/model-loader-extra-config": "[]"},
        "roles.server.arguments.model-loader-extra-config",
        "object",
    ),
    (ONE, {"speculative": {"algorithm": "nope"}}, "speculative.algorithm", "not one of"),
    (CPU, {"transfer/backend": "pigeon"}, "transfer.backend", "not one of"),
    (CPU, {"transfer/encoder": "pigeon"}, "transfer.encoder", "not one of"),
    (H200, {"moe/runner": "pigeon"}, "moe.runner", "not one of"),
    (H200, {"moe/all_to_all": "pigeon"}, "moe.all_to_all", "not one of"),
    (H200, {"quantization/weights": "pigeon"}, "quantization.weights", "not one of"),
    (H200, {"hicache": {"write_policy": "soon"}}, "hicache.write_policy", "not one of"),
    (ONE, {"roles/server/environment/LD_PRELOAD": "x.so"}, "roles.server.environment.LD_PRELOAD", "may be changed"),
    (
        ONE,
        {"roles/server/environment/SGLANG_SIMULATE_ACC_LEN": "3"},
        "roles.server.environment.SGLANG_SIMULATE_ACC_LEN",
        "pretend",
    ),
    (ONE, {"roles/server/port": 80}, "roles.server.port", "1024"),
    (ONE, {"roles/server/port": "31000"}, "roles.server.port", "integer"),
    (ONE, {"roles/server/port": 31000.0}, "roles.server.port", "integer"),
    (ONE, {"roles/server/count": True}, "roles.server.count", "integer"),
    (ONE, {"roles/server/resources": {"gpus": "8"}}, "roles.server.resources.gpus", "integer"),
    (ONE, {"roles/server/parallelism": {"tp": "1"}}, "roles.server.parallelism.tp", "integer"),
    (ONE, {"hicache": {"size_gb": 2.0}}, "hicache.size_gb", "integer"),
    (ONE, {"ready_timeout_s": "90"}, "ready_timeout_s", "number"),
    (ONE, {"roles/server/port": ABSENT}, "roles.server", "`port`"),
    (ONE, {"roles/server/count": 2}, "(whole file)", "one server"),
    (ONE, {"roles/decode": {"port": 31500}}, "roles", "`decode`"),
    (ONE, {"transfer": {"backend": "mooncake"}}, "transfer", "ignored"),
    (ONE, {"quantization": {"kda_state": "bfloat16"}}, "quantization.kda_state", "no linear attention"),
    (ONE, {"quantization": {"weights": "fp8"}}, "quantization.weights", "AMX"),
    (ONE, {"quantization": {"kv": "fp8_e4m3"}}, "quantization.kv", "AMX"),
    (ONE, {"quantization": {"kv": "int8"}}, "quantization.kv", "not one of"),
    (ONE, {"hicache": {"size_gb": 2}}, "hicache", "takes away"),
    (ONE, {"moe": {"all_to_all": "deepep"}}, "moe.all_to_all", "needs GPUs"),
    (ONE, {"roles/server/parallelism": {"tp": 3}}, "roles.server.parallelism.tp", "attention heads"),
    (ONE, {"roles/server/resources": {"memory_gb": 0.01}}, "roles.server.arguments.max-total-tokens", "may take"),
    (
        H200,
        {"roles/server/resources/gpu_memory_gb": 8},
        "roles.server.parallelism.tp",
        "may take 0 bytes of the 8 GB of `gpu",
    ),
    (ONE, {"roles/server/engine": "nowhere"}, "roles.server.engine", "no bin/python"),
    (ONE, {"roles/server/speed": 9}, "roles.server.speed", "unknown key"),
    (H200, {"replayssm": {"phase": "decode"}}, "replayssm.phase", "lower bound"),
    (EPD, {"replayssm": {"phase": "decode", "length": 16}}, "replayssm.phase", "not wired"),
    (
        EPD,
        {"roles/prefill/arguments/enable-linear-replayssm-spec": True},
        "roles.prefill.arguments.enable-linear-replayssm-spec",
        "never verifies",
    ),
    (H200, {"replayssm": {"phase": "verify"}}, "replayssm.phase", "nothing is verified"),
    (
        H200,
        {"roles/server/arguments/enable-linear-replayssm": True, "replayssm": {"phase": "verify"}},
        "roles.server.arguments.enable-linear-replayssm",
        "cursor",
    ),
    (
        H200,
        {"roles/server/arguments/kv-cache-dtype": "fp8_e4m3"},
        "roles.server.arguments.kv-cache-dtype",
        "contradicts",
    ),
    (
        H200,
        {"roles/server/arguments/tensor-parallel-size": 4},
        "roles.server.arguments.tensor-parallel-size",
        "contradicts",
    ),
    (H200, {"roles/server/parallelism/tp": 6}, "roles.server.parallelism.tp", "linear attention"),
    (H200, {"roles/server/parallelism/ep": 3}, "roles.server.parallelism.ep", "must divide"),
    (
        H200,
        {"roles/server/parallelism/lm_head": "attention_group"},
        "roles.server.parallelism.lm_head",
        "no attention groups",
    ),
    (
        H200,
        {"roles/server/parallelism/tp": 2, "roles/server/resources/gpus": 2},
        "roles.server.parallelism.tp",
        "weights 1",
    ),
    (H200, {"roles/server/resources/gpus": 4}, "roles.server.resources.gpus", "8 ranks"),
    (H200, {"roles/server/resources/gpus_per_node": 4}, "roles.server.parallelism.inside_node", "a node has 4"),
    (
        H200,
        {"roles/server/arguments/max-total-tokens": 20_000_000},
        "roles.server.arguments.max-total-tokens",
        "20,000,000 tokens",
    ),
    (
        H200,
        {"roles/server/arguments/max-running-requests": 8192},
        "roles.server.arguments.max-running-requests",
        "8,192 requests",
    ),
    (H200, {"quantization/index": "bfloat16"}, "quantization.index", "indexer"),
    (H200, {"quantization/kv": "fp8_e5m2"}, "quantization.kv", "sparse attention"),
    (H200, {"moe/mode": "low_latency"}, "moe.mode", "not the all-to-all"),
    (
        H200,
        {"speculative": {"algorithm": "EAGLE", "steps": 3, "topk": 1, "draft_tokens": 8}},
        "speculative.draft_tokens",
        "+ 1",
    ),
    (H200, {"roles/server/arguments/device": "cpu"}, "roles.server.arguments.context-length", "served dense"),
    (CPU, {"roles/decode/port": 31301}, "roles.decode.port", "also of the HTTP server of `prefill`"),
    (CPU, {"roles/prefill/bootstrap_port": 31303}, "roles.router.port", "bootstrap server of `prefill`"),
    (CPU, {"roles/router/prometheus_port": 31300}, "roles.router.prometheus_port", "HTTP server of `encode`"),
    (CPU, {"roles/prefill/count": 2}, "roles.decode.port", "also of the HTTP server of `prefill`"),
    (CPU, {"roles/decode/mooncake_ports": {"low": 31200, "high": 31400}}, "roles.decode.mooncake_ports", "`encode`"),
    (CPU, {"roles/decode/mooncake_ports": {"low": 9, "high": 8}}, "roles.decode.mooncake_ports.low", "1024"),
    (CPU, {"roles/decode/bootstrap_port": 31998}, "roles.decode.bootstrap_port", "ignored"),
    (CPU, {"roles/prefill/bootstrap_port": ABSENT}, "roles.prefill.bootstrap_port", "missing"),
    (CPU, {"roles/router/prometheus_port": ABSENT}, "roles.router.prometheus_port", "missing"),
    (CPU, {"roles/router/arguments/policy": "luck"}, "roles.router.arguments.policy", "not one of"),
    (CPU, {"roles/router/arguments/log-dir": "logs"}, "roles.router.arguments.log-dir", "not a way"),
    (
        CPU,
        {"roles/decode/arguments/disaggregation-decode-retraction-backup": ABSENT},
        "roles.decode.arguments.disaggregation-decode-retraction-backup",
        "needs CUDA",
    ),
    (CPU, {"roles/decode/arguments/dtype": "bfloat16"}, "roles.decode.arguments.dtype", "what one writes"),
    (CPU, {"roles/decode/url": "http://elsewhere:30000"}, "roles.decode", "not both"),
    (
        CPU,
        {"transfer/ib_device": "mlx5_0"},
        "transfer.ib_device",
        "no RDMA",
    ),
    (CPU, {"roles/encode": ABSENT}, "transfer.encoder", "no role `encode`"),
    (CPU, {"roles/router": ABSENT}, "roles.router", "this one has"),
    (
        H200,
        {"roles/server/resources/gpus": 0, "roles/server/parallelism": {}},
        "roles.server.resources.gpus",
        "`0` GPUs for 1 rank:",
    ),
]


@pytest.mark.parametrize(
    ("stack", "planted", "field", "words"), PLANTED, ids=[f"{field}-{words}" for _, _, field, words in PLANTED]
)
def test_a_planted_fault_is_an_error_that_names_its_field(
    stack: str, planted: dict[str, Any], field: str, words: str, tmp_path: Path
) -> None:
    found = [fault for fault in faults(stack, planted, tmp_path) if fault.severity == "error"]
    assert [fault for fault in found if fault.field == field and words in fault.message], found
    assert all(fault.hint for fault in found)


@pytest.mark.parametrize("stack", [path.stem for path in sorted(STACKS.glob("*.yaml"))])
def test_the_stacks_we_ship_have_no_error(stack: str, tmp_path: Path) -> None:
    assert [fault for fault in faults(stack, {}, tmp_path) if fault.severity == "error"] == []


def test_all_faults_of_a_file_are_listed_those_of_form_and_those_of_meaning(tmp_path: Path) -> None:
    planted = {
        "speed": 9,
        "roles/server/arguments/host": "x",
        "roles/server/environment/LD_PRELOAD": "x",
        "roles/server/parallelism": {"tp": 0, "ep": 1},
        "roles/server/arguments/schedule-policy": "soon",
        "hicache": {"size_gb": 2},
    }
    found = {fault.field for fault in faults(ONE, planted, tmp_path) if fault.severity == "error"}
    assert found == {
        "speed",
        "roles.server.arguments.host",
        "roles.server.environment.LD_PRELOAD",
        "roles.server.parallelism.tp",
        "roles.server.arguments.schedule-policy",
        "hicache",
    }


@pytest.mark.parametrize(
    ("changes", "files", "words"),
    [
        ({"mlp_layer_types": ["dense", "dense", "dense", "sparse"]}, [], "layer 1 is dense"),
        ({"mlp_layer_types": ["dense"] * 4, "first_k_dense_replace": None}, [], "`first_k_dense_replace` is absent"),
        ({"mhc": None}, [], "`mhc`"),
        ({"linear_lower_bound": None}, [], "`linear_lower_bound` is absent"),
        ({"index_topk": 2048}, [], "`index_kpool` is absent"),
        ({}, ["b.safetensors"], "1 of 2 weight files are missing"),
    ],
)
def test_a_checkpoint_that_sglang_and_transformers_read_differently_is_refused(
    changes: dict[str, Any], files: list[str], words: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    text = {
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "linear_num_heads": 4,
        "linear_lower_bound": -5.0,
        "first_k_dense_replace": 1,
        "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "mhc": True,
        **changes,
    }
    kept = {key: value for key, value in text.items() if value is not None}
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "glm5_next", "text_config": kept}))
    if files:
        (checkpoint / "a.safetensors").write_bytes(b"")
        index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
        (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    clean = faults(CPU, {"model": str(checkpoint)}, tmp_path)
    assert [fault for fault in clean if fault.field == "model" and words in fault.message], clean


DSA = "tiny-glm53-dsa-cpu"


def test_sparse_attention_that_a_cpu_serves_dense_is_a_warning_that_says_so(tmp_path: Path) -> None:
    (said,) = faults(DSA, {}, tmp_path)
    assert (said.field, said.severity) == ("roles.server.arguments.device", "warning")
    assert "dense attention is served in its place" in said.message


@pytest.mark.parametrize("tokens", [129, ABSENT])
def test_a_context_longer_than_its_indexer_selects_is_an_error_on_a_cpu(tokens: object, tmp_path: Path) -> None:
    found = faults(DSA, {"roles/server/arguments/context-length": tokens}, tmp_path)
    assert [fault.field for fault in found if fault.severity == "error"] == ["roles.server.arguments.context-length"]


def test_8_bit_kv_without_scales_and_bundled_tokens_are_warnings(tmp_path: Path) -> None:
    found = faults(H200, {"quantization/kv": "fp8_e4m3", "roles/server/arguments/stream-interval": 30}, tmp_path)
    assert {(fault.field, fault.severity) for fault in found} == {
        ("quantization.kv", "warning"),
        ("roles.server.arguments.stream-interval", "warning"),
    }


@pytest.mark.parametrize("model", ["./no/such/model", "/no/such/GLM-5.3-Flash-FP8", "~/model"])
def test_a_model_that_is_a_path_to_nothing_is_an_error_as_it_is_for_stack_up(model: str, tmp_path: Path) -> None:
    (said,) = (fault for fault in faults(H200, {"model": model}, tmp_path) if fault.field == "model")
    assert (said.severity, f"no folder `{model}`" in said.message) == ("error", True)


def test_a_misspelt_model_is_a_warning_that_names_the_nearest_one(tmp_path: Path) -> None:
    (said,) = (f for f in faults(H200, {"model": "zai-org/GLM-5.3-Flahs-FP8"}, tmp_path) if f.field == "model")
    assert (said.severity, said.hint) == ("warning", "did you mean `glm-5.3-flash-fp8`?")
    (said,) = (f for f in faults(H200, {"model": "some/other-model"}, tmp_path) if f.field == "model")
    assert (said.severity, said.hint) == ("warning", "validate where the checkpoint is")


@pytest.mark.parametrize(
    ("stack", "planted", "hint"),
    [
        (ONE, {"roles/server/arguments/attention-backend": "torch_nativ"}, "did you mean `torch_native`?"),
        (ONE, {"roles/server/arguments/disable-radix-cache": "yes"}, "state true or false"),
        (ONE, {"roles/server/arguments/max-total-tokens": "many"}, "state an integer"),
        (H200, {"roles/server/resources/gpu_memory_gb": -1}, "`infra-agent schema StackSpec` shows what it may be"),
    ],
)
def test_one_mistake_is_one_error_whose_hint_says_what_to_write(
    stack: str, planted: dict[str, Any], hint: str, tmp_path: Path
) -> None:
    found = faults(stack, planted, tmp_path)
    (said,) = (fault for fault in found if fault not in faults(stack, {}, tmp_path))
    assert (said.severity, said.hint) == ("error", hint)


def test_an_option_with_underscores_is_told_its_spelling(tmp_path: Path) -> None:
    (said,) = (f for f in faults(ONE, {"roles/server/arguments/chunked_prefill_size": 64}, tmp_path))
    assert "write `chunked-prefill-size`" in said.message


def test_a_scenario_is_said_to_be_one_and_nothing_else(tmp_path: Path) -> None:
    (said,) = faults_of_file(next(iter(sorted((STACKS.parent / "scenarios").glob("*.yaml")))))
    assert "looks like a scenario" in said.message
    with pytest.raises(BadInput, match="looks like a stack"):
        load_scenario(STACKS / f"{ONE}.yaml")


def test_what_an_import_left_is_one_warning_with_each_reason_once(tmp_path: Path) -> None:
    left = {"unmapped": {"a": 1, "b": 2, "c": 3}, "unmapped_why": {"a": "no such part", "b": "no such part"}}
    (said,) = (fault for fault in faults(ONE, left, tmp_path) if fault.field.startswith("unmapped"))
    assert said.severity == "warning"
    assert "3 parts" in said.message
    assert said.message.endswith("`a`, `b` (no such part); `c` (no reason is given)")


def test_the_memory_of_each_role_is_said_of_a_clean_stack_too_and_why_it_is_not_known(tmp_path: Path) -> None:
    (line,) = memory_of_file(STACKS / f"{H200}.yaml")
    assert line.startswith("memory of `server`: a rank needs at least ")
    assert "and may take " in line
    (unlimited,) = memory_of_file(STACKS / f"{DSA}.yaml")
    assert "its limit is not known: `memory_gb` is not stated" in unlimited
    assert [
        line for line in memory_of_file(STACKS / f"{EPD}.yaml") if line.endswith("not known: an encoder is not counted")
    ]
    file = tmp_path / "stack.yaml"
    file.write_text((STACKS / f"{H200}.yaml").read_text().replace("zai-org/GLM-5.3-Flash", "some/other"))
    assert memory_of_file(file) == ["memory of `server`: not known: the model's sizes are not"]
