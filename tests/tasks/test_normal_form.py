"""A source in one spelling: what says nothing goes away, and what says something stays."""

import ast
import builtins
import io
import tokenize
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.normal_form import normal_form, options_of
from tasks.problem import KERNELS

SOURCES = sorted(p for p in KERNELS.glob("*/*.py") if p.name not in ("reference.py", "splice.py"))
# Looked for by name, or taken by Triton under that name: renaming these does change what happens.
NAMED = {"run", "CPP", "num_warps", "num_stages", "num_ctas"}


def own_names(source: str) -> list[str]:
    """Every name that the source binds and that no import, builtin, attribute or text of it shares."""
    tree = ast.parse(source)
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    said = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    keywords = {k.arg for n in ast.walk(tree) if isinstance(n, ast.Call) for k in n.keywords}
    parameters = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    foreign = attributes | {x for x in keywords if x not in parameters} | NAMED | set(dir(builtins))
    return sorted(name for name in bound - foreign if not any(name in text for text in said))


def renamed(source: str, names: dict[str, str]) -> str:
    """Token by token, so that this is no copy of what is tested; each name everywhere in the file."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    changed = [
        t._replace(string=names[t.string]) if t.type == tokenize.NAME and t.string in names else t for t in tokens
    ]
    return tokenize.untokenize([(t.type, t.string) for t in changed])


@given(st.data())
def test_renaming_what_a_kernel_binds_changes_nothing(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(SOURCES)).read_text()
    names = data.draw(st.lists(st.sampled_from(own_names(source)), unique=True, min_size=1))
    fresh = {name: f"x{number}_{name[:1]}" for number, name in enumerate(names)}
    changed = renamed(source, fresh)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    assert normal_form(changed) == normal_form(source)


class Nudged(ast.NodeTransformer):
    """Changes the constant or the operator at one place."""

    def __init__(self, place: int) -> None:
        self.place, self.seen = place, 0

    def visit(self, node: ast.AST) -> ast.AST:
        number = isinstance(node, ast.Constant) and isinstance(node.value, int | float)
        if number or isinstance(node, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Lt | ast.Gt):
            self.seen += 1
            if self.seen == self.place:
                if isinstance(node, ast.Constant):
                    return ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1)  # type: ignore[operator]
                return ast.Mod() if isinstance(node, ast.operator) else ast.NotEq()
        return self.generic_visit(node)


def places(source: str) -> int:
    counter = Nudged(0)
    counter.visit(ast.parse(source))
    return counter.seen


@given(st.data())
def test_another_constant_or_operator_is_another_kernel(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(SOURCES)).read_text()
    place = data.draw(st.integers(1, places(source)))
    assert normal_form(ast.unparse(Nudged(place).visit(ast.parse(source)))) != normal_form(source)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_comments_docstrings_and_layout_say_nothing(path: Path) -> None:
    source = path.read_text()
    bare = ast.parse(source)
    bare.body = bare.body[1:] if isinstance(bare.body[0], ast.Expr) else bare.body
    assert normal_form("# a comment\n" + ast.unparse(bare)) == normal_form(source)


BASE = """
import triton.language as tl
SIZE = 4
def kernel(a, b, N: tl.constexpr):
    x = tl.load(a) + N
    tl.store(b, x)
def run(a, b, *, TILE=32):
    kernel[(SIZE,)](a, b, N=TILE)
