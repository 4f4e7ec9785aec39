"""The steps of attention and of its derivative: one operator for each kernel of `tessera.kernels.flash_attention`.

`attention` is the first one with the shapes that people use; its cotangents are three others, so that one that is not
needed costs nothing. Their results of f32 are f64 for operands of f64. All take q [B, H, S, D], k [B, G, T, D] and
v [B, G, T, E] of one dtype, and what `attention` says of bias, lengths, starts, causal, window, softcap and scale. Keys
and values of the forward pass may be narrower than q. `literal` is for products and a softmax that are written out
(`graph/recognize`): scores are rounded to the dtype of q after each step, those that may not be seen are `hidden`, and
a query without keys gets NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Infer, Operator, TileKernel, tensor
from tessera.compiler.graph.operators.attention.formulas import formulas
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

BLOCKS = (64, 32, 16)
"""queries and keys of a block: the first that the bytes of a row allow, and no more than there are"""
BLOCK_BYTES = 2**15
"""of the rows of one block of q and one of v: so the four blocks of a step, twice while some are loaded ahead, fit the
shared memory of a GPU, and the second-level cache of a CPU"""


FEW = 16
"""queries for which keys that are kept in fewer bits are widened block by block, as far as they are read"""


class _Step(Operator, abstract=True):
    functions = ()
    methods = ()
    apart = ("bias", "lengths", "starts")
    computes: ClassVar[str] = "attention({0}, {1}, {2})"

    def kernel(self, operands: Sequence[Any], attrs: Mapping[str, Any]) -> TileKernel | None:
        """None where features are counted at launch, or the kernel does not have the requested numerics."""
        q, k, v, bias, lengths = operands[:5]
        widths = q.shape[-1], v.shape[-1]
        plain = q.dtype in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64) and k.dtype == v.dtype
        if k.dtype != q.dtype:  # kept in fewer bits
            plain = plain and self.name == "attention_forward" and k.dtype.is_low_precision
        if not plain or any(not isinstance(d, int) or d > 256 for d in widths):
            return None
        if any(x.policy is not None and x.policy.accum not in (None, q.dtype.compute) for x in (q, k, v)):
            return None
        spread = (True,) * 4 if bias is None else tuple(d != 1 for d in bias.shape)
        row, counts = sum(widths) * q.dtype.itemsize, (q.shape[2], k.shape[2])
        rows, columns = reversed(counts) if self.name == "attention_backward_keys" else counts
        if lengths is not None and self.name == "attention_forward":
            columns = None  # blocks of one size whatever the room for keys, so that bits do not depend on it
        held = 2 if q.dtype.is_low_precision and self.name != "attention_forward" else 1
        config = {"ROWS": _block(rows, row), "COLUMNS": _block(columns, held * row)}
        config["num_warps"] = 8 if 192 <= sum(widths) <= 256 else 4
        config["num_stages"] = 2 if row < 2048 else 1
        apart = self.name == "attention_backward_keys" and sum(widths) > 256  # registers for one of dk and dv
        even = {"ROWS": _rows(rows), "COLUMNS": _columns(columns)}
        if rows == columns and attrs["causal"] and operands[5] is None and _few(rows, q):
            even = dict.fromkeys(even, _shared_out(rows, LANES))
        return TileKernel(f"flash_attention.{self.name}", self.computes, {"spread": spread}, config, even, apart)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        q, k, v = operands[:3]
        return dims.prod(q.shape[:-1]) * k.shape[-2] * (2 * q.shape[-1] + 2 * v.shape[-1] + 14)


def _block(count: Dim | None, row: int) -> int:
    wanted = next((b for b in BLOCKS if b * row <= BLOCK_BYTES), BLOCKS[-1])
    return next((b for b in reversed(BLOCKS) if isinstance(count, int) and count <= b <= wanted), wanted)


LONG, WHOLE = 64, 96
"""rows and columns of a block where products take any number, and how many there may be if one block holds all"""
LANES, HANDED = 16, 4
"""rows that products compute together, and what a further block costs in rows"""


def _rows(count: Dim) -> int:
    """The rows of a block, of as many blocks as compute the fewest lanes, all of one size. No bits depend on it."""
    if not isinstance(count, int) or 0 < count <= WHOLE:
        return count if isinstance(count, int) else LONG
    wide = min(range(LONG, 0, -LANES), key=lambda n: -(-count // n) * (n + HANDED))
    return _shared_out(count, wide)


def _few(count: Dim, q: TensorType) -> bool:
    """Whether blocks of as many rows and columns as lanes are best under the diagonal: less is computed above it."""
    return isinstance(count, int) and LANES < count <= 2 * LONG and not q.dtype.is_low_precision


def _columns(count: Dim | None) -> int:
    """The columns of a block: those of whole blocks, if there are such that are about as long, else of equal ones. They
    decide in which order a row is summed."""
    if not isinstance(count, int) or 0 < count <= WHOLE:
        return count if isinstance(count, int) else LONG
    whole = [n for n in range(LONG * 3 // 4, WHOLE + 1) if count % n == 0]
    return min(whole, key=lambda n: abs(n - LONG), default=_shared_out(count, LONG))


def _shared_out(count: int, block: int) -> int:
    return -(-count // -(-count // block)) if count else block


class AttentionForward(_Step):
    """The result [B, H, S, E], and the logarithm of the sum of each row's exponentials [B, H, S], f32: infinite where a
    query sees no key. `reach` [B, G]: up to which key every query goes, whatever it may see."""

    multiple = True

    def narrow(self, operands: Sequence[Any]) -> tuple[int, ...]:
        q, lengths = operands[0], operands[4]
        few = isinstance(q.shape[2], int) and q.shape[2] <= FEW
        return (1, 2) if few and lengths is not None else ()

    def infer(
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, bias: TensorType | None = None,
        lengths: TensorType | None = None, starts: TensorType | None = None, reach: TensorType | None = None,
        causal: bool = False, window: int | None = None, softcap: float | None = None, scale: float | None = None,
        hidden: float = -math.inf, literal: bool = False,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        return q.with_shape((*q.shape[:-1], v.shape[-1])), q.with_shape(q.shape[:-1]).with_dtype(q.dtype.compute)

    def reference(
        self, q: Any, k: Any, v: Any, bias: Any, lengths: Any, starts: Any, reach: Any, literal: bool = False,
        **attrs: Any,
    ) -> Any:  # fmt: skip
        k, v = k.astype(q.dtype), v.astype(q.dtype)
        s, _ = scores(q, k, bias, lengths, starts, **attrs)
        with np.errstate(all="ignore"):
            top = np.max(s, axis=-1, keepdims=True, initial=-np.inf)
            p = np.exp(s - np.where(top == -np.inf, 0, top))
            total = np.sum(p, axis=-1, keepdims=True)
            lse = top + np.log(total)
            if not literal:
                lse, total = np.where(total == 0, np.inf, lse), np.where(total == 0, 1, total)
            return np.matmul(p, shared(v, q)) / total, lse[..., 0]

    def decompose(self, g: GraphBuilder, *operands: Any, **attrs: Any) -> tuple[Value, Value]:
        return formulas(g, operands, attrs).forward()  # over all keys, whatever `reach` is

    def adjoint(self, g: GraphBuilder, outs: Any, cts: Any, *operands: Any, **attrs: Any) -> tuple[Value | None, ...]:
        """Weights are computed again from the logarithms (T. Dao and others, 2022). A cotangent of the logarithms
        counts against the mean of the cotangents of a row's weights: both move them alike."""
        out, lse = outs
        given, of_lse = cts
        given = g.zeros_like(out) if given is None else given
        along = g.sum(g.mul(g.compute(given), g.compute(out)), axis=-1)
        along = along if of_lse is None else g.sub(along, of_lse)
        bias, rest = operands[3], (*operands[:6], given, lse, along)
        dq = g.attention_backward_queries(*rest, **attrs)
        dk, dv = g.attention_backward_keys(*rest, **attrs)
        wanted = bias is not None and tensor(bias).dtype.is_float
        return dq, dk, dv, g.attention_backward_bias(*rest, **attrs) if wanted else None, None, None, None


