"""Triton functions and values as JSON: what a candidate's process says of its kernels. tasks/sandboxed/rebuilt.py reads it.

A function is its text, its line, its default values, and what each name that it reads is bound to.
"""

# mypy: ignore-errors

import ast
import inspect
import math
import textwrap
from types import ModuleType

import torch
import triton.language as tl
import worker
from triton.runtime.jit import ConstexprFunction, JITFunction

OPTIONS = ("do_not_specialize", "do_not_specialize_on_alignment", "noinline", "debug")


class Functions:
    """Every function once, referred to by its place in `found`."""

    def __init__(self):
        self.found, self.places, self.alive = [], {}, []

    def add(self, function):
        """Place of a function; what it calls comes along."""
        key = id(function)
        if key not in self.places:
            self.places[key] = place = len(self.found)
            self.alive.append(function)
            self.found.append(None)
            self.found[place] = self.describe(function)
        return self.places[key]

    def describe(self, function):
        lines, line = inspect.getsourcelines(function.fn)
        text = textwrap.dedent("".join(lines))
        scope = {**function.fn.__globals__, **inspect.getclosurevars(function.fn).nonlocals}
        code = function.fn.__code__
        local = {*code.co_varnames, *code.co_cellvars}
        (tree,) = ast.parse(text).body
        tree.decorator_list = []
        read = {x.id for x in ast.walk(tree) if isinstance(x, ast.Name)} - local
        defaults = {
            name: self.value(p.default, f"`{function.fn.__name__}`")
            for name, p in function.signature.parameters.items()
            if p.default is not p.empty
        }
        return {
            "kind": "jit" if isinstance(function, JITFunction) else "constexpr",
            "name": function.fn.__name__, "line": line, "text": text, "defaults": defaults,
            "options": {name: worker.listed(getattr(function, name, None)) for name in OPTIONS},
            "names": {name: self.value(scope[name], f"`{function.fn.__name__}`") for name in sorted(read & scope.keys())},
        }  # fmt: skip

    def value(self, x, where):
        """A number, text, dtype, module, function, or a tuple of them. `where` is for the message about anything else."""
        if isinstance(x, tl.constexpr):
            return {"constexpr": self.value(x.value, where)}
        if isinstance(x, float) and not math.isfinite(x):
            return {"float": repr(x)}
        if isinstance(x, bool | int | float | str) or x is None:
            return {"const": x}
        if isinstance(x, JITFunction | ConstexprFunction) and not triton_s(x.fn.__module__):
            return {"function": self.add(x)}
        if isinstance(x, tl.dtype):
            return {"dtype": str(x)}
        if isinstance(x, torch.dtype):
            return {"torch_dtype": str(x).removeprefix("torch.")}
        if isinstance(x, ModuleType):
            return {"module": x.__name__}
        if isinstance(x, tuple | list):
            return {"items": [self.value(one, where) for one in x]}
        module, name = getattr(x, "__module__", None) or "", getattr(x, "__qualname__", None)
        if triton_s(module) and name:
            return {"builtin": [module, name]}
        if name is not None and (module, name) != ("builtins", name):
            return {"other": f"{module}.{name}"}
        if hasattr(x, "__index__"):
            return {"const": int(x)}
        if hasattr(x, "__float__"):
            return {"const": float(x)}
        return {"other": type(x).__name__}


def triton_s(module):
    return str(module).split(".")[0] == "triton"


def summary(launches):
    return " ".join(f"{x['function']}{x['grid']}" for x in launches) or "nothing"
