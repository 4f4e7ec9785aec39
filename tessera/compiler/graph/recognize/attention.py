"""Attention as products and a softmax: (softmax(q @ k.T * scale + bias where mask) @ v) in any spelling.

It is the operator with `literal`, which means the same to the last NaN: a query whose scores are all -inf gets NaN,
scores are rounded where the text rounds them, and where 0 meets an infinity of v there is a NaN. The scores and weights
must not be read by anything else, and the operator must have a kernel for these types.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import kernel_for, tensor
from tessera.compiler.graph.recognize.positions import MaskTerm, conditions, is_causal
from tessera.compiler.graph.recognize.text import Unlike, WrittenText, demand
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.rewriter import fused
from tessera.immutable import immutable
from tessera.language import dims, dtypes
from tessera.language.dims import Dim


@immutable
class Scores:
    """The operand of a softmax: from the product on, steps come in the order of the fields."""

    product: Op
    scale: float | None = None
    softcap: float | None = None
    bias: Value | None = None
    hidden: float | None = None
    masks: tuple[MaskTerm, ...] = ()


@immutable
class Heads:
    """Axes as letters of the scores. `shared` are batches of queries, keys and values, `served` heads of queries that
    have one head of keys."""

    shared: str
    served: str
    query: str
    key: str

    @property
    def groups(self) -> tuple[str, str, str, str]:
        """The scores' axes as [B, H, S, T]."""
        alone = not self.served or len(self.shared) > 1
        batch, heads = (self.shared[:-1], self.shared[-1:]) if alone else (self.shared, "")
        return batch, heads + self.served, self.query, self.key


@immutable
class WrittenAttention:
    """What the text computes. `labels` are letters of the scores' axes, and further ones."""

    scores: Scores
    q: Value
    k: Value
    v: Value
    labels: tuple[str, str, str, str]
    """of q, k, v and the result"""
    axes: str
    heads: Heads
    features: str


def attention(g: GraphBuilder, op: Op) -> Value | None:
    """The attention whose last op is `op`, emitted by `g`; None where it is none."""
    text = WrittenText(g.facts)
    try:
        last = text.take(op.result, "contract")
        for at in (0, 1):
            try:
                with text.trial():
                    found = _read(text, last, at)
                    demand(text.kept_inside(op))
            except Unlike:
                continue
            block = Block()
            with g.builder.inside(block), g.builder.at(fused(op, *text.path)):
                made = _write(g, text, found)
            ops = list(block.ops)
            if made.type != op.result.type or not any(
                kernel_for(o) for o in ops if o.name == "graph.attention_forward"
            ):
                for o in reversed(ops):
                    o.erase()
                return None
            for o in ops:
                g.builder.insert(o)
            return made
    except Unlike:
        pass
    finally:
        text.close()
    return None


# reading


def _read(text: WrittenText, last: Op, at: int) -> WrittenAttention:
    """The attention of which operand `at` of the product `last` are the weights. Raises Unlike."""
    weights, v = last.operands[at], last.operands[1 - at]
    demand(last.attrs.get("dtype") is None and _plain(weights) and _plain(v))
    dtype = tensor(v).dtype
    demand(tensor(weights).dtype == dtype)
    own, others, out = (cast("str", last.attrs[n]) for n in (("lhs", "rhs")[at], ("rhs", "lhs")[at], "out"))
    s, axis = _softmax(text, weights)
    demand(tensor(s).dtype == dtype)
    scores = _scores(text, s, 0)
    product = scores.product
    key = cast("str", product.attrs["out"])[axis]
    side = 0 if key in cast("str", product.attrs["rhs"]) else 1
    q, k = product.operands[side], product.operands[1 - side]
    demand(tensor(q).dtype == tensor(k).dtype == dtype and product.attrs.get("dtype") is None)
    demand(_plain(q) and _plain(k) and (scores.softcap is None or not dtype.is_low_precision))
    of_q, of_k, axes = (cast("str", product.attrs[n]) for n in (("lhs", "rhs")[side], ("rhs", "lhs")[side], "out"))
    summed = set(of_q) - set(axes)
    free = [c for c in axes if c not in of_k]
    demand(len(summed) == 1 and bool(free) and all(c in of_q for c in axes if c != key))
    demand(set(of_k) == set(axes) - set(free) | summed)
    demand(_in_memory(text, k, of_k)[1][-1] in summed)  # two layers with a softmax between have keys in columns
    # the second product in the letters of the scores
    same = dict(zip(own, axes, strict=True))
    features = "".join(c for c in others if c not in own)
    demand(len(features) == 1 and {same[c] for c in own if c not in out} == {key})
    of_v = "".join(same.get(c, "*") for c in others)
    result = "".join(same.get(c, "*") for c in out)
    shared = "".join(c for c in axes if c in of_k and c != key)
    demand(set(of_v) == set(shared) | {key, "*"})
    heads = Heads(shared, "".join(free[:-1]), free[-1], key)
    return WrittenAttention(scores, q, k, v, (of_q, of_k, of_v, result), axes, heads, *summed)


