"""Tensors from nothing but attributes. Primitives: `iota` and `full`; sizes and values may be symbolic dims."""

from __future__ import annotations

import math
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.infer import at_least_zero, shown
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim, Expr
from tessera.language.dtypes import DType
from tessera.language.lazy import np

Number = bool | int | float | complex
Fill = Number | Dim
"""what a tensor is filled with; of a function, a tensor too, which is broadcast then"""


def sizes(t: Infer, shape: object) -> Shape:
    """A shape whose sizes are not negative."""
    out = t.shape(shape)
    if any(isinstance(d, int) and d < 0 for d in out):
        t.fail("TS213", f"{t.operator} needs sizes that are not negative, not {shown(shape)}")
    return out


class Iota(Operator):
    """0, 1, 2 ... along `axis`, repeated along the others."""

    kind = "generate"
    differentiable = False
    methods = ()

    def infer(self, t: Infer, shape: Shape, dtype: DType = dtypes.int64, axis: int = 0) -> TensorType:
        out = TensorType(sizes(t, shape), t.dtype(dtype))
        t.require(out, "real")
        t.canonical(shape=out.shape, dtype=out.dtype, axis=t.axis(out, axis))
        return out

    def partition(self, cut: Cut, shape: Shape, dtype: DType, axis: int) -> None:
        if axis == cut.out:
            cut.whole(f"it counts along {cut.dim}, and a part does not know where it starts")

    def reference(self, shape: tuple[int, ...], dtype: DType, axis: int) -> Any:
        line = np.arange(shape[axis]).astype(dtype.numpy)
        return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


class Full(Operator):
    """A tensor of one value: a number, a dim, which is read at launch, or a tensor, which is broadcast."""

    kind = "generate"
    differentiable = False
    methods = ()

    def infer(self, t: Infer, shape: Shape, value: Fill, dtype: DType | None = None) -> TensorType:
        _demand_number(t, value)
        own = dtypes.weak(0 if isinstance(value, Expr) else value, None)
        out = TensorType(sizes(t, shape), t.dtype(own if dtype is None else dtype))
        t.fits(value, out.dtype)
        t.canonical(shape=out.shape, value=value, dtype=out.dtype)
        return out

    def partition(self, cut: Cut, shape: Shape, value: Number | Dim, dtype: DType) -> None:
        """Each element is the same; where it is the size of the dim, that of the whole is meant (see `sharding`)."""

    def reference(self, shape: tuple[int, ...], value: Number, dtype: DType) -> Any:
        return np.full(shape, value, np.asarray(value).dtype)


def _demand_number(t: Infer, value: object) -> None:
    if not isinstance(value, (bool, int, float, complex, Expr)):
        t.fail("TS105", f"{t.operator} needs a number known at compile time, not {shown(value)}")


