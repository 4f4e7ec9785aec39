"""Derivatives of random functions against PyTorch's: views, gathers, scatters, sorts, products, control flow, dtypes.

    python -m tests.fuzz peers --count 1000 --seed 1

A program is one text with two readings, Tessera's and PyTorch's. Compared are its value, its gradient and the product
of its Hessian with a vector, in f64; where a value passes through f32, with the digits that f32 holds.
"""

from __future__ import annotations

import argparse
import itertools
import linecache
import math
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import knobs
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.graph.reference import evaluate
from tessera.compiler.ir.types import TensorType
from tessera.language import dtypes
from tests.fuzz import peer_tessera

_files = itertools.count()
Shape = tuple[int, ...]

UNARY = (
    "L.sin({a})", "L.tanh({a})", "L.exp(-({a} * {a}))", "L.sqrt(1.0 + {a} * {a})", "L.log1p({a} * {a})",
    "L.sigmoid({a})", "L.relu({a})", "L.abs({a})", "L.erf({a})", "L.atan({a})", "L.expm1(L.tanh({a}))",
    "L.rsqrt(1.0 + {a} * {a})", "L.square({a}) * 0.3", "L.clip({a}, -0.7, 0.9)", "-{a}", "{a} * 0.5",
    "L.reciprocal(2.0 + L.sin({a}))", "L.sinh(L.sin({a}))", "L.where({a} > {c}, L.log(1e-30 + L.abs({a})), 0.0)",
    "L.silu({a})", "L.softplus({a})", "L.gelu({a})", "L.elu({a})", "L.leaky_relu({a})", "L.logsigmoid({a})",
    "L.cos({a}) * L.floor({a} * 2.0)", "L.acos(0.9 * L.sin({a}))", "L.log2(1.5 + L.cos({a}))", "L.sign({a}) * {a}",
)  # fmt: skip
BINARY = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / (1.5 + {b} * {b})", "L.maximum({a}, {b})", "L.minimum({a}, {b})",
    "L.where({a} > {b}, {a}, L.sin({b}))", "L.atan2({a}, 2.0 + L.sin({b}))", "L.pow(1.5 + L.sin({a}), {b})",
    "L.hypot(1.1 + L.cos({a}), {b})", "L.logaddexp({a}, {b})", "L.xlogy({a}, 1.5 + {b} * {b})", "L.lerp({a}, {b}, 0.3)",
    "L.where({a} > {c}, L.sqrt(L.relu({a})), {b})" , "L.copysign({a}, {b})", "L.remainder({a}, 2.0) * {b}",
)  # fmt: skip


CHECKS = """

def checks({all}):
    plain = lambda {xs}: f({both})
    value, gradient = ts.value_and_grad(plain, argnums={argnums})({xs})
    return value, *gradient, *ts.hvp(plain, ({xs},), ({ways},))
"""


