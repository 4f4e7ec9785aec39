"""Takes apart short last axes of tensors that are computed by broadcasting, such as coordinates of pairs of points.

In `d = x[None] - x[:, None]; w = f(sum(d * d, axis=-1)); sum(d * w[..., None], axis=1)` the two sums run along
different axes, so that all pairs of points would be in memory between them, three numbers each. Instead the sum along
the short axis becomes sums of slices, and each other sum one for each slice: elementwise operators and sums along one
axis, over pairs, are one kernel, whose lanes are pairs. Terms are added in the order of sums so short: no bit changes.
"""

from __future__ import annotations

from tessera.compiler.graph.passes.rematerialize import size_of
from tessera.compiler.ir.core import Attr, Block, Builder, Op, Value
from tessera.compiler.ir.launches import LAUNCHES
from tessera.compiler.ir.types import Shape, TensorType
from tessera.compiler.schedule.alignment import base_of, reduced_axes, shape_of
from tessera.compiler.schedule.compute_again import in_memory
from tessera.compiler.schedule.views import kind_of, layout_of

SHORT = 4
"""the longest axis that is taken apart"""
SMALLER = 16
"""how many times larger a tensor is than the tensors that it is computed from"""


def take_apart_short_axes(block: Block) -> None:
    """Changes a block and those inside of it."""
    parts = _Parts(block)
    for op in list(block.ops):
        for region in () if op.name in LAUNCHES else op.regions:
            take_apart_short_axes(region.block)
        if op.name == "graph.sum" and _is_exact(op):
            x = op.operands[0]
            shape, gone = shape_of(x), reduced_axes(op)
            n = shape[-1] if len(shape) > 1 else 0
            if not isinstance(n, int) or not 2 <= n <= SHORT or not parts.may_be_taken_apart(x):
                continue
            if gone == (len(shape) - 1,):
                parts.add_slices(op, n)
            elif len(shape) - 1 not in gone and parts.depends_on_sums(x):
                parts.sum_slices(op, n)


def _is_exact(op: Op) -> bool:
    """Whether it adds its terms as they are."""
    t = op.operands[0].type
    assert isinstance(t, TensorType)
    return t.policy is None and op.result.type == t.with_shape(shape_of(op.result)) and t.dtype.compute == t.dtype


class _Parts:
    """Slices of one element along the last axis, and the sums of them."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.slices: dict[tuple[Value, int], Value] = {}
        self.copies: dict[object, Value] = {}
        self.sums: set[Op] = set()

    def may_be_taken_apart(self, x: Value) -> bool:
        """Whether `x` is computed elementwise, and by broadcasting: from much less, or from such sums."""
        if not self._is_followed(x):
            return False
        leaves = self._leaves(x)
        sums = {v for v in leaves if shape_of(v)[-1:] == (1,) and self._is_sum(v)}
        return SMALLER * sum(size_of(base_of(v)) for v in leaves if v not in sums) <= size_of(x)

    def depends_on_sums(self, x: Value) -> bool:
        return any(self._is_sum(v) for v in self._leaves(x))

    def _is_followed(self, x: Value) -> bool:
        return x.op is not None and kind_of(x.op) == "map" and not in_memory(x, self.block)

    def _leaves(self, x: Value) -> dict[Value, None]:
        """The values that elementwise operators with this last axis compute `x` from."""
        found: dict[Value, None] = {}
        todo, seen = [x], {x}
        while todo:
            v = todo.pop()
            if v.op is not None and self._is_followed(v) and shape_of(v)[-1:] == shape_of(x)[-1:]:
                todo += [w for w in v.op.operands if w not in seen]
                seen.update(v.op.operands)
            else:
                found[v] = None
        return found

    def _is_sum(self, v: Value) -> bool:
        """Whether it is computed elementwise from sums along the short axis."""
        todo, seen = [base_of(v)], set[Value]()
        while todo:
            w = todo.pop()
            if w.op in self.sums:
                return True
            if w not in seen and self._is_followed(w) and w.op is not None:
                todo += [base_of(u) for u in w.op.operands]
            seen.add(w)
        return False

    def add_slices(self, op: Op, n: int) -> None:
        """The sum along the short axis: halves are added until one is left, which is the order of all sums so short."""
        b = Builder.before(op)
        t = op.result.type
        assert isinstance(t, TensorType)
        terms = [self._reshaped(b, self._slice(b, op.operands[0], i), shape_of(op.result)) for i in range(n)]
        while len(terms) > 1:
            half = 1 << (len(terms) - 1).bit_length() - 1
            pairs = [b.value("graph.add", (x, y), t) for x, y in zip(terms, terms[half:], strict=False)]
            terms = [*pairs, *terms[len(pairs) : half]]
        assert terms[0].op is not None
        self.sums.add(terms[0].op)
        op.result.replace_by(terms[0])
        op.erase()

    def sum_slices(self, op: Op, n: int) -> None:
        """A sum along other axes: one for each slice, side by side."""
        b = Builder.before(op)
        t = op.result.type
        assert isinstance(t, TensorType)
        one = t.with_shape((*t.shape[:-1], 1))
        found = [b.value(op.name, (self._slice(b, op.operands[0], i),), one, dict(op.attrs)) for i in range(n)]
        op.result.replace_by(b.value("graph.concat", found, t, {"axis": t.rank - 1}, op.result.hint))
        op.erase()

    def _slice(self, b: Builder, v: Value, i: int) -> Value:
        """Element `i` of the last axis of `v`, which stays, with one element."""
        shape = shape_of(v)
        if not shape or shape[-1] == 1:
            return v
        if (v, i) not in self.slices:
            assert isinstance(v.type, TensorType)
            t = v.type.with_shape((*shape[:-1], 1))
            if v.op is not None and self._is_followed(v):
                operands = [self._slice(b, w, i) for w in v.op.operands]
                with b.at(v.op.span), b.under(v.op.origin):
                    self.slices[v, i] = b.value(v.op.name, operands, t, dict(v.op.attrs), v.hint)
            else:
                start, stop = (*(0 for _ in shape[:-1]), i), (*shape[:-1], i + 1)
                attrs: dict[str, Attr] = {"start": start, "stop": stop, "step": (1,) * len(shape)}
                self.slices[v, i] = self._side_by_side(b, b.value("graph.slice", (v,), t, attrs, v.hint))
        return self.slices[v, i]

    def _side_by_side(self, b: Builder, v: Value) -> Value:
        """A contiguous copy of a slice that is strided in memory: it is read many times."""
        layout = layout_of(v)
        assert isinstance(v.type, TensorType)
        axes = [a for a, d in enumerate(v.type.shape) if d != 1]
        if layout is None or not axes or layout.strides[axes[-1]] in (0, 1):
            return v
        shape = tuple(v.type.shape[a] for a in axes)
        key = (layout.base, layout.offset, shape, tuple(layout.strides[a] for a in axes))
        if key not in self.copies:
            flat = self._reshaped(b, v, shape)
            self.copies[key] = b.value("graph.cast", (flat,), flat.type, {"dtype": v.type.dtype}, v.hint)
        return self._reshaped(b, self.copies[key], v.type.shape)

    def _reshaped(self, b: Builder, v: Value, shape: Shape) -> Value:
        assert isinstance(v.type, TensorType)
        return (
            v if v.type.shape == shape else b.value("graph.reshape", (v,), v.type.with_shape(shape), {"shape": shape})
        )
