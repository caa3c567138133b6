"""Calls the candidate's `run` on empty tensors and writes down what it asks for: kernels, grids, arguments, in order.

Nothing is compiled or computed here, and nothing that this process says is believed: it hands over the text of kernels
and a list of launches, which trusted processes then compile and interpret. What the guards here refuse would be lost
anyway; they are here to name it. Each workload is called three times, with fresh tensors and with the same ones.
"""

# mypy: ignore-errors

import inspect
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import described
import torch
import worker
from offline import OfflineDriver
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from vault import Vault

CALLS = (True, False, True)  # with fresh tensors?


class Recorder:
    """Stands in the place of a launch."""

    def __init__(self, vault):
        self.vault, self.watch = vault, None
        self.functions = described.Functions()

    def start(self, named):
        """Forget earlier launches; `named` are the tensors that `run` is given."""
        self.launches, self.alive = [], []
        self.names = {tensor.untyped_storage().data_ptr(): name for name, tensor in named.items()}

    def install(self):
        recorder = self

        def run(kernel, *args, grid, warmup, **kwargs):
            if not warmup:
                recorder.launch(kernel, args, grid, kwargs)

        JITFunction.run = run

    def launch(self, kernel, args, grid, kwargs):
        if kernel.pre_run_hooks:
            raise worker.CandidateFault(f"`{kernel.__name__}` has hooks that run before it")
        names = set(kernel.signature.parameters)
        try:
            bound = kernel.signature.bind(*args, **{name: x for name, x in kwargs.items() if name in names})
        except TypeError as error:
            raise TypeError(f"{kernel.__name__}() {error}") from None
        bound.apply_defaults()
        shape = tuple(grid(bound.arguments) if callable(grid) else grid)
        self.launches.append({
            "function": self.functions.add(kernel),
            "grid": [worker.plain(x) for x in (*shape, 1, 1)[: max(3, len(shape))]],
            "arguments": {name: self.value(kernel.__name__, x) for name, x in bound.arguments.items()},
            "options": {name: self.value(kernel.__name__, x) for name, x in kwargs.items() if name not in names},
        })  # fmt: skip

    def value(self, kernel, x):
        if isinstance(x, torch.Tensor):
            return {"tensor": self.tensor(kernel, x)}
        if isinstance(x, tuple | list):
            return {"items": [self.value(kernel, one) for one in x]}
        return self.functions.value(x, f"an argument of `{kernel}`")

    def tensor(self, kernel, tensor):
        self.watch.own(kernel, tensor)
        storage = tensor.untyped_storage()
        self.alive.append(tensor)  # so that no address is given out twice during a call
        return {
            "buffer": self.names.setdefault(storage.data_ptr(), f"scratch_{len(self.names)}"),
            "bytes": storage.nbytes(), "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "stride": list(tensor.stride()), "offset": tensor.storage_offset(),
        }  # fmt: skip


def launches_of(entry, name, call, recorder):
    """What one workload launches: the same at every call, whether its tensors are fresh or not."""
    seen, vault = [], recorder.vault
    for fresh in CALLS:
        if fresh:
            vault.given = []
            tensors = {
                x["name"]: vault.empty(x["shape"], getattr(torch, x["dtype"]), keep=vault.given)
                for x in call["arguments"]
                if "shape" in x
            }
        vault.allocated = []
        recorder.start(tensors)
        recorder.watch = worker.WorkOutside(vault)
        arguments = [x["value"] if "value" in x else tensors[x["name"]] for x in call["arguments"]]
        with vault.closing(), recorder.watch as watch:
            entry(*arguments, **{**call["launch"], **call["options"]})
        watch.complain()
        if not recorder.launches and not seen:
            raise worker.CandidateFault(f"`{name}` returned without launching a kernel")
        seen.append(recorder.launches)
        if recorder.launches != seen[0]:
            again = "other tensors" if fresh else "the same tensors"
            raise worker.CandidateFault(
                f"it launches other kernels when called again with {again}: at {call['workload']} "
                f"{described.summary(recorder.launches)} instead of {described.summary(seen[0])}"
            )
    return seen[0]


def takes_options(entry, call):
    """Whether `run` has the options of a twin by name."""
    known = inspect.signature(entry).parameters
    return all(name in known for name in call["options"])


def main():
    request = worker.read_request()
    torch.set_num_threads(1)
    driver.set_active(OfflineDriver(request["arch"]))
    recorder = Recorder(Vault())
    recorder.install()
    try:
        entry = worker.load_entry(request["entry"])
        asked = [x for x in request["calls"] if takes_options(entry, x)]
        skipped = [x["workload"] for x in request["calls"] if x not in asked]
        calls = {x["workload"]: launches_of(entry, request["entry"], x, recorder) for x in asked}
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is the result
        worker.write_result(request, fault=worker.describe(error), functions=[], calls={})
        return
    worker.write_result(request, fault=None, functions=recorder.functions.found, calls=calls, skipped=skipped)


main()
