"""What a source holds and does not use. It is taken away before two sources are compared: padding makes no new kernel."""

import ast
import re

from tasks.own_names import FIXED, REFLECTION

ROUNDS = 8  # what only padding used is padding, too; a longer chain costs a build


def without_padding(tree: ast.Module) -> None:
    """In place: no `pass` beside other statements, no function at the top that nothing names and that does nothing by being
    defined, and no constant or name given to a name that nothing reads."""
    for _ in range(ROUNDS):
        used = _used(tree)
        went = [] if used is None else [_thinned(node, used) for node in ast.walk(tree)]
        if not any(went):
            return


def _used(tree: ast.Module) -> set[str] | None:
    """Names that something reads, or may: in a text, as an attribute, by `global`. None where any name may be read."""
    used: set[str] = set(FIXED)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in REFLECTION:
                return None
            case ast.Name(id=name, ctx=ast.Load() | ast.Del()) | ast.AugAssign(target=ast.Name(id=name)):
                used.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                used |= set(names)
            case ast.Constant(value=str(text)):
                used |= set(re.findall(r"\w+", text))
    return used


def _thinned(node: ast.AST, used: set[str]) -> bool:
    """Whether something went away of the statements that stand directly in `node`."""
    if isinstance(node, ast.ClassDef):
        return False
    went = False
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if not isinstance(body, list):
            continue
        left = [x for x in body if not _idle(x, used, isinstance(node, ast.Module))]
        if not left and body and field == "body" and not isinstance(node, ast.Module):
            left = [ast.Pass()]
        went = went or len(left) < len(body)
        setattr(node, field, left)
    return went


def _idle(statement: ast.AST, used: set[str], at_top: bool) -> bool:
    match statement:
        case ast.Pass():
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant() | ast.Name()):
            return name not in used and not name.startswith("__")
        case ast.FunctionDef(name=name, decorator_list=decorators, args=arguments, returns=returns):
            defined = [*decorators, arguments, *([returns] if returns else [])]
            calls = any(isinstance(x, ast.Call) for part in defined for x in ast.walk(part))
            return at_top and name not in used and not calls and all(_only_compiles(x) for x in decorators)
    return False


def _only_compiles(decorator: ast.expr) -> bool:
    """`triton.jit`, however it was imported; another decorator may keep what it is given."""
    return isinstance(decorator, ast.Attribute | ast.Name) and ast.unparse(decorator).rpartition(".")[2] == "jit"
