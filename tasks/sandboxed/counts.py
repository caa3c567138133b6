"""Counts what an interpreted kernel moves, and in how many programs each of its lines runs.

It sees no cache: a 32-byte sector counts once in a launch, however many programs touch it, which is the least that must
move; bytes asked for are the most. Lines are counted only of kernels that branch: those of others run in every program.
"""

# mypy: ignore-errors

import ast
import inspect
import sys
import textwrap
from contextlib import contextmanager

import numpy as np
from triton.runtime import interpreter

SECTOR_BITS = 5
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.While)


class Counts:
    """By kernel, from `begin` to `keep`. `install` once per process."""

    def __init__(self):
        self.kept, self.kernels, self.requested, self.sectors = {}, {}, 0, {}

    def install(self):
        for method, kinds in (
            ("create_masked_load", ("load",)),
            ("create_masked_store", ("store",)),
            ("create_atomic_rmw", ("load", "store")),
            ("create_atomic_cas", ("load", "store")),
        ):
            setattr(interpreter.InterpreterBuilder, method, self._counting(method, kinds))

    def _counting(self, method, kinds):
        original = getattr(interpreter.InterpreterBuilder, method)
        parameters = inspect.signature(original)

        def counted(builder, *args, **kwargs):
            given = parameters.bind(builder, *args, **kwargs).arguments
            self._access(given.get("ptrs", given.get("ptr")), given.get("mask"), kinds)
            return original(builder, *args, **kwargs)

        return counted

    def _access(self, pointers, mask, kinds):
        addresses = pointers.data if mask is None else pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        addresses = addresses.ravel()
        self.requested += len(kinds) * addresses.size * (pointers.get_element_ty().primitive_bitwidth // 8)
        sectors = addresses >> np.uint64(SECTOR_BITS)
        if sectors.size:
            changes = sectors[np.concatenate(([True], sectors[1:] != sectors[:-1]))]
            for kind in kinds:
                self.sectors.setdefault(kind, []).append(changes)

    @contextmanager
    def launch(self, kernel):
        """Around the interpretation of one launch of `kernel`."""
        self.requested, self.sectors = 0, {}
        seen = self.kernels.setdefault(kernel.__name__, {"requested_bytes": 0, "unique_bytes": 0, "ran_in": {}})
        before = sys.gettrace()
        if branches(kernel):
            sys.settrace(lines_of(kernel.rewrite().__code__, seen["ran_in"]))
        try:
            yield
        finally:
            sys.settrace(before)
        touched = sum(np.unique(np.concatenate(found)).size for found in self.sectors.values())
        seen["requested_bytes"] += int(self.requested)
        seen["unique_bytes"] += int(touched) << SECTOR_BITS
        self.sectors = {}

    def begin(self):
        self.kernels = {}

    def keep(self, name):
        """What was counted so far, under a name."""
        self.kept[name] = {kernel: {**seen, "ran_in": dict(seen["ran_in"])} for kernel, seen in self.kernels.items()}


def branches(kernel):
    source = textwrap.dedent(inspect.getsource(kernel.fn))
    return any(isinstance(x, _BRANCHES) for x in ast.walk(ast.parse(source)))


def lines_of(code, ran_in):
    """A trace function that counts, by line of one function, the calls in which it ran; the calls at its first line."""

    def call(frame, event, _):
        if frame.f_code is not code:
            return None
        seen = {code.co_firstlineno}

        def line(frame, event, _):
            seen.add(frame.f_lineno)
            if event == "return":
                for number in seen:
                    ran_in[number] = ran_in.get(number, 0) + 1
            return line

        return line

    return call
