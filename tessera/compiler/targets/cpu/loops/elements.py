"""Computes elements of tile values where they are needed: the pull side of code generation.

`ElementEmitter.element(v, coords)` writes the instructions for one element (or one vector of elements) of `v` at the
axes' current coordinates, going through lazy ops down to memory, kept values and constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cpu.elementary import elementwise
from tessera.compiler.targets.cpu.elementary.convert import (
    Elem,
    cast,
    constant,
    pack,
    register_type,
    storage_type,
    unpack,
)
from tessera.compiler.targets.cpu.elementary.philox import philox
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I64, Index, Val, const, text, ty
from tessera.compiler.targets.cpu.loops.index import Numbers, dtype_of, unsupported
from tessera.compiler.targets.cpu.loops.memory import (
    Affine,
    Cell,
    Coord,
    ElementMemory,
    affine,
    fill_value,
    held,
    is_zero,
)
from tessera.compiler.tile.loops.axes import AxisId, moves, operand_coords, shape_of
from tessera.compiler.tile.loops.stages import memory_of, touched
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

Coords = tuple[AxisId, ...]
ZEROS = 1 << 14
"""bytes of a row up to which one of zeros stands for rows that do not exist"""


class ElementEmitter(Numbers):
    """The state of one kernel function being written."""

    def __init__(self, kernel: Op, fn: LLVMFunction, isa: VectorISA, dims: dict[str, Val]) -> None:
        super().__init__(kernel, fn, dims)
        self.isa = isa
        self.vm = VectorMath(fn, isa)
        self.mem = ElementMemory(self.vm)
        self.written = {memory_of(v) for v in touched(kernel)}
        self.streams: set[Value] = set()
        """argument views that are too large to stay in the caches and that nothing reads: stored past the caches"""
        self.far: set[Value] = set()
        """argument views that the program is given, of arrays too large for a core's own caches"""
        self.has_streamed = False
        self.bound: dict[Value, Elem] = {}
        """values that are in registers here: scalars, results of reductions at the current outer coordinates"""
        self.cells: dict[Value, Cell] = {}
        """values in scratch memory"""
        self.replaced: set[Value] = set()
        """those whose memory another value has taken"""
        self.fresh: set[Value] = set()
        """values that the current nest computes and keeps on the way"""
        self.given: dict[tuple[Value, Coords], tuple[Val, DType]] = {}
        """elements of loads that have been read already, as storage values"""
        self.env: dict[int, Coord] = {}
        self.memo: dict[tuple[Value, Coords], Elem] = {}
        self.named: dict[str, Value] = {}
        """LLVM's name of a vector -> the value that its author named, and whose elements it holds"""
        self.together: dict[tuple[Op, Coords], list[tuple[Op, Coords]]] = {}
        """loads of the current nest that are read in one piece with others"""
        self.trusting: frozenset[AxisId] = frozenset()
        """in the main part of loops over these classes: every plain access has been proved to stay inside its view. An
        access that depends on none of them leaves the loops, and happens where they have no step, too."""
        self.within: dict[int, Index] = {}
        """for each open class, a bound that its coordinate is known to respect"""
        self.limits: dict[int, Index] = {}
        """for each vector class in the rest of its loop, the extent beyond which lanes are idle"""

    def unchanging(self, view: Value) -> bool:
        """Whether this kernel never writes the memory behind `view`."""
        return memory_of(view) not in self.written

    def is_streamed(self, store: Op) -> bool:
        """Whether a store bypasses the caches, by its own attribute or because of the view it writes."""
        return bool(store.attrs.get("nontemporal")) or memory_of(store.operands[0]) in self.streams

    # -- validity ----------------------------------------------------------------------------------------------------
    def coord(self, c: AxisId) -> Coord | None:
        return None if c is None else self.env[c]

    def valid(self, op: Op, coords: Coords) -> Val | None:
        """The lanes of a load or store that are inside the view and inside the loop; None: all of them."""
        if not self.trusting.isdisjoint(coords):
            return None
        mask: Val | None = None
        for c, (lo, hi) in zip(coords, self.extents(op), strict=True):
            at = self.coord(c)
            if at is not None and at.lanes > 1 and c in self.limits:
                hi = self.limits[c] if hi is None else self.nearest(hi, self.limits[c])
            mask = self.mem.both(mask, self.inside(at, c, lo, hi))
        return mask

    def nearest(self, a: Index, b: Index) -> Index:
        return a if text(a) == text(b) else self.fn.smin(a, b)

    def inside(self, at: Coord | None, c: AxisId, lo: Index | None, hi: Index | None) -> Val | None:
        """The lanes of coordinate `at` (of class `c`) with lo <= lane < hi; None where that is known to hold."""
        at = at or Coord(0)
        mask: Val | None = None
        if hi is not None and not (c is not None and text(self.within.get(c, -1)) == text(hi)):
            mask = self.mem.lanes_below(at, hi)
        if lo is not None:
            below = self.mem.lanes_below(at, lo)
            mask = self.mem.both(mask, self.fn.binary("xor", below, const(True, below.ty)))
        return mask

    def idle(self, coords: Coords) -> Val | None:
        """In the rest of a vector loop: the lanes that are still inside the loop."""
        mask: Val | None = None
        for c in coords:
            if c is not None and c in self.limits and self.env[c].lanes > 1:
                mask = self.mem.both(mask, self.mem.lanes_below(self.env[c], self.limits[c]))
        return mask

    # -- elements ----------------------------------------------------------------------------------------------------
    def lanes(self, coords: Coords) -> int:
        return max((self.env[c].lanes for c in coords if c is not None), default=1)

    def element(self, v: Value, coords: Coords) -> Elem:
        """The element(s) of `v` at `coords`."""
        key = (v, coords)
        found = self.memo.get(key)
        if found is not None:
            return found
        if v in self.bound:
            return self._named(v, self.bound[v])
        if key in self.given:
            x = unpack(*self.given[key], self.vm)
        elif v in self.fresh:
            x = self.compute(v, coords)
            self.write_cell(self.cells[v], coords, x)
        elif v in self.cells:
            x = self.read_cell(self.cells[v], coords)
        else:
            x = self.compute(v, coords)
        self.memo[key] = x
        return self._named(v, x)

    def _named(self, v: Value, x: Elem) -> Elem:
        if v.hint and isinstance(x, Val) and x.const is None and isinstance(v.type, TileType):
            self.named.setdefault(x.ref, v)
        return x

    def read_cell(self, cell: Cell, coords: Coords) -> Elem:
        p, step, lanes = self.mem.address(cell.ptr, cell.dtype, [self.coord(c) for c in coords], cell.strides)
        zero = fill_value(0, cell.dtype, self.vm)
        mask = None if self.trusting or lanes == 1 else self.idle(coords)
        return self.mem.load(p, cell.dtype, step, lanes, mask, zero, pure=False)

    def write_cell(self, cell: Cell, coords: Coords, x: Elem) -> None:
        p, step, lanes = self.mem.address(cell.ptr, cell.dtype, [self.coord(c) for c in coords], cell.strides)
        self.mem.store(x, p, cell.dtype, step, lanes, None if self.trusting else self.idle(coords))

    def compute(self, v: Value, coords: Coords) -> Elem:
        """The element of a lazy op's result, computed here."""
        op = v.op
        assert op is not None, f"{v} is neither bound nor kept"
        before, self.fn.at = self.fn.at, op.span
        handler = _HANDLERS.get(op.name)
        if handler is not None:
            x = handler(self, op, coords)
        elif op.name[5:] in elementwise.TABLE:
            operands = [self.element(x, operand_coords(op, i, coords)) for i, x in enumerate(op.operands)]
            self.fn.at = op.span
            x = self.apply(op, op.name[5:], operands)
        else:
            unsupported(op, f"{op.name} cannot be computed element by element")
        self.fn.at = before
        return x

    def apply(self, op: Op, name: str, operands: Sequence[Elem]) -> Elem:
        dtype, result = dtype_of(op.operands[-1]), dtype_of(op.result)
        try:
            x = elementwise.apply(name, operands, dtype, result, self.vm, op.attrs.get("narrow"))  # type: ignore[arg-type]
        except elementwise.Unsupported:
            unsupported(op)
        if name in ("add", "sub") and isinstance(x, Val):
            a, b = operands
            if isinstance(a, Affine) and isinstance(b, Val) and b.ty.lanes == 1:
                return affine(self.fn.binary(name, a.base, b), a.ty.lanes, self.fn)
            if isinstance(b, Affine) and isinstance(a, Val) and a.ty.lanes == 1 and name == "add":
                return affine(self.fn.binary(name, a, b.base), b.ty.lanes, self.fn)
        return x

    # -- one kind of op each -----------------------------------------------------------------------------------------
    def on_constant(self, op: Op, coords: Coords) -> Elem:
        return constant(op.attrs["value"], dtype_of(op.result), self.vm)  # type: ignore[arg-type]

    def on_to_scalar(self, op: Op, coords: Coords) -> Elem:
        return self.fn.convert("trunc", self.fn.index(self.index(op.operands[0])), register_type(dtype_of(op.result)))

    def on_iota(self, op: Op, coords: Coords) -> Elem:
        c = self.coord(coords[op.attrs["axis"]])  # type: ignore[index]
        t = register_type(dtype_of(op.result))
        if c is None:
            return const(0, t)
        base = self.fn.convert("trunc", self.fn.index(self.fn.add(c.index, c.shift)), t)
        return base if c.lanes == 1 else affine(base, c.lanes, self.fn)

    def on_through(self, op: Op, coords: Coords) -> Elem:
        if moves(op):
            cell = self.cells[op.operands[0]]
            shape = shape_of(op.result)
            return self.read_cell(Cell(cell.ptr, self.packed_strides(shape), cell.dtype), coords)
        return self.element(op.operands[0], operand_coords(op, 0, coords))

    def packed_strides(self, shape: Sequence[Dim]) -> tuple[Index, ...]:
        """Strides of a C-contiguous array, 0 along axes of size 1."""
        out: list[Index] = []
        step: Index = 1
        for d in reversed(shape):
            out.append(0 if d == 1 else step)
            step = self.fn.mul(step, self.dim(d))
        return tuple(reversed(out))

    def on_cast(self, op: Op, coords: Coords) -> Elem:
        x = self.element(op.operands[0], operand_coords(op, 0, coords))
        old, new = dtype_of(op.operands[0]), dtype_of(op.result)
        y = cast(x, old, new, self.vm)
        if isinstance(x, Affine) and isinstance(y, Val) and new.is_integer and old.bits >= new.bits:
            base = cast(x.base, old, new, self.vm)
            assert isinstance(base, Val)
            return Affine(y, base)
        return y

    def on_bitcast(self, op: Op, coords: Coords) -> Elem:
        old, new = dtype_of(op.operands[0]), dtype_of(op.result)
        if new.name == "bf16" and (whole := _upper_half_of(op.operands[0])) is not None:  # as registers hold bf16
            bits = self.element(whole, coords)
            assert isinstance(bits, Val)
            return self.fn.convert("bitcast", self.fn.binary("and", bits, const(-(1 << 16), bits.ty)), ty("f", 32))
        raw = pack(self.element(op.operands[0], operand_coords(op, 0, coords)), old, self.vm)
        if old.is_complex or new.is_complex:
            unsupported(op)
        return unpack(self.fn.convert("bitcast", raw, storage_type(new, 1)), new, self.vm)

    def on_load(self, op: Op, coords: Coords) -> Elem:
        if (some := self.together.get((op, coords))) is not None:
            self._load_together(some)
            return self.memo[op.result, coords]
        d = dtype_of(op.result)
        first, apart = self.beside.get(op.operands[0], (None, 0))  # so that one element has one address
        p, strides, _, _ = self.window(op, first)
        at, step, lanes = self.mem.address(p, d, [self.coord(c) for c in coords], strides, apart)
        mask = self.valid(op, coords)
        if op.attrs.get("masked"):
            m = self.element(op.operands[-1], operand_coords(op, len(op.operands) - 1, coords))
            assert isinstance(m, Val)
            mask = self.mem.both(mask, m)
        return self.mem.load(
            at,
            d,
            step,
            lanes,
            mask,
            fill_value(op.attrs.get("fill", 0), d, self.vm),
            pure=self.unchanging(op.operands[0]),
        )

    def _load_together(self, loads: Sequence[tuple[Op, Coords]]) -> None:
        first, coords = loads[0]
        d = dtype_of(first.result)
        p, strides, _, _ = self.window(first)
        place, step, lanes = self.mem.address(p, d, [self.coord(c) for c in coords], strides)
        found = self.mem.load_pieces(len(loads), place, d, step, lanes)
        self.memo.update({(op.result, coords): x for (op, _), x in zip(loads, found, strict=True)})

    def places(
        self, op: Op, tiles: Sequence[Value], coords: Coords, own_mask: Value | None, zeros: bool = False
    ) -> tuple[Val, Index, int, Val | None]:
        """For gather and scatter: the first address, the step and number of lanes when they are contiguous (step 1) or
        all at one place, else a vector of addresses (step 0 and that many lanes); and the lanes inside the view.
        `zeros`: a row outside may be one of zeros, so that no lane needs a mask."""
        fn, view = self.fn, op.operands[0]
        strides, t = self.view_strides(view), view.type
        assert isinstance(t, ViewType)
        index = [self.element(x, coords) for x in tiles]
        values = [fn.convert("sext", x, I64) if dtype_of(v).kind == "int" else fn.convert("zext", x, I64)
                  for x, v in zip(index, tiles, strict=True) if isinstance(x, Val)]  # fmt: skip
        d = dtype_of(view)
        mask = None if self.trusting else self.idle(coords)
        if own_mask is not None:
            m = self.element(own_mask, coords)
            assert isinstance(m, Val)
            mask = self.mem.both(mask, m)
        inside: Val | None = None
        """along the axes before the last one"""
        for tile, value, extent in zip(tiles, values, t.shape, strict=True):
            if not all(self.bounds.inside(tile, 1, extent)):
                here = fn.compare("icmp ult", value, fn.index(self.dim(extent)))
                if tile is tiles[-1]:
                    mask = self.mem.both(mask, here)
                else:
                    inside = self.mem.both(inside, here)
        run = index[-1] if index and isinstance(index[-1], Affine) else None
        if run is not None and (strides[-1] != 1 or any(v.ty.lanes != 1 for v in values[:-1])):
            run = None
        length = t.shape[-1] if run is not None and zeros and mask is None else 0
        row = length * d.itemsize if isinstance(length, int) and length * d.itemsize <= ZEROS else 0
        if not row:
            mask = self.mem.both(mask, inside)
        if run is not None:
            p = self.base(view)
            for value, s in zip(values[:-1], strides[:-1], strict=True):
                p = fn.gep(p, fn.mul(value, s), self._memory_element(view))
            if row and inside is not None:
                p = fn.select(inside, p, self.mem.zeros(row))
            return fn.gep(p, fn.convert("sext", run.base, I64), self._memory_element(view)), 1, run.ty.lanes, mask
        offset: Val = const(0, I64)
        for value, s in zip(values, strides, strict=True):
            offset = fn.binary("add", offset, fn.binary("mul", value, fn.index(s)))
        if offset.ty.lanes == 1:
            return fn.gep(self.base(view), offset, self._memory_element(view)), 0, 1, mask
        return self.mem.offset_pointers(self.base(view), d, offset), 0, offset.ty.lanes, mask

    def on_gather(self, op: Op, coords: Coords) -> Elem:
        masked = bool(op.attrs.get("masked"))
        tiles = op.operands[1:-1] if masked else op.operands[1:]
        d = dtype_of(op.result)
        fill = fill_value(op.attrs.get("fill", 0), d, self.vm)
        p, step, lanes, mask = self.places(op, tiles, coords, op.operands[-1] if masked else None, is_zero(fill))
        if lanes > 1 and step == 0:
            return self.mem.gather(p, d, self.fn.splat(mask, lanes) if mask is not None else None, fill)
        return self.mem.load(p, d, step, lanes, mask, fill, pure=False)

    def on_load_shared(self, op: Op, coords: Coords) -> Elem:
        return self.read_cell(self.cells[op.operands[0]], coords)

    def on_philox(self, op: Op, coords: Coords) -> Elem:
        return philox(self.fn, *[x for x in (self.element(v, coords) for v in op.operands) if isinstance(x, Val)])

    def on_reduce(self, op: Op, coords: Coords) -> Elem:
        """A reduction over axes of size 1 only."""
        gone: Sequence[int] = op.attrs["axes"]  # type: ignore[assignment]
        shape = shape_of(op.operands[0])
        if any(shape[a] != 1 for a in gone):
            raise AssertionError(f"{op.name} at {op.span} is used before it is computed")
        if op.attrs["op"] in ("argmax", "argmin"):
            return const(0, register_type(dtype_of(op.result)))
        rest = iter(coords)
        inner = tuple(None if a in gone else next(rest) for a in range(len(shape)))
        return cast(self.element(op.operands[0], inner), dtype_of(op.operands[0]), dtype_of(op.result), self.vm)