def _in_memory(text: WrittenText, v: Value, labels: str) -> tuple[Value, str]:
    """What `v` is a transposition of, and its letters in that order."""
    while (op := text.peek(v)) is not None and op.name == "graph.transpose":
        perm, given = cast("tuple[int, ...]", op.attrs["perm"]), labels
        labels = "".join(given[perm.index(i)] for i in range(len(perm)))
        v = op.operands[0]
    return v, labels


def _plain(v: Value) -> bool:
    """Whether a tensor has the numerics that operators have by themselves."""
    policy = tensor(v).policy
    return policy is None or not (policy.accum or policy.compute or policy.rounding or policy.saturate or policy.fast)


def _softmax(text: WrittenText, v: Value) -> tuple[Value, int]:
    """The scores, and the axis along which `v` is their softmax, in the dtype of arithmetic."""
    if (outer := text.peek(v)) is not None and outer.name == "graph.cast":
        text.take(v, "cast")
        v = outer.operands[0]
    demand(tensor(v).dtype == tensor(v).dtype.compute)
    e, total = text.take(v, "div").operands
    (far,) = text.take(e, "exp").operands
    s, top = text.take(far, "sub").operands
    axes: list[int] = []
    for column, name, of in ((total, "sum", e), (top, "max", s)):
        op = _column(text, column, name)
        demand(text.value(op.operands[0]) is text.value(of))
        demand(tensor(column).rank == tensor(s).rank and len(cast("Sequence[int]", op.attrs["axis"])) == 1)
        axes.append(cast("tuple[int]", op.attrs["axis"])[0])
    demand(axes[0] == axes[1])
    inner = text.peek(s)
    if inner is not None and inner.name == "graph.cast":
        text.take(s, "cast")
        s = inner.operands[0]
    return s, axes[0]


def _column(text: WrittenText, v: Value, name: str) -> Op:
    """The reduction that `v` holds for each line of what it meets, with an axis of one element."""
    shape = tensor(v).shape
    op = text.take(v, name, "reshape", "cast")
    while op.name != f"graph.{name}":
        demand(op.name == "graph.reshape" or tensor(op.operands[0]).dtype == tensor(op.result).dtype)
        op = text.take(op.operands[0], name, "reshape", "cast")
    reduced, (axis, *_) = tensor(op.operands[0]).shape, cast("tuple[int, ...]", op.attrs["axis"])
    demand(shape == (*reduced[:axis], 1, *reduced[axis + 1 :]))
    return op


MASK, BIAS, CAP, SCALE, PRODUCT = range(5)
"""the steps of scores from the last to the first"""


def _scores(text: WrittenText, s: Value, step: int) -> Scores:
    """What `s` computes, of which no step is later than `step`. Raises Unlike."""
    op = text.peek(s)
    demand(op is not None)
    assert op is not None
    match op.name.removeprefix("graph."):
        case "contract":
            return Scores(text.take(s, "contract"))
        case "where" if step <= MASK:
            text.take(s, "where")
            seen, x, y = op.operands
            holds = text.number(y) is not None
            hidden = text.number(y if holds else x)
            demand(hidden is not None)
            found = _along(text, s, x if holds else y, MASK)
            demand(found.hidden in (None, hidden))
            return replace(found, hidden=hidden, masks=(*found.masks, MaskTerm(seen, holds)))
        case "add" if step <= BIAS:
            text.take(s, "add")
            x, bias = op.operands
            try:
                with text.trial():
                    found = _along(text, s, x, CAP)
            except Unlike:
                bias, found = x, _along(text, s, bias, CAP)
            demand(tensor(bias).dtype == tensor(s).dtype)
            return replace(found, bias=bias)
        case "mul" | "div" as name if step <= SCALE:
            text.take(s, name)
            x, by = op.operands
            if name == "mul" and text.number(x) is not None:
                x, by = by, x
            number = text.number(by)
            demand(number is not None and math.isfinite(number) and number != 0)
            assert number is not None
            bent = text.peek(x)
            if name == "mul" and bent is not None and bent.name == "graph.tanh" and step <= CAP:
                return _capped(text, x, number)
            return replace(_along(text, s, x, PRODUCT), scale=float(number) if name == "mul" else 1 / number)
        case _:
            raise Unlike


def _along(text: WrittenText, s: Value, x: Value, step: int) -> Scores:
    """The scores that `x` is, which a step makes `s` of: of all queries and keys."""
    demand(tensor(x).shape == tensor(s).shape and tensor(x).dtype == tensor(s).dtype)
    return _scores(text, x, step)


def _capped(text: WrittenText, x: Value, most: float) -> Scores:
    (inner,) = text.take(x, "tanh").operands
    raw, by = text.take(inner, "div").operands
    demand(most > 0 and text.number(by) == most)
    return replace(_along(text, x, raw, SCALE), softcap=float(most))


# writing


