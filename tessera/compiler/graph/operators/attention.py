"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from tessera.compiler.graph.operator import GraphBuilder, Infer, Operator, tensor
from tessera.compiler.graph.operators.contraction import contract
from tessera.compiler.graph.operators.elementwise import sum_to
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np


class Attention(Operator):
    """Scaled dot-product attention: softmax(q k^T * scale + mask) v over [..., heads, positions, features].

    `k` and `v` may have fewer heads than `q` (grouped queries): each serves heads(q) / heads(k) query heads. `mask` is
    bool (true: attend) or added to the scores, and broadcasts to [..., heads, queries, keys]. `causal` lets query i see
    keys 0 to i. `scale` defaults to 1 / sqrt(features). A query that may see no key gets 0. Scores and sums are f32;
    with narrower operands the weights are rounded to the operands' dtype before they meet `v`, as in FlashAttention.
    """

    apart = ("mask",)

    functions = ("attention", "scaled_dot_product_attention")
    methods = ()

    def infer(
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None,
        causal: bool = False, scale: float | None = None,
    ) -> TensorType:  # fmt: skip
        for i, x in enumerate((q, k, v)):
            t.require(x, "float", operand=i)
            if x.rank < 2 or x.rank != q.rank:
                have = ", ".join(shape_text(y.shape) for y in (q, k, v))
                t.fail(
                    "TS213",
                    f"attention needs q, k, v with [..., positions, features] of one rank, not {have}",
                    operand=i,
                )
        said = f"attention of q {shape_text(q.shape)}, k {shape_text(k.shape)}, v {shape_text(v.shape)}"
        t.same(q.shape[-1], k.shape[-1], "TS203", f"{said}: features {q.shape[-1]} and {k.shape[-1]} differ", 1)
        t.same(k.shape[-2], v.shape[-2], "TS203", f"{said}: k and v have different numbers of positions", 2)
        for i, (a, b, c) in enumerate(zip(q.shape[:-3], k.shape[:-3], v.shape[:-3], strict=True)):
            t.same(a, b, "TS203", f"{said}: batch axis {i} differs", 1)
            t.same(a, c, "TS203", f"{said}: batch axis {i} differs", 2)
        if q.rank > 2:
            t.same(k.shape[-3], v.shape[-3], "TS203", f"{said}: k and v have different numbers of heads", 2)
            if not t.facts.divides(k.shape[-3], q.shape[-3]):
                rest = dims.mod(q.shape[-3], k.shape[-3]) if k.shape[-3] != 0 else 1
                t.same(rest, 0, "TS203", f"{said}: heads of q are no multiple of heads of k", 0)
        dtype = t.promote(q, k, v)
        if mask is not None:
            if mask.dtype.kind not in ("bool", "float"):
                t.fail("TS301", f"an attention mask is bool or float, not {mask.dtype}", operand=3)
            t.broadcast((*q.shape[:-1], k.shape[-2]), mask.shape)
        t.canonical(causal=t.flag(causal, "causal"), scale=None if scale is None else t.number(scale, "scale"))
        return TensorType((*q.shape[:-1], v.shape[-1]), dtype)

    def reference(self, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
        if q.ndim > 2 and q.shape[-3] != k.shape[-3]:
            k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * q.dtype.type(
            1 / math.sqrt(q.shape[-1]) if scale is None else scale
        )
        if mask is not None:
            scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
        if causal:
            scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
        with np.errstate(all="ignore"):
            top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
            p = np.exp(scores - np.where(top == -np.inf, 0, top)).astype(q.dtype)
            total = np.sum(p, axis=-1, keepdims=True)
            return np.matmul(p, v) / np.where(total == 0, 1, total).astype(q.dtype)

    def decompose(
        self, g: GraphBuilder, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, scale: float | None
    ) -> Value:
        dtype, keys = tensor(q).dtype, tensor(k).shape[-2]
        grouped, rows, columns, both = self.labels(tensor(q).shape, tensor(k).shape)
        scores = self.scores(g, q, k, mask, causal, scale)
        top = g.max(scores, axis=-1, keepdims=True)
        p = g.exp(g.sub(scores, g.where(g.eq(top, -math.inf), 0.0, top)))
        total = g.sum(p, axis=-1, keepdims=True)
        weights = g.reshape(g.compute(g.to(p, dtype)), (*grouped[:-1], keys))
        mixed = contract(g, weights, g.compute(v), both, columns + "e", rows + "e")
        mixed = g.reshape(mixed, (*tensor(q).shape[:-1], tensor(v).shape[-1]))
        return g.to(g.div(mixed, g.where(g.eq(total, 0.0), 1.0, total)), dtype)

    def scores(
        self, g: GraphBuilder, q: Value, k: Value, mask: Value | None, causal: bool, scale: float | None
    ) -> Value:
        """What the softmax is taken of: -inf where a query may not see a key."""
        (*_, queries, features), keys = tensor(q).shape, tensor(k).shape[-2]
        grouped, rows, columns, both = self.labels(tensor(q).shape, tensor(k).shape)
        scores = contract(g, g.compute(g.reshape(q, grouped)), g.compute(k), rows + "d", columns + "d", both)
        scores = g.reshape(scores, (*tensor(q).shape[:-1], keys))
        scores = g.mul(scores, self.factor(g, features, tensor(scores).dtype, scale))
        if mask is not None and tensor(mask).dtype == dtypes.bool_:
            scores = g.where(mask, scores, -math.inf)
        elif mask is not None:
            scores = g.add(scores, g.to(mask, tensor(scores).dtype))
        if causal:
            seen = g.le(g.iota((1, keys), axis=1), g.iota((queries, 1), axis=0))
            scores = g.where(seen, scores, -math.inf)
        return scores

    def factor(self, g: GraphBuilder, features: Dim, dtype: DType, scale: float | None) -> Value:
        return g.rsqrt(g.size(features, dtype)) if scale is None else g.constant(scale, dtype)

    def adjoint(
        self, g: GraphBuilder, out: Value, ct: Value, q: Value, k: Value, v: Value, mask: Value | None, causal: bool,
        scale: float | None,
    ) -> tuple[Value | None, ...]:  # fmt: skip
        """Weights are computed again from q, k and the logarithm of each row's sum (Dao and others, 2022). A query that
        may see no key has weights of 0, and so gives no cotangents. Products take the operands' dtype, sums are f32.
        """
        dtype, keys, shape = tensor(q).dtype, tensor(k).shape[-2], tensor(q).shape
        grouped, rows, columns, both = self.labels(shape, tensor(k).shape)

        def narrow(x: Value, like: Shape) -> Value:
            return g.reshape(g.compute(g.to(x, dtype)), like)

        scores = self.scores(g, q, k, mask, causal, scale)
        total = g.logsumexp(scores, axis=-1, keepdims=True)
        p = g.exp(g.sub(scores, g.where(g.eq(total, -math.inf), 0.0, total)))
        given = narrow(ct, (*grouped[:-1], tensor(v).shape[-1]))
        dv = contract(g, narrow(p, (*grouped[:-1], keys)), given, both, rows + "e", columns + "e")
        dp = g.reshape(contract(g, given, g.compute(v), rows + "e", columns + "e", both), tensor(scores).shape)
        along = g.sum(g.mul(g.compute(ct), g.compute(out)), axis=-1, keepdims=True)
        ds = g.mul(p, g.sub(dp, along))
        factor = self.factor(g, shape[-1], tensor(ds).dtype, scale)
        steps = narrow(g.mul(ds, factor), (*grouped[:-1], keys))
        dq = g.reshape(contract(g, steps, g.compute(k), both, columns + "d", rows + "d"), shape)
        dk = contract(g, steps, g.compute(g.reshape(q, grouped)), both, rows + "d", columns + "d")
        dmask = None
        if mask is not None and tensor(mask).dtype.is_float:
            dmask = g.to(sum_to(g, ds, tensor(mask).shape), tensor(mask).dtype)
        return (*(g.to(x, dtype) for x in (dq, dk, dv)), dmask)

    def labels(self, q: Shape, k: Shape) -> tuple[Shape, str, str, str]:
        """q's shape with heads split into key heads and the queries each serves, and letters: rows, columns, scores."""
        batch = ascii_uppercase[: len(q) - 3] if len(q) > 3 else ""
        if len(q) == 2:
            return q, "i", "j", "ij"
        heads, served = q[len(q) - 3], k[len(k) - 3]
        if heads == served:
            return q, batch + "hi", batch + "hj", batch + "hij"
        grouped = (*q[:-3], served, dims.floordiv(heads, served), *q[-2:])
        return grouped, batch + "hgi", batch + "hj", batch + "hgij"

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        q, k, v = operands[:3]
        return dims.prod(q.shape[:-1]) * k.shape[-2] * (2 * q.shape[-1] + 2 * v.shape[-1] + 14)
