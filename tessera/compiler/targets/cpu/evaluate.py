"""Computes elements of tile values where they are needed: the pull side of code generation.

`Evaluator.element(v, coords)` writes the instructions for one element (or one vector of elements) of `v` at the axes'
current coordinates, going through lazy ops down to memory, kept values and constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX, TileType, ViewType
from tessera.compiler.targets.cpu import maps
from tessera.compiler.targets.cpu.bounds import Bounds
from tessera.compiler.targets.cpu.convert import (
    Elem,
    cast,
    constant,
    memory_element,
    pack,
    register_type,
    storage_type,
    unpack,
)
from tessera.compiler.targets.cpu.emit import I64, Function, Index, Val, const, text
from tessera.compiler.targets.cpu.isa import VectorISA
from tessera.compiler.targets.cpu.memory import Affine, Cell, Coord, Memory, affine, fill_value, held
from tessera.compiler.targets.cpu.plan import touched
from tessera.compiler.targets.cpu.spaces import AxisId, moves, operand_coords, shape_of
from tessera.compiler.targets.cpu.vectormath import VectorMath
from tessera.errors import Diagnostic, TargetError
from tessera.language.dims import Atom, Dim
from tessera.language.dtypes import DType

Coords = tuple[AxisId, ...]


def unsupported(op: Op, why: str = "") -> NoReturn:
    """Raises TS602 at the op."""
    types = ", ".join(v.type.pretty() for v in op.operands if v.type != INDEX)
    reason = why or f"{op.name} on {types or 'these operands'} is not supported"
    raise TargetError(Diagnostic("TS602", f"The CPU target cannot compile this: {reason}.", op.span, label=op.name))


def dtype_of(v: Value) -> DType:
    return v.type.dtype  # type: ignore[union-attr]


class Evaluator:
    """The state of one kernel function being written."""

    def __init__(self, kernel: Op, fn: Function, isa: VectorISA, dims: dict[str, Val]) -> None:
        self.kernel, self.fn, self.isa, self.dims = kernel, fn, isa, dims
        self.vm = VectorMath(fn, isa)
        self.mem = Memory(self.vm)
        self.bounds = Bounds(kernel)
        self.written = {memory_of(v) for v in touched(kernel)}
        self.views: dict[Value, Val] = {}
        """the address of the first element of each argument view"""
        self.bound: dict[Value, Elem] = {}
        """values that are in registers here: scalars, results of reductions at the current outer coordinates"""
        self.indices: dict[Value, Index] = {}
        self.program: list[Index] = []
        self.cells: dict[Value, Cell] = {}
        self.fresh: set[Value] = set()
        """values that the current nest computes and keeps on the way"""
        self.given: dict[tuple[Value, Coords], tuple[Val, DType]] = {}
        """elements of loads that have been read already, as storage values"""
        self.env: dict[int, Coord] = {}
        self.memo: dict[tuple[Value, Coords], Elem] = {}
        self.trusting = False
        """in the main part of a loop, where every plain access has been proved to stay inside its view"""
        self.within: dict[int, Index] = {}
        """for each open class, a bound that its coordinate is known to respect"""
        self.limits: dict[int, Index] = {}
        """for each vector class in the rest of its loop, the extent beyond which lanes are idle"""

    # -- numbers -----------------------------------------------------------------------------------------------------
    def dim(self, d: Dim) -> Index:
        """The size `d` as an i64."""
        if isinstance(d, int):
            return d
        fn, total = self.fn, 0
        for monomial, c in d.terms:
            term: Index = c
            for atom in monomial:
                term = fn.mul(term, self._atom(atom))
            total = fn.add(total, term)
        return total

    def _atom(self, atom: Atom) -> Index:
        if atom.op == "sym":
            return self.dims[str(atom.args[0])]
        a, b = (self.dim(x) for x in atom.args)  # type: ignore[arg-type]
        return {"//": self.fn.div, "%": self.fn.mod, "min": self.fn.smin, "max": self.fn.smax}[atom.op](a, b)

    def index(self, v: Value) -> Index:
        """An index value."""
        if v in self.indices:
            return self.indices[v]
        op = v.op
        assert op is not None, v
        match op.name:
            case "tile.dim":
                return self.dim(op.attrs["dim"])  # type: ignore[arg-type]
            case "tile.program_id":
                return self.program[op.attrs["axis"]]  # type: ignore[index]
            case "tile.to_index":
                x = self.element(op.operands[0], ())
                assert isinstance(x, Val)
                return self.fn.convert("zext" if dtype_of(op.operands[0]).kind == "uint" else "sext", x, I64)
            case _:
                a, b = self.index(op.operands[0]), self.index(op.operands[1])
                fn = self.fn
                emit = {"iadd": fn.add, "isub": fn.sub, "imul": fn.mul, "idiv": self._idiv, "imod": self._imod,
                        "imin": fn.smin, "imax": fn.smax}  # fmt: skip
                return emit[op.name[5:]](a, b)

    def _nonzero(self, b: Index) -> Index:
        """A divisor that cannot trap; the program's own division by zero is the reference target's to report."""
        if isinstance(b, int):
            return b or 1
        return self.fn.select(self.fn.icmp("eq", b, 0), const(1, I64), b)

    def _idiv(self, a: Index, b: Index) -> Index:
        if isinstance(b, int) and b > 0:
            return self.fn.div(a, b)
        fn, b = self.fn, self._nonzero(b)
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        q, r = fn._i("sdiv", a, b), fn._i("srem", a, b)
        other = fn.binary("and", fn.icmp("ne", r, 0), fn.icmp("slt", fn._i("xor", r, b), 0))
        return fn.sub(q, fn.convert("zext", other, I64))

    def _imod(self, a: Index, b: Index) -> Index:
        if isinstance(b, int) and b > 0:
            return self.fn.mod(a, b)
        b = self._nonzero(b)
        return self.fn.sub(a, self.fn.mul(self._idiv(a, b), b))

    # -- views -------------------------------------------------------------------------------------------------------
    def strides(self, v: Value) -> list[Index]:
        t = v.type
        assert isinstance(t, ViewType)
        if t.strides is not None:
            return [self.dim(s) for s in t.strides]
        out: list[Index] = []
        step: Index = 1
        for d in reversed(t.shape):
            out.append(step)
            step = self.fn.mul(step, self.dim(d))
        return out[::-1]

    def base(self, v: Value) -> Val:
        """The address of a view's first element."""
        if v in self.views:
            return self.views[v]
        op = v.op
        assert op is not None and op.name == "tile.subview", v
        source = op.operands[0]
        p, elem = self.base(source), self._memory_element(source)
        for o, s in zip(op.operands[1:], self.strides(source), strict=True):
            p = self.fn.gep(p, self.fn.mul(self.index(o), s), elem)
        return p

    def _memory_element(self, v: Value) -> str:
        return memory_element(dtype_of(v))

    def view_strides(self, v: Value) -> list[Index]:
        """Strides of a view whose type may not spell them: a subview keeps those of its source."""
        t, op = v.type, v.op
        assert isinstance(t, ViewType)
        if t.strides is None and op is not None and op.name == "tile.subview":
            drop: Sequence[int] = op.attrs.get("drop", ())  # type: ignore[assignment]
            return [s for i, s in enumerate(self.view_strides(op.operands[0])) if i not in drop]
        return self.strides(v)

    def window(self, op: Op) -> tuple[Val, list[Index], list[Value], Value]:
        """For a load or store: the address of the tile's first element, strides, offsets and the view."""
        view = op.operands[0]
        skip = 1 if op.name == "tile.load" else 2
        t = view.type
        assert isinstance(t, ViewType)
        offsets = list(op.operands[skip : skip + t.rank])
        strides = self.view_strides(view)
        p, elem = self.base(view), self._memory_element(view)
        for o, s in zip(offsets, strides, strict=True):
            p = self.fn.gep(p, self.fn.mul(self.index(o), s), elem)
        return p, strides, offsets, view

    def extents(self, op: Op) -> list[tuple[Index | None, Index | None]]:
        """For each axis of a load or store: the first and the last-plus-one tile coordinates inside the view, None
        where all coordinates are known to be."""
        view = op.operands[0]
        t = view.type
        assert isinstance(t, ViewType)
        tile = shape_of(op.result if op.name == "tile.load" else op.operands[1])
        skip = 1 if op.name == "tile.load" else 2
        out: list[tuple[Index | None, Index | None]] = []
        for o, size, extent in zip(op.operands[skip : skip + t.rank], tile, t.shape, strict=True):
            low, high = self.bounds.inside(o, size, extent)
            fn = self.fn
            lo = None if low else fn.smax(fn.sub(0, self.index(o)), 0)
            hi = None if high else fn.smin(fn.sub(self.dim(extent), self.index(o)), self.dim(size))
            out.append((lo, hi))
        return out

    def unchanging(self, view: Value) -> bool:
        """Whether this kernel never writes the memory behind `view`."""
        return memory_of(view) not in self.written

    # -- validity ----------------------------------------------------------------------------------------------------
    def coord(self, c: AxisId) -> Coord | None:
        return None if c is None else self.env[c]

    def valid(self, op: Op, coords: Coords) -> Val | None:
        """The lanes of a load or store that lie inside the view and inside the loop; None: all of them."""
        if self.trusting:
            return None
        mask: Val | None = None
        for c, (lo, hi) in zip(coords, self.extents(op), strict=True):
            at = self.coord(c)
            if at is not None and at.lanes > 1 and hi is None and c is not None:
                hi = self.limits.get(c)
            mask = self.mem.both(mask, self.inside(at, c, lo, hi))
        return mask

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
            return self.bound[v]
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
        elif op.name[5:] in maps.TABLE:
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
            x = maps.apply(name, operands, dtype, result, self.vm)
        except maps.Unsupported:
            unsupported(op)
        if name in ("add", "sub") and isinstance(x, Val):
            a, b = operands
            if isinstance(a, Affine) and isinstance(b, Val) and b.ty.lanes == 1:
                return Affine(x, self.fn.binary(name, a.base, b))
            if isinstance(b, Affine) and isinstance(a, Val) and a.ty.lanes == 1 and name == "add":
                return Affine(x, self.fn.binary(name, a, b.base))
        return x

    def _constant(self, op: Op, coords: Coords) -> Elem:
        return constant(op.attrs["value"], dtype_of(op.result), self.vm)  # type: ignore[arg-type]

    def _to_scalar(self, op: Op, coords: Coords) -> Elem:
        return self.fn.convert("trunc", self.fn.index(self.index(op.operands[0])), register_type(dtype_of(op.result)))

    def _iota(self, op: Op, coords: Coords) -> Elem:
        c = self.coord(coords[op.attrs["axis"]])  # type: ignore[index]
        t = register_type(dtype_of(op.result))
        if c is None:
            return const(0, t)
        base = self.fn.convert("trunc", self.fn.index(self.fn.add(c.index, c.shift)), t)
        return base if c.lanes == 1 else affine(base, c.lanes, self.fn)

    def _through(self, op: Op, coords: Coords) -> Elem:
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

    def _cast(self, op: Op, coords: Coords) -> Elem:
        x = self.element(op.operands[0], operand_coords(op, 0, coords))
        old, new = dtype_of(op.operands[0]), dtype_of(op.result)
        y = cast(x, old, new, self.vm)
        if isinstance(x, Affine) and isinstance(y, Val) and new.is_integer and old.bits >= new.bits:
            base = cast(x.base, old, new, self.vm)
            assert isinstance(base, Val)
            return Affine(y, base)
        return y

    def _bitcast(self, op: Op, coords: Coords) -> Elem:
        x = self.element(op.operands[0], operand_coords(op, 0, coords))
        old, new = dtype_of(op.operands[0]), dtype_of(op.result)
        raw = pack(x, old, self.vm)
        if old.is_complex or new.is_complex:
            unsupported(op)
        return unpack(self.fn.convert("bitcast", raw, storage_type(new, 1)), new, self.vm)

    def _load(self, op: Op, coords: Coords) -> Elem:
        d = dtype_of(op.result)
        p, strides, _, _ = self.window(op)
        at, step, lanes = self.mem.address(p, d, [self.coord(c) for c in coords], strides)
        mask = self.valid(op, coords)
        if op.attrs.get("masked"):
            m = self.element(op.operands[-1], operand_coords(op, len(op.operands) - 1, coords))
            assert isinstance(m, Val)
            mask = self.mem.both(mask, m)
        return self.mem.load(at, d, step, lanes, mask, fill_value(op.attrs.get("fill", 0), d, self.vm),
                             pure=self.unchanging(op.operands[0]))

    def places(self, op: Op, tiles: Sequence[Value], coords: Coords, own_mask: Value | None) -> tuple[Val, Index, int, Val | None]:
        """For gather and scatter: the first address, the step and number of lanes when they are contiguous (step 1) or
        all at one place, else a vector of addresses (step 0 and that many lanes); and the lanes inside the view."""
        fn, view = self.fn, op.operands[0]
        strides, t = self.view_strides(view), view.type
        assert isinstance(t, ViewType)
        index = [self.element(x, coords) for x in tiles]
        values = [fn.convert("sext", x, I64) if dtype_of(v).kind == "int" else fn.convert("zext", x, I64)
                  for x, v in zip(index, tiles, strict=True) if isinstance(x, Val)]  # fmt: skip
        d = dtype_of(view)
        mask = self.idle(coords) if not self.trusting else None
        if own_mask is not None:
            m = self.element(own_mask, coords)
            assert isinstance(m, Val)
            mask = self.mem.both(mask, m)
        for value, extent in zip(values, t.shape, strict=True):
            mask = self.mem.both(mask, fn.compare("icmp ult", value, fn.index(self.dim(extent))))
        if values and isinstance(index[-1], Affine) and strides[-1] == 1 and all(v.ty.lanes == 1 for v in values[:-1]):
            p = self.base(view)
            base = fn.convert("sext", index[-1].base, I64)
            for value, s in zip([*values[:-1], base], strides, strict=True):
                p = fn.gep(p, fn.mul(value, s), self._memory_element(view))
            return p, 1, index[-1].ty.lanes, mask
        offset: Val = const(0, I64)
        for value, s in zip(values, strides, strict=True):
            offset = fn.binary("add", offset, fn.binary("mul", value, fn.index(s)))
        if offset.ty.lanes == 1:
            return fn.gep(self.base(view), offset, self._memory_element(view)), 0, 1, mask
        return self.mem.offset_pointers(self.base(view), d, offset), 0, offset.ty.lanes, mask

    def _gather(self, op: Op, coords: Coords) -> Elem:
        masked = bool(op.attrs.get("masked"))
        tiles = op.operands[1:-1] if masked else op.operands[1:]
        p, step, lanes, mask = self.places(op, tiles, coords, op.operands[-1] if masked else None)
        d = dtype_of(op.result)
        fill = fill_value(op.attrs.get("fill", 0), d, self.vm)
        if lanes > 1 and step == 0:
            return self.mem._gather(p, d, self.fn.splat(mask, lanes) if mask is not None else None, fill)
        return self.mem.load(p, d, step, lanes, mask, fill, pure=False)

    def _load_shared(self, op: Op, coords: Coords) -> Elem:
        return self.read_cell(self.cells[op.operands[0]], coords)

    def _philox(self, op: Op, coords: Coords) -> Elem:
        """Ten rounds on 32-bit words that lie in 64-bit lanes, so that a product is one multiplication."""
        fn = self.fn
        counter, key = fn.align_lanes(*[x for x in (self.element(v, coords) for v in op.operands) if isinstance(x, Val)])
        k = lambda n: const(n, counter.ty)  # noqa: E731
        low, high = lambda x: fn.binary("and", x, k(0xFFFFFFFF)), lambda x: fn.binary("lshr", x, k(32))  # noqa: E731
        c, keys = [low(counter), high(counter), k(0), k(0)], [low(key), high(key)]
        for _ in range(10):
            p0, p1 = fn.binary("mul", k(0xD2511F53), c[0]), fn.binary("mul", k(0xCD9E8D57), c[2])
            mixed = [fn.binary("xor", fn.binary("xor", high(p), w), x) for p, w, x in ((p1, c[1], keys[0]), (p0, c[3], keys[1]))]
            c = [mixed[0], low(p1), mixed[1], low(p0)]
            keys = [low(fn.binary("add", keys[0], k(0x9E3779B9))), low(fn.binary("add", keys[1], k(0xBB67AE85)))]
        return fn.binary("or", c[0], fn.binary("shl", c[1], k(32)))

    def _reduce(self, op: Op, coords: Coords) -> Elem:
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


def memory_of(v: Value) -> Value:
    """The argument or shared tile that a view is a window onto."""
    while v.op is not None and v.op.name == "tile.subview":
        v = v.op.operands[0]
    return v


def cell_dtype(v: Value) -> DType:
    assert isinstance(v.type, TileType)
    return held(v.type.dtype)


_HANDLERS: dict[str, Callable[[Evaluator, Op, Coords], Elem]] = {
    "tile.constant": Evaluator._constant,
    "tile.to_scalar": Evaluator._to_scalar,
    "tile.iota": Evaluator._iota,
    "tile.broadcast": Evaluator._through,
    "tile.transpose": Evaluator._through,
    "tile.reshape": Evaluator._through,
    "tile.cast": Evaluator._cast,
    "tile.bitcast": Evaluator._bitcast,
    "tile.load": Evaluator._load,
    "tile.gather": Evaluator._gather,
    "tile.load_shared": Evaluator._load_shared,
    "tile.philox": Evaluator._philox,
    "tile.reduce": Evaluator._reduce,
}
