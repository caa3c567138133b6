"""The stand-ins let SGLang import, and never answer with a made-up result."""

import os
import subprocess
import sys

import pytest

from serving.engine_env import CPU_STAND_INS


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
