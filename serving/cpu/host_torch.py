"""`torch` as a module sees it that calls CUDA on the host's side of things: no pinned memory, no streams to wait for.

Only for modules that `replaced_names.py` names. Work on a CPU is done when the call returns, so an event has happened when
it is recorded, and a stream has nothing left to wait for.
"""

from types import ModuleType, SimpleNamespace
from typing import Any

import torch


class DoneEvent:
    def record(self, stream: object = None) -> None: ...
    def wait(self, stream: object = None) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True


class DoneStream:
    def synchronize(self) -> None: ...


class HostTorch(ModuleType):
    """Everything of torch but `cuda.Event`, `cuda.current_stream` and the option `pin_memory` of `empty`."""

    def __init__(self) -> None:
        super().__init__("torch")
        self.cuda = SimpleNamespace(Event=DoneEvent, current_stream=lambda device=None: DoneStream())

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def empty(*shape: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return torch.empty(*shape, **options)


TORCH = HostTorch()
