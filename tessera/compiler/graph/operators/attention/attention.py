"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Infer, Operator, tensor
from tessera.compiler.graph.operators.attention import steps
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
    keys 0 to i, `window` only those less than so many positions away (with `causal` itself and window - 1 before).
    `lengths` [...] counts the keys that there are in each batch, and `starts` [...] is the position of query 0 among
    them, 0 by itself, for `causal` and `window`. Keys beyond these bounds cost nothing. `softcap` makes scores softcap
    * tanh(scores / softcap) before the mask. `scale` defaults to 1 / sqrt(features). A query that may see no key gets
    0. Scores and sums are f32; with narrower operands the weights are rounded to the operands' dtype before they meet
    `v`, as in FlashAttention. Neither it nor its gradient holds the scores in memory.
    """

    batching = "leading"

    apart = ("mask", "lengths", "starts")

    functions = ("attention", "scaled_dot_product_attention")
    says: ClassVar[Mapping[str, str]] = {
        "attn_mask": "it is mask=",
        "is_causal": "it is causal=",
        "softmax_scale": "it is scale=",
        "dropout_p": "written out it has one: ts.dropout(ts.softmax(q @ k.mT * scale, -1), key, p) @ v",
        "enable_gqa": "leave it out: k and v may have fewer heads than q",
    }
    methods = ()

    def infer(
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None,
        lengths: TensorType | None = None, starts: TensorType | None = None, causal: bool = False,
        scale: float | None = None, window: int | None = None, softcap: float | None = None,
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
        message = f"attention of q {shape_text(q.shape)}, k {shape_text(k.shape)}, v {shape_text(v.shape)}"
        t.same(q.shape[-1], k.shape[-1], "TS203", f"{message}: features {q.shape[-1]} and {k.shape[-1]} differ", 1)
        t.same(k.shape[-2], v.shape[-2], "TS203", f"{message}: k and v have different numbers of positions", 2)
        for i, (a, b, c) in enumerate(zip(q.shape[:-3], k.shape[:-3], v.shape[:-3], strict=True)):
            t.same(a, b, "TS203", f"{message}: batch axis {i} differs", 1)
            t.same(a, c, "TS203", f"{message}: batch axis {i} differs", 2)
        if q.rank > 2:
            t.same(k.shape[-3], v.shape[-3], "TS203", f"{message}: k and v have different numbers of heads", 2)
            if not t.facts.divides(k.shape[-3], q.shape[-3]):
                rest = dims.mod(q.shape[-3], k.shape[-3]) if k.shape[-3] != 0 else 1
                t.same(rest, 0, "TS203", f"{message}: heads of q are not a multiple of heads of k", 0)
        dtype = t.promote(q, k, v)
        if mask is not None:
            if mask.dtype.kind not in ("bool", "float"):
                t.fail("TS301", f"an attention mask is bool or float, not {mask.dtype}", operand=3)
            t.broadcast((*q.shape[:-1], k.shape[-2]), mask.shape)
        for i, x in enumerate((lengths, starts)):
            if x is not None:
                self.demand_counts(t, q, x, ("lengths", "starts")[i], 4 + i)
        t.canonical(
            causal=t.flag(causal, "causal"),
            scale=None if scale is None else t.number(scale, "scale"),
            window=None if window is None else t.integer(window, "window"),
            softcap=None if softcap is None else t.number(softcap, "softcap"),
        )
        if window is not None and t.integer(window, "window") < 1:
            t.fail("TS213", f"window counts positions, the current one included, so it is at least 1, not {window}")
        if softcap is not None and t.number(softcap, "softcap") <= 0:
            t.fail("TS213", f"softcap bounds scores, so it is greater than 0, not {softcap}")
        return TensorType((*q.shape[:-1], v.shape[-1]), dtype)

    def demand_counts(self, t: Infer, q: TensorType, x: TensorType, name: str, operand: int) -> None:
        if x.dtype.kind not in ("int", "uint"):
            t.fail("TS301", f"{name} of attention are integers, not {x.dtype}", operand=operand)
        if x.rank != max(q.rank - 3, 0):
            have, batch = shape_text(x.shape), shape_text(q.shape[:-3])
            t.fail("TS213", f"{name} of attention count the keys of each batch, {batch}, not {have}")
        for a, b in zip(q.shape[:-3], x.shape, strict=True):
            t.same(a, b, "TS203", f"{name} of attention {shape_text(x.shape)}: batches of q are {a}", operand)

    def reference(self, *operands: Any, **attrs: Any) -> Any:
        return self.computed(*operands, **attrs)[0]

    def computed(
        self, q: Any, k: Any, v: Any, mask: Any, lengths: Any, starts: Any, causal: bool, scale: float | None,
        window: int | None, softcap: float | None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """The result, and the logarithms of the sums."""
        batch = q.shape[:-3]
        as_four = [_four(x.shape) for x in (q, k, v)]
        bias = None
        if mask is not None:
            bias = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
            bias = bias.reshape(_four(bias.shape))
        lengths, starts = (None if x is None else np.broadcast_to(x, batch).reshape(-1) for x in (lengths, starts))
        four = [x.reshape(shape) for x, shape in zip((q, k, v), as_four, strict=True)]
        s, _ = steps.scores(four[0], four[1], bias, lengths, starts, causal, window, softcap, scale)
        with np.errstate(all="ignore"):
            top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
            base = np.where(top == -np.inf, 0, top)
            p = np.exp(s - base).astype(q.dtype)
            total = np.sum(p, axis=-1, keepdims=True)
            out = np.matmul(p, steps.shared(four[2], four[0])) / np.where(total == 0, 1, total).astype(q.dtype)
            lse = base + np.log(total)
        return out.reshape(*q.shape[:-1], v.shape[-1]), lse.reshape(q.shape[:-1])

    def decompose(
        self, g: GraphBuilder, q: Value, k: Value, v: Value, mask: Value | None, lengths: Value | None,
        starts: Value | None, causal: bool, scale: float | None, window: int | None, softcap: float | None,
    ) -> Value:  # fmt: skip
        return self.steps(g, q, k, v, mask, lengths, starts, causal, scale, window, softcap)[0]

    def steps(
        self, g: GraphBuilder, q: Value, k: Value, v: Value, mask: Value | None, lengths: Value | None,
        starts: Value | None, causal: bool, scale: float | None, window: int | None, softcap: float | None,
    ) -> tuple[Value, Value]:  # fmt: skip
        """The result, and the logarithm of each row's sum of exponentials: infinite where nothing is seen."""
        (*batch, _), keys = tensor(q).shape, tensor(k).shape[-2]
        parts = [self.as_four(g, x) for x in (q, k, v)]
        bias = None if mask is None else self.bias(g, mask, (*batch, keys), tensor(q).dtype.compute)
        counts = [None if x is None else g.reshape(x, (dims.prod(tensor(x).shape),)) for x in (lengths, starts)]
        if bias is None and window is None and (not causal or starts is not None):
            parts[0], counts, causal = self.rows_of_heads(g, parts[0], parts[1], counts, causal)
        found = g.attention_forward(*parts, bias, *counts, None, causal, window, softcap, scale)
        shapes = ((*batch, tensor(v).shape[-1]), tuple(batch))
        out, lse = (x if tensor(x).shape == s else g.reshape(x, s) for x, s in zip(found, shapes, strict=True))
        return out, lse

    def saving(self, shapes: Sequence[Shape], attrs: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        """With the logarithms of the sums, for heads that lie as the kernels want them."""
        if len(shapes) != 3 or any(len(s) != 4 for s in shapes) or attrs["softcap"] is not None:
            return None
        q, k, v = shapes
        fits = q[0] == k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3] and k[1] and q[1] % k[1] == 0
        return ("attention_forward", attrs) if fits and all(map(_usual, attrs.items())) else None

    def rows_of_heads(
        self, g: GraphBuilder, q: Value, k: Value, counts: list[Value | None], causal: bool
    ) -> tuple[Value, list[Value | None], bool]:
        """One query whose heads share keys: the heads are rows of one block, which reads the keys once. What it may see
        ends at a length then, as rows have no positions."""
        (batch, heads, queries, width), served = tensor(q).shape, tensor(k).shape[1]
        if queries != 1 or heads == served:
            return q, counts, causal
        lengths, starts = counts
        if causal and starts is not None:
            own = g.add(g.to(starts, dtypes.int64), 1)
            lengths = own if lengths is None else g.minimum(g.to(lengths, dtypes.int64), own)
        return g.reshape(q, (batch, served, dims.floordiv(heads, served), width)), [lengths, None], False

    def as_four(self, g: GraphBuilder, x: Value) -> Value:
        """[..., heads, positions, features] as [B, heads, positions, features]."""
        shape = _four(tensor(x).shape)
        return x if shape == tensor(x).shape else g.reshape(x, shape)

    def bias(self, g: GraphBuilder, mask: Value, scores: Shape, dtype: DType) -> Value:
        """The mask with four axes, of size 1 where it broadcasts. Batches are spread out if some have masks
        of their own and others not."""
        have = tensor(mask)
        mask = mask if have.dtype == dtypes.bool_ else g.to(mask, dtype)
        shape = ((1,) * (max(len(scores), 4) - have.rank)) + have.shape
        if len(scores) > 4:
            batch = shape[:-3] if all(d == 1 for d in shape[:-3]) else scores[:-3]
            mask = g.broadcast_to(mask, (*batch, *shape[-3:]))
            shape = (dims.prod(batch), *shape[-3:])
        return mask if tensor(mask).shape == shape else g.reshape(mask, shape)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        q, k, v = operands[:3]
        return dims.prod(q.shape[:-1]) * k.shape[-2] * (2 * q.shape[-1] + 2 * v.shape[-1] + 14)


