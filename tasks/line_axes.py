"""Which axes of the grid does a line of a kernel depend on? Along an axis that it does not depend on, its work repeats.

Read from the source alone; nothing runs. A value depends on an axis if `tl.program_id(axis)` reaches it through assignments,
loads, branches and loops. What is not understood (an axis that is no number, an unknown function, an atomic) depends on
every axis, so that no repetition is claimed wrongly.
"""

import ast
from collections.abc import Iterator
from functools import reduce

from tasks.records import Record

Axes = frozenset[int]
NONE: Axes = frozenset()
ALL: Axes = frozenset((0, 1, 2))
_PURE_MODULES = ("triton", "math")
_PURE_BUILTINS = {"range", "min", "max", "abs", "int", "float", "len"}
_COMPOUND = (ast.If, ast.For, ast.While)
_LOADS = {"load", "load_tensor_descriptor"}
_NOT_PURE = ("atomic", "inline_asm", "smid", "globaltimer")


class Line(Record):
    """`values`: axes that what it computes depends on, with whether it runs at all. `decided`: axes whose index or size
    itself, and not data that lies at it, decides whether it runs. `stretch`: first line of those that run with it."""

    values: Axes
    decided: Axes
    stretch: int


def lines_of(source: str, kernel: str) -> dict[int, Line]:
    """Every line of the function `kernel` that holds a statement, by its number; empty if it cannot be read."""
    try:
        tree = ast.parse(source)
        function = _functions(tree).get(kernel)
        if function is None:
            return {}
        found, decided = (_Reading(tree, function, through_loads=x).lines() for x in (True, False))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # nested too deeply, say: nothing is claimed
        return {}
    lines: dict[int, Line] = {}
    for statement, first in _stretches(function.body):
        for line in _span(statement):  # of several statements on a line, the outermost, which runs the most
            lines.setdefault(line, Line(values=found[line][0], decided=decided[line][1], stretch=first))
    return lines


def _functions(tree: ast.AST) -> dict[str, ast.FunctionDef]:
    return {x.name: x for x in ast.walk(tree) if isinstance(x, ast.FunctionDef)}


def _pure_names(tree: ast.Module) -> set[str]:
    """Names under which the file imports what only computes."""
    found = set()
    for x in ast.walk(tree):
        if isinstance(x, ast.Import):
            found |= {(y.asname or y.name).split(".")[0] for y in x.names if y.name.startswith(_PURE_MODULES)}
        elif isinstance(x, ast.ImportFrom) and (x.module or "").startswith(_PURE_MODULES):
            found |= {y.asname or y.name for y in x.names}
    return found


def _inside(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        yield from _inside([*getattr(statement, "body", []), *getattr(statement, "orelse", [])])


def _stretches(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, int]]:
    """Each statement with the first line of its stretch, which begins with a block, or after a branch or loop."""
    first = 0
    for before, statement in zip([None, *body], body, strict=False):
        first = statement.lineno if before is None or isinstance(before, _COMPOUND) else first
        yield statement, first
        for inner in (getattr(statement, "body", []), getattr(statement, "orelse", [])):
            yield from _stretches(inner)


def _span(statement: ast.stmt) -> range:
    """Lines of a statement; of a compound one, those of its header."""
    body = getattr(statement, "body", None)
    end = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, end + 1)


def _union(parts: Iterator[Axes]) -> Axes:
    return reduce(frozenset.union, parts, NONE)


