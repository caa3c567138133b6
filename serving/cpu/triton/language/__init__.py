"""Only what module bodies evaluate when they define a kernel: `constexpr` values and type names."""

from typing import Any

from absent_names import absent_attributes


class constexpr:
    """Holds a compile-time value; also used as an annotation."""

    def __init__(self, value: Any = None) -> None:
        self.value = value


__getattr__ = absent_attributes("triton.language")