class Filled(Operator, abstract=True):
    """A tensor of zeros or ones."""

    differentiable = False
    methods = ()
    value = 0

    def infer(self, t: Infer, shape: Shape, dtype: DType = dtypes.f32) -> TensorType:
        out = TensorType(sizes(t, shape), t.dtype(dtype))
        t.canonical(shape=out.shape, dtype=out.dtype)
        return out

    def reference(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return np.full(shape, self.value)

    def decompose(self, g: GraphBuilder, shape: Shape, dtype: DType) -> Value:
        return g.full(shape, self.value, dtype)


class Zeros(Filled):
    """A tensor of zeros."""


class Ones(Filled):
    """A tensor of ones."""

    value = 1


class FullLike(Operator):
    """A tensor of one value with the shape, and by default the dtype, of `x`."""

    differentiable = False
    methods = ()

    def infer(self, t: Infer, x: TensorType, value: Fill, dtype: DType | None = None) -> TensorType:
        _demand_number(t, value)
        out = self.rule(t, x, dtype)
        t.fits(value, out.dtype)
        return out

    def rule(self, t: Infer, x: TensorType, dtype: DType | None) -> TensorType:
        out = x.with_dtype(t.dtype(x.dtype if dtype is None else dtype))
        t.canonical(dtype=out.dtype)
        return out

    def reference(self, x: Any, value: Number, dtype: DType) -> Any:
        return np.full(x.shape, value)

    def decompose(self, g: GraphBuilder, x: Value, value: Number | Dim, dtype: DType) -> Value:
        return g.full(tensor(x).shape, value, dtype)


class ZerosLike(FullLike):
    """Zeros with the shape, and by default the dtype, of `x`."""

    value = 0

    def infer(self, t: Infer, x: TensorType, dtype: DType | None = None) -> TensorType:  # pyright: ignore
        return self.rule(t, x, dtype)

    def reference(self, x: Any, dtype: DType) -> Any:  # pyright: ignore
        return np.full(x.shape, self.value)

    def decompose(self, g: GraphBuilder, x: Value, dtype: DType) -> Value:  # pyright: ignore
        return g.full(tensor(x).shape, self.value, dtype)


class OnesLike(ZerosLike):
    """Ones with the shape, and by default the dtype, of `x`."""

    value = 1


class Arange(Operator):
    """start, start + step ... before stop; `arange(n)` counts from 0. Floats give f32, integers and dims int64."""

    differentiable = False
    methods = ()

    def infer(
        self, t: Infer, start: float | Dim, stop: float | Dim | None = None, step: float | Dim = 1,
        dtype: DType | None = None,
    ) -> TensorType:  # fmt: skip
        a, b = (0, start) if stop is None else (start, stop)
        for v in (a, b, step):
            if not isinstance(v, Expr):
                t.number(v, "arange's bound or step", -(2**62), 2**62)
        if step == 0:
            t.fail("TS213", "arange needs a step other than 0")
        floats = any(isinstance(v, float) for v in (a, b, step))
        found = t.dtype(dtype if dtype is not None else dtypes.f32 if floats else dtypes.int64)
        t.canonical(start=a, stop=b, step=step, dtype=found)
        return TensorType((self.count(t, a, b, step),), found)

    def count(self, t: Infer, a: Any, b: Any, step: Any) -> Dim:
        floats = any(isinstance(v, float) for v in (a, b, step))
        if all(isinstance(v, (int, float)) for v in (a, b, step)):
            return max(math.ceil((b - a) / step) if floats else -((a - b) // step), 0)
        if floats or isinstance(step, Expr):
            t.fail("TS213", f"arange of {a}, {b}, {step}: the number of elements is not known")
        return at_least_zero(dims.ceildiv(b - a, step) if step > 0 else dims.ceildiv(a - b, -step))

    def reference(self, start: float, stop: float, step: float, dtype: DType) -> Any:
        return start + step * np.arange(max(math.ceil((stop - start) / step), 0))

    def decompose(self, g: GraphBuilder, start: Any, stop: Any, step: Any, dtype: DType) -> Value:
        wide = dtypes.f64 if any(isinstance(v, float) for v in (start, step)) else dtypes.int64
        count = self.count(Infer(self.name), start, stop, step)
        i = g.to(g.iota((count,)), wide)
        i = i if step == 1 else g.mul(i, step)
        return g.to(i if start == 0 else g.add(i, start), dtype)


class Linspace(Operator):
    """`num` evenly spaced numbers from start to stop, both included."""

    differentiable = False
    methods = ()

    def infer(self, t: Infer, start: float, stop: float, num: int = 50, dtype: DType = dtypes.f32) -> TensorType:
        out = TensorType(sizes(t, (t.dim(num, "num"),)), t.dtype(dtype))
        t.require(out, "float")
        t.canonical(start=t.number(start, "start"), stop=t.number(stop, "stop"), dtype=out.dtype)
        return out

    def reference(self, start: float, stop: float, num: int, dtype: DType) -> Any:
        return np.linspace(start, stop, num)

    def decompose(self, g: GraphBuilder, start: float, stop: float, num: Dim, dtype: DType) -> Value:
        i = g.to(g.iota((num,)), dtypes.f64)  # exact at both ends: start (1 - i/n) + stop (i/n)
        w = g.div(i, g.size(dims.dim_max(num - 1, 1), dtypes.f64))
        return g.to(g.add(g.mul(g.sub(1.0, w), start), g.mul(w, stop)), dtype)


class Eye(Operator):
    """A matrix of n rows and m columns (None: n) with ones on diagonal k and zeros elsewhere."""

    differentiable = False
    methods = ()

    def infer(self, t: Infer, n: Dim, m: Dim | None = None, k: int = 0, dtype: DType = dtypes.f32) -> TensorType:
        out = TensorType(sizes(t, (n, n if m is None else m)), t.dtype(dtype))
        t.canonical(n=out.shape[0], m=out.shape[1], k=t.integer(k, "k"), dtype=out.dtype)
        return out

    def reference(self, n: int, m: int, k: int, dtype: DType) -> Any:
        return np.eye(n, m, k)

    def decompose(self, g: GraphBuilder, n: Dim, m: Dim, k: int, dtype: DType) -> Value:
        rows, columns = g.iota((n, 1), axis=0), g.iota((1, m), axis=1)
        return g.cast(g.eq(g.add(rows, k), columns), dtype)
