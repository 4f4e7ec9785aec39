"""The dialect: what is rewritten, that nothing moves, and that plain Python is left alone."""

from __future__ import annotations

import ast
import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.compiler.frontend.syntax.dialect import rewrite
from tessera.compiler.frontend.syntax.parse import Sample, Source, compile_text, parse
from tessera.errors import CompileError

REWRITTEN = {
    "W ~ Normal(0, 1)": "W = Normal(0, 1)",
    "W[i] ~ Normal(0, 1)": "W[i] = Normal(0, 1)",
    "self.w[0].b ~ D": "self.w[0].b = D",
    "a ~ D; b ~ E(a)": "a = D; b = E(a)",
    "if a: W ~ D\nelse: V ~ D": "if a: W = D\nelse: V = D",
    "W \\\n ~ D": "W \\\n = D",
    'x: Tensor["B", dtype=bf16] = f(a, k=2)[0]': 'x: Tensor["B", dtype:bf16] = f(a, k=2)[0]',
    'T["B", @accum(f32)]': 'T["B",  accum(f32)]',
    'T["B", dtype=bf16 @accum(f32)]': 'T["B", dtype:bf16 @accum(f32)]',
    "Int[bits=32]": "Int[bits:32]",
    'T[\n  # c, d=\n  dtype=f32,\n @accum(f32)\n]': 'T[\n  # c, d=\n  dtype:f32,\n  accum(f32)\n]',
    "x[lambda a, b=2: a, dtype=3]": "x[lambda a, b=2: a, dtype:3]",
    "def f[B, S](x): pass": "def f(      x): pass",
    "async def f[B] (x): pass": "async def f(    x): pass",
    "class L[N, M]: pass": "class L(    ): pass",
    "class L[N](Base): pass": "class L(   Base): pass",
    "def g[\n  B: int,  # the [batch\n\n  *Xs](x): pass": "def g(\n                       \n\n       x): pass",
    "def f[B, S](): W ~ D; return W": "def f(      ): W = D; return W",
    '"é日本"; W ~ D["é", dtype=f32]\r\nX ~ D\r\n': '"é日本"; W = D["é", dtype:f32]\r\nX = D\r\n',
    'f"{x["a"]} ~ {y!r:>{w}}"; W ~ D': 'f"{x["a"]} ~ {y!r:>{w}}"; W = D',
    "x = (1,\ndef f[B](y): z ~ D": "x = (1,\ndef f(   y): z = D",
}  # fmt: skip

UNTOUCHED = [
    "y = ~x & 3", "f(~x)", "return ~x", "x and ~y", "lambda: ~x", "match ~x:\n  case 1: pass", "assert ~x", "not ~x",
    "f(a=1)", "d[f(a=1)]", "x[lambda a=1, b=2: a]", "x[a == b]", "x[a := 1]", "x[a <= b, c != d]", "x[{k: v}]",
    "[a @ b, @c]", "x[a @ b]", "@decorated\ndef f(): pass", "z = [x for x in y]", "type X[T = int] = list[T]",
    "s = 'W ~ D'", 's = """\nW ~ D\nx[a=1]\n"""', "# W ~ D, x[a=1]", "s = 'it\\'s' 'x[a=1]'",
    's = r"\\\\"; t = "x[a=1]"',
    "[a=1]", "y = x ~ D", "print(x ~ D)", "return x ~ D", "f'{x[\"a=1\"]}'", "x: int ~ D",
    "rb'''W ~ D'''", "x = 1 if a else ~b", "del x\n~y",
]  # fmt: skip


@pytest.mark.parametrize(("text", "plain"), REWRITTEN.items())
def test_forms(text, plain):
    assert len(plain) == len(text)
    assert rewrite(text, native_type_parameters=False)[0] == plain


@pytest.mark.parametrize("text", UNTOUCHED)
def test_everything_else_stays(text):
    assert rewrite(text, native_type_parameters=False) == (text, ())


def test_newer_pythons_keep_their_type_parameters():
    text = "def f[B](x: Tensor[B, dtype=f32]): pass"
    plain, notes = rewrite(text, native_type_parameters=True)
    assert plain == "def f[B](x: Tensor[B, dtype:f32]): pass"
    assert [n.form for n in notes] == ["type_parameters", "keyword"]


