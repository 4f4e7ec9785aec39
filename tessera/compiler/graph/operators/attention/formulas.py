"""Attention and its derivative as formulas over whole scores: what the kernels compute block by block.

They are what derivatives of higher order go through, and what runs where the kernels do not fit. All take
q [B, H, S, D], k [B, G, T, D] and v [B, G, T, E], as `steps.py` does.
"""

from __future__ import annotations

import math
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import tensor
from tessera.compiler.graph.operators.contraction import contract
from tessera.compiler.graph.operators.elementwise import sum_to
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape
from tessera.immutable import immutable
from tessera.language import dims, dtypes


@immutable
class Formulas:
    """One attention. Products are of operands in their dtype, sums in that of arithmetic."""

    g: GraphBuilder
    q: Value
    k: Value
    v: Value
    bias: Value | None
    lengths: Value | None
    starts: Value | None
    causal: bool
    window: int | None
    softcap: float | None
    scale: float | None
    hidden: float = -math.inf
    literal: bool = False

    def forward(self) -> tuple[Value, Value]:
        """The result [B, H, S, E], and the logarithm of each row's sum [B, H, S], infinite where nothing is seen."""
        g, s = self.g, self.scores()
        *rows, keys = tensor(s).shape
        empty = keys == 0  # a maximum of no elements has no meaning, a row that sees nothing has
        top = g.full((*rows, 1), -math.inf, tensor(s).dtype) if empty else g.max(s, axis=-1, keepdims=True)
        p = g.exp(g.sub(s, g.where(g.eq(top, -math.inf), 0.0, top)))
        total = g.sum(p, axis=-1, keepdims=True)
        none = g.eq(total, 0.0)
        some = total if self.literal else g.where(none, 1.0, total)
        mixed = self.product(self.narrow(p), g.compute(self.v), "ij", "je", "ie")
        lse = g.add(g.log(some), top)
        lse = lse if self.literal else g.where(none, math.inf, lse)
        dtype = tensor(self.q).dtype
        return g.to(g.div(mixed, some), dtype), g.reshape(lse, tensor(self.q).shape[:-1])

    def queries(self, ct: Value, lse: Value, along: Value, like: Value | None = None) -> Value:
        """Of the dtype of `like`, or of q."""
        ds = self.narrow(self.uncapped(self.steps(ct, lse, along)))
        dq = self.product(ds, self.g.compute(self.k), "ij", "jd", "id")
        return self.scaled(dq, like or self.q)

    def keys(self, ct: Value, lse: Value, along: Value) -> tuple[Value, Value]:
        ds = self.narrow(self.uncapped(self.steps(ct, lse, along)))
        dk = self.product(ds, self.grouped(self.g.compute(self.q)), "ij", "id", "jd")
        p = self.narrow(self.weights(lse))
        dv = self.product(p, self.grouped(self.g.compute(ct)), "ij", "ie", "je")
        return self.scaled(dk, self.k), self.g.to(dv, tensor(self.v).dtype)

    def biases(self, ct: Value, lse: Value, along: Value) -> Value:
        assert self.bias is not None
        like = tensor(self.bias)
        return self.g.to(sum_to(self.g, self.steps(ct, lse, along), like.shape), like.dtype)

    # parts

    def scores(self) -> Value:
        """The operand of the softmax, [B, H, S, T]: -inf where a query may not see a key."""
        g = self.g
        s = self.raw()
        if self.softcap is not None:
            s = g.mul(g.tanh(g.div(s, self.softcap)), self.softcap)
        if self.bias is not None and tensor(self.bias).dtype == dtypes.bool_:
            s = g.where(self.bias, s, self.hidden)
        elif self.bias is not None:
            s = self.rounded(g.add(s, g.to(self.bias, tensor(s).dtype)))
        for seen in self.limits():
            s = g.where(seen, s, -math.inf)
        return s

    def limits(self) -> list[Value]:
        """Which keys are seen, by causal, window and lengths."""
        g = self.g
        queries, keys = tensor(self.q).shape[-2], tensor(self.k).shape[-2]
        query, key = g.iota((queries, 1), axis=0), g.iota((1, keys), axis=1)
        if self.starts is not None:
            query = g.add(query, self.of_batches(self.starts))
        out: list[Value] = []
        if self.lengths is not None:
            out.append(g.lt(key, self.of_batches(self.lengths)))
        if self.causal:
            out.append(g.le(key, query))
        if self.window is not None:
            out.append(g.lt(g.sub(query, key), self.window))
            if not self.causal:
                out.append(g.lt(g.sub(key, query), self.window))
        return out

    def of_batches(self, x: Value) -> Value:
        """Counts of keys [B] beside scores."""
        return self.g.reshape(self.g.to(x, dtypes.int64), (*tensor(x).shape, 1, 1, 1))

    def raw(self) -> Value:
        """q k^T * scale."""
        g = self.g
        s = self.product(self.grouped(g.compute(self.q)), g.compute(self.k), "id", "jd", "ij")
        return self.rounded(g.mul(self.rounded(s), self.factor(s)))

    def rounded(self, s: Value) -> Value:
        return self.g.compute(self.g.to(s, tensor(self.q).dtype)) if self.literal else s

    def weights(self, lse: Value) -> Value:
        g = self.g
        return g.exp(g.sub(self.scores(), g.reshape(lse, (*tensor(lse).shape, 1))))

    def steps(self, ct: Value, lse: Value, along: Value) -> Value:
        """The cotangents of the scores [B, H, S, T], behind the softcap."""
        g = self.g
        dp = self.product(self.grouped(g.compute(ct)), g.compute(self.v), "ie", "je", "ij")
        ds = g.mul(self.weights(lse), g.sub(dp, g.reshape(along, (*tensor(along).shape, 1))))
        seen = self.bias is not None and tensor(self.bias).dtype == dtypes.bool_
        return g.where(self.bias, ds, 0.0) if self.literal and seen else ds

    def uncapped(self, ds: Value) -> Value:
        if self.softcap is None:
            return ds
        g = self.g
        bent = g.tanh(g.div(self.raw(), self.softcap))
        return g.mul(ds, g.sub(1.0, g.square(bent)))

    def scaled(self, x: Value, like: Value) -> Value:
        return self.g.to(self.g.mul(x, self.factor(x)), tensor(like).dtype)

    def factor(self, like: Value) -> Value:
        g, dtype = self.g, tensor(like).dtype
        if self.scale is None:
            return g.rsqrt(g.size(tensor(self.q).shape[-1], dtype))
        return g.constant(self.scale, dtype)

    def narrow(self, x: Value) -> Value:
        """Scores as they enter a product: rounded to the operands' dtype, heads in groups."""
        return self.grouped(self.g.compute(self.g.to(x, tensor(self.q).dtype)))

    def product(self, a: Value, b: Value, left: str, right: str, out: str) -> Value:
        """A product for each head; groups of `r` heads share keys. Axes are letters behind those of batches and heads.
        A result with queries among its axes has H heads."""
        together = tensor(self.q).shape[1] == tensor(self.k).shape[1]
        heads = ["bhr" if "i" in axes and not together else "bh" for axes in (left, right, out)]
        found = contract(self.g, a, b, *(h + axes for h, axes in zip(heads, (left, right, out), strict=True)))
        if not together and "i" in out:
            shape = tensor(found).shape
            return self.g.reshape(found, (shape[0], tensor(self.q).shape[1], *shape[3:]))
        return found

    def grouped(self, x: Value) -> Value:
        """[B, H, ...] as [B, G, H / G, ...], where groups of heads share keys."""
        (batch, heads, *rest), served = tensor(x).shape, tensor(self.k).shape[1]
        if heads == served:
            return x
        shape: Shape = (batch, served, dims.floordiv(heads, served), *rest)
        return self.g.reshape(x, shape)


def formulas(g: GraphBuilder, operands: Any, attrs: Any) -> Formulas:
    q, k, v, bias, lengths, starts = operands[:6]  # what follows is of one step
    return Formulas(g, q, k, v, bias, lengths, starts, **attrs)
