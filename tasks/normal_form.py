"""A Python source in one spelling: without comments, docstrings, layout and padding, with names of its own that say nothing.

Sources of equal normal form do the same. The other way round it is no proof: whoever writes the same thing with other
operators, or in another order, has another normal form, and the rungs tell. Each function at the top of the module is
one space of names, with all that stands inside it; what is bound outside of functions is another.
"""

import ast
import builtins
import re
import warnings
from collections.abc import Mapping

from tasks.own_names import bound, imports, kept, keywords_of_others
from tasks.padding import without_padding
from tasks.records import Scalar

MODULE = ""


def normal_form(source: str, options: Mapping[str, Scalar] | None = None) -> str | None:
    """The source in one spelling, with `options` as the defaults of its `run`; None if it is no Python."""
    try:
        tree = _parsed(source)
        _give(tree, options or {})
        for node in ast.walk(tree):
            _strip(node)
        without_padding(tree)
        _Renamed(tree).visit(tree)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def options_of(source: str) -> frozenset[str] | None:
    """The options that `run` takes by name; None where that cannot be told: no Python, no `run`, or any name at all."""
    try:
        run = _run(_parsed(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if run is None or run.args.kwarg is not None:
        return None
    return frozenset(argument.arg for argument in (*_defaulted(run.args), *run.args.kwonlyargs))


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes and comparisons: the source is another's
        return ast.parse(source)


def _run(tree: ast.Module) -> ast.FunctionDef | None:
    return next((x for x in reversed(tree.body) if isinstance(x, ast.FunctionDef) and x.name == "run"), None)


def _defaulted(arguments: ast.arguments) -> list[ast.arg]:
    positional = [*arguments.posonlyargs, *arguments.args]
    return positional[len(positional) - len(arguments.defaults) :]


def _give(tree: ast.Module, options: Mapping[str, Scalar]) -> None:
    run = _run(tree)
    if run is None:
        return
    for given, defaults in ((_defaulted(run.args), run.args.defaults), (run.args.kwonlyargs, run.args.kw_defaults)):
        for place, argument in enumerate(given):
            if argument.arg in options:
                defaults[place] = ast.Constant(options[argument.arg])


def _strip(node: ast.AST) -> None:
    """Docstrings and other expressions that are only a constant do nothing. Layout of C++ in a text says nothing, either."""
    body = getattr(node, "body", None)
    if isinstance(body, list):
        does = [x for x in body if not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))]
        node.body = does or ([] if isinstance(node, ast.Module) else [ast.Pass()])  # type: ignore[attr-defined]
    match node:
        case ast.Assign(targets=[ast.Name(id="CPP")], value=ast.Constant(value=str(cpp)) as text):
            text.value = _without_layout(cpp)


def _without_layout(cpp: str) -> str:
    """C++ without comments and indentation. Texts in quotes are kept whole."""
    piece = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
    bare = piece.sub(lambda found: found[1] or " ", cpp)
    return "\n".join(line for line in (" ".join(x.split()) for x in bare.splitlines()) if line)


class _Renamed(ast.NodeTransformer):
    """Names get a number where they first stand. `$` starts no name of Python, so none is taken by accident."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {x.name: x for x in tree.body if isinstance(x, ast.FunctionDef)}
        self.taken = {name: _parameters(function) for name, function in self.functions.items()}
        self.bound = {name: bound(function) - {name} for name, function in self.functions.items()}
        outside = [x for x in tree.body if not isinstance(x, ast.FunctionDef) or self.functions[x.name] is not x]
        self.bound[MODULE] = {name for x in outside for name in bound(x)} | set(self.functions)
        self.imported, unclear = imports(tree)
        inside = {name for space in self.functions for name in self.bound[space]}
        shadowing = inside & (self.bound[MODULE] | set(self.imported) | set(dir(builtins)))
        clash = self.bound[MODULE] & set(self.imported)
        foreign = set(self.imported) | set(dir(builtins))
        self.kept = kept(tree) | keywords_of_others(tree, self.functions, foreign) | shadowing | clash | unclear
        self.numbers: dict[tuple[str, str], str] = {}
        self.space = MODULE

    def name(self, name: str, space: str) -> str:
        if name in self.kept:
            return name
        for owner in dict.fromkeys((space, MODULE)):
            if name in self.bound[owner]:
                return self.numbers.setdefault((owner, name), f"${len(self.numbers)}")
        return self.imported.get(name, name)

    def visit(self, node: ast.AST) -> ast.AST | None:
        """Every kind of node that holds a name as a text; keywords are those of the function that is called."""
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                # An import only gives names: uses of them become the whole path, so that no alias is left.
                clear = all((alias.asname or alias.name) in self.imported for alias in names)
                return None if clear and not self.kept & {alias.asname or alias.name for alias in names} else node
            case ast.FunctionDef() if self.functions.get(node.name) is node:
                self.space, outer = node.name, self.space
                node.name = self.name(node.name, MODULE)
                self.generic_visit(node)
                self.space = outer
                return node
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                node.name = self.name(node.name, self.space)
            case ast.Name():
                node.id = self.name(node.id, self.space)
            case ast.arg():
                node.arg = self.name(node.arg, self.space)
            case ast.ExceptHandler(name=str(name)):
                node.name = self.name(name, self.space)
            case ast.Call():
                self._keywords(node)
        return self.generic_visit(node)

    def _keywords(self, call: ast.Call) -> None:
        """Of a function of this module, called or launched as `kernel[grid](...)`."""
        called = call.func.value if isinstance(call.func, ast.Subscript) else call.func
        if isinstance(called, ast.Name) and (self.space == MODULE or called.id not in self.bound[self.space]):
            for keyword in call.keywords:
                if keyword.arg and keyword.arg in self.taken.get(called.id, ()):
                    keyword.arg = self.name(keyword.arg, called.id)
            if called.id in self.functions and all(isinstance(x.value, ast.Name | ast.Constant) for x in call.keywords):
                call.keywords.sort(
                    key=lambda x: x.arg or ""
                )  # reading a name has no effect, so no order of them says anything


def _parameters(function: ast.FunctionDef) -> frozenset[str]:
    a = function.args
    return frozenset(x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs))
