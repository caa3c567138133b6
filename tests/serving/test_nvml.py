"""GPUs under the roles of a stack, with a made-up NVML: nothing here has seen a GPU."""

import os
import time
from typing import Any, cast

import psutil
import pynvml
import pytest
from fake_nvml import fake_nvml

from serving.nvml import NO_DRIVER, devices_under, read, sampled
from serving.observables import DEVICES


class Process:
    """`pid` and variables are all that is asked of a process."""

    def __init__(self, pid: int, **environment: str) -> None:
        self.pid, self._environment = pid, environment

    def environ(self) -> dict[str, str]:
        if self._environment.get("DENIED"):
            raise psutil.AccessDenied(self.pid)
        return self._environment


def parts(**processes: Process) -> dict[str, list[psutil.Process]]:
    return {name: [cast(Any, process)] for name, process in processes.items()}


HOT = {"used": 4e9, "gpu": 80, "mw": 700_000, "celsius": 88, "reasons": 0x40}
COOL = {"used": 2e9, "gpu": 20, "mw": 300_000, "celsius": 40, "reasons": 0x04}


@pytest.mark.parametrize("number", [9, 12])
def test_without_a_driver_every_figure_is_unknown_for_that_reason(number: int) -> None:
    with sampled(parts(decode=Process(1)), fake_nvml(driver_error=number)) as gpus:
        pass
    told = gpus.told(["decode"])
    assert set(told) == set(DEVICES)
    assert {(one.value, one.reason) for one in told.values()} == {(None, NO_DRIVER)}


def test_another_fault_of_nvml_is_said_as_it_is() -> None:
    with sampled(parts(decode=Process(1)), fake_nvml(driver_error=18)) as gpus:
        pass
    assert gpus.told(["decode"])["gpu_power_w"].reason == "NVML: error 18"


def test_the_names_that_we_use_are_in_the_library() -> None:
    offered = vars(fake_nvml())
    assert [name for name in offered if name.startswith(("nvml", "NVML")) and not hasattr(pynvml, name)] == []
    for name in ("HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown"):
        assert getattr(pynvml, f"nvmlClocksEventReason{name}") & 0xE8
    assert pynvml.nvmlClocksEventReasonSwPowerCap == 0x04


def test_a_role_has_the_gpus_that_its_processes_compute_on() -> None:
    nvml = fake_nvml({"pids": [7], **HOT}, {"pids": [8, 99], **COOL}, {"pids": [99], **HOT})
    found = devices_under(parts(prefill=Process(7), decode=Process(8), router=Process(9)), nvml)
    assert [len(devices) for devices in found.values()][:2] == [1, 1]
    assert cast(Any, found["decode"])[0]["celsius"] == 40
    assert found["router"] == "none of its processes computes on a GPU"


def test_where_nvml_shows_no_pid_of_ours_the_variable_decides() -> None:
    nvml = fake_nvml({"uuid": "GPU-a", **HOT}, {"uuid": "GPU-b", **COOL})
    found = devices_under(
        parts(
            prefill=Process(7, CUDA_VISIBLE_DEVICES="1"),
            decode=Process(8, CUDA_VISIBLE_DEVICES="GPU-a,GPU-b"),
            encode=Process(9, SGLANG_USE_CPU_ENGINE="1", CUDA_VISIBLE_DEVICES="0"),
            router=Process(10),
            server=Process(11, CUDA_VISIBLE_DEVICES="5"),
            hidden=Process(12, DENIED="1"),
        ),
        nvml,
    )
    assert [gpu["uuid"] for gpu in cast(Any, found["prefill"])] == ["GPU-b"]
    assert [gpu["uuid"] for gpu in cast(Any, found["decode"])] == ["GPU-a", "GPU-b"]
    assert found["encode"] == "it runs on the CPU"
    assert "`CUDA_VISIBLE_DEVICES` is not set" in str(found["router"])
    assert found["server"] == "`CUDA_VISIBLE_DEVICES=5` names no GPU that NVML knows"
    assert "is not set" in str(found["hidden"])


def test_gpus_of_a_role_are_summed_or_averaged_and_one_that_is_held_back_holds_the_role_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("serving.nvml.PERIOD_S", 0.01)
    pid, cooling = os.getpid(), {"pids": [os.getpid()], **COOL, "reasons": [0x04, 0x0C, 0x01]}
    with sampled({"decode-0": [psutil.Process()]}, fake_nvml({"pids": [pid], **HOT, "reasons": 0}, cooling)) as gpus:
        while len(gpus.readings["decode-0"]) < 4:
            time.sleep(0.01)
    told = {name: one.value for name, one in gpus.told(["decode-0"]).items()}
    samples = len(gpus.readings["decode-0"])
    assert told["gpu_memory_gb"] == pytest.approx(6)
    assert told["gpu_utilisation_pct"] == pytest.approx(50)
    assert told["gpu_power_w"] == pytest.approx(1000)
    assert told["gpu_temperature_c"] == 88
    assert told["gpu_held_back_pct"] == pytest.approx(100 / samples)
    assert told["gpu_power_capped_pct"] == pytest.approx(200 / samples)


def test_what_a_gpu_does_not_tell_is_unknown_and_the_rest_is_not() -> None:
    silent = {"pids": [os.getpid()], "used": 1e9}
    assert read(fake_nvml(silent), silent).power_w is None
    with sampled({"decode": [psutil.Process()]}, fake_nvml(silent)) as gpus:
        pass
    told = gpus.told(["decode"])
    assert told["gpu_memory_gb"].value == 1
    assert (told["gpu_power_w"].value, told["gpu_power_w"].reason) == (None, "a GPU does not tell")
