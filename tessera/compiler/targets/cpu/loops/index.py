"""Index numbers and views: sizes, offsets, addresses, and how far an access stays inside its view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import INDEX, ViewType
from tessera.compiler.targets.cpu.elementary.convert import Elem, memory_element
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import I64, Index, Val, const
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.ranges import Intervals
from tessera.errors import Diagnostic, TargetError
from tessera.language.dims import Atom, Dim
from tessera.language.dtypes import DType


def unsupported(op: Op, why: str = "") -> NoReturn:
    """Raises TS602 at the op."""
    types = ", ".join(v.type.pretty() for v in op.operands if v.type != INDEX)
    reason = why or f"{op.name} on {types or 'these operands'} is not supported"
    raise TargetError(Diagnostic("TS602", f"The CPU target cannot compile this: {reason}.", op.span, label=op.name))


def dtype_of(v: Value) -> DType:
    return v.type.dtype  # type: ignore[union-attr]


class Numbers:
    """Writes index arithmetic into `fn`. `dims` are the sizes of the free dims, `element` gives scalar tiles."""

    def __init__(self, kernel: Op, fn: LLVMFunction, dims: dict[str, Val]) -> None:
        self.kernel, self.fn, self.dims = kernel, fn, dims
        self.bounds = Intervals(kernel)
        self.views: dict[Value, Val] = {}
        """the address of the first element of each argument view"""
        self.beside: dict[Value, tuple[Value, int]] = {}
        """for argument views of one buffer: the first of them, and how many elements behind it they begin"""
        self.indices: dict[Value, Index] = {}
        """counters of open loops, and carried index values"""
        self.program: list[Index] = []
        """this program's coordinates on the grid"""

    def element(self, v: Value, coords: tuple[int | None, ...]) -> Elem:
        raise NotImplementedError

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

    def _idiv(self, a: Index, b: Index) -> Index:
        """The quotient rounded down; by 0 it is 0."""
        if isinstance(b, int):
            return self.fn.div(a, b) if b > 0 else 0 if b == 0 else self.fn.div(self.fn.sub(0, a), -b)
        fn = self.fn
        none = fn.icmp("eq", b, 0)
        b = fn.select(none, const(1, I64), b)  # a divisor that cannot trap
        q, r = fn.integer("sdiv", a, b), fn.integer("srem", a, b)
        other = fn.binary("and", fn.icmp("ne", r, 0), fn.icmp("slt", fn.integer("xor", r, b), 0))
        return fn.select(none, const(0, I64), fn.index(fn.sub(q, fn.convert("zext", other, I64))))

    def _imod(self, a: Index, b: Index) -> Index:
        """a - b * (a // b); of 0 it is 0."""
        if isinstance(b, int) and b > 0:
            return self.fn.mod(a, b)
        rest = self.fn.sub(a, self.fn.mul(self._idiv(a, b), b))
        return 0 if b == 0 else rest if isinstance(b, int) else self._unless_zero(b, rest)

    def _unless_zero(self, b: Val, x: Index) -> Index:
        return self.fn.select(self.fn.icmp("eq", b, 0), const(0, I64), self.fn.index(x))

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

    def window(self, op: Op, origin: Value | None = None) -> tuple[Val, list[Index], list[Value], Value]:
        """For a load or store: the address of the tile's first element, strides, offsets and the view. `origin`: the
        view whose first element counts as that of the op's view."""
        view = op.operands[0]
        skip = 1 if op.name == "tile.load" else 2
        t = view.type
        assert isinstance(t, ViewType)
        offsets = list(op.operands[skip : skip + t.rank])
        strides = self.view_strides(view)
        p, elem = self.base(origin or view), self._memory_element(view)
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
            if size == 1 and not (low and high):  # one comparison of numbers without signs
                there = fn.icmp("ult", fn.index(self.index(o)), fn.index(self.dim(extent)))
                out.append((None, fn.convert("zext", there, I64)))
                continue
            lo = None if low else fn.smax(fn.sub(0, self.index(o)), 0)
            hi = None if high else fn.smin(fn.sub(self.dim(extent), self.index(o)), self.dim(size))
            out.append((lo, hi))
        return out
