"""Triton functions from the text that a candidate's process handed over, in a process that never runs the candidate.

The text runs as Python in the interpreter, so it may hold nothing but what a kernel needs: arithmetic, Triton's own
functions, and each other. Anything else is refused by name, in branches that are never taken, too.
"""

# mypy: ignore-errors

import ast
import builtins
import hashlib
import importlib
import inspect
import json
import textwrap
from types import ModuleType

import torch
import triton
import triton.language as tl
import worker
from triton import knobs

# Of Python, what Triton's compiler and its interpreter mean the same by. isinstance or hasattr could tell the two apart.
BUILTINS = ("range", "min", "max", "abs", "int", "float", "bool", "print", "len", "tuple", "list", "str")
REFUSED = (
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.AsyncFunctionDef, ast.Lambda, ast.Try, ast.With,
    ast.AsyncWith, ast.AsyncFor, ast.Await, ast.Yield, ast.YieldFrom, ast.Delete, ast.Raise, ast.NamedExpr, ast.Match,
)  # fmt: skip
# Of what is no module. `handle` is where the interpreter keeps numpy arrays.
TYPES = (tl.tensor, tl.dtype, tl.pointer_type, tl.block_type, tl.core.tensor_descriptor, tl.constexpr)
ATTRIBUTES = {name for kind in TYPES for name in dir(kind) if not name.startswith("_")} | {
    "type", "shape", "numel", "element_ty", "value", "name", "primitive_bitwidth", "itemsize", "bit_length", "strides",
    "ALL", "NONE",
} - {"handle", "to_ir", "codegen_name", "mangle", "cache_key_part"}  # fmt: skip
MAX_FUNCTIONS = 1000


def rebuild(functions):
    """The functions of a recording, ready to launch or to call. Raises CandidateFault for text that is no kernel's."""
    if len(functions) > MAX_FUNCTIONS:
        raise worker.CandidateFault(f"its kernels have more than {MAX_FUNCTIONS} functions")
    trees, digests = [tree_of(x) for x in functions], digests_of(functions)
    write_text(functions, trees)
    made, scopes = [None] * len(functions), []
    for place in reversed(range(len(functions))):  # what a function calls stands behind it
        described = functions[place]
        # The interpreter looks for the module of the language among a function's globals.
        scope = {
            "__builtins__": {x: getattr(builtins, x) for x in BUILTINS},
            "triton_language": tl,
            "__name__": "candidate",
        }
        scope |= {name: value(x, made) for name, x in described["names"].items() if "function" not in x}
        Reader(described, trees[place], scope).check()
        exec(compile(ast.Module([trees[place]], []), str(worker.CANDIDATE), "exec"), scope)
        function = scope[described["name"]]
        function.__defaults__ = tuple(value(x, made) for x in described["defaults"].values())
        made[place] = compiled_or_interpreted(described, function, trees[place])
        made[place].recorded_digest = digests[place]
        scopes.append((scope, described))
    for scope, described in scopes:
        scope |= {name: value(x, made) for name, x in described["names"].items() if "function" in x}
    return made


def tree_of(described):
    """The one `def` of a text, without decorators, which came as values. Lines are those of the candidate's file."""
    tree = ast.parse(described["text"])
    (function,) = tree.body
    if not isinstance(function, ast.FunctionDef) or function.name != described["name"]:
        raise worker.CandidateFault(f"the text of `{described['name']}` is no function of that name")
    function.decorator_list = []
    ast.increment_lineno(function, described["line"] - 1)
    return function


def write_text(functions, trees):
    """A file with each function on the lines that it has in the candidate's file: for messages, and for Triton to read."""
    lines = {}
    for described, tree in zip(functions, trees, strict=True):
        text = described["text"].splitlines()
        for number in range(tree.lineno, tree.end_lineno + 1):
            line = text[number - described["line"]]
            if lines.setdefault(number, line) != line:
                raise worker.CandidateFault(f"`{described['name']}` and another function share line {number}")
            # The interpreter starts reading at the last line of this kind.
            if number > tree.lineno and line.strip().startswith("def "):
                raise worker.CandidateFault(f"`{described['name']}` has a second `def` in its text (line {number})")
    worker.CANDIDATE.write_text("\n".join(lines.get(n, "") for n in range(1, max(lines, default=0) + 1)) + "\n")


def compiled_or_interpreted(described, function, tree):
    """What `triton.jit` makes of it, here and now. Triton reads the text again, and must find the tree that was checked."""
    lines, _ = inspect.getsourcelines(function)
    (read,) = ast.parse(textwrap.dedent("".join(lines))).body
    if ast.dump(read) != ast.dump(tree):
        raise worker.CandidateFault(f"the text of `{described['name']}` can be read in two ways")
    if described["kind"] == "constexpr":
        return triton.constexpr_function(function)
    return triton.jit(function, **{name: x for name, x in described["options"].items() if x is not None})


