"""Counts what an interpreted kernel moves, and in how many programs each stretch of its lines runs.

It sees no cache: a 32-byte sector counts once in a launch, however many programs touch it, which is the least that must
move; bytes asked for are the most. A stretch of lines runs as a whole: it begins with a block, or after a branch or loop.
"""

# mypy: ignore-errors

import ast
import inspect
from contextlib import contextmanager
from math import prod

import numpy as np
from triton.runtime import interpreter

SECTOR_BITS = 5
_COMPOUND = (ast.If, ast.For, ast.While)
_MARK = "__infra_agent_ran__"
_METHODS = {
    "create_masked_load": ("load",),
    "create_masked_store": ("store",),
    "create_atomic_rmw": ("load", "store"),
    "create_atomic_cas": ("load", "store"),
}


class Counts:
    """By kernel, from `begin` to `keep`. `install` once per process."""

    def __init__(self):
        self.kept, self.kernels, self.requested, self.sectors = {}, {}, 0, {}
        self.last, self.ran_in = {}, {}

    def install(self):
        for method, kinds in _METHODS.items():
            setattr(interpreter.InterpreterBuilder, method, self._counting(method, kinds))
        transform = interpreter.FunctionRewriter._transform_ast
        interpreter.FunctionRewriter._transform_ast = lambda rewriter, source: marked(transform(rewriter, source))
        # The rewriter hands the names of its module to what it rewrites.
        setattr(interpreter, _MARK, self._ran)

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

    def _ran(self, line):
        program = interpreter.interpreter_builder.grid_idx
        if self.last.get(line) is not program:
            self.last[line] = program
            self.ran_in[line] = self.ran_in.get(line, 0) + 1

    @contextmanager
    def launch(self, kernel):
        """Around the interpretation of one launch of `kernel`."""
        seen = self.kernels.setdefault(
            kernel.__name__, {"programs": 0, "requested_bytes": 0, "unique_bytes": 0, "ran_in": {}}
        )
        self.requested, self.sectors, self.last, self.ran_in = 0, {}, {}, seen["ran_in"]
        yield
        seen["programs"] += prod(interpreter.interpreter_builder.grid_dim)
        seen["requested_bytes"] += int(self.requested)
        touched = sum(np.unique(np.concatenate(found)).size for found in self.sectors.values())
        seen["unique_bytes"] += int(touched) << SECTOR_BITS
        self.sectors = {}

    def begin(self):
        self.kernels = {}

    def keep(self, name):
        """What was counted so far, under a name."""
        self.kept[name] = {kernel: {**seen, "ran_in": dict(seen["ran_in"])} for kernel, seen in self.kernels.items()}


def marked(tree):
    """The same function, which calls the mark with the first line of each stretch before it."""
    for block in [x for node in ast.walk(tree) for x in (getattr(node, "body", []), getattr(node, "orelse", []))]:
        if not isinstance(block, list) or not block or isinstance(block[0], ast.FunctionDef):
            continue
        starts = [i for i in range(len(block)) if i == 0 or isinstance(block[i - 1], _COMPOUND)]
        for i in reversed(starts):
            call = ast.Call(ast.Name(_MARK, ast.Load()), [ast.Constant(block[i].lineno)], [])
            block.insert(i, ast.fix_missing_locations(ast.copy_location(ast.Expr(call), block[i])))
    return tree
