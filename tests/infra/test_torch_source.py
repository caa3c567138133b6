"""Where set-up takes torch from."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "infra" / "torch_source.py"
spec = importlib.util.spec_from_file_location("torch_source", SCRIPT)
assert spec is not None
assert spec.loader is not None
torch_source = importlib.util.module_from_spec(spec)
spec.loader.exec_module(torch_source)

CUDA = ["filelock", "nvidia-cublas-cu13==13.0; platform_system == 'Linux'"]
CPU = ["filelock", "sympy>=1.13"]


@pytest.mark.parametrize(
    ("chosen", "driver", "requires", "index"),
    [
        (None, False, CPU, None),
        (None, False, CUDA, torch_source.CPU_INDEX),
        (None, False, None, torch_source.CPU_INDEX),
        (None, True, CUDA, None),
        ("file:///wheels", False, CPU, "file:///wheels"),
        ("file:///wheels", True, None, "file:///wheels"),
    ],
)
def test_another_index_is_contacted_only_when_the_plain_name_would_bring_cuda(
    chosen: str | None, driver: bool, requires: list[str] | None, index: str | None
) -> None:
    assert torch_source.options(chosen, driver, requires) == (["--index-url", index] if index else [])
