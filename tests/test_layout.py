"""The import arrow flows → tasks → serving, and the habits that keep the tree readable."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FORBIDDEN = {
    "serving": {"tasks", "flows", "kernels", "prefect"},
    "tasks": {"flows", "kernels", "prefect"},
    "flows": {"kernels"},
    "kernels": {"flows", "tasks", "serving"},
}
SOURCES = [path for package in FORBIDDEN for path in (ROOT / package).rglob("*.py")]


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert not imported(path) & FORBIDDEN[package]


def test_kernels_cannot_be_imported() -> None:
    assert not list((ROOT / "kernels").rglob("__init__.py"))


@pytest.mark.parametrize(
    ("file", "more"),
    [
        ("cli.py", {"flows", "signal", "types"}),
        ("stack_command.py", {"collections", "typing", "flows"}),
        ("stack_running.py", {"collections", "typing", "flows"}),
        ("result_file.py", {"stat", "tempfile"}),
    ],
)
def test_the_command_imports_nothing_heavy_before_it_knows_what_to_do(file: str, more: set[str]) -> None:
    tree = ast.parse((ROOT / "flows" / file).read_text())
    top = {name for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) for name in _modules(node)}
    assert top <= {"os", "sys", "pathlib", "click", "serving"} | more


def _modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    return {(node.module or "").split(".")[0]}


LOCKS = sorted((ROOT / "infra" / "requirements").glob("*.lock"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_locks_hold_exact_versions_and_no_address(lock: Path) -> None:
    lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+( ;.*)?", line), line


@pytest.mark.parametrize("lock", [lock for lock in LOCKS if "gpu" not in lock.name], ids=lambda p: p.name)
def test_locks_for_a_cpu_hold_no_cuda_wheel(lock: Path) -> None:
    """Gigabytes that a machine without a GPU cannot use; the GPU engine cannot do without them. One only asks the driver."""
    wheels = [line for line in lock.read_text().splitlines() if line.startswith(("nvidia-", "cuda-"))]
    assert [line for line in wheels if not line.startswith("nvidia-ml-py==")] == []


def test_the_engines_for_cpu_and_gpu_serve_the_same_sglang_with_their_own_mooncake() -> None:
    folder = ROOT / "infra" / "requirements"
    cpu, gpu = (folder / "engine-nodeps.txt").read_text(), (folder / "engine-gpu.lock").read_text()
    versions = {re.search(r"^sglang==(.+)$", text, re.MULTILINE)[1] for text in (cpu, gpu)}  # type: ignore[index]
    assert len(versions) == 1
    assert "mooncake-transfer-engine-non-cuda" in cpu
    assert "mooncake-transfer-engine-cuda13" not in cpu
    assert "mooncake-transfer-engine-cuda13" in gpu
    assert "non-cuda" not in gpu
    assert "sgl-deep-ep==" in gpu