class _Backward(_Step, abstract=True):
    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        q, k, v = operands[:3]
        products = sum(x.shape[-1] for x in (q, v, *results))
        return dims.prod(q.shape[:-1]) * k.shape[-2] * (2 * products + 14)


class AttentionBackwardQueries(_Backward):
    """The cotangent of q, given that of the result, the logarithms `lse` and `along` [B, H, S]: for each row the sum of
    the products of the result and its cotangent."""

    computes = f"gradient of {{0}} in {_Step.computes}"

    def infer(
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, bias: TensorType | None,
        lengths: TensorType | None, starts: TensorType | None, ct: TensorType, lse: TensorType, along: TensorType,
        causal: bool = False, window: int | None = None, softcap: float | None = None, scale: float | None = None,
        hidden: float = -math.inf, literal: bool = False,
    ) -> TensorType:  # fmt: skip
        return q

    def reference(self, q: Any, k: Any, v: Any, bias: Any, lengths: Any, *rest: Any, scale: Any, **attrs: Any) -> Any:
        ds, _, bent = steps(q, k, v, bias, lengths, *rest, scale=scale, **attrs)
        return np.matmul(ds * bent, shared(k, q)) * factor(q, scale)

    def decompose(self, g: GraphBuilder, *operands: Any, **attrs: Any) -> Value:
        return formulas(g, operands, attrs).queries(*operands[6:])


