"""Names that can be imported but not called: so that a missing kernel is an error with its name, not a wrong result."""

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NoReturn


class Absent:
    """Stands for a function, class or value that this machine does not have. Calling or indexing it raises."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"`{self.__name__}` has no stand-in in serving/cpu; it was called on a machine without a GPU"
        )

    def __getitem__(self, _key: Any) -> NoReturn:
        self()

    def __bool__(self) -> NoReturn:
        self()

    def __getattr__(self, attribute: str) -> "Absent":
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self.__name__}.{attribute}")

    def __repr__(self) -> str:
        return f"<absent {self.__name__}>"


@functools.cache
def absent(name: str) -> Any:
    """An `Absent`, or for a capitalised name a class, so that it works in `isinstance` and as a base; made once."""
    last = name.rpartition(".")[2]
    return type(last, (), {"__new__": lambda *_args, **_kwargs: Absent(name)()}) if last[:1].isupper() else Absent(name)


def absent_attributes(module: str) -> Callable[[str], Any]:
    """A module-level `__getattr__` that answers every public name with something absent."""

    def getattribute(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {attribute!r}")
        return absent(f"{module}.{attribute}")

    return getattribute


class AbsentSubmodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers imports of submodules of `package` for which no file exists. Must stand last in `sys.meta_path`."""

    def __init__(self, package: str) -> None:
        self.prefix = package + "."
        sys.meta_path.append(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(self.prefix):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__path__ = []
        module.__dict__["__getattr__"] = absent_attributes(spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the module has no code."""
