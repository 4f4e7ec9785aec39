"""Random programs: they compute what they compute on NumPy, and broken ones never break the analyser."""

from __future__ import annotations

import ast
import linecache
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.result import ArgType, Static
from tessera.compiler.ir.types import TensorType
from tessera.language.dtypes import f16, f32, int64
from tests.frontend_harness import agree

UNARY = ("-{x}", "abs({x})", "{x}.T.T", "{x} ** 2", "ts.tanh({x})", "{x}[::-1]", "{x} + {x}.mean(1, keepdims=True)")
BINARY = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "ts.maximum({x}, {y})", "ts.where({x} > {y}, {x}, {y})",
    "{x} @ {y}.T @ {y} * 0.1", "{x} if {y}.sum() > 0 else {y}", "{x} * {y}.max() * 0.5",
)  # fmt: skip


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Straight lines, branches and loops over variables of one shape, so that every program is a right one."""
    lines = ["def f(a, b):"]
    names = ["a", "b"]
    count = draw(st.integers(1, 7))
    for i in range(count):
        kind = draw(st.sampled_from(["unary", "binary", "binary", "if", "for", "while", "static"]))
        x, y = draw(st.sampled_from(names)), draw(st.sampled_from(names))
        new = f"v{i}"
        if kind == "unary":
            lines.append(f"    {new} = " + draw(st.sampled_from(UNARY)).format(x=x))
        elif kind == "binary":
            lines.append(f"    {new} = " + draw(st.sampled_from(BINARY)).format(x=x, y=y))
        elif kind == "if":
            lines += [f"    {new} = {x}", f"    if {y}.sum() > {i}:", f"        {new} = {x} * 0.5 + {y}"]
            if draw(st.booleans()):
                lines += ["    else:", f"        {new} = {y} - {x}"]
            if draw(st.booleans()):
                lines += [f"    if {new}.max() > 4:", f"        return {new} * 0.125"]
        elif kind == "for":
            n = draw(st.integers(0, 3))
            lines += [
                f"    {new} = {x}",
                f"    for i{i} in ts.range({n}):",
                f"        {new} = {new} * 0.5 + {y} * i{i}",
            ]
        elif kind == "while":
            lines += [f"    {new}, n{i} = {x}, 0", f"    while {new}.sum() + n{i} < 3 and n{i} < 4:",
                      f"        {new} = {new} + abs({y})", f"        n{i} = n{i} + 1"]  # fmt: skip
        else:
            n = draw(st.integers(1, 3))
            lines += [f"    {new} = {x}", f"    for i{i} in range({n}):", f"        {new} = {new} + {y} * i{i}"]
        names.append(new)
    lines.append(f"    return {names[-1]} * 1.0")
    return "\n".join(lines) + "\n"


@given(programs(), st.integers(0, 3))
@settings(max_examples=60)
def test_programs_mean_what_they_mean_on_numpy(text: str, seed: int) -> None:
    file = f"<program {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    import tessera as ts

    names: dict[str, object] = {"ts": ts}
    exec(compile(text, file, "exec"), names)
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(-1, 1, (3, 4)) for _ in range(2))
    agree(names["f"], a, b, tolerance=1e-6)  # type: ignore[arg-type]


def small_programs(text: str) -> Iterator[str]:
    """A program for each function of a file: with the functions that it uses, and all that is not a function."""
    statements = ast.parse(text).body
    functions = {s.name: s for s in statements if isinstance(s, ast.FunctionDef)}
    for function in functions.values():
        used, open_ = {function.name}, [function]
        while open_:
            names = {n.id for n in ast.walk(open_.pop()) if isinstance(n, ast.Name)} & functions.keys() - used
            used |= names
            open_ += [functions[n] for n in names]
        kept = [s for s in statements if not isinstance(s, ast.FunctionDef) or s.name in used]
        yield "\n\n".join(map(ast.unparse, kept)) + "\n"


FILES = sorted((Path(__file__).parents[1] / "errors" / "programs").glob("*.py"))

CORPUS = [program for file in FILES for program in small_programs(file.read_text())]
TOKENS = (  # noqa: SIM905 - tokens
    "( ) [ ] x None 0 -1 1.5 'a' B D .T .sum() .shape @ * // % , : if for in not *x **x [x] {} x[0] ... y range(3) "
    "ts.range(2) ts ts.softmax Tensor True print return while 10**9 x.reshape(-1) float('inf')"
).split()


def mutated(text: str, rng: random.Random) -> str:
    """The text with one to three expressions or tokens replaced, deleted, doubled or swapped."""
    for _ in range(rng.randint(1, 3)):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            return text
        nodes = [n for n in ast.walk(tree) if isinstance(n, (ast.expr, ast.stmt)) and n.lineno == n.end_lineno]
        a, b = rng.choice(nodes), rng.choice(nodes)
        lines = text.split("\n")
        line = lines[a.lineno - 1]
        piece = lines[b.lineno - 1][b.col_offset : b.end_col_offset]
        new = rng.choice(["", rng.choice(TOKENS), piece, line[a.col_offset : a.end_col_offset] + rng.choice(TOKENS)])
        lines[a.lineno - 1] = line[: a.col_offset] + new + line[a.end_col_offset :]
        text = "\n".join(lines)
    return text


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("chunk", range(10))
def test_mutated_programs_never_break_the_analyser(chunk: int) -> None:
    rng, parsed = random.Random(chunk), 0
    while parsed < 100:
        text = mutated(rng.choice(CORPUS), rng)
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        parsed += 1
        file = FileAnalysis("mutated.py")
        file.update(text)
        for d in file.diagnostics:
            assert d.code != "TS900", f"{d.render()}\n{text}"
            assert d.span.line >= 1 and d.render()
        for a in file.analyses:
            for d in analyse(a.definition, concrete(a.definition, rng)).diagnostics:
                assert d.code != "TS900", f"{d.render()}\n{text}"


def concrete(definition: Definition, rng: random.Random) -> dict[str, ArgType]:
    """Arguments as a call would give them, mostly fitting."""
    out: dict[str, ArgType] = {}
    for p in definition_signature(definition).parameters:
        rank = len(getattr(p.annotation, "shape", None) or ()) or rng.randint(0, 3)
        tensor = TensorType(tuple(rng.choice([2, 3, 4]) for _ in range(rank)), rng.choice([f32, f32, int64, f16]))
        out[p.name] = Static(rng.choice([2, 0.5, True, "a", None])) if p.static else rng.choice([tensor, tensor, None])
    return out