def test_notes_say_where_each_form_stood():
    text = "def f[B, *S](x: T[B, dtype=f32, @accum(f32)]):\n    W ~ D\n"
    _, notes = rewrite(text)
    shown = {n.form: text[n.start : n.end] for n in notes}
    assert shown == {"type_parameters": "[B, *S]", "keyword": "=", "policy": "@", "sample": "~"}
    (types,) = [n for n in notes if n.form == "type_parameters"]
    assert [(text[at : at + len(name)], stars) for at, stars, name in types.names] == [("B", 0), ("S", 1)]
    assert [text[n.owner :].split()[0] for n in notes] == ["def", "dtype=f32,", "@accum(f32)]):", "W"]


def test_the_tree_says_what_the_text_says():
    text = 'class C[N]:\n    async def f[B: int, **P](x):\n        W ~ D\n        return T["B", dtype=f32]\n'
    tree = parse(text, "m.tess").tree
    cls = tree.body[0]
    (f,) = cls.body
    assert [p.name for p in cls.type_params] == ["N"]
    assert [p.name for p in f.type_params] == ["B", "P"]
    assert isinstance(f.body[0], Sample)
    keyword = f.body[1].value.slice.elts[1]
    assert keyword.lower.value == "dtype"


def test_type_parameters_have_places():
    text = '"é"; x = 1\ndef ö[Größe, S](x: Tensor[S]): pass\n'
    tree, source = parse(text, "m").tree, Source("m", text)
    f = tree.body[-1]
    if not isinstance(f.type_params[0], ast.AST):  # before Python 3.12 they are ours, with the same positions
        assert [source.segment(source.span(p)) for p in f.type_params] == ["Größe", "S"]
        assert (source.span(f.type_params[1]).line, source.span(f.type_params[1]).col) == (2, 14)


@given(st.text(st.characters() | st.sampled_from("~=@[](){}:,;'\"\\#\n\r fdeltrb\ufeff\0"), max_size=80))
def test_nothing_moves_and_nothing_raises(text):
    for native in (False, True):
        plain, _ = rewrite(text, native)
        assert len(plain) == len(text)
        assert [i for i, c in enumerate(plain) if c in "\r\n"] == [i for i, c in enumerate(text) if c in "\r\n"]
    parsed = parse(text, "m")
    assert (parsed.tree is None) == bool(parsed.diagnostics)
    for d in parsed.diagnostics:
        assert d.code == "TS101"
        assert 1 <= d.span.line <= d.span.end_line
        assert (d.span.line, d.span.col) < (d.span.end_line, d.span.end_col) or "deeply" in d.message


MODULES = ["argparse", "dataclasses", "typing", "ast", "inspect", "enum", "logging", "asyncio.tasks", "json.decoder",
           "re", "tokenize", "unittest.mock", "fractions", "statistics", "textwrap", "tempfile"]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_plain_python_is_left_alone(name):
    text = Path(importlib.util.find_spec(name).origin).read_text(encoding="utf-8")
    assert rewrite(text, native_type_parameters=False) == (text, ())


@given(st.integers(0, 10**6))
def test_damaged_python_keeps_its_length(seed):
    text = Path(random.__file__).read_text(encoding="utf-8")
    rng = random.Random(seed)
    at = rng.randrange(len(text))
    damaged = (
        text[:at] + rng.choice(["", "(", "[", '"', "'''", "\\", "~", " x[a=", "def f["]) + text[at + rng.randrange(9) :]
    )
    assert len(rewrite(damaged)[0]) == len(damaged)


names = st.sampled_from(["x", "W", "ctx", "größe", "_b"])
values = st.sampled_from(["f32", "'a=b, [~'", "(1, 2)", "g(k=3)", "h[i]", "lambda a=1: a", "{1: 2}", "x @ y", "~x"])
fillers = st.sampled_from(["", " ", "\n  ", " # note, [k=1\n  "])


@given(st.lists(st.tuples(names, values, fillers), min_size=1, max_size=4), names)
def test_keywords_are_read_back(items, head):
    """`T[a=1, b=2]` has the keywords and values that were written, whatever stands between them."""
    inside = ",".join(f"{gap}{name} = {value}" for name, value, gap in items)
    text = f"{head}[{inside}]\n"
    tree = parse(text, "m").tree
    index = tree.body[0].value.slice
    found = index.elts if isinstance(index, ast.Tuple) else [index]
    assert [s.lower.value for s in found] == [name for name, _, _ in items]
    assert [ast.unparse(s.upper) for s in found] == [ast.unparse(ast.parse(v, mode="eval").body) for _, v, _ in items]


