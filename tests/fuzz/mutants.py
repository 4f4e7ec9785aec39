"""Kernels that people wrote, with pieces exchanged: the front end answers with findings, and what it takes computes the
same on the CPU and on the reference target.

python -m tests.fuzz mutants --count 10000 --seed 1
"""

from __future__ import annotations

import argparse
import ast
import copy
import linecache
import random
import re
import sys
import time
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.kernel.builtins import public
from tessera.errors import CompileError, DebugCheckError, LaunchError
from tessera.runtime.call.examples import example_arguments

ROOT = Path(__file__).parents[2]
HEAD = """import math
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts
from tessera import Const, Tensor, Tile, bf16, f16, f32, int32


"""
NUMBERS = (0, 1, -1, 2, 3, 4, 7, 8, 16, 33, 128, 300, 0.5, -2.5, True)
DTYPES = ("f32", "f64", "f16", "bf16", "int8", "uint8", "int16", "int32", "uint32", "int64", "bool_", "fp8_e4m3")
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor, ast.RShift)
COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
SIZES = (1, 2, 3, 5, 8, 16, 17, 33)
ELEMENTWISE = (
    "exp", "abs", "sqrt", "neg", "tanh", "floor", "sign", "square", "sum", "max", "min", "argmax", "cumsum", "sort",
    "flip", "any", "zeros_like", "row_sum", "row_max", "col_sum", "maximum", "minimum", "mod", "where", "range",
    "range_k", "static_range",
)  # fmt: skip
LONGEST = 30.0
"""seconds of processor time for one program"""


@cache
def corpus() -> tuple[tuple[str, str], ...]:
    """Kernels of the documentation and of tests, with the module that each stands in."""
    texts = re.findall(r"```python\n(.*?)```", (ROOT / "docs/kernels.md").read_text(), re.S)
    texts += [p.read_text() for p in sorted((ROOT / "tests/differential").glob("test_t*.py"))]
    found: list[tuple[str, str]] = []
    for text in texts:
        tree = ast.parse(text)
        helpers = [n for n in tree.body if isinstance(n, ast.FunctionDef) and not _kernel(n)]
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and _kernel(node):
                called = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                own = [ast.unparse(h) for h in helpers if h.name in called]
                kernel = copy.deepcopy(node)
                kernel.name = "f"
                if not any("kernel" in ast.unparse(d) for d in kernel.decorator_list):
                    kernel.decorator_list = [ast.parse("ts.kernel", mode="eval").body]
                found.append(("\n\n".join(own), ast.unparse(kernel)))
    return tuple(found)


def _kernel(node: ast.FunctionDef) -> bool:
    text = ast.unparse(node)
    autotuned = any("autotune" in ast.unparse(d) or "case" in ast.unparse(d) for d in node.decorator_list)
    return "Tensor[" in text and ("ts.tile." in text or "tile_" in text) and not autotuned


