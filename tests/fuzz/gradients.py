"""Derivatives of random functions: both modes against each other and against differences, in two orders.

    python -m tests.fuzz gradients --count 10000 --seed 1 [--target cpu]

A program is a scalar function of a vector and a matrix in f64, of operators, masks, branches, loops and gradients
inside. What is found is printed as a file that runs. Without a target the golden model of Graph IR evaluates it.
"""

from __future__ import annotations

import argparse
import itertools
import linecache
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes

N = 3
STEP = 1e-5
_files = itertools.count()

VECTORS = (
    "ts.sin({a})", "ts.tanh({a}) * {b}", "{a} + {b}", "{a} * {b}", "{a} / (1.5 + {b} * {b})", "ts.softmax({a})",
    "ts.exp(-({a} * {a})) - {b}", "ts.cumsum({a}, axis=0)", "ts.where({a} > {c}, ts.log(1e-30 + {a} - {c}), {b})",
    "ts.where({a} > {c}, ts.sqrt({a} - {c}), ts.square({b}))", "ts.maximum({a}, {b})", "ts.relu({a}) + 0.1 * {b}",
    "{m} @ {a}", "{a} @ {m}", "ts.sum({m} * {a}, axis=0)", "ts.mean({m}, axis=1)", "ts.logsumexp({m}, axis=1)",
    "ts.max({m}, axis=0)", "ts.take({a}, ts.argmax({m}, axis=0), axis=0)", "ts.flip({a}, axis=0) * {b}",
    "{a} * ts.sum({b})", "ts.concat([{a}[1:], {b}[:1]])", "ts.pow(1.5 + ts.sin({a}), {b})", "ts.layer_norm({a})",
    "{m}[1] - {a}", "ts.clip({a}, -0.7, 0.9)", "ts.atan2({a}, 2.0 + ts.sin({b}))", "ts.sort({a})",
    "ts.cumprod({a}, axis=0) + {b}", "ts.grad(lambda u: ts.sum(ts.sin(u) * {a}))({b})",
    "ts.jvp(lambda u: u * {a} * ts.sum(u), ({b},), ({a},))[1]",
)  # fmt: skip
MATRICES = (
    "{m} @ {n}", "{m} * {a}", "ts.outer({a}, {b})", "{m}.T + {n}", "ts.sigmoid({m}) * {n}", "ts.tril({m}) - {n}",
    "ts.softmax({m}, axis=0)", "ts.where({m} > {n}, {m} * {n}, ts.cos({m}))", "ts.stack([{a}, {b}, {a}])",
    "{m} / (2.0 + ts.sum({n} * {n}, axis=0, keepdims=True))", "ts.reshape(ts.permute({m}, (1, 0)), (3, 3))",
)  # fmt: skip


@dataclass(frozen=True)
class GradientProgram:
    seed: int
    text: str

    def function(self, name: str) -> Any:
        file = f"<gradients {next(_files)}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        names: dict[str, Any] = {"ts": ts}
        exec(compile(self.text, file, "exec"), names)
        return names[name]


CHECKS = """

@ts.function
def checks(x, w, dx, dw, ex, ew):
    value, (gx, gw) = ts.value_and_grad(f, argnums=(0, 1))(x, w)
    tangent = ts.jvp(f, (x, w), (dx, dw))[1]
    hx, hw = ts.hvp(f, (x, w), (dx, dw))
    rx, rw = ts.grad(along, argnums=(0, 1))(x, w, dx, dw)
    return value, gx, gw, tangent, hx, hw, rx, rw


def along(x, w, dx, dw):
    gx, gw = ts.grad(f, argnums=(0, 1))(x, w)
    return ts.sum(gx * dx) + ts.sum(gw * dw)
"""


def program(seed: int) -> GradientProgram:
    rng = random.Random(seed)
    vectors, matrices = ["x"], ["w"]
    lines: list[str] = []

    def filled(template: str) -> str:
        a, b = rng.choice(vectors[-4:]), rng.choice(vectors[-4:])
        m, n = rng.choice(matrices[-3:]), rng.choice(matrices[-3:])
        return template.format(a=a, b=b, m=m, n=n, c=round(rng.uniform(-0.5, 0.5), 2))

    def value() -> tuple[str, list[str]]:
        pool, names = (VECTORS, vectors) if rng.random() < 0.7 else (MATRICES, matrices)
        return filled(rng.choice(pool)), names

    for i in range(rng.randint(2, 6)):
        name = f"v{i}"
        text, names = value()
        kind = rng.random()
        if kind < 0.65:
            lines.append(f"{name} = {text}")
        elif kind < 0.8:
            other = filled(rng.choice(VECTORS if names is vectors else MATRICES))
            lines += [f"if ts.sum({rng.choice(vectors)}) > {rng.uniform(-1, 1):.2f}:", f"    {name} = {text}",
                      "else:", f"    {name} = {other}"]  # fmt: skip
        else:
            lines.append(f"{name} = {text}")
            names.append(name)
            again = filled(rng.choice(VECTORS[:8] if names is vectors else MATRICES[:6]))
            damped = f"ts.sin({again}) + 0.3 * {name}"
            if kind < 0.9:
                lines += [f"for i{i} in ts.range({rng.randint(0, 4)}):", f"    {name} = {damped}"]
            else:
                lines += [f"k{i} = ts.sum(x) * 0", f"while k{i} < {rng.randint(0, 3)}:", f"    {name} = {damped}",
                          f"    k{i} = k{i} + 1"]  # fmt: skip
            continue
        names.append(name)
    body = "".join(f"    {line}\n" for line in lines)
    result = f"ts.sum(ts.sin({vectors[-1]})) + ts.mean({matrices[-1]} * {matrices[-1]})"
    return GradientProgram(seed, f"import tessera as ts\n\n\ndef f(x, w):\n{body}    return {result}\n{CHECKS}")


