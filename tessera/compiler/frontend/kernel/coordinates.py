"""A kernel's coordinates: their grid axes, and the ops that compute them.

Grid axes: those that `program_id(n)` asks for by number come first, then implicit batch axes, then the others in the
order in which the program meets them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import cast

from tessera.compiler.frontend.kernel.index import Indices, outer
from tessera.compiler.frontend.kernel.tiles import KernelFault, Tiles
from tessera.compiler.frontend.kernel.values import (
    MARK,
    NUMBER,
    Axis,
    Coordinate,
    Lanes,
    View,
    marked,
    marks,
    shown,
    size_text,
)
from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.ir.types import INDEX, TileType
from tessera.errors import Span
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dims import Atom, Dim, Expr, ceildiv, dim_max, symbols

STORED, READ, COMPARED = 0, 1, 2
"""what says how far a coordinate of programs runs, the strongest first"""
LANES = ("linear", None)
"""the key of what `linear_id` walks"""


@immutable
class Said:
    """What `ts.tile.grid` says of how programs run."""

    span: Span | None
    grouped: int | None
    persistent: bool


class Coordinates:
    """`emit` builds indices; the ops of grid coordinates go to the start of the kernel."""

    def __init__(self, entry: Block, indices: Indices, span: Span) -> None:
        self.indices = indices
        self.prologue = Builder(entry, 0, span)
        self.grid: list[Coordinate] = []
        self.named: dict[object, Coordinate] = {}
        self.batches: dict[Dim, tuple[int, int]] = {}
        """dims that an annotation's `...` stands for: (size, place from the end)"""
        self.said: Said | None = None
        self.lengths: dict[Coordinate, Dim] = {}
        """those of axes of `program_id` that the author says"""
        self._by_mark: dict[str, Coordinate] = {}
        self._ids: dict[Coordinate, Op] = {}
        self._candidates: dict[Coordinate, list[tuple[int, Dim]]] = {}
        self._late: list[tuple[Op, Callable[[], Dim]]] = []
        self._launch: dict[Dim, Value] = {}
        self._scalars: dict[tuple[Block, Value], Dim] = {}
        self._fresh = 0

    # making them
    def on_grid(
        self,
        key: object,
        name: str,
        extent: Dim | None,
        step: Dim,
        span: Span | None = None,
        start: Dim = 0,
        called: str = "",
    ) -> Coordinate:
        """The grid coordinate known under `key`, made at its first use: start, start + step, ... below `extent`.
        `called`: what messages call it, where that is not its name in the IR."""
        if key in self.named:
            return self.named[key]
        kind = "program" if extent is None else "grid"
        mark = self._mark(called or name)
        c = Coordinate(called or name, mark, kind, extent, start, step, span)
        if kind == "program":
            self._candidates[c] = []
        self._add(c)
        self.named[key] = c
        op = self.prologue.op("tile.program_id", (), (INDEX,), {"axis": 0}, hints=(name,))
        self._ids[c] = op
        value = op.result
        for factor, name_ in ((step, "imul"), (start, "iadd")):
            if factor != (1 if name_ == "imul" else 0):
                operand = self.prologue.value("tile.dim", (), INDEX, {"dim": factor})
                value = self.prologue.value(f"tile.{name_}", (value, operand), INDEX)
        self.indices.bind(mark, value)
        self.grid.append(c)
        return c

    def loop(self, name: str, start: Dim, extent: Dim | None, step: Dim, span: Span, value: Value) -> Coordinate:
        """The counter of a serial loop."""
        mark = self._mark(name)
        c = Coordinate(name, mark, "loop", extent, start, step, span)
        self._add(c)
        self.indices.bind(mark, value)
        return c

    def _mark(self, name: str) -> Expr:
        """A symbol that is no other's: names may be chosen twice, by people and by the compiler."""
        self._fresh += 1
        return marked(f"{name}{NUMBER}{self._fresh}")

    def _add(self, c: Coordinate) -> None:
        self._by_mark[str(c.offset)] = c

    def batch(self, view: View, axis: int) -> Coordinate:
        """The grid axis over a leading dim that no index mentions. Views with the same dim share it."""
        extent = view.shape[axis]
        found = self.on_grid(_batch_key(view, axis), f"batch_{size_text(extent)}", extent, 1, called=size_text(extent))
        found.batch = True
        return found

    def batch_offset(self, view: View, axis: int) -> Dim:
        """Where an access begins along a leading dim that no index mentions.

        Among dims that `...` stands for, the one that is met first says how many programs there are. Where a later
        array is shorter there, neighbours share its elements: heads of keys for groups of queries' heads. Raises
        KernelFault TS207 where they do not divide.
        """
        dim = view.shape[axis]
        size, place = self.batches.get(dim, (0, 0))
        if place and ("batch", dim) not in self.named:
            for other, (longer, where) in self.batches.items():
                if where == place and (found := self.named.get(("batch", other))) is not None:
                    if size and longer % size == 0:
                        return found.offset // (longer // size)
                    raise KernelFault("TS207", f"axis {axis} of {view.name} has {size} elements for {longer} programs; "
                                               f"that is not a multiple, so they cannot share them")  # fmt: skip
        return self.batch(view, axis).offset

    def decides(self, c: Coordinate, offset: Dim) -> bool:
        """Whether a place is computed from what the program finds at its grid coordinate: data, or bounds of loops."""
        seen: set[Value] = set()
        stack = [self.indices.values[m] for m in marks(offset) if m in self.indices.values]
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            if v.op is self._ids[c]:
                return True
            op = v.owner.region.op if isinstance(v.owner, Block) and v.owner.region is not None else v.op
            stack += op.operands if op is not None else ()
        return False

    def counted(self, c: Coordinate) -> Op | None:
        """The op that gives a coordinate of the grid its number."""
        return self._ids.get(c)

    def walking(self, lower: Dim, extent: Dim | None) -> Coordinate:
        """The coordinate whose position is `lower`: the one it is, or one derived from it. `extent` None: lanes, which
        lie in no tensor yet."""
        c = self._by_mark.get(str(lower)) if isinstance(lower, Expr) else None
        if c is not None and (extent is None or c.extent == extent or c.extent is None):
            return c
        key = ("at", lower, extent)
        if key not in self.named:
            name = c.name if c is not None else shown(lower)
            self.named[key] = Coordinate(name, lower, "derived", extent, walks=self.moving(lower))
        return self.named[key]

    def moving(self, index: Dim) -> frozenset[str]:
        """The coordinates that an index depends on: those in it, and those of what it is computed from."""
        found: set[str] = set()
        for m in marks(index):
            found |= {m} if m in self._by_mark or m not in self.indices.values else self._behind(m)
        return frozenset(found)

    def _behind(self, mark: str) -> set[str]:
        """The coordinates that a number depends on that the program has computed; itself where there are none."""
        known = {self.indices.values[m]: m for m in self._by_mark if m in self.indices.values}
        known |= {op.result: str(c.offset) for c, op in self._ids.items()}
        found, seen, stack = set[str](), set[Value](), [self.indices.values[mark]]
        while stack:
            v = stack.pop()
            if v in seen:
                continue
            seen.add(v)
            if v in known:
                found.add(known[v])
            elif v.op is not None:
                stack += v.op.operands
            elif isinstance(v.owner, Block) and v.owner.region is not None and v.owner.region.op is not None:
                stack += [*v.owner.region.op.operands, *v.owner.args[:1]]
        return found or {mark}

    def of_index(self, value: Value) -> Dim:
        """An index value as a Dim."""
        return self._opaque(value)

    def of_scalar(self, tile: Value) -> Dim:
        """An integer scalar that the program computed, as an index: one number has one, and `i + 2` is 2 more."""
        op = tile.op
        if op is not None and op.name == "tile.to_scalar":
            return self._opaque(op.operands[0])
        if op is not None and op.name in ("tile.add", "tile.sub") and (number := _number(op.operands[1])) is not None:
            return self.of_scalar(op.operands[0]) + (number if op.name == "tile.add" else -number)
        block: Block | None = self.indices.builder.block
        while block is not None:
            if (known := self._scalars.get((block, tile))) is not None:
                return known
            block = outer(block)
        builder = self.indices.builder
        out = self._opaque(builder.value("tile.to_index", (tile,), INDEX, hint=tile.hint))
        self._scalars[builder.block, tile] = out
        return out

    def _opaque(self, value: Value) -> Dim:
        for mark, bound in self.indices.values.items():
            if bound is value:
                return marked(mark[1:])
        symbol = self._mark(value.hint or "index")
        self.indices.bind(symbol, value)
        return symbol

    # what is known of them
    def at(self, mark: str) -> Coordinate | None:
        """The coordinate that a symbol of an index stands for; None for numbers that the program computes."""
        return self._by_mark.get(mark)

    def walked(self, index: Dim) -> frozenset[str]:
        """The names in the dims that the coordinates of an index walk: in `M` for `tile_m`, in the end of a range."""
        found = frozenset[str]()
        for m in marks(index):
            c = self._by_mark.get(m)
            if c is not None and c.extent is not None:
                found |= self.walked(c.extent) | {s for s in symbols(c.extent) if not s.startswith(MARK)}
        return found

    def name_of(self, mark: str) -> str | None:
        """What the program calls a coordinate; None for numbers that it computes."""
        c = self.at(mark)
        return c.name if c is not None else None

    def is_origin(self, lanes: Lanes) -> bool:
        """Whether lanes start where their program's block does, so that only the view's end can cut them."""
        return not isinstance(lanes.base, int) and bool(marks(lanes.base)) and _constant(lanes.base) == 0

    def observe(self, start: Expr, extent: Dim, how: int) -> None:
        """A program coordinate is seen to index what ends at `extent`: so it has ceil(extent / stride) steps. What ends
        at another place in each program or step says nothing of it."""
        if marks(extent):
            return
        found = [m for m in marks(start) if (c := self._by_mark.get(m)) is not None and c.kind == "program"]
        if len(found) != 1:
            return
        stride, rest = linear(start, found[0])
        if (rows := _divided(start, found[0])) is not None:  # one number for rows and columns: p // n and p % n
            count = ceildiv(extent - _constant(start), rows[0]) * rows[1]
            self._candidates[self._by_mark[found[0]]].append((how, count))
        elif stride is not None and not any(
            self._by_mark[m].kind == "program" for m in marks(rest) if m in self._by_mark
        ):
            self._candidates[self._by_mark[found[0]]].append((how, ceildiv(extent - _constant(rest), stride)))

    # the end
    def is_launched(self, axis: Axis) -> bool:
        """Whether lanes of `linear_id` walk an axis."""
        return isinstance(axis.origin, Coordinate) and axis.origin is self.named.get(LANES)

    def launch_mask(self, tiles: Tiles, size: Dim) -> Value:
        """Which lanes of `linear_id` exist: those below the extent, which is known when all uses have been seen."""
        if size not in self._launch:
            c = self.named[LANES]
            limit = self.prologue.op("tile.dim", (), (INDEX,), {"dim": 0})
            self._late.append((limit, lambda: self.extent(c)))
            place = tiles.builder.block, tiles.builder.position
            tiles.builder.block, tiles.builder.position = self.prologue.block, self.prologue.position
            try:
                lane = tiles.builder.value("tile.iota", (), TileType((size,), dtypes.int64), {"axis": 0})
                base = tiles.builder.broadcast(tiles.of_index(self.indices.values[str(c.offset)]), (size,), ())
                end = tiles.builder.broadcast(tiles.of_index(limit.result), (size,), ())
                exist = tiles.builder.map("lt", tiles.builder.map("add", base, lane), end)
                self._launch[size] = tiles.identities.set(exist, (c.axis,))
                self.prologue.position = tiles.builder.position
            finally:
                tiles.builder.block, tiles.builder.position = place
        return self._launch[size]

    def stored_through(self, c: Coordinate, shape: Sequence[Dim], position: Dim | None) -> None:
        """A result of this shape gets a tile along a program coordinate, which so runs through an axis of it. Where
        nothing else says how far it runs, it is that of the tile's axis by `position`."""
        found = self._candidates.get(c, ())
        if not found and c.kind == "program" and position is not None:
            self._candidates[c].append((STORED, position))
            return
        ends = [self.extent(c), *(d for _, d in found)] if found else []
        if (end := next((d for d in ends if d in shape), None)) is not None:
            self._candidates[c].append((STORED, end))

    def extent(self, c: Coordinate) -> Dim:
        """How far a program coordinate runs: through what is stored at it, else through what is read, else to what it
        is compared with."""
        if c in self.lengths:
            return self.lengths[c]
        found = self._candidates.get(c, ())
        if not found:
            lanes = c is self.named.get(LANES)
            other = "compare it, as in `if i < n:`" if lanes else "say it with ts.tile.grid"
            raise KernelFault(
                "TS403",
                f"nothing says how many programs {c.name} counts; index a tensor with it, or {other}",
            )
        first = min(how for how, _ in found)
        lengths = [d for how, d in found if how == first]
        if first == READ:  # `where(i < n - 1, x[i + 1], 0)`: the comparison keeps those behind this end inside
            kept = {d for how, d in found if how == COMPARED}
            lengths = [d for d in lengths if d not in kept] or lengths
        alike = list[list[Dim]]()
        for d in lengths:
            group = next((g for g in alike if isinstance(d - g[0], int)), None)
            alike.append([d]) if group is None else group.append(d)
        # no program reads beyond an end: of `starts[p]` and `starts[p + 1]` the second one says how many there are
        ends = [g[0] if first == STORED else min(g, key=lambda d: cast(int, d - g[0])) for g in alike]
        all_of_them = first == STORED or c is self.named.get(LANES)  # what is behind an end is neither read nor stored
        return reduce(dim_max, ends) if all_of_them else ends[0]

    def unmeasured(self) -> Coordinate | None:
        """A coordinate of programs that nothing gives a length."""
        return next((c for c in self.grid if self.end(c) is None), None)

    def end(self, c: Coordinate) -> Dim | None:
        """Where a coordinate ends, as far as that is known by now."""
        known = c in self.lengths or self._candidates.get(c)
        return self.extent(c) if c.extent is None and known else c.extent

    def count(self, c: Coordinate) -> Dim:
        """The length of a grid axis."""
        if c.kind != "program":
            assert c.extent is not None
            steps = ceildiv(c.extent - c.start, c.step) if c.step != 1 else c.extent - c.start
            return steps if c.start == 0 else dim_max(steps, 0)  # it may begin behind its end
        total = self.extent(c)
        return ceildiv(total, c.step) if c.step != 1 else total

    def finish(self) -> tuple[Dim, ...]:
        """Numbers the grid axes and fills in what was open. Raises KernelFault where an axis has no length."""
        numbered = {c.number: c for c in self.grid if c.number is not None}
        rest = sorted((c for c in self.grid if c.number is None), key=lambda c: not c.batch)
        waiting = iter(rest)
        order: list[Coordinate | None] = []
        for n in range(max(numbered, default=-1) + 1):
            order.append(numbered.get(n))
        order += list(waiting)
        for axis, c in enumerate(order):
            if c is not None:
                self._ids[c].attrs["axis"] = axis
        for op, dim in self._late:
            op.attrs["dim"] = self.indices.known(dim())
        if self.said is not None and self.said.grouped is not None and len(order) < 2:
            axes = "one axis" if order else "no axis"
            raise KernelFault("TS403", f"grouped orders programs along two axes of the grid, and this one has {axes}")
        return tuple(1 if c is None else self.count(c) for c in order)

    def later(self, dim: Callable[[], Dim], name: str) -> Expr:
        """An index that is known when the kernel has been read: `num_programs`."""
        op = self.prologue.op("tile.dim", (), (INDEX,), {"dim": 0}, hints=(name,))
        self._late.append((op, dim))
        mark = self._mark(name)
        self.indices.bind(mark, op.result)
        return mark