class Mutator:
    """Changes one kernel in a few places."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def program(self) -> str:
        helpers, text = self.r.choice(corpus())
        (tree,) = ast.parse(text).body
        assert isinstance(tree, ast.FunctionDef)
        for _ in range(self.r.choice((1, 1, 1, 2, 2, 3))):
            self.change(tree)
        try:
            text = f"{HEAD}{helpers}\n\n\n{ast.unparse(ast.fix_missing_locations(tree))}\n"
            ast.parse(text)
        except (SyntaxError, ValueError):  # a slice has come to stand where none may
            return self.program()
        return text

    def change(self, tree: ast.FunctionDef) -> None:
        r = self.r
        places = [
            (n, field, None) for n in ast.walk(tree) for field, v in ast.iter_fields(n) if isinstance(v, ast.expr)
        ]
        places += [(n, field, i) for n in ast.walk(tree) for field, v in ast.iter_fields(n) if isinstance(v, list)
                   for i, item in enumerate(v) if isinstance(item, (ast.expr, ast.stmt)) and field != "decorator_list"]  # type: ignore[misc]  # fmt: skip
        said = [a.annotation for a in tree.args.args if a.annotation is not None] + [tree.returns] * (
            tree.returns is not None
        )
        inside = {id(n) for a in said for n in (a, *ast.walk(a))} | {id(a) for a in tree.args.args} | {id(tree.args)}
        while True:  # of annotations dtypes alone: few others are kernels
            node, field, at = r.choice(places)
            old = getattr(node, field) if at is None else getattr(node, field)[at]
            if (id(node) not in inside and id(old) not in inside) or getattr(old, "attr", None) in DTYPES:
                break
        new = self.statement(tree, old) if isinstance(old, ast.stmt) else self.expression(tree, old)
        if at is None:
            setattr(node, field, new)
        elif isinstance(new, list):
            body = getattr(node, field)
            body[at : at + 1] = new or ([ast.Pass()] if len(body) == 1 else [])
        else:
            getattr(node, field)[at] = new

    def statement(self, tree: ast.FunctionDef, old: ast.stmt) -> list[ast.stmt]:
        kind = self.r.random()
        if kind < 0.3:
            return []
        if kind < 0.5:
            return [old, copy.deepcopy(old)]
        others = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and n is not tree]
        other = copy.deepcopy(self.r.choice(others))
        return [other] if kind < 0.7 else [other, old] if kind < 0.85 else [old, other]

    def expression(self, tree: ast.FunctionDef, old: ast.expr) -> ast.expr:
        r = self.r
        if isinstance(old, ast.BinOp) and r.random() < 0.5:
            return ast.BinOp(old.left, r.choice(OPERATORS)(), old.right)
        if isinstance(old, ast.Compare) and r.random() < 0.5:
            return ast.Compare(old.left, [r.choice(COMPARISONS)()], old.comparators[:1])
        if isinstance(old, ast.Attribute) and old.attr in DTYPES and r.random() < 0.8:
            return ast.Attribute(old.value, r.choice(DTYPES), old.ctx)
        if isinstance(old, ast.Attribute) and old.attr in ELEMENTWISE and r.random() < 0.8:
            return ast.Attribute(old.value, r.choice(ELEMENTWISE), old.ctx)
        if isinstance(old, ast.Attribute) and old.attr in public() and r.random() < 0.8:
            return ast.Attribute(old.value, r.choice(sorted(public())), old.ctx)
        if isinstance(old, ast.Constant) and isinstance(old.value, (int, float)) and r.random() < 0.9:
            return ast.Constant(r.choice(NUMBERS))
        if isinstance(old, ast.Slice):
            return ast.Slice(old.lower, old.upper, ast.Constant(r.choice((1, 2, -1))))
        kind = r.random()
        if kind < 0.15 and not any(isinstance(n, ast.Slice) for n in ast.walk(old)):
            call = ast.parse(f"ts.tile.cast(x, ts.{r.choice(DTYPES)})", mode="eval").body
            assert isinstance(call, ast.Call)
            call.args[0] = old
            return call
        if kind < 0.25:
            return ast.UnaryOp(r.choice((ast.USub, ast.Not, ast.Invert))(), old)
        if kind < 0.35:
            return ast.Constant(r.choice(NUMBERS))
        others = [n for n in ast.walk(tree) if isinstance(n, ast.expr) and not isinstance(n, ast.Slice)]
        return copy.deepcopy(r.choice(others))


def answer(text: str, name: str) -> tuple[list[str], str]:
    """The codes of the errors that the front end finds, and what is wrong with its answer."""
    started, codes, wrong = time.process_time(), list[str](), ""
    try:
        file = FileAnalysis(f"{name}.py")
        file.update(text)
        codes = [d.code for d in file.diagnostics if d.severity == "error"]
        wrong = next((f"TS900: {d.message}" for d in file.diagnostics if d.code == "TS900"), "")
    except Exception as e:
        wrong = f"the front end raised {type(e).__name__}: {e}"
    took = time.process_time() - started
    return codes, wrong or (f"took {took:.0f} s of processor time" if took > LONGEST else "")


def loaded(text: str, name: str) -> Any:
    """The kernel of a text that has no file."""
    file = f"<mutant {name}>.py"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"__name__": name}
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return scope["f"]


def computed(kernel: Any, seed: int, targets: Sequence[str]) -> str:
    """What is wrong with its results on example arguments; "" where nothing is."""
    r = random.Random(seed)
    sizes = {d: r.choice(SIZES) for d in sorted(set(re.findall(r"'(\w+)'", " ".join(_annotations(kernel)))))}
    try:
        given = example_arguments(kernel, sizes)
    except (LaunchError, CompileError):
        return ""
    results: list[tuple[str, list[Any]]] = []
    for target in targets:
        arguments = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in given.items()}
        with knobs.target.override(target), np.errstate(all="ignore"):
            try:
                found = kernel(**arguments)
            except (CompileError, LaunchError, DebugCheckError) as e:
                refused = [d.code for d in getattr(e, "diagnostics", ())]
                if any(c == "TS900" for c in refused):
                    return f"{target}: {e}"
                results.append((target, refused))
                continue
            except Exception as e:
                return f"{target} raised {type(e).__name__}: {e} ({sizes})"
        flat = [found] if not isinstance(found, tuple) else list(found)
        results.append((target, [np.asarray(v) for v in (*flat, *arguments.values()) if hasattr(v, "shape")]))
    (_, first), *others = results
    for target, found in others:
        if any(isinstance(v, str) for v in (*first, *found)):
            if first != found and all(isinstance(v, str) for v in (*first, *found)):
                return f"{first} and {found} on {target} ({sizes})"
            continue  # what one of them cannot run, or finds at run time
        for a, b in zip(first, found, strict=True):
            if not _alike(a, b):
                return f"other results on {target} ({sizes})"
    return ""


def _annotations(kernel: Any) -> list[str]:
    return [*map(str, kernel.__wrapped__.__annotations__.values())] + [
        ast.unparse(n) for n in ast.walk(kernel.definition().tree) if isinstance(n, ast.Subscript)
    ]


def _alike(a: Any, b: Any) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return bool((a == b).all())
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(kind), b.astype(kind)
    rough = (1e-3 if a.dtype.itemsize >= 4 else 0.3) * max(1.0, float(np.abs(x[np.isfinite(x)]).max(initial=0)))
    return bool(np.isclose(x, y, rtol=0, atol=rough, equal_nan=True).all()) or bool(np.isnan(x).any())


def failure(seed: int, targets: Sequence[str] = ("cpu", "reference")) -> tuple[str, str] | None:
    """What is wrong with a program, and the program; None where nothing is."""
    text = Mutator(seed).program()
    codes, wrong = answer(text, f"mutant_{seed}")
    if not wrong and targets:
        try:
            kernel = loaded(text, f"mutant_{seed}")
        except Exception:
            return None  # Python itself, or an annotation, refuses it
        if not codes and isinstance(kernel, type(_ANY)):
            wrong = computed(kernel, seed, targets)
    return (wrong, text.removeprefix(HEAD)) if wrong else None


@ts.kernel
def _ANY(x: ts.Tensor["n", ts.f32]) -> ts.Tensor["n", ts.f32]:
    return x[ts.tile.linear_id()]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m tests.fuzz mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first program; each has its own")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long")
    parser.add_argument("--targets", default="cpu,reference", help="empty: the front end alone")
    options = parser.parse_args(arguments)
    targets = [t for t in options.targets.split(",") if t]
    warnings.simplefilter("ignore", SyntaxWarning)
    started, wrong, done = time.monotonic(), 0, 0
    for seed in range(options.seed, options.seed + options.count):
        if options.seconds and time.monotonic() - started > options.seconds:
            break
        done += 1
        if (found := failure(seed, targets)) is not None:
            wrong += 1
            print(f"seed {seed}: {found[0]}\n{found[1]}", flush=True)
    print(f"{done} programs, {wrong} failures")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
