"""The stand-ins let SGLang import, and never answer with a made-up result."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from serving.engine_env import CPU_STAND_INS

ROOT = Path(__file__).parents[2]


def run(code: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(CPU_STAND_INS), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_another_version_of_sglang_is_refused_with_what_to_do() -> None:
    done = run("import importlib.metadata as m; m.version = lambda name: '9.9.9'; import sglang")
    assert done.returncode == 1
    assert "9.9.9" in done.stderr
    assert "hint:" in done.stderr


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import triton.language as tl; tl.sum(1)", "triton.language.sum"),
        ("from triton.language.extra import libdevice; libdevice.exp(1)", "triton.language.extra.libdevice.exp"),
        ("import triton\n@triton.jit\ndef add(x): ...\nadd[(1,)](0)", "triton kernel __main__.add"),
        ("import triton\n@triton.jit(debug=True)\ndef add(x): ...\nadd(0)", "triton kernel __main__.add"),
        ("from triton.runtime.jit import JITCallable; JITCallable()", "triton.runtime.jit.JITCallable"),
        ("import triton\nif triton.something: pass", "triton.something"),
    ],
)
def test_what_is_not_there_can_be_imported_and_raises_its_name_when_used(code: str, name: str) -> None:
    done = run(code)
    assert done.returncode == 1
    assert f"NotImplementedError: `{name}`" in done.stderr


def test_what_module_bodies_evaluate_works() -> None:
    code = """
import triton
import triton.language as tl
SIZE = tl.constexpr(4)
@triton.autotune(configs=[triton.Config({"BLOCK": 1}, num_warps=2)], key=[])
@triton.jit
def kernel(x, BLOCK: tl.constexpr): ...
assert SIZE.value == 4 and triton.cdiv(7, 2) == 4
assert [triton.next_power_of_2(n) for n in (1, 2, 3, 9)] == [1, 2, 4, 16]
from triton.runtime.jit import JITFunction
assert not isinstance(1, JITFunction)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [("put('gone', 'json')", "`m` has no `gone`"), ("given('there', 'json')", "`m` already has a `there`")],
)
def test_a_module_that_is_not_as_the_pinned_release_has_it_ends_the_process(change: str, said: str) -> None:
    done = run(f"import types, replaced_names as r; m = types.ModuleType('m'); m.there = 1; r.{change}(m)")
    assert done.returncode == 1
    assert said in done.stderr
    assert "hint:" in done.stderr


def test_what_a_winner_of_kda_cpu_replaces_is_a_name_that_serving_cpu_gives() -> None:
    definition = yaml.safe_load((ROOT / "kernels" / "kda_cpu" / "definition.yaml").read_text())
    module, _, name = definition["splice"]["replaces"].rpartition(".")
    code = f"""
import types, replaced_names
module = types.ModuleType({module!r})
for change in replaced_names.AFTER_IMPORT[{module!r}]:
    change(module)
print(module.{name}.__module__)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "sgl_kernel.linear_attention\n"
