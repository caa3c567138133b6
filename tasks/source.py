"""Identity of a kernel's source beyond its bytes: the same program under other names, comments and formatting."""

import ast
import builtins

from serving.errors import BadInput
from tasks.records import digest

_BUILTIN = frozenset(dir(builtins))


def normalised_digest(source: str) -> str:
    """Digest without comments, docstrings, formatting, annotations of the reader's kind and names chosen in the source.

    Raises BadInput if the source is not Python.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"the source is not valid Python: {error}", "correct the syntax") from error
    return digest(ast.dump(_Renamed(_defined_names(tree)).visit(_without_docstrings(tree))))


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            node.body = [x for x in node.body if not (isinstance(x, ast.Expr) and isinstance(x.value, ast.Constant))]
            node.body = node.body or [ast.Pass()]
    return tree


def _defined_names(tree: ast.Module) -> dict[str, str]:
    """Every name that the source itself introduces, numbered in order of appearance; an import by what it imports."""
    found: dict[str, str] = {}

    def note(name: str) -> None:
        if name not in _BUILTIN:
            found.setdefault(name, f"n{len(found)}")

    class Finder(ast.NodeVisitor):
        def visit_alias(self, node: ast.alias) -> None:
            found.setdefault(node.asname or node.name, f"import:{node.name}")

        def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
            note(node.name)
            self.generic_visit(node)

        def visit_arg(self, node: ast.arg) -> None:
            note(node.arg)

        def visit_Name(self, node: ast.Name) -> None:
            if isinstance(node.ctx, ast.Store):
                note(node.id)

    Finder().visit(tree)
    return found


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_alias(self, node: ast.alias) -> ast.alias:
        node.asname = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.names.get(node.arg, node.arg)
        self.generic_visit(node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        if node.arg is not None:
            node.arg = self.names.get(node.arg, node.arg)
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.name = self.names.get(node.name, node.name)
        self.generic_visit(node)
        return node
