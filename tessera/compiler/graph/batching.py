"""How operators handle operands with one more axis in front: the rules behind `ts.vmap`.

They follow from what an operator says about itself: its kind, its attribute `axis`, and `Operator.batching`. An
operator that says nothing is followed through its decomposition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import Operator, attributes_of, operator_of, split_operands, tensor
from tessera.compiler.graph.operators.reductions import ArgExtremum
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import Shape
from tessera.immutable import mutable
from tessera.language import dims, dtypes
from tessera.language.dims import Dim


@mutable
class Batched:
    """One op to be done for `size` elements at once. `given`: for each operand what it is, and whether that has the
    axis of the elements in front; an operand without it is the same for all."""

    g: GraphBuilder
    size: Dim
    op: Op
    given: list[tuple[Value, bool]]

    @property
    def operator(self) -> Operator:
        return operator_of(self.op)

    @property
    def attrs(self) -> dict[str, Any]:
        return attributes_of(self.op)

    def element(self, i: int) -> Shape:
        """The shape of an operand of one element."""
        return tensor(self.op.operands[i]).shape

    def whole(self, i: int) -> Value:
        """An operand with the axis in front, repeated where it is the same for all."""
        return self.repeated(*self.given[i])

    def repeated(self, v: Value, batched: bool) -> Value:
        return v if batched else self.g.broadcast_to(v, (self.size, *tensor(v).shape))

    def aligned(self, i: int, rank: int) -> Value:
        """An operand that broadcasts against others of up to `rank` axes of an element."""
        v, batched = self.given[i]
        shape = self.element(i)
        if not batched or len(shape) == rank:
            return v
        return self.g.reshape(v, (self.size, *(1,) * (rank - len(shape)), *shape))

    def emit(self, values: Sequence[Value], **changed: Any) -> Any:
        """The same operator on other operands."""
        rest = iter(values)
        operands = [
            [next(rest) for _ in cast("list[Value]", o)] if isinstance(o, list) else None if o is None else next(rest)
            for o in split_operands(self.op)
        ]
        return self.g.emit(self.operator, operands, {**self.attrs, **changed})

    def rows(self, v: Value, axis: int) -> Value:
        """[size, *before, n, *after] as [size * n, *before, *after]: the indexed elements are on one axis."""
        g, rank = self.g, tensor(v).rank
        if axis:
            v = g.transpose(v, (0, axis + 1, *(a for a in range(1, rank) if a != axis + 1)))
        shape = tensor(v).shape
        return g.reshape(v, (self.size * shape[1], *shape[2:]))

    def back(self, v: Value, n: Shape, axis: int) -> Value:
        """The inverse of `rows`, where the axis has become several, of sizes `n`."""
        g, shape = self.g, tensor(v).shape
        v = g.reshape(v, (self.size, *n, *shape[1:]))
        if not axis:
            return v
        at, many = 1 + len(n), len(n)
        perm = (0, *range(at, at + axis), *range(1, 1 + many), *range(at + axis, tensor(v).rank))
        return g.transpose(v, perm)

    def places(self, i: int, n: Dim, lost: Dim, wraps: bool) -> Value:
        """Indices into an axis of `n` as indices into the rows of all elements; `lost` for indices outside."""
        g, v = self.g, self.whole(i)
        at = g.to(v, dtypes.int64)
        if wraps:
            at = g.where(g.lt(at, 0), g.add(at, n), at)
        inside = g.logical_and(g.ge(at, 0), g.lt(at, n))
        first = g.mul(g.iota((self.size, *(1,) * (tensor(v).rank - 1)), axis=0), n)
        return g.where(inside, g.add(at, first), lost)


Rule: TypeAlias = Callable[[Batched], Any]
"""all results, with the axis in front"""


def rule_of(op: Op) -> Rule | None:
    """How `op` is done for many elements at once; None where nothing says how, but for its decomposition."""
    operator = operator_of(op)
    if operator.name in _BY_NAME:
        return _BY_NAME[operator.name]
    axis: Any = op.attrs.get("axis", 0)
    if axis is None or (isinstance(operator, ArgExtremum) and len(axis) != 1):  # of the flattened tensor
        return None
    if operator.batching == "leading" and len({tensor(v).rank for v in op.operands}) > 1:
        return None
    return _BY_SAYING.get(operator.batching) or _BY_KIND.get(operator.kind or "")


def _map(b: Batched) -> Any:
    rank = max(len(b.element(i)) for i in range(len(b.given)))
    return b.emit([b.aligned(i, rank) for i in range(len(b.given))])


def _axis(b: Batched) -> Any:
    """Attribute `axis` counts one more."""
    axis = cast("int | tuple[int, ...]", b.attrs["axis"])
    moved = tuple(a + 1 for a in axis) if isinstance(axis, tuple) else axis + 1
    return b.emit([b.whole(i) for i in range(len(b.given))], axis=moved)


def _leading(b: Batched) -> Any:
    """All axes in front of the last ones are batches already, and operands have as many."""
    return b.emit([b.whole(i) for i in range(len(b.given))])


def _trailing(b: Batched) -> Any:
    """The last axis is a batch already, which the elements make longer."""
    g = b.g
    moved, length = [g.moveaxis(b.whole(i), 0, -1) for i in range(len(b.given))], b.element(0)[-1]
    found = b.emit([g.reshape(v, (*tensor(v).shape[:-2], length * b.size)) for v in moved])

    def back(v: Value) -> Value:
        return g.moveaxis(g.reshape(v, (*tensor(v).shape[:-1], length, b.size)), -1, 0)

    return tuple(map(back, cast("tuple[Value, ...]", found))) if isinstance(found, tuple) else back(found)


def _contract(b: Batched) -> Any:
    lhs, rhs, out = (cast("str", b.attrs[k]) for k in ("lhs", "rhs", "out"))
    new = next(c for c in "zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA" if c not in lhs + rhs)
    left, right = (new if batched else "" for _, batched in b.given)
    return b.emit([v for v, _ in b.given], lhs=left + lhs, rhs=right + rhs, out=new + out)


def _shape(b: Batched) -> Any:
    shape = cast("Shape", b.attrs["shape"])
    x = b.aligned(0, len(shape)) if b.operator.name == "broadcast_to" else b.whole(0)
    return b.emit([x], shape=(b.size, *shape))


def _transpose(b: Batched) -> Any:
    return b.emit([b.whole(0)], perm=(0, *(p + 1 for p in b.attrs["perm"])))


def _slice(b: Batched) -> Any:
    start, stop, step = (b.attrs[k] for k in ("start", "stop", "step"))
    return b.emit([b.whole(0)], start=(0, *start), stop=(b.size, *stop), step=(1, *step))


def _pad(b: Batched) -> Any:
    return b.emit([b.whole(0)], pad_width=((0, 0), *b.attrs["pad_width"]))


def _take(b: Batched) -> Any:
    g, axis = b.g, cast("int", b.attrs["axis"])
    (x, x_differs), (indices, differ) = b.given
    if not differ:
        return g.take(x, indices, axis=axis + 1)
    rank = tensor(indices).rank
    if not x_differs:
        found = g.take(x, indices, axis=axis)
        rest = [a for a in range(tensor(found).rank) if a != axis]
        return g.transpose(found, (axis, *rest)) if axis else found
    n = b.element(0)[axis]
    at = g.reshape(b.places(1, n, n * b.size, True), (dims.prod(tensor(indices).shape),))
    found = g.take(b.rows(x, axis), at, axis=0)
    return b.back(found, tensor(indices).shape[1:rank], axis)


def _put(b: Batched) -> Any:
    axis, x, updates = cast("int", b.attrs["axis"]), b.whole(0), b.whole(2)
    indices, differ = b.given[1]
    if not differ:
        return b.emit([x, indices, updates], axis=axis + 1)
    g, n, own = b.g, b.element(0)[axis], b.element(1)
    at = g.reshape(b.places(1, n, n * b.size, True), (b.size * dims.prod(own),))
    element = b.element(0)
    one = g.reshape(updates, (b.size, *element[:axis], dims.prod(own), *element[axis + 1 :]))
    return b.back(b.emit([b.rows(x, axis), at, b.rows(one, axis)], axis=0), (n,), axis)


def _segments(b: Batched) -> Any:
    axis, count = cast("int", b.attrs["axis"]), cast("Dim", b.attrs["num_segments"])
    ids, differ = b.given[1]
    if not differ:
        return b.emit([b.whole(0), ids], axis=axis + 1)
    at = b.g.reshape(b.places(1, count, -1, False), (b.size * b.element(1)[0],))
    found = b.emit([b.rows(b.whole(0), axis), at], axis=0, num_segments=count * b.size)
    return b.back(found, (count,), axis)


_BY_NAME: dict[str, Rule] = {
    "reshape": _shape, "broadcast_to": _shape, "transpose": _transpose, "slice": _slice, "pad": _pad,
}  # fmt: skip
_BY_KIND: dict[str, Rule] = {
    "map": _map, "reduce": _axis, "scan": _axis, "sort": _axis, "contract": _contract, "view": _axis, "join": _axis,
    "gather": _take, "put": _put, "scatter": _segments,
}  # fmt: skip
_BY_SAYING: dict[str, Rule] = {
    "map": _map, "axis": _axis, "leading": _leading, "batches": _leading, "trailing": _trailing,
}  # fmt: skip
