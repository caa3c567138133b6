"""kda_cpu: its catalogue is honest about what it is, and its splice fits the function of SGLang that it replaces."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from serving.engine_env import CPU_STAND_INS
from serving.home import located
from tasks.hypothesis_file import load_hypothesis
from tasks.problem import KERNELS, load_problem

FOLDER = KERNELS / "kda_cpu"
PARITY = """
import json, sys
import torch
sys.path.insert(0, ".")
import splice
splice.install()
from sglang.srt.layers.attention.linear.kernels.kda_triton import TritonKDAKernel
given = torch.load("given.pt")
out = TritonKDAKernel().decode(**given)
torch.save({"out": out, "state": given["ssm_states"]}, "found.pt")
"""


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def as_in_the_engine(requests: int = 3, heads: int = 4, width: int = 32) -> dict[str, object]:
    """What `KDAAttnBackend.forward_decode` hands on: views into one projection, flat gates, parameters with four axes."""
    draw = torch.Generator().manual_seed(5)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw)

    parts = randn(requests, 3 * heads * width).split([heads * width] * 3, -1)
    q, k, v = (x.unflatten(-1, (heads, width)).unsqueeze(0) for x in parts)
    return {
        "q": q, "k": k, "v": v, "a": randn(requests, heads * width), "b": randn(1, requests, heads),
        "A_log": randn(1, 1, heads, 1), "dt_bias": randn(heads * width), "ssm_states": randn(5, heads, width, width),
        "cache_indices": torch.tensor([4, 0, 2], dtype=torch.int32),
        "query_start_loc": torch.arange(requests + 1, dtype=torch.int32), "lower_bound": -5.0,
    }  # fmt: skip


def expected(given: dict[str, object]) -> dict[str, torch.Tensor]:
    q, k, v, a, b = (given[x] for x in "qkvab")
    heads, width = k.shape[-2:]  # type: ignore[attr-defined]
    tensors = {"q": q[0], "k": k[0], "v": v[0], "b": b[0], "a": a.unflatten(-1, (heads, width))}  # type: ignore[index,attr-defined]
    tensors |= {"A_log": given["A_log"].flatten(), "dt_bias": given["dt_bias"].unflatten(-1, (heads, width))}  # type: ignore[attr-defined]
    tensors |= {"state": given["ssm_states"], "state_index": given["cache_indices"]}
    found = module("reference").step(tensors, {"scale": width**-0.5, "lower_bound": given["lower_bound"]})
    return dict(found)


def adapter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setitem(sys.modules, "candidate", module("incumbent"))
    return module("splice")


@pytest.mark.parametrize("lower_bound", [-5.0, None])
def test_the_splice_maps_the_engines_layouts_to_those_of_the_definition(
    lower_bound: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = as_in_the_engine() | {"lower_bound": lower_bound}
    exact = expected(given)
    renamed = {"ssm_states": "initial_state_source", "cache_indices": "initial_state_indices"}
    renamed["query_start_loc"] = "cu_seqlens"
    named = {renamed.get(name, name): x for name, x in given.items()}
    out = adapter(monkeypatch).decode(is_kda=True, use_qk_l2norm_in_kernel=True, softplus_threshold=20.0, **named)
    torch.testing.assert_close(out[0].double(), exact["out"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(given["ssm_states"].double(), exact["state"], rtol=1e-5, atol=1e-5)  # type: ignore[attr-defined]


def test_what_is_no_plain_decode_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = as_in_the_engine()
    names = ("A_log", "dt_bias", "q", "k", "v", "a", "b", "cu_seqlens")
    named = {name: given.get(name) for name in names} | {
        "initial_state_source": given["ssm_states"],
        "initial_state_indices": given["cache_indices"],
    }
    for other in ({"disable_state_update": True}, {"is_kda": False}, {"retrieve_parent_token": torch.zeros(1)}):
        with pytest.raises(NotImplementedError):
            adapter(monkeypatch).decode(**named, **other)


@pytest.mark.engine
def test_the_splice_takes_the_place_of_the_function_in_the_installed_sglang(tmp_path: Path) -> None:
    engine = located(os.environ.get("INFRA_AGENT_ENGINE", ".venv-engine")) / "bin" / "python"
    if not engine.exists():
        pytest.skip("no engine environment; make one with: make engine")
    for source, name in (("splice", "splice"), ("incumbent", "candidate")):
        (tmp_path / f"{name}.py").write_text((FOLDER / f"{source}.py").read_text())
    (tmp_path / "parity.py").write_text(PARITY)
    given = as_in_the_engine()
    torch.save(given, tmp_path / "given.pt")
    done = subprocess.run(
        [engine, "-P", "parity.py"], cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(CPU_STAND_INS), "SGLANG_USE_CPU_ENGINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found, exact = torch.load(tmp_path / "found.pt"), expected(given)
    torch.testing.assert_close(found["out"][0].double(), exact["out"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found["state"].double(), exact["state"], rtol=1e-5, atol=1e-5)


def test_every_hypothesis_of_the_catalogue_is_asked_of_a_cpu() -> None:
    files = sorted((FOLDER / "hypotheses").glob("*.yaml"))
    assert len(files) >= 4
    assert {load_hypothesis(path).target.model_dump().get("runs_on") for path in files} == {"cpu"}


def test_shares_of_the_production_steps_add_up_to_one() -> None:
    assert sum(x.share for x in load_problem("kda_cpu").workloads.timings) == pytest.approx(1)
    assert json.loads((FOLDER / "workloads.json").read_text())["version"] == 1