class _Reading:
    """One function, read until the axes of its names do not change any more."""

    def __init__(
        self, tree: ast.Module, function: ast.FunctionDef, through_loads: bool, known: dict[str, Axes] | None = None
    ) -> None:
        self.tree, self.function, self.through_loads = tree, function, through_loads
        self.known = {} if known is None else known  # axes of device functions; while one is read, all
        self.pure, self.functions = _pure_names(tree), _functions(tree)
        given = {x.arg for x in (*function.args.args, *function.args.kwonlyargs)}
        stored = {x.id for x in ast.walk(function) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        self.names: dict[str, Axes] = dict.fromkeys(given | stored, NONE)
        self.found: dict[int, tuple[Axes, Axes]] = {}
        self.ended: Axes = NONE  # what decides whether the rest of the function runs

    def lines(self) -> dict[int, tuple[Axes, Axes]]:
        """Line → (axes of its values, axes of whether it runs)."""
        before = None
        while before != self.names:
            before, self.ended = dict(self.names), NONE
            self.block(self.function.body, NONE)
        return self.found

    def block(self, body: list[ast.stmt], under: Axes) -> None:
        for statement in body:
            self.statement(statement, under | self.ended)

    def statement(self, statement: ast.stmt, under: Axes) -> None:
        axes = under
        match statement:
            case ast.Assign(targets=targets, value=value):
                axes |= self.of(value)
                self.assign(targets, axes)
            case ast.AugAssign(target=target, value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                axes |= self.of(value) | self.of(target)
                self.assign([target], axes)
            case ast.If(test=test, body=body, orelse=rest):
                axes |= self.of(test)
                self.block(body, axes)
                self.block(rest, axes)
            case ast.For(body=body, orelse=rest) | ast.While(body=body, orelse=rest):
                axes |= self.of(statement.iter if isinstance(statement, ast.For) else statement.test)
                self.assign([statement.target] if isinstance(statement, ast.For) else [], axes)
                ended = None
                while ended != self.ended:  # a `break` at its end decides about its beginning
                    ended = self.ended
                    self.block([*body, *rest], axes)
            case ast.Return() | ast.Break() | ast.Continue():
                self.ended |= under
                axes |= _union(self.of(x) for x in ast.iter_child_nodes(statement))
            case ast.Expr(value=value):
                axes |= self.of(value)
            case ast.Pass() | ast.Assert():
                pass
            case _:
                axes = ALL
                self.assign([x for x in ast.walk(statement) if isinstance(x, ast.expr)], ALL)
                for inner in _inside([statement]):
                    self.found |= dict.fromkeys(_span(inner), (ALL, ALL))
        for line in _span(statement):
            seen = self.found.get(line, (NONE, NONE))
            self.found[line] = seen[0] | axes, seen[1] | under

    def assign(self, targets: list[ast.expr], axes: Axes) -> None:
        for target in targets:
            for x in ast.walk(target):
                if isinstance(x, ast.Name):
                    self.names[x.id] = self.names.get(x.id, NONE) | axes

    def of(self, value: ast.AST) -> Axes:
        match value:
            case ast.Name(id=name):
                return self.names.get(name, NONE)
            case ast.Call():
                return self.call(value)
            case ast.NamedExpr(target=target, value=inner):
                self.assign([target], self.of(inner))
                return self.of(inner)
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                return ALL
            case _:
                return _union(self.of(x) for x in ast.iter_child_nodes(value))

    def call(self, call: ast.Call) -> Axes:
        function = call.func
        given = _union(self.of(x) for x in (*call.args, *call.keywords))
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        root = function
        while isinstance(root, ast.Attribute):
            root = root.value
        module = root.id if isinstance(root, ast.Name) and root.id not in self.names else None
        if name == "program_id":
            return _literal_axis(call)
        if name == "num_programs":  # the same for every program, but another where the grid has another size
            return NONE if self.through_loads else _literal_axis(call)
        if any(x in name for x in _NOT_PURE):
            return ALL
        if module in self.pure or (module == name and name in _PURE_BUILTINS):
            return NONE if name in _LOADS and not self.through_loads else given
        if isinstance(function, ast.Attribute) and module is None:  # a method of a value, such as `x.to(...)`
            return given | self.of(function.value)
        return given | self.inside(name)

    def inside(self, name: str) -> Axes:
        """Axes that a device function of the same file asks for itself."""
        if name not in self.known:
            self.known[name] = ALL
            if name in self.functions:
                reading = _Reading(self.tree, self.functions[name], self.through_loads, self.known)
                self.known[name] = _union(axes for axes, _ in reading.lines().values())
        return self.known[name]


def _literal_axis(call: ast.Call) -> Axes:
    match [*call.args, *(x.value for x in call.keywords)]:
        case [ast.Constant(value=int() as axis)] if axis in ALL:
            return frozenset((axis,))
        case _:
            return ALL
