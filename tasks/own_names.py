"""Which names a Python source binds itself, what imported ones stand for, and which ones no renaming may touch."""

import ast
import re
from collections.abc import Collection

TAKES_NAMES = frozenset({"dict", "partial", "Config"})  # calls whose keywords may come back as names of parameters
REFLECTION = frozenset({"eval", "exec", "globals", "locals", "vars"})
FIXED = frozenset({"run", "CPP"})  # what is looked for in a candidate by name


def bound(tree: ast.AST) -> set[str]:
    """Every name that is bound anywhere inside."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
    return names


def imports(tree: ast.AST) -> tuple[dict[str, str], frozenset[str]]:
    """What each imported name stands for, and names that stand for more than one thing or for something unknown."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    found.setdefault(alias.asname or alias.name, set()).add(alias.name)
            case ast.ImportFrom(names=names, module=module, level=level):
                for alias in names:
                    unknown = level or module in (None, "__future__") or alias.name == "*"
                    path = {"", "?"} if unknown else {f"{module}.{alias.name}"}
                    found.setdefault(alias.asname or alias.name, set()).update(path)
    clear = {name: next(iter(paths)) for name, paths in found.items() if len(paths) == 1}
    return clear, frozenset(found) - frozenset(clear)


def kept(tree: ast.Module) -> frozenset[str]:
    """Names of which another spelling may have another meaning: in a text, made one, of a class, or declared global."""
    words: set[str] = set(FIXED)
    if any(isinstance(node, ast.Name) and node.id in REFLECTION for node in ast.walk(tree)):
        words |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | bound(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if len(text) < 1000:
                words |= set(re.findall(r"\w+", text))
            case ast.Call(keywords=keywords) if _last(node.func) in TAKES_NAMES:
                words |= {keyword.arg for keyword in keywords if keyword.arg}
            case ast.ClassDef():
                words |= {node.name, *bound(node)}
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                words |= set(names)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                words.add(name)
    return frozenset(words)


def keywords_of_others(tree: ast.Module, functions: Collection[str], foreign: Collection[str]) -> set[str]:
    """Keywords of calls that may reach a function of this module in a way that is not seen: they may name its parameters."""
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            direct = isinstance(called, ast.Name) and called.id in functions
            while isinstance(called, ast.Attribute | ast.Subscript | ast.Call):
                called = called.func if isinstance(called, ast.Call) else called.value
            if not direct and not (isinstance(called, ast.Name) and called.id in foreign):
                words |= {keyword.arg for keyword in node.keywords if keyword.arg}
    return words


def _last(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
