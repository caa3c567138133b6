"""Whether a checkpoint and a model fit: every key used, every parameter filled. SGLang reports neither.

While a model loads, every operation on tensors is looked at. A parameter is filled when as many elements were written to
its storage as it has, or when it was put on storage that was computed from the checkpoint; a key is used when something
computed from it was written to a parameter or a buffer. Both hold for any device and any loader, since all of them end in
operators. An element that is written twice counts twice, so a parameter of which one half is loaded two times passes.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LeftOut = Callable[[torch.nn.Module, list[str]], dict[str, list[str]]]


def account_for(loader: ModuleType, tell: Callable[[dict[str, Any]], None]) -> None:
    """Makes the default loader tell `{"unused": keys, "unfilled": parameters, "left_out": ...}` after each model that it loads.

    Whoever has put other code into the engine may leave keys out on purpose, and say so by a function `left_out` of the
    model and the unused keys in `loader`: its answer holds them under labels, and they do not count as unused.
    """
    load = loader.DefaultModelLoader.load_weights_only
    on_purpose: LeftOut = getattr(loader, "left_out", lambda model, unused: {})

    @functools.wraps(load)
    def accounted(model: torch.nn.Module, weights: Iterator[tuple[str, torch.Tensor]], device: torch.device) -> None:
        account = Account()
        with account.watching():
            load(model, account.noting(weights), device)
        told = account.of(model)
        left_out = on_purpose(model, told["unused"])
        unused = sorted({*told["unused"]}.difference(*left_out.values()))
        tell({**told, "unused": unused, "left_out": left_out})

    loader.DefaultModelLoader.load_weights_only = staticmethod(accounted)


def place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Account:
    """`comes_from`: storage to the keys that its content was computed from. `written`: elements, by storage."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.comes_from: dict[int, frozenset[str]] = {}
        self.written: dict[int, int] = {}
        self.lock = threading.Lock()

    def noting(self, weights: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        for key, tensor in weights:
            own = (
                tensor.clone() if place(tensor) in self.comes_from else tensor
            )  # one file, one storage: tell keys apart
            with self.lock:
                self.keys.add(key)
                self.comes_from[place(own)] = frozenset([key])
            yield key, own

    def watching(self) -> "_Watching":
        return _Watching(self)

    def note(self, written: list[torch.Tensor], read: list[torch.Tensor], made: list[torch.Tensor]) -> None:
        with self.lock:
            known = [self.comes_from.get(place(tensor), frozenset()) for tensor in read]
            sources = frozenset().union(*known)
            for tensor in written:
                self.written[place(tensor)] = self.written.get(place(tensor), 0) + tensor.numel()
                self.comes_from[place(tensor)] = self.comes_from.get(place(tensor), frozenset()) | sources
            old = {place(tensor) for tensor in read}
            for tensor in made:
                if place(tensor) not in old:  # new storage, or at the address of one that is gone
                    self.comes_from[place(tensor)] = sources
                    self.written.pop(place(tensor), None)

    def of(self, model: torch.nn.Module) -> dict[str, list[str]]:
        parameters = dict(model.named_parameters(remove_duplicate=False))
        kept = [*parameters.values(), *model.buffers()]
        used = frozenset().union(*(self.comes_from.get(place(tensor), frozenset()) for tensor in kept))
        unfilled = [name for name, tensor in parameters.items() if not self.fills(tensor)]
        return {"unused": sorted(self.keys - used), "unfilled": sorted(unfilled)}

    def fills(self, tensor: torch.Tensor) -> bool:
        written = self.written.get(place(tensor), 0)
        return written >= tensor.numel() if written else bool(self.comes_from.get(place(tensor)))


class _Watching(TorchDispatchMode):
    """Of one thread; work that is handed to a pool meanwhile is watched there, too."""

    def __init__(self, account: Account) -> None:
        super().__init__()
        self.account = account

    def __enter__(self) -> "_Watching":
        self.submit = submit = ThreadPoolExecutor.submit

        def watched(
            pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any
        ) -> Future[Any]:
            def inside() -> Any:
                with _InThread(self.account):
                    return function(*args, **kwargs)

            return submit(pool, inside)

        ThreadPoolExecutor.submit = watched  # type: ignore[method-assign]
        return super().__enter__()

    def __exit__(self, *told: Any) -> None:
        ThreadPoolExecutor.submit = self.submit  # type: ignore[method-assign]
        super().__exit__(*told)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        named = zip(function._schema.arguments, args, strict=False)
        changing = [value for argument, value in named if argument.alias_info and argument.alias_info.is_write]
        changing += [
            kwargs[a.name]
            for a in function._schema.arguments
            if a.name in kwargs and a.alias_info and a.alias_info.is_write
        ]
        self.account.note(_tensors(changing), _tensors((args, kwargs)), _tensors(result))
        return result


class _InThread(_Watching):
    def __enter__(self) -> "_Watching":
        return TorchDispatchMode.__enter__(self)

    def __exit__(self, *told: Any) -> None:
        TorchDispatchMode.__exit__(self, *told)


def _tensors(of: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(of) if isinstance(leaf, torch.Tensor) and place(leaf)]
