"""Sectors of each access of a kernel to global memory, over all its programs, from the offsets of Tile IR: no run.

Offsets are evaluated for all programs and all steps of loops at once. What a request touches depends on where its box
starts within a sector and on how much of it lies inside of the view, so that programs that agree in this are counted
together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import cast

import numpy as np

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import IndexType, SharedType, TileType, ViewType
from tessera.compiler.targets.base import GlobalAccess
from tessera.compiler.targets.cuda.emit.contract import stage_depth
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter
from tessera.compiler.targets.cuda.emit.memory import is_copied
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_scalar, shape_of
from tessera.compiler.targets.cuda.layouts.sectors import SECTOR, Array, Box, Requests, of_copies, of_one, of_registers
from tessera.compiler.targets.cuda.tensor_cores.products import copied_operand, feeds_from_registers
from tessera.compiler.targets.cuda.tensor_cores.warpgroups import Products
from tessera.compiler.tile.offsets import strides_of
from tessera.language.dims import Dim, substitute, symbols

MOST_POINTS = 4_000_000
"""Programs times steps that are evaluated; a kernel with more is told by its first programs."""

DATA = "it depends on the data"


class NotKnown(Exception):
    """Why a figure is not known."""


class _Points:
    """Index values at each program and step of the loops around: one array for each value. `parent` and `of`: the
    points around the loop, and which of them each point belongs to."""

    def __init__(self, count: int, parent: _Points | None = None, of: Array | None = None) -> None:
        self.count, self._parent, self._of = count, parent, of
        self._values: dict[Value, Array | str] = {}

    def set(self, v: Value, found: Array | str) -> None:
        self._values[v] = found

    def get(self, v: Value) -> Array:
        """Raises NotKnown."""
        if v not in self._values:
            if self._parent is None or self._of is None:
                raise NotKnown(DATA)
            try:
                self._values[v] = self._parent.get(v)[self._of]
            except NotKnown as why:
                self._values[v] = str(why)
        found = self._values[v]
        if isinstance(found, str):
            raise NotKnown(found)
        return found


_INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "tile.iadd": np.add,
    "tile.isub": np.subtract,
    "tile.imul": np.multiply,
    "tile.idiv": np.floor_divide,
    "tile.imod": np.remainder,
    "tile.imin": np.minimum,
    "tile.imax": np.maximum,
}


def kernel_accesses(
    e: KernelEmitter, kernel: str, sizes: Mapping[str, int], starts: Mapping[Value, int]
) -> list[GlobalAccess]:
    """In the order of the source. `sizes`: of the dims that are open; `starts`: the byte at which each view argument
    starts, modulo a sector."""
    return list(_Walk(e, kernel, sizes, starts).found.values())


class _Walk:
    """Walks one kernel. `found`: what each access does."""

    def __init__(self, e: KernelEmitter, kernel: str, sizes: Mapping[str, int], starts: Mapping[Value, int]) -> None:
        self._e, self._kernel, self._sizes, self._starts = e, kernel, sizes, starts
        self.found: dict[tuple[Op, int], GlobalAccess] = {}
        self._grid, self.programs, self.counted = tuple[int, ...](), 0, 0
        self._root = _Points(0)
        grid = cast("tuple[Dim, ...]", e.kernel.attrs["grid"])
        if missing := sorted({name for d in grid for name in symbols(substitute(d, dict(sizes)))}):
            for op in e.kernel.walk():
                self._give_up(op, f"no size is given for {', '.join(missing)}")
            return
        self._grid = tuple(self._size(d) for d in grid)
        self.programs = prod(self._grid)
        self.counted = min(self.programs, MOST_POINTS)
        self._root = _Points(self.counted)
        self._block(e.kernel.region.block, self._root)

    def _size(self, d: Dim) -> int:
        known = substitute(d, dict(self._sizes))
        if not isinstance(known, int):
            raise NotKnown(f"no size is given for {', '.join(sorted(symbols(known)))}")
        return known

    # the walk
    def _block(self, block: Block, at: _Points) -> None:
        for op in block.ops:
            self._op(op, at)

    def _op(self, op: Op, at: _Points) -> None:
        name = op.name
        if name in ("tile.for", "tile.pipeline"):
            self._loop(op, at)
        elif name in ("tile.while", "tile.if") or op.regions:
            self._undecided(op)
        elif name == "tile.load":
            self._load(op, at)
        elif name == "tile.store":
            self._store(op, at)
        elif name == "tile.copy_async":
            self._copy(op, at)
        elif name == "tile.mma":
            self._product(op, at)
        elif name == "tile.contract":
            self._contract(op, at)
        elif name == "tile.gather":
            self._say(op, 0, op.operands[0], "load", "its indices are data")
        elif name == "tile.scatter":
            self._say(op, 0, op.operands[0], "store", "its indices are data")
        elif op.results:
            self._index(op, at)

    def _index(self, op: Op, at: _Points) -> None:
        """Values that offsets are made of; those of other ops are data."""
        try:
            if op.name == "tile.program_id":
                axis = int(op.attrs["axis"])  # type: ignore[call-overload]
                inner = prod(self._grid[axis + 1 :])
                self._root.set(op.result, np.arange(self.counted) // inner % self._grid[axis])
            elif op.name == "tile.dim":
                at.set(op.result, np.full(at.count, self._size(op.attrs["dim"])))  # type: ignore[arg-type]
            elif op.name == "tile.constant" and isinstance(op.attrs["value"], (int, bool)):
                at.set(op.result, np.full(at.count, int(op.attrs["value"])))
            elif op.name in _INTEGERS:
                at.set(op.result, _INTEGERS[op.name](*(at.get(v) for v in op.operands)))
            elif op.name in ("tile.to_scalar", "tile.to_index", "tile.cast") and is_number(op.operands[0]):
                at.set(op.result, at.get(op.operands[0]))
        except NotKnown as why:
            at.set(op.result, str(why))

    def _loop(self, op: Op, at: _Points) -> None:
        bodies = [region.block for region in op.regions]
        try:
            if "going" in op.attrs:
                raise NotKnown("the loop around it may end early")
            low, high, step = (at.get(v) for v in op.operands[:3])
            step = np.maximum(step, 1)
            turns = np.maximum(0, -((low - high) // step))
            if int(turns.sum()) > MOST_POINTS:
                raise NotKnown(f"it is run more than {MOST_POINTS:,} times")
        except NotKnown as why:
            for inner in (x for body in bodies for top in body.ops for x in top.walk()):
                self._give_up(inner, str(why))
            return
        of = np.repeat(np.arange(at.count), turns)
        turn = np.arange(len(of)) - np.repeat(np.cumsum(turns) - turns, turns)
        for body in bodies:
            inside = _Points(len(of), at, of)
            inside.set(body.args[0], low[of] + turn * step[of])
            for carried in body.args[1:]:
                inside.set(carried, "a loop carries its offset")
            self._block(body, inside)
        for result in op.results:
            at.set(result, "a loop carries its offset")

    def _undecided(self, op: Op) -> None:
        why = "the loop around it runs as long as the data say" if op.name == "tile.while" else "a branch is around it"
        for inner in op.walk():
            if inner is not op:
                self._give_up(inner, why)

    def _give_up(self, op: Op, why: str) -> None:
        view = {"tile.load": 0, "tile.gather": 0, "tile.store": 0, "tile.scatter": 0, "tile.copy_async": 1}.get(op.name)
        if view is not None:
            self._say(op, 0, op.operands[view], "store" if op.name in ("tile.store", "tile.scatter") else "load", why)
        elif op.name == "tile.contract":
            for i in range(2):
                self._say(op, i, op.operands[i], "copy", why)

    # accesses
    def _load(self, op: Op, at: _Points) -> None:
        view, t = op.operands[0], op.result
        if op in self._e.products.replaced:
            self._say(op, 0, view, "copy", _BY_TENSOR)
        elif not (t.users and is_copied(self._e, t, t.users[0])):
            self._registers(op, view, t, op.operands[1:], at, stored=False)

    def _store(self, op: Op, at: _Points) -> None:
        self._registers(op, op.operands[0], op.operands[1], op.operands[2:], at, stored=True)

    def _registers(self, op: Op, view: Value, t: Value, rest: Sequence[Value], at: _Points, stored: bool) -> None:
        masked = bool(op.attrs.get("masked"))
        offsets = rest[:-1] if masked else rest
        kind = "store" if stored else "load"
        layout = None if is_scalar(t) else self._e.layout_of(t)
        lines = {} if layout is None else self._e.lines_by_axis(t)
        threads = self._e.threads
        whole = shape_of(t)
        try:
            shape = tuple(
                whole[a] if a not in lines or lines[a].chunk is None else lines[a].chunk for a in range(len(whole))
            )
            held = tuple(self._size(d) for d in shape)  # type: ignore[arg-type]
            ends = tuple(self._size(d) for d in whole)
            starts: list[Array] = [np.zeros(1, np.int64)] * len(held)
            for a, (part, end) in enumerate(zip(held, ends, strict=True)):
                starts[a] = np.arange(0, max(end, 1), part or 1)

            def count(box: Box) -> Requests:
                if layout is None:
                    return of_one(box, threads, stored)
                return of_registers(layout, box, threads, stored)

            total = self._total(view, held, offsets, at, count, starts, ends if stored else None)
        except NotKnown as why:
            return self._say(op, 0, view, kind, str(why))
        self._say(op, 0, view, kind, "", total, masked)

    def _copy(self, op: Op, at: _Points) -> None:
        shared, view = op.operands[:2]
        t, v = shared.type, view.type
        assert isinstance(t, SharedType) and isinstance(v, ViewType)
        if op in self._e.products.fetches:
            return self._say(op, 0, view, "copy", _BY_TENSOR)
        shape = (*(1,) * (v.rank - len(t.shape)), *t.shape)
        self._copied(op, 0, view, shape, op.operands[2:], at)

    def _product(self, op: Op, at: _Points) -> None:
        """A product copies operands into shared memory that nothing else reads."""
        if (op, 0) in self._e.products.sources:
            for i in range(2):
                source = self._e.products.sources[op, i]
                if source.load is not None and source.load not in self._e.products.fetches:
                    self._copied(op, i, source.load.operands[0], shape_of(source.value), source.load.operands[1:], at)
            return
        for i in (0, 1, *range(3, len(op.operands))):
            v = op.operands[i]
            if i == 0 and v not in self._e.splat and feeds_from_registers(op, self._e.grouping):
                continue
            if (load := copied_operand(v, op)) is not None:
                self._copied(op, i, load.operands[0], shape_of(v), load.operands[1:], at)

    def _contract(self, op: Op, at: _Points) -> None:
        """The stages of both operands; k is walked in steps."""
        if is_scalar(op.result) or isinstance(self._e.warpgroups.get(op), Products):
            why = _BY_TENSOR if not is_scalar(op.result) else "all threads share one row and one column"
            for i in range(2):
                self._say(op, i, op.operands[i], "copy", why)
            return
        depth = stage_depth(op)
        tile = shape_of(op.result)
        for i, (offset, across) in enumerate(zip(op.operands[2:4], tile, strict=True)):
            view = op.operands[i]
            t = view.type
            assert isinstance(t, ViewType)
            try:
                steps = np.arange(0, self._size(t.shape[1 - i]), depth)
                own = at.get(offset)
                inside = _Points(at.count * len(steps), at, np.repeat(np.arange(at.count), len(steps)))
                if inside.count > MOST_POINTS:
                    raise NotKnown(f"it is run more than {MOST_POINTS:,} times")
                k = np.tile(steps, at.count)
                row = np.repeat(own, len(steps))
            except NotKnown as why:
                self._say(op, i, view, "copy", str(why))
                continue
            shape, offsets = ((across, depth), (row, k)) if i == 0 else ((depth, across), (k, row))
            strides = strides_of(view)
            turned = strides[0] == 1 and strides[1] != 1
            self._copied(op, i, view, shape, offsets, inside, turned)

    def _copied(
        self,
        op: Op,
        number: int,
        view: Value,
        shape: Sequence[Dim],
        offsets: Sequence[Value] | Sequence[Array],
        at: _Points,
        turned: bool = False,
    ) -> None:
        """A box that all threads copy; `turned`: with its two axes swapped."""
        try:
            held = tuple(self._size(d) for d in shape)
            seen = held[::-1] if turned else held
            rows, cols = prod(seen[:-1]), seen[-1] if seen else 1

            def count(box: Box) -> Requests:
                return of_copies(rows, cols, box, 1 << (self._e.threads.bit_length() - 1))

            total = self._total(view, held, offsets, at, count, turned=turned)
        except NotKnown as why:
            return self._say(op, number, view, "copy", str(why))
        self._say(op, number, view, "copy", "", total)

    def _total(
        self,
        view: Value,
        held: tuple[int, ...],
        offsets: Sequence[Value] | Sequence[Array],
        at: _Points,
        count: Callable[[Box], Requests],
        chunks: Sequence[Array] = (),
        ends: Sequence[int] | None = None,
        turned: bool = False,
    ) -> Requests:
        """Over all points, those that are alike counted once. `chunks`: along each axis where the parts start that are
        held at a time; `ends`: along each axis where a store ends. Raises NotKnown."""
        t = view.type
        assert isinstance(t, ViewType)
        itemsize = t.dtype.itemsize
        strides = tuple(self._size(s) * itemsize for s in strides_of(view))
        extents = tuple(self._size(d) for d in t.shape)
        own = [o if isinstance(o, np.ndarray) else at.get(o) for o in offsets]
        base = self._start(view, at)
        total = Requests()
        for corner in product(*(c.tolist() for c in chunks)) if chunks else [(0,) * len(held)]:
            first = [o + c for o, c in zip(own, corner, strict=True)]
            start = base + sum((f * s for f, s in zip(first, strides, strict=True)), np.zeros(at.count, np.int64))
            columns = [start % SECTOR]
            for a, (f, size, extent) in enumerate(zip(first, held, extents, strict=True)):
                end = extent - f if ends is None else np.minimum(extent - f, ends[a] - corner[a])
                columns += [np.clip(-f, 0, size), np.clip(end, 0, size)]
            alike, times = np.unique(np.stack(columns, axis=1), axis=0, return_counts=True)
            for row, n in zip(alike.tolist(), times.tolist(), strict=True):
                inside = tuple(zip(row[1::2], row[2::2], strict=True))
                axes = slice(None, None, -1) if turned else slice(None)
                box = Box(held[axes], strides[axes], inside[axes], row[0], itemsize)
                total += count(box).times(n)
        return total

    def _start(self, view: Value, at: _Points) -> Array:
        """The byte at which a view starts, modulo a sector."""
        if view.op is None:
            return np.full(at.count, self._starts.get(view, 0))
        source = view.op.operands[0]
        t = view.type
        assert isinstance(t, ViewType) and view.op.name == "tile.subview"
        start = self._start(source, at)
        for offset, stride in zip(view.op.operands[1:], strides_of(source), strict=True):
            start = start + at.get(offset) * (self._size(stride) * t.dtype.itemsize)
        return start

    def _say(
        self, op: Op, number: int, view: Value, kind: str, why: str, total: Requests | None = None, masked: bool = False
    ) -> None:
        while view.op is not None and view.op.name == "tile.subview" and not view.hint:
            view = view.op.operands[0]
        t = view.type
        assert isinstance(t, ViewType)
        self.found[op, number] = GlobalAccess(
            self._kernel, kind, view.hint or "", str(t.dtype), op.span.file, op.span.line,
            total.requests if total else None, total.sectors if total else None, total.ideal if total else None,
            why, masked, self.counted < self.programs,
        )  # fmt: skip


_BY_TENSOR = "tensor copies move it, not the lanes of a warp"


def is_number(v: Value) -> bool:
    return isinstance(v.type, IndexType) or (
        isinstance(v.type, TileType) and not v.type.shape and dtype_of(v).is_integer
    )