@dataclass
class Writer:
    """Writes statements; `pool` are the names of tensors and their shapes, `ints` the integer arguments."""

    rng: random.Random
    pool: list[tuple[str, Shape]]
    ints: list[tuple[str, Shape, int]] = field(default_factory=list)
    narrow: bool = False

    def pick(self, rank: Sequence[int] = (1, 2, 3), where: Callable[[Shape], bool] = bool) -> tuple[str, Shape]:
        found = [p for p in self.pool if len(p[1]) in rank and where(p[1])]
        return self.rng.choice(found[-5:] if self.rng.random() < 0.7 else found)

    def ids(self, shape: Shape, bound: int) -> str:
        name = f"i{len(self.ints)}"
        self.ints.append((name, shape, bound))
        return name

    def unary(self) -> tuple[str, Shape]:
        a, s = self.pick()
        return self.rng.choice(UNARY).format(a=a, c=round(self.rng.uniform(-0.5, 0.5), 2)), s

    def binary(self) -> tuple[str, Shape]:
        a, s = self.pick()
        b, t = self.pick()
        if t != s:
            axis = self.rng.randrange(len(s))
            b = self.rng.choice((a, f"L.sum({a}, {axis}, keepdims=True)", f"L.amax({a}, {axis}, keepdims=True)",
                                 f"L.flip({a}, ({axis},))"))  # fmt: skip
        if self.rng.random() < 0.5:
            a, b = b, a
        return self.rng.choice(BINARY).format(a=a, b=b, c=round(self.rng.uniform(-0.5, 0.5), 2)), s

    def view(self) -> tuple[str, Shape]:
        a, s = self.pick()
        rng, axis = self.rng, self.rng.randrange(len(s))
        n, before = s[axis], ":, " * axis
        other = partial(_with, s, axis)
        kind = rng.randrange(13)
        if kind == 0:
            low = rng.randrange(n)
            high = rng.randint(low + 1, n)
            step = rng.choice((1, 1, 2, 3))
            return f"{a}[{before}{low}:{high}:{step}]", other(-(-(high - low) // step))
        if kind == 1 and len(s) < 3:
            return f"{a}[{before}None] * {self._like((*s[:axis], 2, *s[axis:]))}", (*s[:axis], 2, *s[axis:])
        if kind == 2 and len(s) > 1:
            return f"{a}[{before}{rng.randrange(-n, n)}]", (*s[:axis], *s[axis + 1 :])
        if kind == 3:
            order = rng.sample(range(len(s)), len(s))
            return f"L.permute({a}, {tuple(order)})", tuple(s[i] for i in order)
        if kind == 4:
            count = math.prod(s)
            m = rng.choice([d for d in range(1, count + 1) if count % d == 0])
            to = rng.choice([(count,), (m, count // m)])
            return f"L.reshape({a}, {to})", to
        if kind == 5:
            b = f"L.sin({a})"
            return f"L.concat([{a}, {b}, {a}[{before}:1]], {axis})", other(2 * n + 1)
        if kind == 6 and len(s) < 3:
            return f"L.stack([{a}, L.cos({a})], {axis})", (*s[:axis], 2, *s[axis:])
        if kind == 7:
            return f"L.flip({a}, ({axis},))", s
        if kind == 8:
            return f"L.roll({a}, {rng.randint(-3, 3)}, {axis})", s
        if kind == 9 and n < 5:
            return f"L.repeated({a}, {(k := rng.randint(1, 3))}, {axis})", other(n * k)
        if kind == 10:
            low, high = rng.randint(0, 2), rng.randint(0, 2)
            return f"L.padded({a}, {low}, {high}, {axis})", other(n + low + high)
        if kind == 11 and len(s) > 1:
            return f"L.{rng.choice(('tril', 'triu'))}({a})", s
        return f"L.diff({a}, axis={axis})" if n > 1 else f"L.square({a})", other(max(n - 1, 1))

    def _like(self, shape: Shape) -> str:
        return f"L.counted({shape}, {self.pool[0][0]})"

    def moved(self) -> tuple[str, Shape]:
        """Gathers, scatters, sorts."""
        a, s = self.pick()
        rng, axis = self.rng, self.rng.randrange(len(s))
        n, m = s[axis], rng.randint(1, 5)
        other = partial(_with, s, axis)
        kind = rng.randrange(11)
        if kind == 0:
            return f"L.taken({a}, {self.ids((m,), n)}, {axis})", other(m)
        if kind == 1:
            return f"L.along({a}, {self.ids(other(m), n)}, {axis})", other(m)
        if kind == 2:
            return f"L.scattered({a}, {self.ids(other(m), n)}, L.counted({other(m)}, {a}) * L.sum({a}), {axis})", s
        if kind == 3:
            return f"L.segments({a}, {self.ids((n,), 3)}, 3, {axis})", other(3)
        if kind == 4:
            return f"L.sorted({a}, {axis}, {rng.random() < 0.5})", s
        if kind == 5:
            return f"L.top({a}, {(k := rng.randint(1, n))}, {axis})", other(k)
        if kind == 6:
            return f"L.taken({a}, L.argsort({a}, {axis})[{'0, ' * axis}:{', 0' * (len(s) - axis - 1)}], {axis})", s
        if kind == 7:
            return f"L.stored({a}, {rng.randrange(n)}, L.sin(L.sum({a}, {axis})), {axis})", s
        if kind == 8 and len(s) == 2:
            return f"{a}[{self.ids((m,), s[0])}, {self.ids((m,), s[1])}]", (m,)
        if kind == 9:
            return f"L.where({self.ids(s, 2)} == 1, {a}, L.sin({a}) * 2.0)", s
        return f"L.along({a}, L.argsort(L.sin({a}), {axis}), {axis})", s

    def reduced(self) -> tuple[str, Shape]:
        a, s = self.pick((2, 3))
        axis = self.rng.randrange(len(s))
        name = self.rng.choice(("sum", "mean", "amax", "amin", "prod", "logsumexp", "var1", "std1", "norm2"))
        inner = {"std1": f"L.concat([{a}, L.cos({a}) + 2.0], {axis})", "norm2": f"(1.0 + L.abs({a}))"}.get(name, a)
        inner = f"L.concat([{a}, L.sin({a})], {axis})" if name == "var1" else inner
        if self.rng.random() < 0.3:
            return f"L.{name}({inner}, {axis}, keepdims=True)", (*s[:axis], 1, *s[axis + 1 :])
        return f"L.{name}({inner}, {axis})", (*s[:axis], *s[axis + 1 :])

    def kept(self) -> tuple[str, Shape]:
        a, s = self.pick()
        axis = self.rng.randrange(len(s))
        name = self.rng.choice(("cumsum", "cumprod", "softmax", "log_softmax", "normed"))
        return f"L.{name}({a}, {axis})", s

    def product(self) -> tuple[str, Shape]:
        a, s = self.pick((2,))
        rng = self.rng
        match rng.randrange(6):
            case 0:
                return f"{a} @ {a}.T", (s[0], s[0])
            case 1:
                b, t = self.pick((1, 2), lambda t: t[0] == s[1]) if self._any(s[1]) else (f"{a}.T", (s[1], s[0]))
                return f"{a} @ {b}", (s[0], *t[1:])
            case 2:
                return f'L.einsum("ij,kj->ik", {a}, L.sin({a}))', (s[0], s[0])
            case 3:
                return f"L.outer({a}[:, 0], {a}[0])", s
            case 4:
                k = rng.randint(1, min(3, s[1]))
                p, weights = rng.randint(0, 1), f"L.counted((2, {s[0]}, {k}), {a}) * 0.2 + L.sum({a})"
                return f"L.conv1d({a}[None], {weights}, padding={p})[0]", (2, s[1] + 2 * p - k + 1)
            case _:
                return f'L.einsum("ij,ij->j", {a}, L.cos({a}))', (s[1],)

    def _any(self, n: int) -> bool:
        return any(t and len(t) < 3 and t[0] == n for _, t in self.pool)

    def nested(self) -> tuple[str, Shape]:
        a, s = self.pick()
        if self.rng.random() < 0.6:
            return f"L.slope(lambda u: L.sum(L.sin(u) * {a}) + L.sum(u * u * u), {a} * 0.5)", s
        return f"L.mapped(lambda r: L.sin(r) * L.sum(r), {a})", s

    def value(self) -> tuple[str, Shape]:
        makers = (self.unary, self.binary, self.view, self.moved, self.reduced, self.kept, self.product, self.nested)
        while True:
            try:
                text, shape = self.rng.choices(makers, (4, 5, 5, 5, 2, 2, 2, 1))[0]()
            except IndexError:
                continue  # no tensor of such a shape
            if shape and math.prod(shape) <= 60:
                return text, shape

    def statements(self, count: int) -> list[str]:
        lines: list[str] = []
        for i in range(count):
            name, kind = f"v{i}", self.rng.random()
            text, shape = self.value()
            lines.append(f"{name} = {text}")
            if kind < 0.15:
                a, _ = self.pick()
                lines += [f"if L.sum({a}) > {self.rng.uniform(-1, 1):.2f}:",
                          f"    {name} = {self.rng.choice(UNARY).format(a=name, c=0.1)}"]  # fmt: skip
                if self.rng.random() < 0.5:
                    lines += ["else:", f"    {name} = {name} * {name}"]
            elif kind < 0.27:
                b = self.rng.choice([a for a, s in self.pool if s == shape] or [name])
                damped = self.rng.choice(BINARY[:7]).format(a=name, b=b, c=0.1)
                lines += [f"for k{i} in L.range({self.rng.randint(0, 5)}):"]
                if self.rng.random() < 0.3:
                    lines += [f"    if L.sum({name}) > 0.3:", f"        {name} = L.cos({name})"]
                if self.rng.random() < 0.4:
                    lines += [f"    {name} = L.stored({name}, k{i} % {shape[0]}, L.sin({name}[-1]), 0)"]
                lines += [f"    {name} = L.sin({damped})"]
            elif kind < 0.34:
                lines += [f"while L.sum(L.abs({name})) > {self.rng.uniform(1, 4):.2f}:", f"    {name} = {name} * 0.7"]
            elif kind < 0.4 and len(shape) > 1:
                lines += [f"{name} = L.scanned(lambda c, r: (L.sin(c * r) + r, c * 0.5), {name}[0], {name})"]
            elif kind < 0.46:
                lines += [f"{name} = L.through_f32({name})"]
                self.narrow = True
            self.pool.append((name, shape))
        return lines


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


@dataclass(frozen=True)
class PeerProgram:
    seed: int
    text: str
    shapes: tuple[Shape, ...]
    ints: tuple[tuple[Shape, int], ...]
    narrow: bool

    def read(self, names: Any, name: str = "f", counting: str = "range") -> Callable[..., Any]:
        file, text = f"<peers {next(_files)}>", self.text.replace("L.range", counting)
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        scope: dict[str, Any] = {"L": names, "ts": ts}
        exec(compile(text, file, "exec"), scope)
        return scope[name]


def program(seed: int) -> PeerProgram:
    rng = random.Random(seed)
    shapes: tuple[Shape, ...] = ((rng.randint(1, 5),), (rng.randint(1, 4), rng.randint(1, 4)))
    if rng.random() < 0.4:
        shapes = (*shapes, tuple(rng.randint(1, 3) for _ in range(3)))
    w = Writer(rng, [(f"x{i}", s) for i, s in enumerate(shapes)])
    lines = w.statements(rng.randint(2, 8))
    used = [name for name, _ in w.pool[-3:]]
    total = " + ".join(f"L.sum(L.sin({name}))" for name in used)
    body = "".join(f"    {line}\n" for line in lines)
    xs, ways = [f"x{i}" for i in range(len(shapes))], [f"d{i}" for i in range(len(shapes))]
    numbers = [name for name, _, _ in w.ints]
    text = f"def f({', '.join(xs + numbers)}):\n{body}    return {total}\n"
    text += CHECKS.format(all=", ".join(xs + ways + numbers), xs=", ".join(xs), both=", ".join(xs + numbers),
                          ways=", ".join(ways), argnums=tuple(range(len(xs))))  # fmt: skip
    return PeerProgram(seed, text, shapes, tuple((s, n) for _, s, n in w.ints), w.narrow)


def of_tessera(p: PeerProgram) -> Callable[..., list[np.ndarray]]:
    """Value, gradient, product of the Hessian: by the golden model of Graph IR, or compiled if a target is chosen."""
    made = ts.function(p.read(peer_tessera, "checks", "ts.range"))
    if knobs.target() != "auto":
        return lambda given, ways, ints: [np.asarray(v) for v in made(*given, *ways, *ints)]
    definition = made.definition()
    names = [a.arg for a in definition.tree.args.args]
    kinds = [TensorType(s, dtypes.f64) for s in p.shapes * 2] + [TensorType(s, dtypes.int64) for s, _ in p.ints]
    op = analyse(definition, dict(zip(names, kinds, strict=True))).unit().op
    return lambda given, ways, ints: evaluate(op, (*given, *ways, *ints))


def of_torch(p: PeerProgram) -> Callable[..., list[np.ndarray]]:
    torch = pytest.importorskip("torch")
    from tests.fuzz import peer_torch

    f = p.read(peer_torch)

    def three(given: Sequence[np.ndarray], ways: Sequence[np.ndarray], ints: Sequence[np.ndarray]) -> list[np.ndarray]:
        xs = [torch.tensor(x, requires_grad=True) for x in given]
        value = f(*xs, *(torch.tensor(i) for i in ints))
        if not value.requires_grad:
            zeros = [np.zeros_like(x) for x in given]
            return [value.numpy(), *zeros, *zeros]
        gradient = torch.autograd.grad(value, xs, create_graph=True, allow_unused=True, materialize_grads=True)
        along = sum((g * torch.tensor(w)).sum() for g, w in zip(gradient, ways, strict=True))
        product = [torch.zeros_like(x) for x in xs]
        if along.requires_grad:
            product = torch.autograd.grad(along, xs, allow_unused=True, materialize_grads=True)
        return [v.detach().numpy() for v in (value, *gradient, *product)]

    return three


def fault(p: PeerProgram) -> str:
    """Where the two readings differ; empty where they agree."""
    mine, other = of_tessera(p), of_torch(p)
    said = ""
    for attempt in range(2):  # a comparison that rounding decides looks like a fault, and moves away
        rng = np.random.default_rng((p.seed, attempt))
        given, ways = ([rng.normal(size=s) for s in p.shapes] for _ in range(2))
        ints = [rng.integers(0, n, s) for s, n in p.ints]
        want = other(given, ways, ints)
        if not all(np.isfinite(v).all() for v in want):
            return ""
        have = mine(given, ways, ints)
        said = _difference(have, want, len(p.shapes), 1e-4 if p.narrow else 1e-8)
        if not said:
            return ""
    return said


def _difference(have: list[np.ndarray], want: list[np.ndarray], count: int, tolerance: float) -> str:
    names = ["value", *(f"gradient {i}" for i in range(count)), *(f"product {i}" for i in range(count))]
    far = max(1.0, *(float(np.abs(v).max()) for v in want))
    for name, a, b in zip(names, have, want, strict=True):
        if a.shape != b.shape or not np.allclose(a, b, rtol=0, atol=tolerance * far):
            return f"{name}: {a.tolist()} and PyTorch {b.tolist()}"
    return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz peers")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", default="")
    given = parser.parse_args(arguments)
    faults = 0
    warnings.simplefilter("ignore", ts.TrainingWarning)
    knobs.target.set(given.target or None)
    for seed in range(given.seed, given.seed + given.count):
        p = program(seed)
        try:
            said = fault(p)
        except (ts.TesseraError, RuntimeError) as e:
            said = str(e)
        if said:
            faults += 1
            print(f"# seed {seed}: {said}\n{p.text}", flush=True)
    print(f"{given.count} programs, {faults} faults")
    return bool(faults)