class AttentionBackwardKeys(_Backward):
    """The cotangents of k and v, from the operands of `attention_backward_queries`."""

    multiple = True
    computes = f"gradient of {{1}} and {{2}} in {_Step.computes}"

    def infer(
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, bias: TensorType | None,
        lengths: TensorType | None, starts: TensorType | None, ct: TensorType, lse: TensorType, along: TensorType,
        causal: bool = False, window: int | None = None, softcap: float | None = None, scale: float | None = None,
        hidden: float = -math.inf, literal: bool = False,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        return k, v

    def reference(
        self, q: Any, k: Any, v: Any, bias: Any, lengths: Any, starts: Any, ct: Any, *rest: Any, scale: Any,
        **attrs: Any,
    ) -> Any:  # fmt: skip
        ds, p, bent = steps(q, k, v, bias, lengths, starts, ct, *rest, scale=scale, **attrs)
        dk = np.matmul(np.swapaxes(ds * bent, -1, -2), q) * factor(q, scale)
        return tuple(gathered(x, k) for x in (dk, np.matmul(np.swapaxes(p, -1, -2), ct)))

    def decompose(self, g: GraphBuilder, *operands: Any, **attrs: Any) -> tuple[Value, Value]:
        return formulas(g, operands, attrs).keys(*operands[6:])


WALKS = 8
"""programs, one for each batch and heads that share keys, from which on one walk is better than two"""


def in_one_walk(v: TensorType) -> bool:
    """Whether one program has all keys, for targets whose programs are few and long."""
    programs = dims.prod(v.shape[:2])
    return isinstance(programs, int) and programs >= WALKS


class AttentionBackward(_Backward):
    """The cotangents of q, in the dtype of sums, and of k and v, from the operands of `attention_backward_queries`:
    what that and `attention_backward_keys` give, in one walk and five products instead of seven."""

    multiple = True
    computes = f"gradient of {{0}}, {{1}} and {{2}} in {_Step.computes}"

    def infer(
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, bias: TensorType | None,
        lengths: TensorType | None, starts: TensorType | None, ct: TensorType, lse: TensorType, along: TensorType,
        causal: bool = False, window: int | None = None, softcap: float | None = None, scale: float | None = None,
        hidden: float = -math.inf, literal: bool = False,
    ) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
        return q.with_dtype(q.dtype.compute), k, v

    def reference(
        self, q: Any, k: Any, v: Any, bias: Any, lengths: Any, starts: Any, ct: Any, *rest: Any, scale: Any,
        **attrs: Any,
    ) -> Any:  # fmt: skip
        ds, p, bent = steps(q, k, v, bias, lengths, starts, ct, *rest, scale=scale, **attrs)
        bent = ds * bent
        dq, dk = np.matmul(bent, shared(k, q)), np.matmul(np.swapaxes(bent, -1, -2), q)
        dv = np.matmul(np.swapaxes(p, -1, -2), ct)
        return dq * factor(q, scale), gathered(dk * factor(q, scale), k), gathered(dv, k)

    def decompose(self, g: GraphBuilder, *operands: Any, **attrs: Any) -> tuple[Value, ...]:
        found, (_, lse, _) = formulas(g, operands, attrs), operands[6:]
        return found.queries(*operands[6:], like=lse), *found.keys(*operands[6:])


class AttentionBackwardBias(_Backward):
    """The cotangent of what is added to the scores, from the operands of `attention_backward_queries`."""

    computes = f"gradient of the bias in {_Step.computes}"

    def infer(
        self, t: Infer, q: TensorType, k: TensorType, v: TensorType, bias: TensorType, lengths: TensorType | None,
        starts: TensorType | None, ct: TensorType, lse: TensorType, along: TensorType, causal: bool = False,
        window: int | None = None, softcap: float | None = None, scale: float | None = None,
        hidden: float = -math.inf, literal: bool = False,
    ) -> TensorType:  # fmt: skip
        return bias

    def reference(self, q: Any, k: Any, v: Any, bias: Any, *rest: Any, **attrs: Any) -> Any:
        ds, _, _ = steps(q, k, v, bias, *rest, **attrs)
        return np.sum(ds, axis=tuple(i for i, n in enumerate(bias.shape) if n == 1), keepdims=True)

    def decompose(self, g: GraphBuilder, *operands: Any, **attrs: Any) -> Value:
        return formulas(g, operands, attrs).biases(*operands[6:])


# the meaning, on NumPy arrays


def shared(k: Any, q: Any) -> Any:
    """Keys or values once for each head of q."""
    return k if k.shape[1] == q.shape[1] else np.repeat(k, q.shape[1] // k.shape[1], axis=1)


def gathered(x: Any, k: Any) -> Any:
    """The sum over the heads of q that share keys."""
    return x.reshape(*k.shape[:2], -1, *x.shape[2:]).sum(2)


def factor(q: Any, scale: float | None) -> Any:
    return q.dtype.type(q.shape[-1] ** -0.5 if scale is None else scale)


def scores(
    q: Any, k: Any, bias: Any, lengths: Any, starts: Any, causal: bool, window: int | None,
    softcap: float | None, scale: float | None, hidden: float = -math.inf,
) -> tuple[Any, Any]:  # fmt: skip
    """The scores, and the slope of the softcap."""
    s, bent = np.matmul(q, np.swapaxes(shared(k, q), -1, -2)) * factor(q, scale), q.dtype.type(1)
    if softcap is not None:
        bent = np.tanh(s / softcap)
        s, bent = softcap * bent, 1 - bent * bent
    query, key = np.arange(s.shape[-2])[:, None], np.arange(s.shape[-1])
    query = query if starts is None else query + starts[:, None, None, None]
    seen = np.ones(s.shape[-2:], bool)
    if lengths is not None:
        seen = seen & (key < lengths[:, None, None, None])
    if causal:
        seen = seen & (key <= query)
    if window is not None:
        seen = seen & (np.abs(query - key) < window)
    if bias is not None:
        s = np.where(bias, s, hidden) if bias.dtype == np.bool_ else s + bias
    return np.where(seen, s, -np.inf), bent


def steps(
    q: Any, k: Any, v: Any, bias: Any, lengths: Any, starts: Any, ct: Any, lse: Any, along: Any,
    literal: bool = False, **attrs: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The cotangents of the scores, the weights, and the slope of the softcap."""
    s, bent = scores(q, k, bias, lengths, starts, **attrs)
    p = np.exp(s - lse[..., None])
    ds = p * (np.matmul(ct, np.swapaxes(shared(v, q), -1, -2)) - along[..., None])
    return np.where(bias, ds, 0) if literal and bias is not None and bias.dtype == np.bool_ else ds, p, bent
