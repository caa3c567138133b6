"""A candidate that runs on CPU is one thread in a sandbox; its memory and its clock are ours."""

import os
import time
from typing import Any

import numpy as np
import pytest

from serving.errors import Broken
from tasks.ending import Limits
from tasks.native import NativeFault, NativeSource, layout, native
from tasks.native_start import single_process
from tasks.no_children import no_children
from tasks.records import digest

pytestmark = pytest.mark.usefixtures("sandbox")
LIMITS = Limits(cpu_s=30, wall_s=20)
ARGUMENTS: list[dict[str, Any]] = [
    {"name": "x", "shape": (3, 5), "dtype": "float32", "role": "step"},
    {"name": "y", "shape": (3, 5), "dtype": "float32", "role": "out"},
    {"name": "factor", "value": 2.5},
    {"name": "nothing", "value": None},
]
SCALE = "import torch\ndef run(x, y, factor, nothing, *, plus=0):\n    torch.add(x * factor, plus, out=y)\n"


def test_inputs_go_in_and_results_come_out_of_the_same_memory_at_every_call() -> None:
    source = NativeSource(source=SCALE, launch={"plus": 1})
    with native(source, [ARGUMENTS, ARGUMENTS], LIMITS) as process:
        for call in (0, 1, 0):
            process.calls[call]["x"][...] = 2 + call
            process.call(call)
            assert (process.calls[call]["y"] == 2.5 * (2 + call) + 1).all()


def test_what_was_loaded_is_told_before_it_runs() -> None:
    with native(NativeSource(source=SCALE), [ARGUMENTS], LIMITS) as process:
        assert process.loaded == [digest(SCALE)]


def test_the_clock_counts_what_a_call_spends_and_nothing_while_nobody_calls() -> None:
    spend = "import time\ndef run(x, y, *rest):\n    end = time.process_time() + 0.05\n"
    spend += "    while time.process_time() < end: pass\n"
    with native(NativeSource(source=spend), [ARGUMENTS], LIMITS) as process:
        before = process.cpu_ns()
        process.call(0)
        time.sleep(0.05)
        after = process.cpu_ns()
        assert after - before >= 50_000_000
        time.sleep(0.05)
        assert process.cpu_ns() == after


def test_a_process_that_ends_or_raises_is_a_fault_with_its_line() -> None:
    with (
        pytest.raises(NativeFault, match=r"ZeroDivisionError: .* \(line 2\)"),
        native(NativeSource(source="def run(*x):\n    1 / 0\n"), [ARGUMENTS], LIMITS) as process,
    ):
        process.call(0)


def test_no_process_is_left_behind() -> None:
    with native(NativeSource(source=SCALE), [ARGUMENTS], LIMITS) as process:
        process.call(0)
    for _ in range(200):  # the kernel ends it after bubblewrap, which is waited for
        try:
            process.cpu_ns()
        except OSError:
            return
        time.sleep(0.05)
    pytest.fail("the candidate's process is still there")


def test_tensors_are_apart_and_aligned() -> None:
    (placed,), size = layout([[{"name": "a", "shape": (3,), "dtype": "int32"}, *ARGUMENTS[:2]]])
    offsets = [x["offset"] for x in placed]
    assert offsets == [0, 64, 128]
    assert size == 192


def test_a_process_that_is_not_alone_under_the_filter_is_not_used() -> None:
    with pytest.raises(Broken, match="not alone"):
        single_process(os.getpid())


def test_another_machine_than_the_filter_is_for_is_refused() -> None:
    with pytest.raises(Broken, match="aarch64"):
        no_children("aarch64")


def test_results_are_read_without_a_copy_of_the_candidate() -> None:
    with native(NativeSource(source=SCALE), [ARGUMENTS], LIMITS) as process:
        process.calls[0]["x"][...] = np.arange(15).reshape(3, 5)
        process.call(0)
        assert process.calls[0]["y"][2, 4] == 35.0