def _write(g: GraphBuilder, text: WrittenText, found: WrittenAttention) -> Value:
    heads, scores = found.heads, found.scores
    batch, several, query, key = heads.groups
    held = "".join(c for c in several if c in heads.shared)
    of_q, of_k, of_v, result = found.labels
    size = _sizes(scores.product.result, found.axes) | _sizes(found.v, of_v)
    k, v = (found.k, of_k), (found.v, of_v)
    if held and not heads.served and (few := [_once(g, text, *x, held) for x in (k, v)]) and few[0][2] == few[1][2]:
        k, v = ((x, labels) for x, labels, _ in few)
    q = _grouped(g, text.own(g, found.q), of_q, (batch, several, query, found.features))
    k = _grouped(g, text.own(g, k[0]), k[1], (batch, held, key, found.features))
    v = _grouped(g, text.own(g, v[0]), v[1], (batch, held, key, "*"))
    hidden = -math.inf if scores.hidden is None else scores.hidden
    causal, masks = _parted(text, found, hidden)
    if masks:
        demand(scores.bias is None)
        seen = [(m.holds, text.own(g, m.value)) for m in masks]
        bias = reduce(g.logical_and, [v if holds else g.logical_not(v) for holds, v in seen])
    else:
        bias = None if scores.bias is None else text.own(g, scores.bias)
    if bias is not None:
        bias = _spread(g, bias, found, size)
    reach = _reach(g, v) if causal else None
    scale = 1.0 if scores.scale is None else scores.scale
    out, _ = g.attention_forward(
        q, k, v, bias, None, None, reach, causal, None, scores.softcap, scale, hidden, literal=True
    )
    whole = "".join((*batch, *several, query, "*"))
    out = g.reshape(out, tuple(size[c] for c in whole))
    perm = tuple(whole.index(c) for c in result)
    return out if perm == tuple(range(len(perm))) else g.transpose(out, perm)


def _sizes(v: Value, labels: str) -> dict[str, Dim]:
    return dict(zip(labels, tensor(v).shape, strict=True))


def _once(g: GraphBuilder, text: WrittenText, x: Value, labels: str, head: str) -> tuple[Value, str, Dim]:
    """Keys or values without repetitions of each head for a group of queries' heads, and how many these were."""
    base, order = _in_memory(text, x, labels)
    wide = _operand(text, base, "graph.reshape")
    single = None if wide is None else _operand(text, wide, "graph.broadcast_to")
    if wide is None or single is None:
        return x, labels, 1
    shape, at = tensor(wide).shape, order.index(head)
    (*before, count, times), rest = shape[: at + 2], shape[at + 2 :]
    if tensor(single).shape != (*before, count, 1, *rest) or tensor(base).shape != (*before, count * times, *rest):
        return x, labels, 1
    return g.reshape(text.own(g, single), (*before, count, *rest)), order, times


def _operand(text: WrittenText, v: Value, name: str) -> Value | None:
    op = text.peek(v)
    return op.operands[0] if op is not None and op.name == name else None


def _grouped(g: GraphBuilder, x: Value, labels: str, groups: Sequence[str]) -> Value:
    """`x` with one axis for each group of letters."""
    size = _sizes(x, labels)
    perm = tuple(labels.index(c) for group in groups for c in group)
    x = x if perm == tuple(range(len(perm))) else g.transpose(x, perm)
    shape = tuple(dims.prod(size[c] for c in group) for group in groups)
    return x if shape == tensor(x).shape else g.reshape(x, shape)


def _spread(g: GraphBuilder, x: Value, found: WrittenAttention, size: dict[str, Dim]) -> Value:
    """A mask or bias [B or 1, H or 1, S or 1, T or 1]: axes that are joined are repeated if only some of them are."""
    axes, have = found.axes, tensor(x).shape
    full = (1,) * (len(axes) - len(have)) + have
    own = dict(zip(axes, full, strict=True))
    wanted = {c: size[c] for group in found.heads.groups for c in group if any(own[d] != 1 for d in group)}
    wide = tuple(wanted.get(c, 1) for c in axes)
    x = x if full == have else g.reshape(x, full)
    x = x if wide == full else g.broadcast_to(x, wide)
    return _grouped(g, x, axes, found.heads.groups)


def _parted(text: WrittenText, found: WrittenAttention, hidden: float) -> tuple[bool, list[MaskTerm]]:
    """Whether queries see no later keys, and the other masks. Only what is hidden by -inf need not be looked at."""
    rank, axes = len(found.axes), found.axes
    query, key = (axes.index(c) - rank for c in (found.heads.query, found.heads.key))
    masks = [c for m in reversed(found.scores.masks) for c in conditions(text, m)]
    if hidden != -math.inf:
        return False, masks
    rest = [m for m in masks if not is_causal(text, m, query, key)]
    return len(rest) < len(masks), rest


def _reach(g: GraphBuilder, v: Value) -> Value:
    """Up to which key every query goes: to the last one if some of v is not finite, since 0 times it is NaN."""
    broken = g.any(g.logical_not(g.isfinite(v)), axis=(2, 3))
    return g.where(broken, g.size(tensor(v).shape[2], dtypes.int64), g.constant(0, dtypes.int64))
