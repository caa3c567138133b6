"""A module like `pynvml` for GPUs that a test makes up."""

from types import ModuleType
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


class Fields:
    def __init__(self, **fields: float) -> None:
        self.__dict__.update(fields)


def fake_nvml(*gpus: dict[str, Any], driver_error: int | None = None) -> ModuleType:
    """`gpus`: each with `pids`, `used` (bytes), `gpu` (%), `mw`, `celsius`, `reasons`, `uuid`; what is absent is not supported.

    A value that is a list is what the readings give, one after the other, the last one for ever.
    """
    made = ModuleType("fake_nvml")

    def init() -> None:
        if driver_error is not None:
            raise NVMLError(driver_error)

    def ask(gpu: dict[str, Any], name: str) -> Any:
        if name not in gpu:
            raise NVMLError(3)
        value = gpu[name]
        return (
            value.pop(0)
            if isinstance(value, list) and len(value) > 1
            else value[0]
            if isinstance(value, list)
            else value
        )

    def by_uuid(uuid: str) -> dict[str, Any]:
        found = next((gpu for gpu in gpus if gpu.get("uuid") == uuid), None)
        if found is None:
            raise NVMLError(6)
        return found

    offered: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVML_ERROR_DRIVER_NOT_LOADED": 9,
        "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": init,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: len(gpus),
        "nvmlDeviceGetHandleByIndex": lambda index: gpus[index],
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [Fields(pid=pid) for pid in gpu.get("pids", ())],
        "nvmlDeviceGetMemoryInfo": lambda gpu: Fields(used=ask(gpu, "used")),
        "nvmlDeviceGetUtilizationRates": lambda gpu: Fields(gpu=ask(gpu, "gpu")),
        "nvmlDeviceGetPowerUsage": lambda gpu: ask(gpu, "mw"),
        "nvmlDeviceGetTemperature": lambda gpu, sensor: ask(gpu, "celsius"),
        "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: ask(gpu, "reasons"),
    }
    for name, value in offered.items():
        setattr(made, name, value)
    return made
