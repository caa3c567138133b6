"""A stack of encode, prefill, decode and router whose engine is tests/fake_engine.py: it starts in a second."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from fake_engine import engine_folder

from serving.stack import StackSpec, load_stack

ROOT = Path(__file__).parents[1]
ROLES = ("encode", "prefill", "decode", "router")
# Options that SGLang takes for a stack on a CPU: a fake one is checked before it starts like any other.
ON_CPU: dict[str, Any] = {"device": "cpu", "disable-radix-cache": True, "enable-metrics": True}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "encode": ON_CPU,
    "prefill": ON_CPU,
    "decode": {**ON_CPU, "disaggregation-decode-retraction-backup": "cpu_tensor"},
    "router": {"policy": "round_robin"},
}


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def stack_file(folder: Path, environments: Mapping[str, dict[str, str]] | None = None, **top: Any) -> Path:
    """A YAML file in `folder`, with a checkpoint and an engine beside it. `environments`: variables by role."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    engine, ports = engine_folder(folder / "engine"), free_ports(6)
    roles: dict[str, dict[str, Any]] = {
        role: {
            "port": port,
            "engine": str(engine),
            "environment": (environments or {}).get(role, {}),
            "arguments": dict(ARGUMENTS[role]),
        }
        for role, port in zip(ROLES, ports, strict=False)
    }
    roles["prefill"]["bootstrap_port"], roles["router"]["prometheus_port"] = ports[4:]
    content = {"name": "fake", "model": str(model), "ready_timeout_s": 60, "roles": roles, **top}
    file = folder / "fake.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def fake_stack(folder: Path, environments: Mapping[str, dict[str, str]] | None = None, **top: Any) -> StackSpec:
    return load_stack(stack_file(folder, environments, **top))


def python(code: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A process of its own that sees our packages."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, env=dict(os.environ), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def wait_until(true: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
