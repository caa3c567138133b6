"""What the Triton interpreter lacks: it notes launches, refuses accesses outside of the buffers, runs programs in random
order (on a GPU they have none), and tells an operation that it does not have from a fault of the kernel.
"""

# mypy: ignore-errors

import inspect
import random

import numpy as np
import worker
from counts import Counts
from offline import OfflineDriver
from triton.language import target_info
from triton.language.extra import libdevice
from triton.runtime import interpreter

LACKING = ("extern_elementwise", "inline_asm")


class Interpreter:
    """Patches the one interpreter of this process."""

    def __init__(self, seed, arch):
        self.target = OfflineDriver(arch).target
        self.random = random.Random(seed)
        self.lacking, self.fault, self.kernel, self.counts = False, None, None, Counts()
        self.starts, self.ends = np.zeros(0, np.uint64), np.zeros(0, np.uint64)

    def install(self):
        self.counts.install()
        self.builder, self.native = interpreter.interpreter_builder, interpreter._interpreter
        self.set_dim, self.set_index = self.builder.set_grid_dim, self.builder.set_grid_idx
        self.builder.set_grid_dim, self.builder.set_grid_idx = self.start_grid, self.start_program
        interpreter._interpreter = self
        target_info.current_target = lambda: self.target  # what a kernel asks, it is told as when it is compiled
        for name in LACKING:
            setattr(self.builder, f"create_{name}", self.noting_the_lack(name))
        for name, function in inspect.getmembers(libdevice, callable):
            if getattr(function, "__module__", None) == libdevice.__name__:
                lack = self.noting_the_lack(f"libdevice.{name}")
                lack.__module__ = libdevice.__name__  # it is still of the language
                setattr(libdevice, name, lack)

    def noting_the_lack(self, name):
        """Of the interpreter, which has no such operation: no fault of a candidate whose kernel compiles."""

        def lack(*args, **kwargs):
            self.lacking = True
            raise NotImplementedError(f"{name} is not supported in the interpreter")

        return lack

    def launch(self, function, grid, arguments, buffers):
        """Run every program. Raises CandidateFault for an access outside of the buffers."""
        self.kernel, self.fault = function.__name__, None
        spans = sorted((x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()) for x in buffers)
        self.starts, self.ends = (np.array([span[i] for span in spans], np.uint64) for i in (0, 1))
        try:
            with self.counts.launch(function):
                function[grid](**arguments)
        except interpreter.InterpreterError as error:
            raise (self.fault or error) from None

    def start_grid(self, x, y, z):
        self.set_dim(x, y, z)
        self.order = list(range(x * y * z))
        self.random.shuffle(self.order)

    def start_program(self, x, y, z):
        _, ny, nz = self.builder.grid_dim
        place = self.order[(x * ny + y) * nz + z]
        self.set_index(place // (ny * nz), place // nz % ny, place % nz)

    # In the place of the native module: its memory operations, and everything else as it is.

    def __getattr__(self, name):
        return getattr(self.native, name)

    def load(self, pointers, mask, other, dtype):
        self.inside(pointers, mask, np.dtype(dtype).itemsize, "reads")
        return self.native.load(pointers, mask, other, dtype)

    def store(self, pointers, values, mask):
        self.inside(pointers, mask, values.itemsize, "writes")
        return self.native.store(pointers, values, mask)

    def atomic_rmw(self, operation, pointers, values, mask, order):
        self.inside(pointers, mask, values.itemsize, "changes")
        return self.native.atomic_rmw(operation, pointers, values, mask, order)

    def atomic_cas(self, pointers, expected, values, order):
        self.inside(pointers, np.ones_like(pointers, dtype=bool), values.itemsize, "changes")
        return self.native.atomic_cas(pointers, expected, values, order)

    def inside(self, pointers, mask, size, does):
        """Raises if a lane that is not masked out touches a byte outside of the buffers."""
        used = pointers[mask.astype(bool)] if mask.shape == pointers.shape else pointers.ravel()
        if used.size == 0:
            return
        place = np.searchsorted(self.starts, used, side="right")
        outside = (place == 0) | (used + np.uint64(size) > self.ends[place - 1])
        if outside.any():
            self.fault = worker.CandidateFault(f"`{self.kernel}` {does} memory outside of its buffers")
            raise self.fault
