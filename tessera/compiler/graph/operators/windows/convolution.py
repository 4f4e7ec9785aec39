"""Convolution, as networks mean it (nothing is turned round), and its transpose. Layouts are PyTorch's.

A convolution is a product of matrices: the weights of a group, and beside them its windows, laid out in columns. A
transposed one convolves its operand with the weights turned round, once for each place between two elements that the
stride leaves. Each is the other's derivative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.infer import items, several, shown
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.contraction import widened
from tessera.compiler.graph.operators.joining import part
from tessera.compiler.graph.operators.windows.sliding import Ints, end, places, steps
from tessera.compiler.graph.operators.windows.transposed import PLACES, WITHIN, padded, spread_out
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.language import dims
from tessera.language.dims import Dim
from tessera.language.lazy import np

Pairs = tuple[tuple[int, int], ...]
CHAINED = 32
"""weights of a channel by itself that are applied in one elementwise kernel; more are a product"""


class Convolved(Operator, abstract=True):
    """The common part of convolutions over `spatial` axes."""

    methods = ()
    spatial: ClassVar[int]

    def common(
        self, t: Infer, x: TensorType, weight: TensorType, stride: object, dilation: object, groups: object
    ) -> tuple[Ints, Ints, int]:
        """Checks ranks and dtypes; stride, dilation and groups in one form."""
        n = self.spatial
        for i, v in enumerate((x, weight)):
            t.require(v, "float", operand=i)
        message = f"{self.name} of {shape_text(x.shape)} with weights {shape_text(weight.shape)}"
        if x.rank != n + 2 or weight.rank != n + 2:
            t.fail(
                "TS213", f"{message}: both have {n + 2} axes, x [batch, channels, ...]", operand=int(x.rank == n + 2)
            )
        for k in weight.shape[2:]:
            if not isinstance(k, int) or k < 1:
                t.demand_known(k, "TS213", f"{message}: the size of the kernel is known, and at least 1", operand=1)
        count = t.integer(groups, "groups")
        if count < 1:
            t.fail("TS213", f"groups is at least 1, unlike {count}")
        strides, dilations = places(t, stride, "stride", n), places(t, dilation, "dilation", n)
        t.canonical(stride=strides, dilation=dilations, groups=count)
        return strides, dilations, count

    def grouped(self, t: Infer, size: Dim, groups: int, what: str) -> Dim:
        """The channels of one group."""
        rest = dims.mod(size, groups)
        t.same(rest, 0, "TS213", f"{self.name}: {size} {what} do not fall into {groups} groups")
        return dims.floordiv(size, groups)

    def biased(self, t: Infer, bias: TensorType | None, channels: Dim) -> None:
        if bias is None:
            return
        message = f"{self.name} gives {channels} channels, its bias has {shape_text(bias.shape)}"
        t.require(bias, "float", operand=2)
        if bias.rank != 1:
            t.fail("TS213", message, operand=2)
        t.same(bias.shape[0], channels, "TS203", message, operand=2)

    def add_bias(self, g: GraphBuilder, out: Value, bias: Value | None) -> Value:
        if bias is None:
            return out
        return g.add(out, g.reshape(g.compute(bias), (tensor(bias).shape[0], *(1,) * self.spatial)))

    def of_bias(self, g: GraphBuilder, ct: Value, bias: Value | None) -> Value | None:
        if bias is None:
            return None
        return g.to(g.sum(g.compute(ct), axis=(0, *range(2, 2 + self.spatial))), tensor(bias).dtype)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        x, weight, _ = operands
        outer = results[0].shape if not isinstance(self, ConvTranspose) else (x.shape[0], *x.shape[2:], weight.shape[0])
        return dims.prod(outer) * dims.prod(weight.shape[1:]) * 2


class Convolution(Convolved, abstract=True):
    def infer(
        self, t: Infer, x: TensorType, weight: TensorType, bias: TensorType | None = None,
        stride: int | Sequence[int] = 1, padding: int | str | Sequence[Any] = 0, dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> TensorType:  # fmt: skip
        strides, dilations, count = self.common(t, x, weight, stride, dilation, groups)
        kernel: Any = weight.shape[2:]
        pads = self.pairs(t, padding, kernel, strides, dilations)
        t.canonical(padding=pads)
        each = self.grouped(t, x.shape[1], count, "channels")
        self.grouped(t, weight.shape[0], count, "results")
        message = f"{self.name} of {x.shape[1]} channels in {count} groups needs weights for {each}"
        t.same(weight.shape[1], each, "TS203", f"{message}, not for {weight.shape[1]}", operand=1)
        self.biased(t, bias, weight.shape[0])
        sizes: list[Dim] = []
        for d, k, (a, b), s, e in zip(x.shape[2:], kernel, pads, strides, dilations, strict=True):
            if isinstance(d, int) and d + a + b < e * (k - 1) + 1:
                t.fail("TS213", f"a kernel of {e * (k - 1) + 1} does not fit an axis of {d} padded by {a} and {b}")
            sizes.append(steps(d + a + b, k, s, e))
        given = [v for v in (x, weight, bias) if v is not None]
        return TensorType((x.shape[0], weight.shape[0], *sizes), t.promote(*given))

    def pairs(self, t: Infer, padding: object, kernel: Ints, stride: Ints, dilation: Ints) -> Pairs:
        """Before and after each axis."""
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                t.fail("TS213", f"padding is a number, 'same' or 'valid', not {shown(padding)}")
            if padding == "same" and any(s != 1 for s in stride):
                t.fail("TS213", "padding='same' keeps sizes, which a stride other than 1 does not")
            total = [d * (k - 1) if padding == "same" else 0 for k, d in zip(kernel, dilation, strict=True)]
            return tuple((n // 2, n - n // 2) for n in total)
        given = items(padding)
        if several(padding) and any(map(several, given)):
            both = [places(t, p, "padding", 2, least=0) for p in given]
            if len(both) != self.spatial:
                t.fail("TS213", f"padding has a pair for each of {self.spatial} axes, not {shown(padding)}")
            return tuple((a, b) for a, b in both)
        return tuple((n, n) for n in places(t, padding, "padding", self.spatial, least=0))

    def reference(
        self, x: Any, weight: Any, bias: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int
    ) -> Any:
        n = self.spatial
        batch, kernel = x.shape[0], weight.shape[2:]
        x = np.pad(x, [(0, 0), (0, 0), *padding])
        out = tuple(max(0, steps(d, *v)) for d, *v in zip(x.shape[2:], kernel, stride, dilation))  # type: ignore[arg-type]  # noqa: B905
        channels, each = weight.shape[0], weight.shape[0] // groups
        found = np.zeros((batch, groups, each, *out), x.dtype)
        split = x.reshape(batch, groups, weight.shape[1], *x.shape[2:])
        weights = weight.reshape(groups, each, *weight.shape[1:])
        for at in np.ndindex(*kernel) if 0 not in out else ():
            window = tuple(
                slice(i * d, i * d + (m - 1) * s + 1, s) for i, d, m, s in zip(at, dilation, out, stride, strict=True)
            )
            part_of = split[(slice(None), slice(None), slice(None), *window)]
            found += np.einsum("ngc...,goc->ngo...", part_of, weights[(..., *at)])
        found = found.reshape(batch, channels, *out)
        return found if bias is None else found + bias.reshape(-1, *(1,) * n)

    def decompose(
        self, g: GraphBuilder, x: Value, weight: Value, bias: Value | None, stride: Ints, padding: Pairs,
        dilation: Ints, groups: int,
    ) -> Value:  # fmt: skip
        dtype, shape = tensor(x).dtype, tensor(weight).shape
        kernel: Any = shape[2:]
        x = padded(g, x, padding)
        if shape[1] == 1 and dims.equal(shape[0], groups) and math.prod(kernel) <= CHAINED:
            out = self.each_by_itself(g, x, weight, stride, dilation)
            return g.to(self.add_bias(g, out, bias), dtype)
        seen = windows(g, x, kernel, stride, dilation, groups)
        batch, *sizes = tensor(x).shape[0], *tensor(seen).shape[-self.spatial :]
        matrix = g.reshape(weight, (groups, dims.floordiv(shape[0], groups), *shape[1:]))
        matrix = g.broadcast_to(matrix, (batch, *tensor(matrix).shape))
        within, places = WITHIN[: self.spatial], PLACES[: self.spatial]
        lhs, rhs, found = f"ngoc{within}", f"ngc{within}{places}", f"ngo{places}"
        out = widened(g, matrix, seen, lhs, rhs, found)
        if bias is not None:
            out = g.add(out, g.reshape(g.compute(bias), (*tensor(out).shape[1:3], *(1,) * self.spatial)))
        return g.reshape(g.to(out, dtype), (batch, shape[0], *sizes))

    def each_by_itself(self, g: GraphBuilder, x: Value, weight: Value, stride: Ints, dilation: Ints) -> Value:
        """One channel, one result: sums of weighted windows, without products of matrices."""
        shape, total = tensor(x).shape, None
        kernel: Any = tensor(weight).shape[2:]
        for at in np.ndindex(*kernel):
            start, stop, step = [0, 0], list(shape[:2]), [1, 1]
            for i, d, k, s, e in zip(at, shape[2:], kernel, stride, dilation, strict=True):
                start.append(i * e)
                stop.append(end(i * e, steps(d, k, s, e), s))
                step.append(s)
            window = g.compute(g.slice(x, tuple(start), tuple(stop), tuple(step)))
            first = (0, 0, *at)
            one = g.slice(weight, first, (tensor(weight).shape[0], 1, *(i + 1 for i in at)))
            one = g.reshape(g.compute(one), (tensor(weight).shape[0], *(1,) * self.spatial))
            total = g.mul(window, one) if total is None else g.fma(window, one, total)
        assert total is not None
        return total

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, weight: Value, bias: Value | None, stride: Ints,
        padding: Pairs, dilation: Ints, groups: int,
    ) -> tuple[Value | None, ...]:  # fmt: skip
        dx = spread_out(g, ct, weight, tensor(x).shape[2:], stride, padding, dilation, groups)
        dw = of_weight(g, x, ct, weight, stride, padding, dilation, groups)
        return g.to(dx, tensor(x).dtype), g.to(dw, tensor(weight).dtype), self.of_bias(g, ct, bias)


class ConvTranspose(Convolved, abstract=True):
    def infer(
        self, t: Infer, x: TensorType, weight: TensorType, bias: TensorType | None = None,
        stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0,
        groups: int = 1, dilation: int | Sequence[int] = 1,
    ) -> TensorType:  # fmt: skip
        strides, dilations, count = self.common(t, x, weight, stride, dilation, groups)
        n = self.spatial
        pads = places(t, padding, "padding", n, least=0)
        more = places(t, output_padding, "output_padding", n, least=0)
        for m, s, d in zip(more, strides, dilations, strict=True):
            if m >= max(s, d):
                t.fail("TS213", f"output_padding is less than the stride or the dilation, unlike {m}")
        t.canonical(padding=pads, output_padding=more)
        self.grouped(t, x.shape[1], count, "channels")
        message = f"{self.name} of {x.shape[1]} channels needs weights for them"
        t.same(weight.shape[0], x.shape[1], "TS203", f"{message}, not for {weight.shape[0]}", operand=1)
        channels = weight.shape[1] * count
        self.biased(t, bias, channels)
        kernel: Any = weight.shape[2:]
        sizes = [
            (d - 1) * s - 2 * p + e * (k - 1) + m + 1
            for d, k, s, p, e, m in zip(x.shape[2:], kernel, strides, pads, dilations, more, strict=True)
        ]
        if any(isinstance(d, int) and d < 1 for d in sizes):
            t.fail("TS213", f"{self.name} of {shape_text(x.shape)} would give sizes {shape_text(tuple(sizes))}")
        given = [v for v in (x, weight, bias) if v is not None]
        return TensorType((x.shape[0], channels, *sizes), t.promote(*given))

    def reference(
        self, x: Any, weight: Any, bias: Any, stride: Ints, padding: Ints, output_padding: Ints, groups: int,
        dilation: Ints,
    ) -> Any:  # fmt: skip
        batch, each = x.shape[0], weight.shape[1]
        kernel = weight.shape[2:]
        whole = tuple(
            max(0, (d - 1) * s + e * (k - 1) + 1 + m)
            for d, k, s, e, m in zip(x.shape[2:], kernel, stride, dilation, output_padding, strict=True)
        )
        found = np.zeros((batch, groups, each, *whole), x.dtype)
        split = x.reshape(batch, groups, x.shape[1] // groups, *x.shape[2:])
        weights = weight.reshape(groups, weight.shape[0] // groups, each, *kernel)
        for at in np.ndindex(*kernel) if x.size else ():
            window = tuple(
                slice(i * e, i * e + (d - 1) * s + 1, s)
                for i, e, d, s in zip(at, dilation, x.shape[2:], stride, strict=True)
            )
            found[(slice(None), slice(None), slice(None), *window)] += np.einsum(
                "ngc...,gco->ngo...", split, weights[(..., *at)]
            )
        kept = tuple(slice(p, d - p) for p, d in zip(padding, whole, strict=True))
        found = found.reshape(batch, groups * each, *whole)[(slice(None), slice(None), *kept)]
        return found if bias is None else found + bias.reshape(-1, *(1,) * self.spatial)

    def decompose(
        self, g: GraphBuilder, x: Value, weight: Value, bias: Value | None, stride: Ints, padding: Ints,
        output_padding: Ints, groups: int, dilation: Ints,
    ) -> Value:  # fmt: skip
        kernel: Any = tensor(weight).shape[2:]
        sizes = tuple(
            (d - 1) * s - 2 * p + e * (k - 1) + m + 1
            for d, k, s, p, e, m in zip(
                tensor(x).shape[2:], kernel, stride, padding, dilation, output_padding, strict=True
            )
        )
        pairs = tuple((p, p) for p in padding)
        out = spread_out(g, x, weight, sizes, stride, pairs, dilation, groups)
        return g.to(self.add_bias(g, g.compute(out), bias), tensor(x).dtype)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, x: Value, weight: Value, bias: Value | None, stride: Ints,
        padding: Ints, output_padding: Ints, groups: int, dilation: Ints,
    ) -> tuple[Value | None, ...]:  # fmt: skip
        pairs = tuple((p, p) for p in padding)
        convolve = getattr(g, f"conv{self.spatial}d")
        dx = convolve(ct, weight, None, stride=stride, padding=pairs, dilation=dilation, groups=groups)
        if self.spatial and tensor(dx).shape != tensor(x).shape:  # what output_padding adds may hold one window more
            for axis in range(2, 2 + self.spatial):
                dx = part(g, dx, axis, 0, tensor(x).shape[axis])
        dw = of_weight(g, ct, x, weight, stride, pairs, dilation, groups)
        return dx, g.to(dw, tensor(weight).dtype), self.of_bias(g, ct, bias)


def windows(g: GraphBuilder, x: Value, kernel: Ints, stride: Ints, dilation: Ints, groups: int) -> Value:
    """Windows as [batch, groups, channels, places within a window ..., windows ...], a view."""
    n, shape = len(kernel), tensor(x).shape
    split = g.reshape(x, (shape[0], groups, dims.floordiv(shape[1], groups), *shape[2:]))
    seen = g.sliding_window_view(split, kernel, tuple(range(3, 3 + n)), stride, dilation)
    return g.transpose(seen, (0, 1, 2, *range(3 + n, 3 + 2 * n), *range(3, 3 + n)))


def of_weight(
    g: GraphBuilder, x: Value, ct: Value, weight: Value, stride: Ints, padding: Sequence[tuple[int, int]],
    dilation: Ints, groups: int,
) -> Value:  # fmt: skip
    """The derivative with respect to the weights of the convolution of `x` with them, given that of the result."""
    n, shape = len(stride), tensor(weight).shape
    kernel: Any = shape[2:]
    sizes = tensor(ct).shape[2:]
    seen = windows(g, padded(g, x, padding), kernel, stride, dilation, groups)
    if tensor(seen).shape[-n:] != sizes:  # of a transposed convolution, whose result may have room for more windows
        for axis in range(n):
            seen = part(g, seen, 3 + n + axis, 0, sizes[axis])
    batch, channels = tensor(ct).shape[:2]
    given = g.reshape(ct, (batch, groups, dims.floordiv(channels, groups), *sizes))
    within, places = WITHIN[:n], PLACES[:n]
    found = widened(g, given, seen, f"ngo{places}", f"ngc{within}{places}", f"goc{within}")
    return g.reshape(found, shape)


for _base, _short, _said in (
    (Convolution, "conv", "convolved with weights [results, channels / groups, ...]"),
    (ConvTranspose, "conv_transpose", "the transpose of a convolution with weights [channels, results / groups, ...]"),
):
    for _n in (1, 2, 3):
        _axes = "axis" if _n == 1 else f"{_n} axes"
        _doc = f"x [batch, channels, ...] over its last {_axes}: {_said}, plus a bias [results].\n\n"
        _doc += (
            "`padding` is a number, one for each axis, a pair for each axis, 'same' or 'valid'."
            if _base is Convolution
            else "`output_padding` selects one of the sizes that a stride makes possible."
        )
        type(f"{_base.__name__}{_n}d", (_base,), {
            "__doc__": _doc, "__module__": __name__, "name": f"{_short}{_n}d", "spatial": _n,
        })  # fmt: skip