class AttentionWithLogsumexp(Attention):
    """What `attention` gives, and the logarithm of the sum of the exponentials of each query's scores [..., heads,
    queries], f32 (f64 for f64); -inf where a query sees no key.

    Of keys in several parts, each part's result weighs exp(logsumexp) in the mean that is the result of all.
    """

    multiple = True
    functions = ("attention_with_logsumexp",)

    def infer(  # type: ignore[override]
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None,
        lengths: TensorType | None = None, starts: TensorType | None = None, causal: bool = False,
        scale: float | None = None, window: int | None = None, softcap: float | None = None,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        out = super().infer(t, q, k, v, mask, lengths, starts, causal, scale, window, softcap)
        return out, TensorType(q.shape[:-1], out.dtype.compute)

    def reference(self, *operands: Any, **attrs: Any) -> Any:
        return self.computed(*operands, **attrs)

    def decompose(self, g: GraphBuilder, *operands: Any, **attrs: Any) -> Any:
        out, lse = self.steps(g, *operands, **attrs)
        return out, g.where(g.eq(lse, math.inf), -math.inf, lse)

    def saving(self, shapes: Sequence[Shape], attrs: dict[str, Any]) -> None:
        return None


def _usual(attribute: tuple[str, Any]) -> bool:
    name, value = attribute
    if name == "causal":
        return isinstance(value, bool)
    return value is None or (type(value) in (int, float) and value > 0 and (name == "scale" or type(value) is int))


def _four(shape: Shape) -> Shape:
    """[..., heads, a, b] with one axis of batches."""
    if len(shape) < 4:
        return (*(1,) * (4 - len(shape)), *shape)
    return (dims.prod(shape[:-3]), *shape[-3:])
