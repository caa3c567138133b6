"""Lets modules that define Triton kernels import; starting a kernel raises, with its name."""

from collections.abc import Callable
from typing import Any

from absent_names import Absent, AbsentSubmodules, absent_attributes

__version__ = "0.0+infra.agent"


class JITFunction(Absent):
    """A kernel that was defined but cannot run; `kernel[grid](...)` raises."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(f"triton kernel {function.__module__}.{function.__qualname__}")
        self.fn, self.__doc__, self.__module__ = function, function.__doc__, function.__module__


def jit(function: Callable[..., Any] | None = None, **_options: Any) -> Any:
    """Both forms: `@jit` and `@jit(...)`."""
    return JITFunction(function) if function is not None else JITFunction


def autotune(*_args: Any, **_options: Any) -> Callable[[Any], Any]:
    return lambda kernel: kernel


heuristics = autotune


class Config:
    def __init__(self, kwargs: dict[str, Any], **options: Any) -> None:
        self.kwargs, self.options = kwargs, options


def cdiv(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)


def next_power_of_2(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


AbsentSubmodules("triton")
__getattr__ = absent_attributes("triton")