def runner(p: GradientProgram, name: str, count: int) -> Callable[..., list[np.ndarray]]:
    """The function, evaluated by the golden model of its Graph IR, or compiled where a target is chosen."""
    made = p.function(name)
    made = made if isinstance(made, ts.Function) else ts.function(made)
    if knobs.target() != "auto":

        def compiled(*arrays: np.ndarray) -> list[np.ndarray]:
            found = made(*arrays)
            return [np.asarray(v) for v in (found if isinstance(found, tuple) else (found,))]

        return compiled
    shapes = [(N,), (N, N)] * (count // 2)
    definition = made.definition()
    names = list(definition.tree.args.args)
    types = {a.arg: TensorType(s, dtypes.f64) for a, s in zip(names, shapes, strict=True)}
    op = analyse(definition, types).unit().op
    return lambda *arrays: evaluate(op, arrays)


@np.errstate(all="ignore")
def fault(p: GradientProgram) -> str:
    """What is wrong with the derivatives of the program; empty where nothing is."""
    checks, plain = runner(p, "checks", 6), runner(p, "f", 2)
    said = ""
    for attempt in range(3):  # a kink within the step looks like a fault, and moves away
        said = _fault(checks, plain, np.random.default_rng((p.seed, attempt)))
        if not said:
            return ""
    return said


def _fault(checks: Callable[..., Any], plain: Callable[..., Any], rng: np.random.Generator) -> str:
    x, w, dx, dw, ex, ew = (rng.normal(size=s) for s in ((N,), (N, N)) * 3)
    value, gx, gw, tangent, hx, hw, rx, rw = checks(x, w, dx, dw, ex, ew)
    far = max(1.0, *(float(np.max(np.abs(v))) for v in (value, gx, gw, hx, hw)))
    if not np.isfinite(far):
        finite = np.isfinite(plain(x, w)[0])
        return "a derivative of a finite value is not finite" if finite and np.isfinite(value) else ""

    def dot(ax: Any, aw: Any, bx: Any, bw: Any) -> float:
        return float(np.sum(ax * bx) + np.sum(aw * bw))

    def near(name: str, a: float, b: float, tolerance: float) -> str:
        return "" if abs(a - b) <= tolerance * far * 10 else f"{name}: {a} and {b}"

    ends = [plain(x + s * STEP * dx, w + s * STEP * dw)[0] for s in (1, -1)]
    slopes = [checks(x + s * STEP * dx, w + s * STEP * dw, dx, dw, ex, ew) for s in (1, -1)]
    gradient = [(slopes[0][i] - slopes[1][i]) / (2 * STEP) for i in (1, 2)]
    bx, bw = checks(x, w, ex, ew, dx, dw)[4:6]
    found = (
        near("value", float(value), float(plain(x, w)[0]), 1e-12),
        near("modes", dot(gx, gw, dx, dw), float(tangent), 1e-11),
        near("slope", float(tangent), float(ends[0] - ends[1]) / (2 * STEP), 1e-6),
        near("symmetry", dot(hx, hw, ex, ew), dot(bx, bw, dx, dw), 1e-10),
        near("order of modes", dot(hx, hw, ex, ew), dot(rx, rw, ex, ew), 1e-10),
        near("second slope", dot(hx, hw, ex, ew), dot(*gradient, ex, ew), 1e-5),
    )
    return next(filter(None, found), "")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz gradients")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="")
    given = parser.parse_args(arguments)
    faults = 0
    with knobs.target.override(given.target or None):
        for seed in range(given.seed, given.seed + given.count):
            p = program(seed)
            try:
                said = fault(p)
            except ts.TesseraError as e:
                said = str(e)
            if said:
                faults += 1
                print(f"# seed {seed}: {said}\n{p.text}", flush=True)
    print(f"{given.count} programs, {faults} faults")
    return bool(faults)