"""
SAME = {
    "an alias of an import": BASE.replace("triton.language as tl", "triton.language as t").replace("tl.", "t."),
    "an import by name": BASE.replace("import triton.language as tl", "from triton import language as tl"),
    "a parameter, and the keyword that names it": BASE.replace("N", "COUNT"),
    "a constant of the module": BASE.replace("SIZE", "HOW_MANY"),
    "a kernel": BASE.replace("kernel", "other"),
    "an option of run": BASE.replace("TILE", "BLOCK"),
    "one local like another function's": BASE.replace("x =", "TILE =").replace("b, x)", "b, TILE)"),
    "a function that nothing calls": BASE + "def helper(x):\n    return other(x)\ndef other(x):\n    return x\n",
    "a kernel that nothing launches": BASE.replace("def kernel", "@jit\ndef spare(a):\n    return a\ndef kernel"),
    "a constant that nothing reads": BASE.replace("SIZE = 4", "SIZE = 4\nOTHER = SIZE\nLAST = OTHER"),
    "a local that nothing reads": BASE.replace("    x =", "    spare = 1\n    x ="),
    "a statement that does nothing": BASE.replace("    x =", "    pass\n    x ="),
    "a docstring": BASE.replace("    x =", "    'says nothing'\n    x ="),
}
OTHER = {
    "arguments that change places": BASE.replace("kernel[(SIZE,)](a, b", "kernel[(SIZE,)](b, a"),
    "another default": BASE.replace("TILE=32", "TILE=16"),
    "another function of the same module": BASE.replace("tl.load", "tl.atomic_add"),
    "another module under the alias": BASE.replace("triton.language", "triton.other"),
    "a cast": BASE.replace("tl.load(a)", "tl.load(a).to(tl.float32)"),
    "a function that is registered": BASE + "import atexit\n@atexit.register\ndef helper():\n    return 1\n",
    "a default that is called for": BASE + "def helper(x=print(1)):\n    return 1\n",
    "a local that is read": BASE.replace("    x =", "    a = b\n    x ="),
    "a constant that a text may name": BASE.replace("SIZE = 4", "SIZE = 4\nOTHER = 1\nLIST = ['OTHER']\nprint(LIST)"),
    "another grid": BASE.replace("SIZE = 4", "SIZE = 8"),
    "an option of Triton": BASE.replace("N=TILE", "N=TILE, num_warps=2"),
    "another type of a parameter": BASE.replace("N: tl.constexpr", "N"),
}


@pytest.mark.parametrize("what", SAME)
def test_another_spelling_is_the_same(what: str) -> None:
    assert SAME[what] != BASE
    assert normal_form(SAME[what]) == normal_form(BASE)


@pytest.mark.parametrize("what", OTHER)
def test_another_meaning_is_not_the_same(what: str) -> None:
    assert normal_form(OTHER[what]) != normal_form(BASE)


def test_the_order_of_keywords_says_nothing_unless_their_values_do_something() -> None:
    text = "def kernel(N, M): ...\ndef run(n, m):\n    kernel[(1,)]({})\n"
    assert normal_form(text.format("N=n, M=m, warps=4")) == normal_form(text.format("warps=4, M=m, N=n"))
    assert normal_form(text.format("N=n, M=m")) != normal_form(text.format("N=m, M=n"))
    assert normal_form(text.format("N=n(), M=m()")) != normal_form(text.format("M=m(), N=n()"))


def test_a_name_that_a_text_holds_is_not_renamed_since_the_text_may_mean_it() -> None:
    tuned = "@autotune(key=['{0}'])\ndef k({0}, {1}):\n    return {0} - {1}\n"
    one, other = tuned.format("N", "M"), "@autotune(key=['N'])\ndef k(M, N):\n    return M - N\n"
    assert normal_form(one) != normal_form(other)


def test_a_name_that_hides_another_is_not_mixed_up_with_it() -> None:
    text = "X = 1\nZ = 2\ndef run():\n    return {0} + (lambda {0}: {0})(3)\n"
    assert normal_form(text.format("X")) != normal_form(text.format("Z"))


@pytest.mark.parametrize(
    "call", ["g(a=1, b=2)", "f[0](a=1, b=2)", "g.run(a=1, b=2)", "dict(a=1, b=2)", "partial(g, a=1, b=2)"]
)
def test_a_parameter_that_a_keyword_may_name_in_a_way_that_is_not_seen_is_not_renamed(call: str) -> None:
    text = "def run():\n    def g({0}, {1}):\n        return {0} - {1}\n    return " + call
    assert normal_form(text.format("a", "b")) != normal_form(text.format("b", "a"))


def test_an_import_that_stands_for_two_things_stays() -> None:
    text = "try:\n    import {0} as np\nexcept ImportError:\n    import {1} as np\ndef run():\n    return np.x\n"
    assert normal_form(text.format("numpy", "cupy")) != normal_form(text.format("cupy", "numpy"))


def test_layout_and_comments_of_cpp_say_nothing_and_its_texts_do() -> None:
    text = 'CPP = r"""\nint f(int x) { return x; }%s\n"""\ndef run(): ...\n'
    assert normal_form(text % "  // why\n  /* more */") == normal_form(text % "")
    assert normal_form(text % ' const char* s = "// no comment";') != normal_form(text % ' const char* s = "//";')


def test_options_become_the_defaults_that_they_replace() -> None:
    assert normal_form(BASE, {"TILE": 16}) == normal_form(BASE.replace("TILE=32", "TILE=16"))
    assert normal_form(BASE, {"TILE": 32}) == normal_form(BASE)


def test_what_is_no_python_has_no_normal_form() -> None:
    assert normal_form("def run(:") is None
    assert normal_form("x" * 10 + "\0") is None
    assert normal_form("(" * 5000) is None


@pytest.mark.parametrize("source", ["eval\n" * 20_000, "CPP = '" + "/* " * 200_000 + "'"], ids=["eval", "comments"])
def test_a_source_that_says_one_thing_over_and_over_does_not_hold_us_up(source: str) -> None:
    assert normal_form(source)


def test_a_source_that_python_only_warns_of_has_one() -> None:
    assert normal_form("x = '\\d'") is not None


def test_the_options_of_run_are_read_where_they_can_be() -> None:
    assert options_of(BASE) == {"TILE"}
    assert options_of("def run(a, b=1, *, c, d=2): ...") == {"b", "c", "d"}
    assert options_of("def run(a, **more): ...") is None
    assert options_of("x = 1") is None
