"""Writes the tile program of one group: loads, elementwise ops, reductions and stores over the collapsed space.

Every tile has the rank of the collapsed space, with size 1 along the axes that its value does not run along, so that
broadcasting between values is always `tile.broadcast` with the identity axes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from tessera.compiler.graph.operator import attributes_of
from tessera.compiler.graph.operators.random import FINAL, LOW_BIAS
from tessera.compiler.ir.core import Attr, Block, Op, Region, Value
from tessera.compiler.ir.types import INDEX, Shape, TensorType, TileType, ViewType
from tessera.compiler.schedule.access import Access, AxisRun, access, gather_parts, operand_axes
from tessera.compiler.schedule.alignment import Axes, base_of, reduced_axes, shape_of, through_views
from tessera.compiler.schedule.blocks import grid
from tessera.compiler.schedule.views import ViewLayout, contiguous, kind_of, layout_of
from tessera.compiler.tile.builder import TileBuilder
from tessera.errors import Diagnostic, TargetError
from tessera.immutable import immutable, mutable
from tessera.language import dtypes
from tessera.language.dims import Dim, Expr, prod
from tessera.language.dtypes import DType
from tessera.language.scalars import REDUCERS, TABLE

_SCANS = {"cumsum": "sum", "cumprod": "prod", "cummax": "max", "cummin": "min"}
_WRITTEN = {
    "map": {*TABLE, "bitcast", "cast", "where"},
    "reduce": {*REDUCERS, "argmax", "argmin", "any", "all"},
    "scan": _SCANS,
}
"""names of the operators that tiles compute themselves, by kind"""
_SHORT = frozenset({"gelu"})
"""functions that take much less time where the result is narrow: `narrow` says to which dtype it is rounded next"""


@immutable
class Argument:
    """A kernel argument before buffers have numbers: a window onto `base`, or (window None) a scalar parameter.
    `changed`: it is read first, and stored to then."""

    base: Value
    offset: Dim
    type: ViewType | TileType
    named: Value | str
    """what its name is derived from"""
    changed: bool = False

    def name(self, taken: Collection[str], named: Value | str) -> str:
        """A name after `named` that is not taken."""
        hint = (named if isinstance(named, str) else named.hint) or ("x" if isinstance(self.type, ViewType) else "s")
        return next(n for n in (hint, *(f"{hint}_{i}" for i in range(1, len(taken) + 2))) if n not in taken)


@mutable
class Space:
    """The collapsed iteration space of a kernel: `groups` are the original axes in each collapsed one."""

    original: Shape
    groups: list[tuple[int, ...]]
    dims: Shape
    block: tuple[Dim, ...]
    inner: tuple[bool, ...]

    def present(self, axes: Axes) -> tuple[bool, ...]:
        """Along which collapsed axes a value with these axes runs."""
        return tuple(any(a in g for a in axes if a >= 0) for g in self.groups)


class KernelWriter:
    """One `tile.func` in the making. `axes` places the group's values on the original space."""

    def __init__(self, space: Space, axes: dict[Value, Axes], scalars: set[Value], span: Any) -> None:
        self.space, self.axes, self.scalars = space, axes, scalars
        self.block = Block()
        self.b = TileBuilder(self.block, span=span)
        self.arguments: list[Argument] = []
        self.tiles: dict[Value, Value] = {}
        self._loaded: dict[tuple[Value, tuple[Dim | None, ...], Dim], Value] = {}
        self._windows: dict[tuple[Value, Dim, object], Value] = {}
        self._sizes: dict[Dim, Value] = {}
        self.writes: list[int] = []
        counts = grid(space.dims, space.block)
        self.grid = tuple(n for n in counts if n != 1)
        self.offsets = self._program_offsets(counts)

    def over(self, space: Space, offsets: list[Value]) -> KernelWriter:
        """Writes into the same kernel, perhaps inside of a loop: tiles of another space, that begin at `offsets`."""
        new = copy(self)
        new.space, new.offsets, new.tiles, new._loaded, new._sizes = space, offsets, {}, {}, {}
        return new

    def size(self, d: Dim) -> Value:
        """`d` as an index, made once: the kernel is one block, so the index is defined wherever it is used again."""
        if d not in self._sizes:
            self._sizes[d] = self.b.index(d)
        return self._sizes[d]

    def _program_offsets(self, counts: Sequence[Dim]) -> list[Value]:
        out: list[Value] = []
        axis = 0
        for n, size in zip(counts, self.space.block, strict=True):
            if n == 1:
                out.append(self.size(0))
                continue
            pid = self.b.program_id(axis)
            axis += 1
            out.append(pid if size == 1 else self.b.iop("imul", pid, self.size(size)))
        return out

    def finish(self, name: str, attrs: dict[str, Attr] | None = None) -> Op:
        self.b.op("tile.return")
        names = tuple(a.hint for a in self.block.args)
        base: dict[str, Attr] = {"sym_name": name, "grid": self.grid, "arg_names": names, "writes": tuple(self.writes)}
        assert self.b.span is not None
        return Op("tile.func", (), (), self.b.span, base | (attrs or {}), [Region([self.block])])

    # arguments
    def window(self, base: Value, offset: Dim, view: ViewType, named: Value | str, write: bool = False) -> Value:
        """The kernel argument for this window, made at its first use."""
        key = (base, offset, view)
        if key not in self._windows:
            self._windows[key] = self._argument(Argument(base, offset, view, "out" if write else named))
        elif write and self._windows[key].index not in self.writes:
            i = self._windows[key].index
            self.arguments[i] = replace(self.arguments[i], changed=True)
        arg = self._windows[key]
        if write and arg.index not in self.writes:
            self.writes.append(arg.index)
        return arg

    def _argument(self, a: Argument) -> Value:
        self.arguments.append(a)
        return self.block.add_arg(a.type, a.name({arg.hint for arg in self.block.args}, a.named))

    def scalar(self, base: Value) -> Value:
        """A scalar parameter as a rank-0 tile."""
        key = (base, 0, "scalar")
        if key not in self._windows:
            t = TileType((), _dtype(base))
            self._windows[key] = self._argument(Argument(base, 0, t, base))
        return self._windows[key]

    # shapes
    def tile_shape(self, present: Sequence[bool]) -> Shape:
        return tuple(b if p else 1 for b, p in zip(self.space.block, present, strict=True))

    def strides(self, a: Access) -> tuple[Dim | None, ...]:
        """Per collapsed axis: the stride of its innermost original axis, None where the access does not run."""
        return tuple(next((s for x in reversed(g) if (s := a.strides[x]) is not None), None) for g in self.space.groups)

    def stretch(self, x: Value, present: Sequence[bool]) -> Value:
        """`x` repeated along all the axes in `present`."""
        shape = self.tile_shape(present)
        t = x.type
        assert isinstance(t, TileType)
        axes = tuple(range(len(shape))) if t.rank else ()
        return self.b.broadcast(x, shape, axes)

    def unit(self, x: Value) -> Value:
        """A rank-0 tile with the rank of the space."""
        return self.b.broadcast(x, (1,) * len(self.space.dims), ())

    # reading
    def view_of(self, a: Access) -> ViewType:
        strides = self.strides(a)
        shape = tuple(d if s is not None else 1 for d, s in zip(self.space.dims, strides, strict=True))
        return _view_type(shape, tuple(s if s is not None else 0 for s in strides), _dtype(a.base))

    def load(self, a: Access, named: Value | str) -> Value:
        strides = self.strides(a)
        key = (a.base, strides, a.offset)
        if key not in self._loaded:
            view = self.window(a.base, a.offset, self.view_of(a), named)
            zero = self.size(0)
            at = [o if s is not None else zero for o, s in zip(self.offsets, strides, strict=True)]
            self._loaded[key] = self.b.load(view, at, self.tile_shape([s is not None for s in strides]))
        return self._loaded[key]

    def linear(self, strides: Sequence[Dim | None], offset: Dim, dtype: DType = dtypes.int64) -> Value:
        """`offset + sum(index * stride)` as a tile: positions in memory order."""
        out = None if offset == 0 else self.unit(self._number(offset, dtype))
        for axis, s in enumerate(strides):
            if s is None:
                continue
            along = [i == axis for i in range(len(strides))]
            at = self.b.value("tile.iota", (), TileType(self.tile_shape(along), dtype), {"axis": axis})
            start = self.b.value("tile.to_scalar", (self.offsets[axis],), TileType((), dtypes.int64))
            at = self.b.map("add", at, self.stretch(self.b.cast(start, dtype), along))
            if s != 1:
                at = self.b.map("mul", at, self.stretch(self._number(s, dtype), along))
            if out is None:
                out = at
                continue
            joint = [x != 1 or p for x, p in zip(_shape(out), along, strict=True)]
            out = self.b.map("add", self.stretch(out, joint), self.stretch(at, joint))
        if out is None:
            out = self.unit(self._number(0, dtype))
        return self.stretch(out, [s is not None for s in strides])

    def _number(self, d: Dim, dtype: DType) -> Value:
        return self.b.cast(self.b.value("tile.to_scalar", (self.size(d),), TileType((), dtypes.int64)), dtype)

    def operand(self, op: Op, v: Value) -> Value:
        """The tile of an operand: computed in the group, generated, a scalar, or loaded."""
        base = base_of(v)
        if base in self.tiles:
            return self.tiles[base]
        layout = layout_of(v)
        assert layout is not None
        if base in self.scalars:
            return self.unit(self.scalar(base))
        if base.op is not None and kind_of(base.op) == "generate":
            return self.generated(
                base.op, access(layout, operand_axes(op, v, self.axes, self.space.original), self.space.original)
            )
        if not shape_of(v):
            view = self.window(base, layout.offset, ViewType((1,) * len(self.space.dims), _dtype(base)), base)
            return self.b.load(view, [self.size(0)] * len(self.space.dims), (1,) * len(self.space.dims))
        return self.load(access(layout, operand_axes(op, v, self.axes, self.space.original), self.space.original), v)

    def generated(self, op: Op, a: Access) -> Value:
        """A constant, or an iota re-indexed by the views that lead to it."""
        attrs: dict[str, Any] = attributes_of(op)
        dtype = _dtype(op.result)
        if "value" in attrs:
            value = attrs["value"]
            if isinstance(value, Expr):  # a size that is known at launch, such as the count of a mean
                return self.unit(self.b.cast(self._number(value, dtypes.int64), dtype))
            return self.unit(self.b.constant(value, dtype))
        shape, axis = shape_of(op.result), int(attrs.get("axis") or 0)
        position = self.linear(self.strides(a), a.offset)
        if (below := contiguous(shape)[axis] if shape else 1) != 1:
            position = self._index_map("floordiv", position, below)
        if any(d != 1 for d in shape[:axis]):
            position = self._index_map("mod", position, shape[axis])
        return self.b.cast(position, dtype)

    def _index_map(self, name: str, x: Value, by: Dim) -> Value:
        return self.b.map(name, x, self.b.broadcast(self._number(by, dtypes.int64), _shape(x), ()))

    # computing
    def compute(self, op: Op) -> None:
        """Appends the tile ops for one graph op of the group. Raises TargetError TS602 for an operator from outside
        that says it is of a kind whose operators are all known."""
        kind, name = kind_of(op), op.name.partition(".")[2]
        if name not in _WRITTEN.get(kind or "map", (name,)):
            message = f"no target computes {name}: of the kind {kind!r} are only Tessera's own operators"
            raise TargetError(Diagnostic("TS602", f"{message}; leave kind out and write decompose", op.span))
        with self.b.at(op.span):
            result = {
                "map": self._map, "reduce": self._reduce, "scan": self._scan,
                "random": self._random, "gather": self._gather,
            }[kind or "map"](op)  # fmt: skip
        result.hint = result.hint or op.result.hint
        self.tiles[op.result] = result

    def _map(self, op: Op) -> Value:
        name = op.name.partition(".")[2]
        out = _dtype(op.result)
        present = self.space.present(self.axes[op.result])
        parts = [self.stretch(self.operand(op, v), present) for v in op.operands]
        if name == "cast":
            return self.b.cast(parts[0], out)
        if name == "bitcast":
            return self.b.value("tile.bitcast", (parts[0],), TileType(_shape(parts[0]), out))
        values = op.operands[1:] if name == "where" else op.operands
        common = _dtype(values[0])
        for v in values[1:]:
            common = dtypes.promote(common, _dtype(v)) or common
        if name == "where":
            return self.b.map("where", parts[0], *(self.b.cast(p, out) for p in parts[1:]))
        if common.kind == "bool" and TABLE[name].gives == "same":
            name = {"add": "logical_or", "mul": "logical_and"}.get(name, name)
        work = common.compute
        if TABLE[name].gives == "float" and not (common.is_float or common.is_complex):
            work = out.compute  # integers divide and exponentiate as floats
        attrs: dict[str, Attr] = {"narrow": out} if name in _SHORT and common == out != work else {}
        return self.b.cast(self.b.map(name, *(self.b.cast(p, work) for p in parts), **attrs), out)

    def folded_axes(self, op: Op, own: Axes) -> tuple[int, ...]:
        """The collapsed axes that a reduction or scan runs along."""
        gone = {own[a] for a in reduced_axes(op) if own[a] >= 0}
        return tuple(i for i, g in enumerate(self.space.groups) if any(a in gone for a in g))

    def full_axes(self, op: Op) -> Axes:
        """The axes of the space along which a reduction or scan reads its operand."""
        x = op.operands[0]
        own = through_views(x, self.axes, self.space.original) if base_of(x) in self.axes else None
        return operand_axes(op, x, self.axes, self.space.original) if own is None else own

    def _reduce(self, op: Op) -> Value:
        name = op.name.partition(".")[2]
        own = self.full_axes(op)
        gone = self.folded_axes(op, own)
        x = self.stretch(self.operand(op, op.operands[0]), self.space.present(own))
        out = _dtype(op.result)
        if name in ("argmax", "argmin"):
            x = self.b.cast(x, _dtype(op.operands[0]).compute)
            reduced = self._index_of(name, x, gone)
        elif name in ("any", "all"):
            reduced = self.b.reduce(name, self.b.cast(x, dtypes.bool_), gone)
        else:
            wide = _accumulator(op.result.type)
            reduced = self.b.reduce(name, self.b.cast(x, wide), gone)
        shape = tuple(1 if i in gone else s for i, s in enumerate(_shape(x)))
        return self.b.cast(self.b.reshape(reduced, shape), out)

    def _index_of(self, name: str, x: Value, gone: tuple[int, ...]) -> Value:
        """argmax and argmin over several axes count in C order over all of them."""
        shape = _shape(x)
        if len(gone) > 1:
            rest = tuple(i for i in range(len(shape)) if i not in gone)
            perm = (*rest, *gone)
            if perm != tuple(range(len(shape))):
                x = self.b.transpose(x, perm)
            x = self.b.reshape(x, (*(shape[i] for i in rest), prod(shape[i] for i in gone)))
            return self.b.reduce(name, x, (len(rest),))
        if not gone:
            t = TileType(shape, dtypes.int64)
            return self.b.broadcast(self.b.constant(0, dtypes.int64), t.shape, ())
        return self.b.reduce(name, x, gone)

    def _scan(self, op: Op) -> Value:
        own = self.full_axes(op)
        axis = self.folded_axes(op, own)
        x = self.stretch(self.operand(op, op.operands[0]), self.space.present(own))
        wide = self.b.cast(x, _accumulator(op.result.type))
        if axis:
            attrs: dict[str, Attr] = {"op": _SCANS[op.name.partition(".")[2]], "axis": axis[0]}
            wide = self.b.value("tile.scan", (wide,), wide.type, attrs)
        return self.b.cast(wide, _dtype(op.result))

    def _random(self, op: Op) -> Value:
        own = self.axes[op.result]
        strides = self.strides(access(_owned(op.result), own, self.space.original))
        offset = int(attributes_of(op).get("offset") or 0)
        key, present = self.b.cast(self.operand(op, op.operands[0]), dtypes.uint64), self.space.present(own)
        if _dtype(op.result) == dtypes.uint32:
            return self._hashed(self.linear(strides, offset, dtypes.uint32), key, present)
        counter = self.b.cast(self.linear(strides, offset), dtypes.uint64)
        return self.b.value("tile.philox", (counter, self.stretch(key, present)), counter.type)

    def _hashed(self, number: Value, key: Value, present: Sequence[bool]) -> Value:
        """`hashed` of the operator's reference: what is done with the key is done once."""

        def mixed(name: str, x: Value, y: int) -> Value:
            return self.b.map(name, x, self.b.full(_shape(x), y, _dtype(x)))

        def folded(x: Value, by: int) -> Value:
            return self.b.map("bit_xor", x, mixed("shift_right", x, by))

        for product in FINAL:
            key = mixed("mul", folded(key, 33), product)
        key = folded(key, 33)
        low, high = (self.b.cast(k, dtypes.uint32) for k in (key, mixed("shift_right", key, 32)))
        x = self.b.map("bit_xor", number, self.stretch(low, present))
        x = self.b.map("bit_xor", mixed("mul", folded(x, 16), LOW_BIAS[0]), self.stretch(high, present))
        return folded(mixed("mul", folded(x, 15), LOW_BIAS[1]), 16)

    def _gather(self, op: Op) -> Value:
        """take: out[before, index axes, after] = x[before, index, after], read through the window that x is."""
        x, index = op.operands
        layout, own = layout_of(x), self.axes[op.result]
        assert layout is not None
        parts, middle = gather_parts(op, own)
        shape, strides = tuple(prod(p.shape) for p in parts), tuple(p.stride for p in parts)
        view = self.window(layout.base, layout.offset, _view_type(shape, strides, _dtype(x)), x)
        tiles = [
            self._taken(index, p.axes, shape[middle]) if i == middle else self._run(p) for i, p in enumerate(parts)
        ]
        present = self.space.present(own)
        result = TileType(self.tile_shape(present), _dtype(x))
        attrs: dict[str, Attr] = {"fill": 0, "along": op.attrs["axis"], "middle": middle}
        return self.b.value("tile.gather", (view, *(self.stretch(t, present) for t in tiles)), result, attrs)

    def _taken(self, index: Value, axes: Axes, size: Dim) -> Value:
        """The index operand with negative values counted from the end."""
        base = base_of(index)
        if base in self.scalars:
            raw = self.unit(self.scalar(base))
        else:
            layout = layout_of(index)
            assert layout is not None
            raw = self.load(access(layout, axes, self.space.original), index)
        at = self.b.cast(raw, dtypes.int64)
        if _dtype(index).kind == "uint":
            return at  # the largest of uint64 become negative, which is outside as well
        wrapped = self._index_map("add", at, size)
        zero = self.b.broadcast(self.b.constant(0, dtypes.int64), _shape(at), ())
        return self.b.map("where", self.b.map("lt", at, zero), wrapped, at)

    def _run(self, part: AxisRun) -> Value:
        """The position along several original axes taken as one, in C order."""
        steps: list[Dim | None] = [None] * len(self.space.original)
        for a, s in zip(part.axes, contiguous(part.shape), strict=True):
            if a >= 0:
                steps[a] = s
        per_group = [next((s for x in reversed(g) if (s := steps[x]) is not None), None) for g in self.space.groups]
        return self.linear(per_group, 0)

    # writing
    def store(self, v: Value, a: Access) -> None:
        """Stores the tile of `v` where `a` says."""
        self.store_beside([v], a)

    def store_beside(self, values: Sequence[Value], a: Access) -> None:
        """Stores the first tile where `a` says, and each other one an element further in memory."""
        strides = self.strides(a)
        view, zero = self.view_of(a), self.size(0)
        at = [o if s is not None else zero for o, s in zip(self.offsets, strides, strict=True)]
        if len(values) > 1:
            steps = (1, *(contiguous(view.shape) if view.strides is None else view.strides))
            view = ViewType((len(values), *view.shape), view.dtype, steps)
        window = self.window(a.base, a.offset, view, "out", write=True)
        for i, v in enumerate(values):
            tile = self.b.cast(self.stretch(self.tiles[v], [s is not None for s in strides]), _dtype(a.base))
            if len(values) == 1:
                self.b.store(window, tile, at)
            else:
                self.b.store(window, self.b.reshape(tile, (1, *_shape(tile))), [self.size(i), *at])


def _owned(v: Value) -> ViewLayout:
    return ViewLayout(v, shape_of(v), contiguous(shape_of(v)), 0)


def _view_type(shape: Shape, strides: Shape, dtype: DType) -> ViewType:
    same = all(s == c or d == 1 for s, c, d in zip(strides, contiguous(shape), shape, strict=True))
    return ViewType(shape, dtype, None if same else strides)


def _accumulator(t: Any) -> DType:
    """At least f32; wider where the policy says."""
    assert isinstance(t, TensorType)
    if t.policy and t.policy.accum:
        return t.policy.accum
    return t.dtype.compute


def _shape(v: Value) -> Shape:
    assert isinstance(v.type, TileType)
    return v.type.shape


def _dtype(v: Value) -> DType:
    t = v.type
    assert t != INDEX and not isinstance(t, str)
    return t.dtype  # type: ignore[union-attr]