def digests_of(functions):
    """sha256 of each function with all that it reaches, by text and values; lines and order do not count."""

    def closure(place):
        places, parts = [place], []
        for current in places:
            described = functions[current]

            def numbered(x):
                if isinstance(x, dict) and set(x) == {"function"}:
                    if x["function"] not in places:
                        places.append(x["function"])
                    return {"function": places.index(x["function"])}
                if isinstance(x, dict):
                    return {name: numbered(one) for name, one in x.items()}
                return [numbered(one) for one in x] if isinstance(x, list) else x

            parts.append(
                [described["text"], described["options"], *map(numbered, (described["defaults"], described["names"]))]
            )
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    return [closure(place) for place in range(len(functions))]


def value(x, functions):
    """What `described.Functions.value` wrote down. Raises CandidateFault for what no kernel needs."""
    ((kind, content),) = x.items()
    match kind:
        case "const":
            return content
        case "float":
            return float(content)
        case "constexpr":
            return tl.constexpr(value(content, functions))
        case "dtype":
            return tl.dtype(content)
        case "torch_dtype":
            return getattr(torch, content)
        case "items":
            return tuple(value(one, functions) for one in content)
        case "function":
            return functions[content]
        case "module" if is_language(content):
            return importlib.import_module(content)
        case "builtin" if is_language(content[0]):
            found = importlib.import_module(content[0])
            for name in content[1].split("."):
                found = getattr(found, name)
            if is_harmless(found):
                return current(*content) if knobs.runtime.interpret and inspect.isfunction(found) else found
    raise worker.CandidateFault(f"its kernels use `{content}`, which is neither Triton's language nor a constant")


def current(module, name):
    """What a module has under a name when it is called: the interpreter replaces Triton's functions during a launch."""
    home = importlib.import_module(module)
    # In `triton.language` itself: that is where the interpreter replaces it.
    home = tl if hasattr(tl, name) and ".extra." not in module else home
    return lambda *args, **kwargs: getattr(home, name)(*args, **kwargs)


def is_language(module):
    return module in ("triton", "math") or module.split(".")[:2] == ["triton", "language"]


def is_harmless(x):
    """A module of the language, or something that one defines."""
    if isinstance(x, ModuleType):
        return is_language(x.__name__)
    if isinstance(x, tl.dtype | tl.constexpr | bool | int | float) or x is tl.PropagateNan:
        return True
    return is_language(str(getattr(getattr(x, "fn", x), "__module__", "")))


class Reader:
    """Walks over the text of one function. What it cannot place is refused."""

    def __init__(self, described, tree, scope):
        self.name, self.tree, self.scope, self.named = described["name"], tree, scope, described["names"]
        arguments = {x.arg for x in ast.walk(tree) if isinstance(x, ast.arg)}
        self.local = arguments | {
            x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Load)
        }

    def check(self):
        for node in ast.walk(self.tree):
            nested = isinstance(node, ast.FunctionDef) and node is not self.tree
            if nested or isinstance(node, REFUSED):
                self.refuse(f"`{type(node).__name__}`", node)
            if isinstance(node, ast.Name):
                self.check_name(node)
            if isinstance(node, ast.Attribute):
                self.found(node)
            if isinstance(node, ast.Compare):
                self.check_identity(node)

    def check_name(self, node):
        if node.id.startswith("__"):
            self.refuse(f"`{node.id}`", node)
        if node.id not in self.local and node.id not in self.named and node.id not in BUILTINS:
            if hasattr(builtins, node.id):
                self.refuse(f"`{node.id}`", node)
            raise NameError(f"{node.id} is not defined")

    def check_identity(self, node):
        """`is` tells whether constants were merged into one, which Python does and Triton's compiler does not."""
        known = all(
            isinstance(x, ast.Constant) and (x.value is None or isinstance(x.value, bool)) for x in node.comparators
        )
        if any(isinstance(x, ast.Is | ast.IsNot) for x in node.ops) and not known:
            self.refuse("`is` with something else than None, True or False", node)

    def found(self, node):
        """What an expression means if modules alone decide, else None. Raises CandidateFault."""
        if isinstance(node, ast.Name):
            return None if node.id in self.local else self.scope.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        base = self.found(node.value)
        if isinstance(base, ModuleType) and not node.attr.startswith("_"):
            found = getattr(base, node.attr)
            if not is_harmless(found):
                self.refuse(f"`{base.__name__}.{node.attr}`", node)
            return found
        if node.attr not in ATTRIBUTES:
            self.refuse(f"the attribute `{node.attr}`", node)
        return None

    def refuse(self, what, node):
        raise worker.CandidateFault(f"`{self.name}` uses {what}, which no kernel needs (line {node.lineno})")