def _number(v: Value) -> int | None:
    """The integer that a scalar is."""
    value = v.op.attrs["value"] if v.op is not None and v.op.name == "tile.constant" else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _batch_key(view: View, axis: int) -> object:
    extent = view.shape[axis]
    return "batch", extent if isinstance(extent, Expr) else (axis, extent)


def _divided(d: Expr, mark: str) -> tuple[int, Dim] | None:
    """(stride, n) where an index is stride * (mark // n) + less than a stride."""
    for monomial, c in d.terms:
        if len(monomial) == 1 and monomial[0].op == "//" and str(monomial[0].args[0]) == mark and c > 0:
            return c, cast(Dim, monomial[0].args[1])
    return None


def _constant(d: Dim) -> Dim:
    """The part of an index that depends on no coordinate."""
    if isinstance(d, int):
        return d
    out: Dim = 0
    for monomial, c in d.terms:
        term = Expr(((monomial, c),)) if monomial else c
        if not marks(term):
            out = out + term
    return out


def linear(d: Expr, mark: str) -> tuple[int | None, Dim]:
    """`d` as stride * mark + rest; stride None where it is not a constant."""
    atom = Atom("sym", (mark,))
    stride: int | None = None
    rest: Dim = 0
    for monomial, c in d.terms:
        if monomial == (atom,):
            stride = c
        elif mark in marks(Expr(((monomial, c),)) if monomial else 0):
            return None, d
        else:
            rest = rest + (Expr(((monomial, c),)) if monomial else c)
    return stride, rest
