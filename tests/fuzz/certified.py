"""Random differentiable programs in Graph IR: any operator, masks, indices that are computed, branches, loops, maps.

A program is a seed and the numbers of the steps that are left of it. Each step draws from a stream of its own and is
tried on numbers at once: what gives no finite or only huge numbers is left out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tessera.compiler.autodiff.custom  # noqa: F401 - registers how branches and loops are differentiated
from tessera.compiler.autodiff.batching import batch, drop_ops
from tessera.compiler.autodiff.rules import active
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import for_, if_, while_
from tessera.compiler.graph.infer import InferError
from tessera.compiler.graph.operator import REGISTRY, tensor
from tessera.compiler.ir.core import Block, Builder, Op, Region, Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Facts
from tessera.language.dtypes import DType
from tests.differential.operator_examples import EXAMPLES, HERE, Arg, Example, called, symbols, unique, values
from tests.fuzz.exact import Exact, wide

LARGEST = 96
"""elements of a value"""
HUGE = 30.0
PALETTES: tuple[tuple[str, ...], ...] = (
    ("f64",), ("f64",), ("f64",), ("f32",), ("bf16",), ("f16",), ("bf16", "f32"), ("f16", "f64", "f32"),
    ("f64", "complex128"), ("f32", "complex64"), ("complex64",), ("bf16", "f32", "fp8_e4m3", "f64"),
)  # fmt: skip
UNSLOPED = frozenset({"stop_gradient", "straight_through", "recalled", "nextafter"})
"""operators whose derivative is not that of their values: differences say nothing"""
KINKED = frozenset({"std", "norm"})
"""operators with a kink at 0, where they are of equal or vanishing elements"""
SPECTRAL = frozenset({"svd", "svdvals", "eigh", "eigvalsh"})
"""operators whose derivatives need values that differ, and none that is 0"""
LEFT_OUT = frozenset({
    "bitcast", "one_hot", "cholesky_lanes", "triangular_solve_lanes", "lu_factor_lanes", "qr_lanes",
    "lu_factor", "qr_factor", "qr_multiply",
    "attention_backward", "attention_backward_queries", "attention_backward_keys", "attention_backward_bias",
})  # fmt: skip
"""what has no derivative of its own, and steps of decompositions whose operands fit together"""


def differentiable(example: Example) -> bool:
    operator = REGISTRY[example.name]
    floats = [a for a in flat(example.args) if any(t.is_float or t.is_complex for t in a.dtypes())]
    made = example.attrs.get("dtype")
    number = made is None or made.is_float or made.is_complex
    return bool(floats) and number and operator.differentiable and example.name not in LEFT_OUT


def flat(args: Sequence[Any]) -> list[Arg]:
    return [x for a in args if a is not None for x in (a if isinstance(a, list) else [a])]


POOL = [e for e in EXAMPLES if differentiable(e) and unique(e)]
NAMES = sorted({e.name for e in POOL})
OF_NAME = {n: [e for e in POOL if e.name == n] for n in NAMES}

Rule = Callable[..., Value]
UNARY: tuple[Rule, ...] = (
    lambda g, a: g.sin(a), lambda g, a: g.tanh(a), lambda g, a: g.mul(a, a), lambda g, a: g.exp(g.neg(g.mul(a, a))),
    lambda g, a: g.sigmoid(a), lambda g, a: g.div(a, g.add(g.mul(a, a), 1.5)), lambda g, a: g.cos(a),
    lambda g, a: g.relu(a), lambda g, a: g.abs(a), lambda g, a: g.clip(a, -0.7, 0.9), lambda g, a: g.softplus(a),
    lambda g, a: g.atan(a), lambda g, a: g.sqrt(g.add(g.mul(a, a), 1.0)), lambda g, a: g.gelu(a),
)  # fmt: skip
BINARY: tuple[Rule, ...] = (
    lambda g, a, b: g.add(a, b), lambda g, a, b: g.mul(a, b), lambda g, a, b: g.sub(g.sin(a), b),
    lambda g, a, b: g.div(a, g.add(g.mul(b, b), 1.5)), lambda g, a, b: g.maximum(a, b),
    lambda g, a, b: g.minimum(a, b), lambda g, a, b: g.atan2(a, g.add(g.sin(b), 2.0)),
    lambda g, a, b: g.pow(g.add(g.sin(a), 1.5), b), lambda g, a, b: g.where(g.gt(a, b), a, g.sin(b)),
    lambda g, a, b: g.hypot(g.add(g.cos(a), 1.1), b), lambda g, a, b: g.logaddexp(a, b),
)  # fmt: skip


def _last(g: GraphBuilder, a: Value) -> int:
    return tensor(a).rank - 1


GUARDED: tuple[Callable[[GraphBuilder, Value, Value, float], Value], ...] = (
    lambda g, a, b, c: g.where(g.gt(a, c), g.log(g.sub(a, c)), b),
    lambda g, a, b, c: g.where(g.gt(a, c), g.sqrt(g.sub(a, c)), g.square(b)),
    lambda g, a, b, c: g.where(g.le(a, c), b, g.rsqrt(g.sub(a, c))),
    lambda g, a, b, c: g.where(g.gt(a, c), g.pow(g.sub(a, c), 0.3), 0.0),
    lambda g, a, b, c: g.where(g.gt(a, c), g.pow(g.sub(a, c), b), b),
    lambda g, a, b, c: g.where(g.gt(a, c), g.div(b, g.sub(a, c)), g.cos(b)),
    lambda g, a, b, c: g.sum(g.where(g.gt(a, c), g.log(g.sub(a, c)), 0.0), axis=-1),
    lambda g, a, b, c: g.where(g.gt(a, c), g.where(g.lt(a, 2.0), g.sqrt(g.sub(2.0, a)), b), g.exp(a)),
    lambda g, a, b, c: g.where(g.gt(a, c), g.sqrt(g.relu(g.sub(a, c))), b),
    lambda g, a, b, c: g.sqrt(g.where(g.gt(a, c), g.sub(a, c), 1.0)),
    lambda g, a, b, c: g.where(g.gt(g.abs(a), 1.0), b, g.acos(g.clip(a, -1.0, 1.0))),
    lambda g, a, b, c: g.where(g.ge(g.abs(a), 1.0), b, g.atanh(a)),
    lambda g, a, b, c: g.softmax(g.where(g.gt(a, c), b, -math.inf), axis=-1),
    lambda g, a, b, c: g.logsumexp(g.where(g.gt(a, c), b, -math.inf), axis=-1),
    lambda g, a, b, c: g.max(g.where(g.gt(a, c), b, -math.inf), axis=-1),
    lambda g, a, b, c: g.masked_fill(g.exp(a), g.gt(b, c), 0.0),
    lambda g, a, b, c: g.xlogy(g.relu(g.sub(a, c)), g.add(g.mul(b, b), 1e-3)),
    lambda g, a, b, c: g.where(g.gt(a, c), g.xlogy(g.sub(a, c), g.sub(a, c)), b),
    lambda g, a, b, c: g.where(g.isfinite(g.log(a)), g.log(a), b),
    lambda g, a, b, c: g.clip(a, b, g.add(g.abs(b), 0.5)),
    lambda g, a, b, c: g.where(g.gt(a, c), g.norm(g.relu(a), axis=-1, keepdims=True), b),
    lambda g, a, b, c: g.where(g.gt(a, c), g.take(b, g.argmax(a, axis=-1), axis=-1), b)
    if tensor(a).rank == 1 else g.take_along_axis(b, g.argsort(a, axis=-1), axis=-1),
    lambda g, a, b, c: g.take(a, g.argsort(g.sum(b, axis=tuple(range(1, tensor(b).rank)))), axis=0),
    lambda g, a, b, c: g.scatter_add(a, g.argsort(b, axis=0), g.sin(b), axis=0),
    lambda g, a, b, c: g.scatter(a, g.argsort(b, axis=_last(g, b)), g.sin(a), axis=_last(g, b)),
    lambda g, a, b, c: g.mul(g.sort(a, axis=-1), b),
    lambda g, a, b, c: g.put(a, 0, g.sum(b, axis=0), axis=0),
    lambda g, a, b, c: g.where(g.gt(a, c), g.cumprod(g.cos(a), axis=0), g.cumsum(b, axis=0)),
    lambda g, a, b, c: g.segment_sum(g.mul(a, b), g.cast(g.gt(g.sum(
        b, axis=tuple(range(1, tensor(b).rank))), c), dtype=dtypes.int32), num_segments=2),
)  # fmt: skip


class Rejected(Exception):
    """A step gives nothing to go on with."""


class Programs:
    """One program while it is made: `f` is its graph.func, `inputs` what it is differentiated by, `outs` its results.

    `arrays` are the numbers of all arguments and results so far.
    """

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.seed, self.values = seed, np.random.default_rng(seed)
        self.order = rng.choice((1, 1, 1, 1, 2, 2, 3))
        self.palette = [dtypes.named(n) or dtypes.f64 for n in rng.choice(PALETTES)]
        self.count = rng.choice({1: (1, 1, 2, 2, 3, 4), 2: (1, 1, 2), 3: (1,)}[self.order])
        self.block, self.arrays = Block(), {}
        self.f = Op("graph.func", (), (), HERE, {"sym_name": "f", "arg_names": ()}, [Region([self.block])])
        self.g = GraphBuilder(Builder(self.block, span=HERE), Facts())
        self.pool, self.inputs, self.sloped, self.used = list[Value](), list[Value](), True, list[str]()
        for i in range(rng.randint(1, 3)):
            shape = tuple(rng.randint(1, 3) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3))))
            dtype = rng.choice([t for t in self.palette if t.bits > 8])
            self.inputs.append(self.argument(f"x{i}", shape, dtype))
            self.pool.append(self.inputs[-1])
        self.kept, self.outs = list[int](), list[Value]()
        """the numbers of the steps that were made"""

    def make(self, steps: Sequence[int] | None = None) -> None:
        """All steps, or those of these numbers."""
        for n in range(self.count) if steps is None else steps:
            self._step(n)
        reached = active(self.block.ops, self.inputs)
        found = [v for v in self.pool if v in reached and v not in self.inputs]
        self.outs = found[-self.rng.randint(1, 3) :]

    def argument(self, name: str, shape: tuple[int, ...], dtype: DType, array: Any = None) -> Value:
        names = self.f.attrs["arg_names"]
        self.f.attrs["arg_names"] = (*names, f"{name}_{len(names)}")  # type: ignore[misc]
        value = self.block.add_arg(TensorType(shape, dtype), name)
        self.arrays[value] = self.random(shape, dtype) if array is None else array
        return value

    def random(self, shape: tuple[int, ...], dtype: DType) -> Any:
        x = self.values.normal(size=shape)
        return x + 1j * self.values.normal(size=shape) if dtype.is_complex else x

    def _step(self, n: int) -> None:
        for attempt in range(4):
            start, pool, args = len(self.block.ops), len(self.pool), len(self.block.args)
            one = Step(self, random.Random(f"{self.seed}/{n}/{attempt}"))
            try:
                found = [v for v in one.made() if smooth(v)]
                Exact(self.arrays).run(self.block.ops[start:])
                if not found or any(not fine(self.arrays[v]) for v in found):
                    raise Rejected
                if one.name.removeprefix("mapped ") in KINKED and any(_tiny(self.arrays[v]) for v in found):
                    raise Rejected
            except (Rejected, InferError):
                del self.pool[pool:]
                for op in reversed(self.block.ops[start:]):
                    op.erase()
                for _ in range(len(self.block.args) - args):
                    self.block.args.pop()
                    self.f.attrs["arg_names"] = self.f.attrs["arg_names"][:-1]  # type: ignore[index,misc]
                continue
            self.pool += found
            self.kept.append(n)
            self.used.append(one.name)
            self.sloped &= one.sloped
            return


def smooth(v: Value) -> bool:
    t = tensor(v)
    return (t.dtype.is_float or t.dtype.is_complex) and 0 not in t.shape and math.prod(t.shape) <= LARGEST


def _tiny(array: Any) -> bool:
    return bool(np.min(np.abs(array), initial=1.0) < 1e-6)


def fine(array: Any) -> bool:
    return bool(np.all(np.isfinite(array)) and np.max(np.abs(array), initial=0.0) <= HUGE)


class Step:
    """One step of a program: what it emits, by its own stream."""

    def __init__(self, program: Programs, rng: random.Random) -> None:
        self.p, self.g, self.rng = program, program.g, rng
        self.name, self.sloped = "", True

    def made(self) -> Sequence[Value]:
        kinds = (self.example, self.guarded, self.simple, self.branch, self.counted, self.repeated, self.mapped)
        loops = 1 if self.p.order < 3 else 0.15  # a thousand ops each in the third order
        kind = self.rng.choices(kinds, (24, 8, 4, 1, loops, 0.7 * loops, 3))[0]
        self.name = kind.__name__
        return kind()

    # values to begin with

    def pick(self, real: bool = False, least: int = 0) -> Value:
        found = [v for v in self.p.pool if tensor(v).rank >= least and not (real and tensor(v).dtype.is_complex)]
        if not found:
            raise Rejected
        return self.rng.choice(found[-4:] if self.rng.random() < 0.7 else found)

    def pair(self, real: bool = False, least: int = 0) -> tuple[Value, Value]:
        a = self.pick(real, least)
        t = tensor(a)
        return a, self.fitted(self.pick(real), t.shape, t.dtype)

    def fitted(self, v: Value, shape: Sequence[Any], dtype: DType) -> Value:
        """A value of this shape and dtype that depends on `v`."""
        g, t = self.g, tensor(v)
        if t.dtype.is_complex and not dtype.is_complex:
            v = self.rng.choice((g.real, g.imag))(v)
        v = g.to(v, dtype)
        if t.shape == tuple(shape):
            return v
        count, have = math.prod(shape), math.prod(t.shape)
        if have == 1 and self.rng.random() < 0.5:
            return g.broadcast_to(g.reshape(v, (1,) * len(shape)), tuple(shape))
        v = g.reshape(v, (have,))
        if count > have:
            v = g.tile(v, (-(-count // have),))
        if (long := tensor(v).shape[0]) != count:
            low = self.rng.randint(0, long - count)
            v = g.slice(v, (low,), (low + count,), (1,))
        return g.reshape(v, tuple(shape))

    def within(self, v: Value, arg: Arg) -> Value:
        """The value, moved into the range of an example's operand."""
        g, array = self.g, self._numbers(v)
        inside = np.all(array.real > arg.low) and np.all(array.real < arg.high) and not arg.symmetric
        if not inside or (arg.low, arg.high) != (-3.0, 3.0):
            v = g.add(g.mul(g.sin(v), (arg.high - arg.low) / 2), (arg.high + arg.low) / 2)
        if (diagonal := 2.0 if self.name == "qr" else arg.diagonal) and tensor(v).rank > 1:  # of full rank
            n, m = tensor(v).shape[-2:]
            v = g.add(v, g.mul(g.eye(n=n, m=m, dtype=tensor(v).dtype), diagonal))
        if self.name in SPECTRAL:
            n, m = tensor(v).shape[-2:]
            steps = g.to(g.add(g.iota((1, m), axis=1), 1), tensor(v).dtype)
            v = g.add(v, g.mul(g.eye(n=n, m=m, dtype=tensor(v).dtype), g.mul(steps, 2.0)))
        if arg.symmetric:
            v = g.mul(g.add(v, g.matrix_transpose(v)), 0.5)
        return v

    def _numbers(self, v: Value) -> Any:
        if v not in self.p.arrays:
            Exact(self.p.arrays).run([op for op in self.g.builder.block.ops if op.results[0] not in self.p.arrays])
        return self.p.arrays[v]

    # kinds of steps

    def example(self) -> Sequence[Value]:
        example = self.rng.choice(OF_NAME[self.rng.choice(NAMES)])
        self.name, self.sloped = example.name, example.name not in UNSLOPED
        sizes = {s: self.rng.randint(max(1, example.least), 3 + (example.least > 3)) for s in symbols(example)}
        sizes |= {s: n * self.rng.randint(1, 2) for s, n in example.multiple.items()}
        given: list[Value] = []
        for arg in flat(example.args):
            shape = tuple(dims.evaluate(s, sizes) for s in arg.sizes())
            if math.prod(shape) > 4 * LARGEST:
                raise Rejected
            given.append(self._operand(arg, shape, sizes))
        found = called(example, self.g, given, sizes)
        return found if isinstance(found, (tuple, list)) else [found]

    def _operand(self, arg: Arg, shape: tuple[int, ...], sizes: dict[str, int]) -> Value:
        floats = [t for t in (*arg.dtypes(), dtypes.complex128) if t.is_float or t.is_complex]
        if not any(t.is_float or t.is_complex for t in arg.dtypes()):
            dtype = self.rng.choice(arg.dtypes())
            return self.p.argument("i", shape, dtype, values(self.p.values, arg, dtype, sizes))
        if dtypes.complex64 not in floats:
            floats = floats[:-1]
        here = (
            [t for t in self.p.palette if t in floats]
            or [t for t in floats if t.name in ("f64", "complex64")]
            or floats
        )
        v = self.fitted(self.pick(), shape, self.rng.choice(here))
        return self.within(v, arg)

    def guarded(self) -> Sequence[Value]:
        a, b = self.pair(real=True, least=1)
        return [self.rng.choice(GUARDED)(self.g, a, b, round(self.rng.uniform(-0.5, 0.5), 2))]

    def simple(self) -> Sequence[Value]:
        a, b = self.pair()
        return [self.rng.choice(BINARY)(self.g, a, b) if self.rng.random() < 0.6 else self.rng.choice(UNARY)(self.g, a)]

    def body(self, of: Sequence[Value]) -> Callable[..., Value]:
        """One statement of a region: of what it carries and of values from outside."""
        unary, binary, guarded = self.rng.choice(UNARY), self.rng.choice(BINARY), self.rng.choice(GUARDED[:6])
        kind, other = self.rng.random(), self.rng.choice(of)
        dtype = tensor(other).dtype

        def build(v: Value) -> Value:
            g = self.g
            if kind < 0.4 or dtype.is_complex:
                made = g.sin(binary(g, v, other) if not dtype.is_complex else g.mul(v, other))
            elif kind < 0.7:
                made = unary(g, v)
            elif kind < 0.85 and tensor(v).rank:
                made = g.sin(g.add(g.cumsum(v, axis=0), g.flip(other, axis=0)))
            else:
                made = g.sin(guarded(g, v, other, 0.1))
            return g.to(made, dtype)

        return build

    def branch(self) -> Sequence[Value]:
        g, (a, b) = self.g, self.pair()
        whole = self.rng.choice([v for v in self.p.pool if not tensor(v).dtype.is_complex] or [None])
        if whole is None:
            raise Rejected
        condition = g.gt(g.sum(g.to(whole, dtypes.f64)), round(self.rng.uniform(-1, 1), 2))
        then, otherwise = self.body([a, b]), self.body([a, b])
        return if_(g, condition, lambda: [then(a), a], lambda: [otherwise(b), b])

    def counted(self) -> Sequence[Value]:
        g, (a, b) = self.g, self.pair(least=self.rng.choice((0, 1)))
        first, second = self.body([a, b]), self.body([a, b])
        by_place = tensor(a).rank > 0 and self.rng.random() < 0.5
        length = tensor(a).shape[0] if by_place else self.rng.randint(0, 3)

        def step(i: Value, v: Value, w: Value) -> Sequence[Value]:
            if by_place:
                one = g.sin(g.add(g.take(v, i, axis=0), g.take(b, i, axis=0)))
                v = g.put(v, i, g.to(one, tensor(a).dtype), axis=0)
            return [first(w), second(v)]

        ends = [g.constant(n, dtypes.int64) for n in self.rng.choice(((0, length, 1), (length - 1, -1, -1)))]
        return for_(g, *ends, [a, b], step)

    def repeated(self) -> Sequence[Value]:
        g, (a, b) = self.g, self.pair(real=True)
        more, limit = self.body([a, b]), round(self.rng.uniform(0.3, 3), 2)

        def on(v: Value, n: Value) -> Value:
            return g.logical_and(g.gt(g.sum(g.abs(g.to(v, dtypes.f64))), limit), g.lt(n, 6))

        def step(v: Value, n: Value) -> Sequence[Value]:
            return [g.to(g.mul(g.add(g.sin(more(v)), v), 0.4), tensor(a).dtype), g.add(n, 1)]

        return while_(g, [a, g.constant(0, dtypes.int64)], on, step)[:1]

    def mapped(self) -> Sequence[Value]:
        """`ts.vmap` of statements, or of an operator, on the elements along the first axis."""
        g, p, a = self.g, self.p, self.pick(least=1)
        t = tensor(a)
        row, pool = Block([TensorType(t.shape[1:], t.dtype)]), p.pool
        v = row.args[0]
        b = self.fitted(self.pick(), t.shape[1:], t.dtype)
        try:
            with g.builder.inside(row):
                if self.rng.random() < 0.6:
                    p.arrays[v], p.pool = self._numbers(a)[0], [*pool[-2:], v, v, v]
                    results = [r for r in self.example() if smooth(r)]
                    self.name = f"mapped {self.name}"
                else:
                    for statement in [self.body([b]) for _ in range(self.rng.randint(1, 2))]:
                        v = statement(v)
                    results = [v]
        except (InferError, Rejected):
            drop_ops(row)
            raise
        finally:
            p.pool = pool
        return batch(g, t.shape[0], row, {row.args[0]: a}, results)[0]


def redrawn(p: Programs, attempt: int) -> None:
    """Other numbers for what the program is differentiated by."""
    p.values = np.random.default_rng((p.seed, attempt))
    for v in p.inputs:
        p.arrays[v] = wide(p.random(tensor(v).shape, tensor(v).dtype), tensor(v).dtype)