@given(st.lists(st.tuples(names, values, st.sampled_from(["~", "="])), min_size=1, max_size=5), st.booleans())
def test_samples_are_read_back(lines, inside):
    indent = "    " if inside else ""
    text = ("def f[B](x):\n" if inside else "") + "".join(f"{indent}{n} {op} {v}\n" for n, v, op in lines)
    tree = parse(text, "m").tree
    body = tree.body[0].body if inside else tree.body
    assert [isinstance(s, Sample) for s in body] == [op == "~" for _, _, op in lines]
    assert [s.lineno for s in body] == list(range(1 + inside, 1 + inside + len(lines)))


@given(st.lists(names, min_size=1, max_size=4), st.text("äx 日😀", max_size=6))
def test_columns_count_characters(targets, comment):
    text = "".join(f'"{comment}"; {t} ~ Normal["é", dtype=f32]\n' for t in targets)
    source = Source("m", text)
    for node in ast.walk(parse(text, "m").tree):
        if isinstance(node, ast.Name):
            assert source.segment(source.span(node)) == node.id


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("x = (1,\n", "never closed", (1, 5, 1, 6)),
        ("f(x) ~ D\n", "left side of ~ must be a name", (1, 1, 1, 5)),
        ("y = x ~ D\n", "invalid syntax", (1, 7, 1, 8)),
        ("é = 'ü'; x = = 1\n", "invalid syntax", (1, 14, 1, 15)),
        ("x\0y", "null character", (1, 2, 1, 3)),
        ("def f[B](x:\n", "", None),
        ("  x = 1\n", "unexpected indent", None),
        ("(" * 300, "too many nested", None),
        ("-" * 30000 + "x", "deeply", None),
        ("s = '\ud800' ~\n", "", None),
    ],
)
def test_errors_have_places(text, message, place):
    parsed = parse(text, "m.tess")
    (d,) = parsed.diagnostics
    assert parsed.tree is None
    assert message in d.message
    assert d.span.file == "m.tess"
    if place:
        assert (d.span.line, d.span.col, d.span.end_line, d.span.end_col) == place


def test_a_byte_order_mark_is_no_indentation():
    text = "\ufeffW ~ D\nx = 1\n"
    (first, second) = parse(text, "m").tree.body
    assert isinstance(first, Sample)
    assert Source("m", text).span(first.targets[0]).col == 2
    assert second.lineno == 2


def test_compiled_text_leaves_annotations_alone():
    text = "def f[B](x: Tensor[B, dtype=f32, @accum(f32)]) -> Nothing: return x\nT = dict\nK = T[str, int]\n"
    namespace = {}
    exec(compile_text(text, "m.tess"), namespace)
    assert namespace["f"](3) == 3
    assert set(namespace["f"].__annotations__) == {"x", "return"}


def test_keywords_reach_the_subscript_at_run_time():
    namespace = {"T": type("T", (), {"__class_getitem__": lambda cls, item: item}), "f32": 7}
    exec(compile_text("A = T['B', dtype=f32]", "m.tess"), namespace)
    assert namespace["A"] == ("B", slice("dtype", 7, None))


def test_a_sample_at_module_level_has_no_meaning():
    with pytest.raises(CompileError, match="inside a function") as e:
        compile_text("x = 1\nW ~ Normal(0, 1)\n", "m.tess")
    assert e.value.diagnostics[0].code == "TS102"
    assert (e.value.diagnostics[0].span.line, e.value.diagnostics[0].span.end_col) == (2, 17)
    with pytest.raises(CompileError, match="never closed"):
        compile_text("f(", "m.tess")


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("é = 1; return é", "'return' outside function", (1, 8)),
        ("x = 1\nawait x", "'await' outside function", (2, 1)),
        ("def f():\n    nonlocal a", "no binding for nonlocal 'a'", (2, 5)),
    ],
)
def test_what_python_refuses_behind_its_parser(text, said, place):
    with pytest.raises(CompileError, match=said) as e:
        compile_text(text, "m.tess")
    (found,) = e.value.diagnostics
    assert (found.code, (found.span.line, found.span.col)) == ("TS101", place)


def calls_made(work: Callable[[], object]) -> int:
    """How many functions ``work`` calls, Python's and C's: a cost that a busy machine does not change."""
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_rewrite_is_linear():
    """Ten times the text takes about ten times as long: no backtracking in strings, brackets or names."""
    for piece in [
        'x = f("a", b[c, d], {1: 2})  # note\n',
        "'",
        '"""',
        "[",
        "f'{",
        "x ~",
        "\\\n",
        "#" * 9,
        "a.",
        "lambda ",
    ]:
        few, many = (calls_made(lambda text=piece * n: rewrite(text)) for n in (200, 2000))
        assert many < 12 * few + 100, piece
