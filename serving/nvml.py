"""What the GPUs under each role do while it is measured: memory, utilisation, power, temperature, clocks held back.

By NVML, which needs the driver and nothing else; a machine without one has no figure, and that is the reason that is given.
NEVER RUN ON A GPU YET: it was written on a machine that has none, so the first run on one is itself a test.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from statistics import fmean
from types import ModuleType
from typing import Any

import psutil
import pynvml

from serving.observables import DEVICES
from serving.summary import Measured

PERIOD_S = 1.0
NO_DRIVER = "no NVIDIA driver"
ON_CPU = "SGLANG_USE_CPU_ENGINE"
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Reasons of NVML for clocks below what was asked for. A cap of power is ordinary under full load; heat and brakes are not.
POWER_CAP = 0x04
HEAT_OR_BRAKE = 0x08 | 0x20 | 0x40 | 0x80


@dataclass(frozen=True)
class Reading:
    """One GPU at one moment; what it does not tell is None. `clock_reasons`: bits of NVML."""

    memory_bytes: float | None
    utilisation_pct: float | None
    power_w: float | None
    temperature_c: float | None
    clock_reasons: int | None


@dataclass
class Sampling:
    """Of each part by name: the GPUs that it runs on, or why they are not known; and their readings so far."""

    devices: Mapping[str, Sequence[Any] | str]
    readings: dict[str, list[list[Reading]]] = field(default_factory=dict)

    def take(self, nvml: ModuleType) -> None:
        for name, devices in self.devices.items():
            if not isinstance(devices, str):
                self.readings.setdefault(name, []).append([read(nvml, device) for device in devices])

    def told(self, names: Sequence[str]) -> dict[str, Measured]:
        """The parts of one role together. Of several samples: means; the highest temperature; shares of the samples."""
        absent = next((found for name in names if isinstance(found := self.devices.get(name, NO_DRIVER), str)), None)
        if absent is not None:
            return dict.fromkeys(DEVICES, Measured(None, absent))
        return summary([self.readings.get(name, []) for name in names])


@contextmanager
def sampled(parts: Mapping[str, Sequence[psutil.Process]], nvml: ModuleType = pynvml) -> Iterator[Sampling]:
    """Reads the GPUs of the parts once at the start and then each second, in a thread, until the block is left."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        none = error.value in (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
        yield Sampling(dict.fromkeys(parts, NO_DRIVER if none else f"NVML: {error}"))
        return
    try:
        sampling, left = Sampling(devices_under(parts, nvml)), threading.Event()
        sampling.take(nvml)
        thread = threading.Thread(target=_repeat, args=(lambda: sampling.take(nvml), left), name="nvml", daemon=True)
        thread.start()
        try:
            yield sampling
        finally:
            left.set()
            thread.join()
    finally:
        nvml.nvmlShutdown()


def _repeat(work: Callable[[], None], left: threading.Event) -> None:
    while not left.wait(PERIOD_S):
        work()


def devices_under(parts: Mapping[str, Sequence[psutil.Process]], nvml: ModuleType) -> dict[str, Sequence[Any] | str]:
    """By part, the GPUs that one of its processes computes on, or why they are not known.

    NVML names processes by the pids of the host. In a container none of ours is among them; then the part has what its
    CUDA_VISIBLE_DEVICES says. The two count GPUs alike where all are of one kind, or CUDA_DEVICE_ORDER is PCI_BUS_ID.
    """
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        busy = [{one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)} for handle in handles]
    except nvml.NVMLError as error:
        return dict.fromkeys(parts, f"NVML: {error}")
    ours = {name: {process.pid for process in processes} for name, processes in parts.items()}
    if any(pids & computing for pids in ours.values() for computing in busy):
        found = {name: [h for h, pids in zip(handles, busy, strict=True) if pids & mine] for name, mine in ours.items()}
        return {name: devices or "none of its processes computes on a GPU" for name, devices in found.items()}
    return {name: _visible_to(processes, handles, nvml) for name, processes in parts.items()}


def _visible_to(processes: Sequence[psutil.Process], handles: Sequence[Any], nvml: ModuleType) -> Sequence[Any] | str:
    environment: dict[str, str] = {}
    for process in processes:
        with suppress(psutil.Error):
            environment = environment or process.environ()
    if environment.get(ON_CPU) == "1":
        return "it runs on the CPU"
    stated = environment.get(VISIBLE)
    if not stated:
        return f"NVML shows none of its processes on a GPU, and `{VISIBLE}` is not set"
    try:
        words = [word.strip() for word in stated.split(",")]
        return [handles[int(word)] if word.isdigit() else nvml.nvmlDeviceGetHandleByUUID(word) for word in words]
    except (IndexError, nvml.NVMLError):
        return f"`{VISIBLE}={stated}` names no GPU that NVML knows"


def read(nvml: ModuleType, device: Any) -> Reading:
    """The GPU now. Changes nothing."""

    def asked(question: Callable[..., Any], *more: object) -> Any:
        with suppress(nvml.NVMLError):
            return question(device, *more)
        return None

    memory, used = asked(nvml.nvmlDeviceGetMemoryInfo), asked(nvml.nvmlDeviceGetUtilizationRates)
    power_mw = asked(nvml.nvmlDeviceGetPowerUsage)
    return Reading(
        memory_bytes=None if memory is None else float(memory.used),
        utilisation_pct=None if used is None else float(used.gpu),
        power_w=None if power_mw is None else power_mw / 1e3,
        temperature_c=asked(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        clock_reasons=asked(nvml.nvmlDeviceGetCurrentClocksEventReasons),
    )


def summary(parts: Sequence[Sequence[Sequence[Reading]]]) -> dict[str, Measured]:
    """Of the GPUs of several parts, each with its samples, each with one reading a GPU.

    Memory and power are summed over GPUs; a sample counts as held back when one of its GPUs is.
    """
    samples = [[reading for gpu in moment for reading in gpu] for moment in zip(*parts, strict=False)]

    def over(value: Callable[[list[float]], float], end: Callable[[list[float]], float], name: str) -> Measured:
        known = [[getattr(reading, name) for reading in sample] for sample in samples]
        if not known or any(x is None for sample in known for x in sample):
            return Measured(None, "a GPU does not tell")
        return Measured(end([value(sample) for sample in known]))

    def share(bits: int) -> Measured:
        return over(lambda sample: 100.0 * any(int(x) & bits for x in sample), fmean, "clock_reasons")

    memory = over(sum, fmean, "memory_bytes")
    return {
        "gpu_memory_gb": memory if memory.value is None else Measured(memory.value / 1e9),
        "gpu_utilisation_pct": over(fmean, fmean, "utilisation_pct"),
        "gpu_power_w": over(sum, fmean, "power_w"),
        "gpu_temperature_c": over(max, max, "temperature_c"),
        "gpu_power_capped_pct": share(POWER_CAP),
        "gpu_held_back_pct": share(HEAT_OR_BRAKE),
    }
