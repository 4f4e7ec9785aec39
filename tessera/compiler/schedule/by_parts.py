"""Computes elementwise operators of concatenations and paddings part by part.

`x + roll(x, 1)` reads a concatenation, which would be put together in memory first. Instead the result is cut where the
parts meet; each piece is computed from pieces of the parts, and the pieces are concatenated. Their kernels store to
their places in the result (lower/parts.py), so that no copy is left, and those of one shape are one kernel. It is done
where less memory is moved, and not too many kernels are launched for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

from tessera.compiler.graph.builder import number_of
from tessera.compiler.graph.operator import attributes_of, operator_of
from tessera.compiler.graph.passes.rematerialize import size_of
from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.ir.launches import LAUNCHES
from tessera.compiler.ir.types import Shape, TensorType
from tessera.compiler.machines import Peaks
from tessera.compiler.schedule.alignment import shape_of
from tessera.compiler.schedule.compute_again import in_memory, is_slice, take
from tessera.compiler.schedule.lifetimes import readers
from tessera.compiler.schedule.views import is_view, kind_of
from tessera.language.dims import Dim, at_most

MOST = 32
"""the most pieces of a result: those of a roll along three axes are 27"""
MOST_OPS = 1024
"""the most operators that a region may become"""
Piece: TypeAlias = tuple[int, ...]
"""which of the intervals between cuts, along each axis"""


class _Unordered(Exception):
    """Which of two cuts comes first depends on sizes."""


def compute_by_parts(block: Block, peaks: Peaks, found: dict[Op, str] | None = None) -> dict[Op, str]:
    """Changes a block and those inside of it. Gives the concatenations and paddings that are put together for
    elementwise operators, and why: one of `refusals.CAUSES`."""
    whole = {} if found is None else found
    order = {op: i for i, op in enumerate(block.ops)}
    for op in list(block.ops):
        for region in () if op.name in LAUNCHES else op.regions:
            compute_by_parts(region.block, peaks, whole)
        if kind_of(op) == "join":
            for shape in dict.fromkeys(shape_of(r.result) for r in _elementwise_readers(op)):
                region = _Region(op, shape, order)
                if not region.ops:
                    continue
                if region.pays(peaks):
                    region.split()
                else:
                    whole[op] = "pieces"
    return whole


def _elementwise_readers(join: Op) -> list[Op]:
    """Elementwise operators that read a concatenation or padding, or a slice of it, element by element."""
    out: dict[Op, None] = {}
    todo = [join.result]
    while todo:
        v = todo.pop()
        for user in v.users:
            if user.block is not join.block:
                continue
            if _is_step_one(user):
                todo.append(user.result)
            elif kind_of(user) == "map" and shape_of(user.result) == shape_of(v):
                out[user] = None
    return list(out)


def _is_step_one(op: Op) -> bool:
    return is_slice(op) and all(s == 1 for s in attributes_of(op)["step"])


class _Region:
    """Elementwise operators of one shape that follow a concatenation or padding, with the others that they read."""

    def __init__(self, join: Op, shape: Shape, order: dict[Op, int]) -> None:
        assert join.block is not None
        self.block, self.shape, self.order = join.block, shape, order
        self.joins: dict[Op, None] = {}
        self.ops: dict[Op, None] = {}
        self._grow(join)
        self._leave_to_readers()
        self.cuts: list[list[Dim]] = []
        self.known: dict[tuple[Value, int], tuple[Dim, ...]] = {}
        self.made: dict[tuple[Value, Piece], Value] = {}

    def _grow(self, join: Op) -> None:
        todo = [r for r in _elementwise_readers(join) if shape_of(r.result) == self.shape]
        reached = set[Op]()
        while todo:
            op = todo.pop()
            if op in reached or not self._eligible(op):
                continue
            reached.add(op)
            for v in op.operands:
                if (other := self._join_behind(v)) is not None and shape_of(v) == self.shape:
                    todo += [r for r in _elementwise_readers(other) if shape_of(r.result) == self.shape]
            todo += [u for u in op.result.users if u.block is self.block and kind_of(u) == "map"]
        for op in sorted(reached, key=lambda o: self.order[o]):
            behind = {o for v in op.operands if shape_of(v) == self.shape and (o := self._join_behind(v))}
            if (behind or any(v.op in self.ops for v in op.operands)) and not self._comes_back(op):
                self.ops[op] = None
                self.joins.update(dict.fromkeys(behind))

    def _leave_to_readers(self) -> None:
        """Takes out what elementwise operators behind the region alone read, and can compute from results that are in
        memory for others anyway, as the next step of a simulation can: it would be in memory as well."""
        for op in reversed([*self.ops]):
            users = op.result.users
            if op not in self.ops or not all(kind_of(u) == "map" and u not in self.ops for u in users):
                continue
            tail = {op}
            for one in reversed([*self.ops]):
                if all(u in tail for u in one.result.users):
                    tail.add(one)
            read = {v for one in tail for v in one.operands if v.op in self.ops and v.op not in tail}
            behind = any(self._join_behind(v) for one in tail for v in one.operands)
            if read and not behind and all(any(u not in self.ops for u in v.users) for v in read):
                self.ops = {one: None for one in self.ops if one not in tail}

    def _join_behind(self, v: Value) -> Op | None:
        """The concatenation or padding that `v` is, or is a slice of. One of pieces is none: it is in memory."""
        op = v.op
        while op is not None and op.block is self.block and _is_step_one(op):
            op = op.operands[0].op
        return op if op in self.order and kind_of(op) == "join" else None

    def _eligible(self, op: Op) -> bool:
        """Whether `op` is elementwise, has this shape, and is not fused into the kernel of a product or a row."""
        if kind_of(op) != "map" or op not in self.order or shape_of(op.result) != self.shape:
            return False
        return not any(
            v.op is not None and shape_of(v) == self.shape and kind_of(v.op) != "map" and not is_view(v.op)
            and not in_memory(v, self.block) for v in op.operands
        )  # fmt: skip

    def _comes_back(self, op: Op) -> bool:
        """Whether it needs operators of the region also by way of others."""
        if not self.ops:
            return False
        first = self.order[next(iter(self.ops))]
        todo = [v.op for v in op.operands if v.op not in self.ops]
        seen = set[Op]()
        while todo:
            source = todo.pop()
            if source is None or source in seen or source.block is not self.block:
                continue
            seen.add(source)
            if source in self.ops:
                return True
            if self.order.get(source, first) > first or source not in self.order:
                todo += [v.op for inner in source.walk() for v in inner.operands]
        return False

    def _results(self) -> list[Op]:
        """Operators of the region that others read."""
        return [op for op in self.ops if any(user not in self.ops for user in op.result.users)]

    def pays(self, peaks: Peaks) -> bool:
        """Whether memory traffic and launches take less time. Rows that are summed are then read from memory, which
        they would not be otherwise."""
        try:
            self.cuts = [self._ordered(axis) for axis in range(len(self.shape))]
        except _Unordered:
            return False
        pieces = list(self._pieces())
        if not 0 < len(pieces) <= min(MOST, MOST_OPS // len(self.ops)):
            return False
        gone = [join for join in self.joins if all(r in self.ops for r in readers(join.result))]
        folded = [op for op in self._results() if any(kind_of(r) in ("reduce", "scan") for r in readers(op.result))]
        moved = sum(2 * size_of(op.result) for op in folded) - sum(2 * size_of(op.result) for op in gone)
        before = 1 + sum(map(_copies, gone))
        launches = len({tuple(map(str, self._extent(piece))) for piece in pieces}) - before
        return bool(gone) and moved / (peaks.gbytes * 1e3) + launches * peaks.launch_us < 0

    # where parts meet
    def _ordered(self, axis: int) -> list[Dim]:
        found: list[Dim] = [0, self.shape[axis]]
        for op in self.ops:
            for v in op.operands:
                if shape_of(v) == self.shape:
                    for cut in self._cuts(v, axis):
                        _insert(found, cut)
        return found

    def _cuts(self, v: Value, axis: int) -> tuple[Dim, ...]:
        """Where parts of `v` begin or end. Parts of parts are looked into once, by whatever way they are reached."""
        if (v, axis) not in self.known:
            self.known[v, axis] = tuple(dict.fromkeys(self._find_cuts(v, axis)))
        return self.known[v, axis]

    def _find_cuts(self, v: Value, axis: int) -> Iterator[Dim]:
        op = v.op
        if op is None or self._join_behind(v) is None:
            return
        if is_slice(op):
            start = attributes_of(op)["start"][axis]
            for cut in self._cuts(op.operands[0], axis):
                if not at_most(cut, start) and not at_most(start + shape_of(v)[axis], cut):
                    yield cut - start
            return
        for part, (start, shape) in zip(op.operands, _windows(op), strict=False):
            yield start[axis]
            yield start[axis] + shape[axis]
            for cut in self._cuts(part, axis):
                yield start[axis] + cut

    def _pieces(self) -> Iterator[Piece]:
        """The pieces that have elements."""
        for piece in product(*(range(len(cuts) - 1) for cuts in self.cuts)):
            if all(n != 0 for n in self._extent(piece)):
                yield piece

    def _start(self, piece: Piece) -> Shape:
        return tuple(cuts[i] for cuts, i in zip(self.cuts, piece, strict=True))

    def _extent(self, piece: Piece) -> Shape:
        return tuple(cuts[i + 1] - cuts[i] for cuts, i in zip(self.cuts, piece, strict=True))

    # the operators of pieces
    def split(self) -> None:
        """Each operator becomes one for each piece, and what others read is put together."""
        pieces, results = list(self._pieces()), set(self._results())
        for op in self.ops:
            b = Builder.before(op)
            t = op.result.type
            assert isinstance(t, TensorType)
            for piece in pieces:
                parts = [self._piece_of(b, v, piece) for v in op.operands]
                new = b.op(
                    op.name, parts, (t.with_shape(self._extent(piece)),), dict(op.attrs), hints=(op.result.hint,)
                )
                self.order[new] = self.order[op]
                self.made[op.result, piece] = new.result
            if op in results:
                joined = self._put_together(b, op.result, (), pieces)
                for user, i in [use for use in op.result.uses if use[0] not in self.ops]:
                    user.set_operand(i, joined)
        for op in reversed(self.ops):
            op.erase()

    def _put_together(self, b: Builder, v: Value, prefix: Piece, pieces: list[Piece]) -> Value:
        """The pieces that begin with `prefix`, one after the other along the next axis."""
        axis = len(prefix)
        if axis == len(self.shape):
            return self.made[v, prefix]
        places = list(dict.fromkeys(piece[axis] for piece in pieces))
        parts = [self._put_together(b, v, (*prefix, i), pieces) for i in places]
        if len(parts) == 1:
            return parts[0]
        assert isinstance(v.type, TensorType)
        first = shape_of(parts[0])
        t = v.type.with_shape((*first[:axis], self.shape[axis], *first[axis + 1 :]))
        return b.value("graph.concat", parts, t, {"axis": axis}, v.hint)

    def _piece_of(self, b: Builder, v: Value, piece: Piece) -> Value:
        """An operand's elements in a piece, which is of one part of each concatenation."""
        if (v, piece) in self.made:
            return self.made[v, piece]
        start, shape = self._start(piece), self._extent(piece)
        if shape_of(v) == self.shape:
            return self._within(b, v, start, shape)
        own = shape_of(v)
        lead = len(shape) - len(own)
        sides = zip(own, start[lead:], shape[lead:], strict=True)
        return take(b, v, [(0, 1, 1) if d == 1 else (at, at + n, 1) for d, at, n in sides])

    def _within(self, b: Builder, v: Value, start: Shape, shape: Shape) -> Value:
        """The elements of `v` from `start` on, of its part that has them, if there is one."""
        op = v.op
        if op is not None and self._join_behind(v) is not None:
            if is_slice(op):
                return self._within(b, op.operands[0], _sum(start, attributes_of(op)["start"]), shape)
            for part, (at, size) in zip(op.operands, _windows(op), strict=True):
                first = tuple(s - a for s, a in zip(start, at, strict=True))
                rest = tuple(d - f - n for d, f, n in zip(size, first, shape, strict=True))
                if all(at_most(0, n) for n in (*first, *rest)):
                    return _cast(b, self._within(b, part, first, shape), v)
                if op.name == "graph.pad" and any(
                    at_most(f + n, 0) or at_most(d, f) for f, n, d in zip(first, shape, size, strict=True)
                ):
                    return _filling(b, op, shape)
        return take(b, v, [(at, at + n, 1) for at, n in zip(start, shape, strict=True)])


