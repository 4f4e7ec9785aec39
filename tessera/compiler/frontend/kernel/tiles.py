"""Tile arithmetic: dtype rules, explicit broadcasts, reductions and matrix products, emitted as Tile IR.

Low-precision floats are storage: arithmetic converts them to f32 and its results stay f32 until a cast or a store
rounds them (docs/decisions). Only `mma` takes them as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

from tessera.compiler.frontend.kernel.broadcasting import BroadcastError, Identities, Rewrite, relation
from tessera.compiler.frontend.kernel.index import Indices
from tessera.compiler.frontend.kernel.values import Axes, Axis, axis_text, shown
from tessera.compiler.frontend.names.values import is_sequence, type_name
from tessera.compiler.graph.infer import Suggestion
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, SharedType, TileType, shape_text
from tessera.compiler.tile.builder import TileBuilder
from tessera.language import dtypes
from tessera.language.dims import Dim, Expr, prod
from tessera.language.dtypes import DType
from tessera.language.scalars import ACCEPTED, TABLE, TRUTHS, Accepts, elements

NUMBERS = (bool, int, float, complex)
SHIFTS = ("shift_left", "shift_right")
MATRICES = 64
"""how many a batched product may have"""


class KernelFault(Exception):
    """A rule of the tile language is broken. The layer adds the place, and tries the suggestions."""

    def __init__(
        self, code: str, message: str, *notes: Any, suggestions: Sequence[Suggestion] = (),
        rewrites: Sequence[Rewrite] = (), indices: Sequence[tuple[str, str, str]] = (),
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.code, self.message, self.notes = code, message, notes
        self.indices = indices
        """fixes of a subscript: what they say, and what comes before and behind its indices"""
        self.rewrites: Sequence[Rewrite] = [*((s.message, {s.operand: s.suffix}) for s in suggestions), *rewrites]


class Tiles:
    """Emits tile ops at the builder's place and keeps the axes' identities."""

    def __init__(self, builder: TileBuilder, indices: Indices) -> None:
        self.builder, self.indices = builder, indices
        self.known = indices.known
        self.identities = Identities()

    # scalars and conversions
    def scalar(self, value: Any, dtype: DType) -> Value:
        """A Python number or an index as a rank-0 tile of `dtype`."""
        if isinstance(value, Expr):
            return self.builder.cast(self.of_index(self.indices.emit(value)), dtype)
        if isinstance(value, complex) and not dtype.is_complex:
            raise KernelFault("TS302", f"the complex number {value} does not fit {dtype}")
        number: Any = value
        if not isinstance(value, Number) and not hasattr(value, "__float__"):
            raise KernelFault("TS105", f"a number is needed here, not {type_name(value)}")
        if dtype.is_integer and dtypes.number(number, dtype) is None:
            wide = dtypes.int64 if isinstance(number, int) else dtypes.f32
            way = f"; ts.{wide} holds it: cast(..., ts.{wide})" if dtypes.number(number, wide) is not None else ""
            raise KernelFault("TS302", f"{number!r} does not fit {dtype}{way}")
        kept = complex(number) if dtype.is_complex else float(number) if dtype.is_float else int(number)
        return self.builder.constant(bool(kept) if dtype.kind == "bool" else kept, dtype)

    def of_index(self, value: Value) -> Value:
        """An index value as an int64 scalar."""
        return self.builder.value("tile.to_scalar", (value,), TileType((), dtypes.int64))

    def cast(self, x: Value, dtype: DType) -> Value:
        if tile_type(x).dtype == dtype:
            return x
        if tile_type(x).dtype.is_complex and not dtype.is_complex:
            raise KernelFault("TS302", f"{tile_type(x).dtype} does not convert to {dtype}; take the real part")
        return self.identities.like(self.builder.cast(x, dtype), x)

    def compute(self, x: Value) -> Value:
        """`x` in the dtype that arithmetic is done in."""
        return self.cast(x, tile_type(x).dtype.compute)

    def full(self, shape: Shape, value: Any, dtype: DType, said: Shape | None = None) -> Value:
        """`said`: the shape as the program says it, with the names of dims whose sizes are known."""
        if isinstance(value, Value):
            if tile_type(value).rank:
                raise KernelFault("TS402", f"full takes a number, not a tile {tile_type(value).pretty()}")
            start = self.cast(value, dtype)
        else:
            start = self.scalar(value, dtype)
        out = self.builder.broadcast(start, shape, ())
        if not shape:
            return out
        return self.identities.set(out, tuple(Axis(size=d) for d in said or shape))

    # elementwise
    def promote(self, operands: Sequence[Any]) -> tuple[list[Value], DType]:
        """Operands in their common dtype. Python numbers adapt to the tiles beside them. Coordinates and sizes adapt to
        floats; beside integers they are int64, as lanes are, so that index arithmetic does not wrap around."""
        tiles = [self.compute(v) for v in operands if isinstance(v, Value)]
        common: DType | None = None
        for t in tiles:
            dtype = tile_type(t).dtype
            joint = dtype if common is None else dtypes.promote(common, dtype)
            if joint is None:
                raise KernelFault("TS302", f"{common} and {dtype} have no common dtype; convert one with cast(...)")
            common = joint
        for v in operands:
            if not isinstance(v, Value):
                weak = _of_size(common) if isinstance(v, Expr) else dtypes.weak(v, common)
                if weak is None:
                    raise KernelFault("TS105", f"{v!r} is not a number")
                joint = weak if common is None else dtypes.promote(common, weak)
                if joint is None:
                    said = f"{common} and {weak}, which coordinates and sizes are,"
                    raise KernelFault("TS302", f"{said} have no common dtype; convert the tile with cast(...)")
                common = joint
        assert common is not None
        done = iter(tiles)
        out = [self.cast(next(done), common) if isinstance(v, Value) else self.scalar(v, common) for v in operands]
        return out, common

    def map(self, name: str, *operands: Any) -> Value:
        """An elementwise function of `language.scalars` over tiles, numbers and indices."""
        tiles = [v for v in operands if isinstance(v, Value)]
        if name in TRUTHS and not dtypes.have_common(tile_type(v).dtype for v in tiles):
            operands = tuple(self.truth(v) if isinstance(v, Value) else v for v in operands)
        if name in SHIFTS and isinstance(operands[0], Value) and isinstance(operands[1], Expr):
            count = self.scalar(operands[1], tile_type(operands[0]).dtype)  # how far says nothing of how wide
            operands = (operands[0], count)
        if TABLE[name].gives == "float" and all(tile_type(v).dtype.is_integer for v in tiles):
            tiles = [self.cast(v, dtypes.f32) for v in tiles]  # so that sizes and numbers beside them are f32, too
            done = iter(tiles)
            operands = tuple(next(done) if isinstance(v, Value) else v for v in operands)
        values, dtype = self.promote(operands)
        demand_dtype(name, dtype, TABLE[name].accepts)
        if TABLE[name].gives == "float" and not (dtype.is_float or dtype.is_complex):
            values = [self.cast(v, dtypes.f32) for v in values]
        return self.aligned(name, values)

    def where(self, condition: Any, x: Any, y: Any) -> Value:
        if not isinstance(condition, Value):
            condition = self.scalar(condition, dtypes.bool_)
        condition = self.truth(condition)
        same = {tile_type(v).dtype for v in (x, y) if isinstance(v, Value)}
        if len(same) == 1 and isinstance(x, Value) and isinstance(y, Value):
            values = [x, y]  # selecting rounds nothing: storage dtypes stay
        else:
            values, _ = self.promote((x, y))
        return self.aligned("where", [condition, *values])

    def truth(self, x: Value) -> Value:
        """A tile of bools: what is not zero is true."""
        if tile_type(x).dtype.kind == "bool":
            return x
        return self.map("ne", x, 0)

    def aligned(self, name: str, values: list[Value]) -> Value:
        """Broadcasts operands of one dtype to their common shape and applies the function."""
        kept = next((k for v in values if (k := self.identities.kept.get(v))), None)
        values, axes = self.together(values)
        unordered = all(v in self.identities.unordered for v in values)
        return self.identities.set(self.builder.map(name, *values), axes, kept, unordered)

    def together(self, values: list[Value]) -> tuple[list[Value], Axes]:
        """All operands in one shape, and the axes of what is made of them."""
        try:
            shape, places, axes, unordered = self.identities.together(values)
        except BroadcastError as e:
            raise KernelFault(e.code, str(e), rewrites=e.rewrites) from None
        out = [self.expand(v, shape, p) for v, p in zip(values, places, strict=True)]
        if unordered:
            self.identities.unordered.update(out)
        return out, axes

    def fitted(self, x: Value, shape: Shape, axes: Sequence[Axis], storing: bool = False) -> Value:
        """`x` broadcast to a block with these axes. Raises KernelFault."""
        try:
            places = self.identities.fit(x, axes, shape, storing=storing)
        except BroadcastError as e:
            raise KernelFault(e.code, str(e), rewrites=e.rewrites) from None
        for a, p, n in zip(self.identities.of(x), places, tile_type(x).shape, strict=True):
            if n == shape[p]:
                a.join(axes[p])
        return self.expand(x, shape, places)

    def expand(self, x: Value, shape: Shape, places: tuple[int, ...]) -> Value:
        """`x` broadcast so that its axis i lies at places[i] of `shape`. Raises KernelFault where lengths differ."""
        if list(places) != sorted(places):
            order = tuple(sorted(range(len(places)), key=lambda i: places[i]))
            x, places = self.transpose(x, order), tuple(sorted(places))
        t = tile_type(x)
        if t.shape == shape:
            return x
        if any(n not in (1, shape[p]) for n, p in zip(t.shape, places, strict=True)):
            raise KernelFault("TS402", f"{shape_text(t.shape)} does not broadcast to {shape_text(shape)}")
        mine = self.identities.of(x)
        out = self.builder.broadcast(x, shape, places)
        at = {p: a for p, a, n in zip(places, mine, t.shape, strict=True) if n == shape[p]}
        return self.identities.set(out, tuple(at.get(p) or Axis(size=n) for p, n in enumerate(shape)))

    # shapes
    def insert_axes(self, x: Value, positions: Sequence[int]) -> Value:
        """`x[:, None]`: new axes of size 1 at the result's `positions`."""
        t, axes = tile_type(x), list(self.identities.of(x))
        shape = list(t.shape)
        for p in sorted(positions):
            shape.insert(p, 1)
            axes.insert(p, Axis(size=1, inserted=True))
        return self.identities.set(self.builder.reshape(x, tuple(shape)), tuple(axes))

    def transpose(self, x: Value, perm: tuple[int, ...] | None = None) -> Value:
        t, axes = tile_type(x), self.identities.of(x)
        order = tuple(reversed(range(t.rank))) if perm is None else perm
        if not all(type(i) is int for i in order) or sorted(order) != list(range(t.rank)):
            raise KernelFault("TS204", f"{perm} is not a permutation of the {t.rank} axes of {shape_text(t.shape)}")
        return self.identities.set(self.builder.transpose(x, order), tuple(axes[i] for i in order))

    def reshape(self, x: Value, shape: Shape, said: Shape) -> Value:
        """The axes of the result belong to nothing, also where the shape stays."""
        out = self.builder.value("tile.reshape", (x,), TileType(shape, tile_type(x).dtype))
        return self.identities.set(out, tuple(Axis(size=d, inserted=d == 1) for d in said))

    # reductions
    def axes_of(self, x: Value, axis: Any) -> tuple[int, ...]:
        rank = tile_type(x).rank
        if axis is None:
            return tuple(range(rank))
        given: tuple[Any, ...] = tuple(axis) if is_sequence(axis) else (axis,)
        for a in given:
            if not isinstance(a, int) or isinstance(a, bool) or not -rank <= a < rank:
                said = shown(a) if isinstance(a, Expr) else repr(a)
                raise KernelFault("TS204", f"axis {said} is out of range for {shape_text(tile_type(x).shape)}")
        out = tuple(sorted({a % rank for a in given}))
        if len(out) != len(given):
            raise KernelFault("TS204", f"axis={axis} names an axis twice")
        return out

    def axis_of(self, x: Value, axis: Any, what: str) -> int:
        """The one axis that prefixes and sorting run along."""
        found = self.axes_of(x, axis)
        if len(found) != 1:
            raise KernelFault("TS204", f"{what} runs along one axis of {shape_text(tile_type(x).shape)}, not {axis!r}")
        return found[0]

    def reduce(self, name: str, x: Value, axis: Any, keepdim: bool = False) -> Value:
        """`name` over `axis` (None: all). Sums of low-precision or narrow integers are in the accumulator dtype."""
        axes = self.axes_of(x, axis)
        t = tile_type(x)
        if name in ("sum", "prod"):
            x = self.cast(x, t.dtype.accumulate)
        elif name in ("any", "all"):
            x = self.truth(x)
        else:
            demand_dtype(name, t.dtype, "real")
            x = self.compute(x)
        identities = self.identities.of(x)
        out = self.builder.reduce(name, x, axes)
        keep = tuple(i for i in range(t.rank) if i not in axes)
        self.identities.set(out, tuple(identities[i] for i in keep), (t.rank, keep) if keep else None)
        return self.insert_axes(out, axes) if keepdim else out

    def scan(self, name: str, x: Value, axis: Any) -> Value:
        along = self.axis_of(x, axis, f"a running {name}")
        x = self.cast(x, tile_type(x).dtype.accumulate)
        out = self.builder.value("tile.scan", (x,), tile_type(x), {"op": name, "axis": along})
        return self.identities.like(out, x)

    def sort(self, x: Value, axis: Any, descending: bool, positions: bool) -> Value:
        along, t = self.axis_of(x, axis, "sort"), tile_type(x)
        if t.dtype.is_complex:
            demand_dtype("sort", t.dtype, "real")
        x = self.compute(x)
        result = TileType(t.shape, dtypes.int64 if positions else tile_type(x).dtype)
        ways = {"axis": along, "descending": descending, "positions": positions}
        return self.identities.like(self.builder.value("tile.sort", (x,), result, {**ways}), x)

    # matrix products
    def mma(self, a: Value, b: Value, a_axes: Axes, b_axes: Axes, accumulator: Any) -> Value:
        """acc + a @ b. Operands of two dtypes meet in the narrower one, as tensor cores want it; sums are in f32."""
        at, bt = operand_type(a), operand_type(b)
        if min(at.rank, bt.rank) < 2:
            raise KernelFault("TS402", f"mma takes tiles of two axes or more, not {at.pretty()} and {bt.pretty()}")
        swap = (
            ".T"
            if bt.rank == 2
            else f".transpose({', '.join(map(str, [*range(bt.rank - 2), bt.rank - 1, bt.rank - 2]))})"
        )
        turn = Suggestion(f"the transpose of the second one ({swap})", 1, swap)
        if at.shape[-1] != bt.shape[-2]:
            turned = [turn] if at.shape[-1] == bt.shape[-1] else []
            hint = f"; did you mean {turn.message}?" if turned else ""
            if not turned and bt.rank > 2 and bt.shape[0] == at.shape[-1]:
                hint = "; .T turns all axes around, .mT the last two"
            both = f"axis {at.rank - 1} of {shape_text(at.shape)} with axis {bt.rank - 2} of {shape_text(bt.shape)}"
            message = f"mma contracts {both}: {at.shape[-1]} is not {bt.shape[-2]}{hint}"
            raise KernelFault("TS402", message, suggestions=turned)
        if relation(a_axes[-1], b_axes[-2]) == "different" and relation(a_axes[-1], b_axes[-1]) == "same":
            along = f"{axis_text(a_axes[-1])} with {axis_text(b_axes[-2])}"
            message = f"mma would contract {along}, which are two axes; did you mean {turn.message}?"
            raise KernelFault("TS418", message, suggestions=[turn])
        powers = dtypes.fp8_e8m0 in (at.dtype, bt.dtype)
        a, b = self._one_dtype(a, b)
        a, b, lead, sizes = self._batches(a, b, a_axes[:-2], b_axes[:-2])
        count = prod(sizes)
        if isinstance(count, int) and count > MATRICES:
            most = f"mma multiplies up to {MATRICES} matrices at once, for each is written out, and not {count}"
            raise KernelFault("TS402", f"{most}; take fewer in a step of a loop or in a program")
        shape = (*sizes, at.shape[-2], bt.shape[-1])
        acc = self._accumulator(accumulator, shape, operand_type(a).dtype)
        out = self.builder.value("tile.mma", (a, b, acc), TileType(shape, tile_type(acc).dtype))
        if powers and out.op is not None:
            out.op.attrs["subnormals"] = True  # the least power of two is one in bf16
        axes = (*lead, a_axes[-2], b_axes[-1])
        for mine, theirs in zip(self.identities.of(acc), axes, strict=True):
            mine.join(theirs)
        return self.identities.set(out, axes)

    def _batches(self, a: Value, b: Value, a_axes: Axes, b_axes: Axes) -> tuple[Value, Value, Axes, Shape]:
        """Both operands with equally many axes before their matrices, and those axes of the product. They meet by
        position from the last one on, one element with all, as in NumPy's matmul."""
        count = max(len(a_axes), len(b_axes))
        if not count:
            return a, b, (), ()
        found: list[tuple[Axis, Dim]] = []
        for i in range(count):
            pair = [(axes[at], operand_type(v).shape[at]) for v, axes in ((a, a_axes), (b, b_axes))
                    if (at := i - count + len(axes)) >= 0]  # fmt: skip
            (axis, size), (other, n) = pair[0], pair[-1]
            shapes = f"{shape_text(operand_type(a).shape)} and {shape_text(operand_type(b).shape)}"
            if size != n and 1 not in (size, n):
                raise KernelFault("TS402", f"mma of {shapes}: the axes before the matrices differ, {size} and {n}")
            if 1 not in (size, n) and relation(axis, other) in ("different", "unclear"):
                along = f"one runs along {axis_text(axis)}, the other along {axis_text(other)}"
                flat = "where element by element is meant, write .reshape(...) behind one"
                raise KernelFault("TS418", f"mma of {shapes}: the axes before the matrices differ: {along}; {flat}")
            if size == n:
                axis.join(other)
            found.append((axis, size) if size != 1 else (other, n))
        a, b = self._among(a, count - len(a_axes)), self._among(b, count - len(b_axes))
        return a, b, tuple(x for x, _ in found), tuple(n for _, n in found)

    def _among(self, v: Value, missing: int) -> Value:
        """A matrix, or a batch of them, with `missing` axes of one element in front."""
        if isinstance(v.type, SharedType):
            v = self.load_shared(v)
        return self.insert_axes(v, range(missing)) if missing else v

    def _one_dtype(self, a: Value, b: Value) -> tuple[Value, Value]:
        x, y = operand_type(a).dtype, operand_type(b).dtype
        for d in (x, y):
            demand_dtype("mma", d, "number")
        if x == y:
            wide = {6: dtypes.f16, 4: dtypes.f16}.get(x.bits, dtypes.bf16 if x == dtypes.fp8_e8m0 else x)
            return self.as_operand(a, wide), self.as_operand(
                b, wide
            )  # these hold all values, and tensor cores take them
        if x.is_float != y.is_float or x.is_complex or y.is_complex:
            raise KernelFault("TS302", f"mma of {x} and {y}: convert one with cast(...)")
        wide = dtypes.promote(x, y)
        if wide is None:
            raise KernelFault("TS302", f"mma of {x} and {y}, which have no common dtype: convert one with cast(...)")
        common = wide if not x.is_float else x if x.bits < y.bits else y
        return self.as_operand(a, common), self.as_operand(b, common)

    def as_operand(self, v: Value, dtype: DType) -> Value:
        if operand_type(v).dtype == dtype:
            return v
        return self.cast(self.load_shared(v) if isinstance(v.type, SharedType) else v, dtype)

    def load_shared(self, v: Value, axes: Axes | None = None) -> Value:
        t = operand_type(v)
        out = self.builder.value("tile.load_shared", (v,), TileType(t.shape, t.dtype))
        if axes is not None:
            self.identities.set(out, axes)
        return out

    def _accumulator(self, given: Any, shape: Shape, operand: DType) -> Value:
        if isinstance(given, Value):
            t = tile_type(given)
            if t.shape != shape:
                raise KernelFault(
                    "TS402",
                    f"the accumulator is {shape_text(t.shape)}, the product {shape_text(shape)}; give both one shape",
                )
            return self.compute(given)
        dtype = operand.accumulate if given is None else dtypes.of(given)
        if dtype is None or dtype.kind != operand.accumulate.kind:
            raise KernelFault("TS301", f"accumulator={given!r} is neither a dtype for products of {operand} nor a tile")
        if dtype.is_low_precision:
            raise KernelFault("TS301", f"sums of products need at least f32, not {dtype}; cast the result instead")
        return self.full(shape, 0, dtype)


def _of_size(beside: DType | None) -> DType:
    """The dtype of a coordinate or size beside tiles of a dtype."""
    return beside if beside is not None and (beside.is_float or beside.is_complex) else dtypes.int64


def demand_dtype(name: str, d: DType, accepts: Accepts) -> None:
    if not ACCEPTED[accepts](d):
        raise KernelFault("TS301", f"{name} takes {elements(accepts)}, not {d}")


def tile_type(v: Value) -> TileType:
    assert isinstance(v.type, TileType), v
    return v.type


def operand_type(v: Value) -> TileType | SharedType:
    assert isinstance(v.type, (TileType, SharedType)), v
    return v.type


def static_size(d: Any, what: str) -> Dim:
    if isinstance(d, bool) or not isinstance(d, (int, Expr)):
        raise KernelFault("TS404", f"{what} must be a size known at compile time, not {d!r}")
    if isinstance(d, int) and d <= 0:
        raise KernelFault("TS404", f"{what} must be positive, not {d}")
    return d