def _upper_half_of(v: Value) -> Value | None:
    """The numbers of 32 bits whose upper halves `v` holds, if that is what it is."""
    cast = v.op
    shift = cast.operands[0].op if cast is not None and cast.name == "tile.cast" else None
    if shift is None or shift.name != "tile.shift_right" or dtype_of(v).bits != 16:
        return None
    whole, count = shift.operands
    while count.op is not None and count.op.name == "tile.broadcast":
        count = count.op.operands[0]
    known = count.op is not None and count.op.name == "tile.constant" and count.op.attrs["value"] == 16
    return whole if known and dtype_of(whole).bits == 32 and shape_of(whole) == shape_of(v) else None


def cell_dtype(v: Value) -> DType:
    assert isinstance(v.type, TileType)
    return held(v.type.dtype)


_HANDLERS: dict[str, Callable[[ElementEmitter, Op, Coords], Elem]] = {
    "tile.constant": ElementEmitter.on_constant,
    "tile.to_scalar": ElementEmitter.on_to_scalar,
    "tile.iota": ElementEmitter.on_iota,
    "tile.broadcast": ElementEmitter.on_through,
    "tile.transpose": ElementEmitter.on_through,
    "tile.reshape": ElementEmitter.on_through,
    "tile.cast": ElementEmitter.on_cast,
    "tile.bitcast": ElementEmitter.on_bitcast,
    "tile.load": ElementEmitter.on_load,
    "tile.gather": ElementEmitter.on_gather,
    "tile.load_shared": ElementEmitter.on_load_shared,
    "tile.philox": ElementEmitter.on_philox,
    "tile.reduce": ElementEmitter.on_reduce,
}