def _windows(join: Op) -> list[tuple[Shape, Shape]]:
    """Where the parts of a concatenation or padding begin, and their shapes."""
    operator: Any = operator_of(join)
    shapes = [shape_of(v) for v in join.operands]
    return [*zip(operator.windows(shapes, **attributes_of(join)), shapes, strict=True)]


def _copies(join: Op) -> int:
    """How many kernels put it together."""
    ((first, inner), *more) = _windows(join)
    if join.name != "graph.pad":
        return 1 + len(more)
    ends = zip(first, inner, shape_of(join.result), strict=True)
    return 1 + sum((at != 0) + (at + n != whole) for at, n, whole in ends)


def _filling(b: Builder, pad: Op, shape: Shape) -> Value:
    """The value of a padding around its operand."""
    t = pad.result.type
    assert isinstance(t, TensorType)
    value: Any = pad.attrs["value"]
    number = b.value("graph.constant", (), TensorType((), t.dtype), {"value": number_of(value, t.dtype)})
    return b.value("graph.broadcast_to", (number,), t.with_shape(shape), {"shape": shape})


def _cast(b: Builder, v: Value, like: Value) -> Value:
    """A concatenation converts its parts."""
    assert isinstance(v.type, TensorType) and isinstance(like.type, TensorType)
    if v.type.dtype == like.type.dtype:
        return v
    return b.value("graph.cast", (v,), like.type.with_shape(v.type.shape), {"dtype": like.type.dtype}, v.hint)


def _sum(a: Shape, b: Shape) -> Shape:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _insert(cuts: list[Dim], cut: Dim) -> None:
    """Puts a cut in its place. Raises _Unordered."""
    if cut in cuts:
        return
    at = next((i for i, c in enumerate(cuts) if at_most(cut, c)), None)
    if not at or not at_most(cuts[at - 1], cut):
        raise _Unordered
    cuts.insert(at, cut)
