"""Small matrix products straight from the operands' own memory, without packing.

The direct way keeps a block of C in registers, as the packed product does, but broadcasts elements of A and loads rows
of B where they lie; it pays where there is too little work to repay copying. The turned way is for a few rows of A and
a B whose columns are contiguous (a matrix times a vector is its plainest case): squares of B are transposed in
registers on the way. Both add the products of an element in ascending k with fused multiply-adds, so that the bits are
those of every other path.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.compiler.targets.cpu.convert import memory_element, register_type
from tessera.compiler.targets.cpu.emit import Function, Module
from tessera.compiler.targets.cpu.isa import VectorISA
from tessera.compiler.targets.cpu.matmul import PARAMETERS, transpose
from tessera.compiler.targets.cpu.values import I1, Index, Ty, Val, const
from tessera.compiler.targets.cpu.vectormath import VectorMath
from tessera.language.dtypes import DType

SMALL = 1 << 21
"""multiplications of a product that is not worth packing"""
FEW_ROWS = 4
"""rows of A for which B is never worth packing"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A product of m by n by k; `strides` are those of A (m, k), B (k, n) and C's rows; None: known at run time."""

    isa: VectorISA
    dtype: DType
    m: int
    n: int
    strides: tuple[int | None, ...]
    accumulate: bool

    @property
    def lanes(self) -> int:
        return self.isa.lanes(self.dtype.bits)

    @property
    def vector(self) -> Ty:
        return register_type(self.dtype, self.lanes)

    @property
    def block(self) -> tuple[int, int]:
        """Rows and vectors of columns kept in registers: as many as leave room for a row of B and an element of A."""
        room = 28 if self.isa.registers >= 32 else 12
        across = -(-self.n // self.lanes)
        vectors = min(across, max(2 if across > 1 else 1, room // max(self.m, 1), 1), room // 2 if self.m > 1 else 8)
        vectors = min(vectors, 8)
        return min(self.m, max(1, room // vectors)), vectors

    def name(self, kind: str) -> str:
        strides = "_".join("x" if s is None else str(s) for s in self.strides)
        add = "_add" if self.accumulate else ""
        return f"{kind}_{self.dtype}_{self.m}x{self.n}_{strides}{add}"


def direct_kind(shape: Shape, k: int | None) -> str:
    """Which of this file's ways suits the product: "direct", "turned", or "" for none."""
    if shape.strides[3] == 1:
        small = k is not None and shape.m * shape.n * k <= SMALL
        return "direct" if small or shape.m <= FEW_ROWS else ""
    return "turned" if shape.strides[2] == 1 and shape.m <= FEW_ROWS and shape.n >= shape.lanes else ""


def direct_function(module: Module, shape: Shape, kind: str) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use."""
    name = shape.name(kind)
    if any(f.name == name for f in module.functions):
        return name
    fn = Function(module, name, PARAMETERS)
    places = (1, 2, 4, 5, 7)
    strides: list[Index] = [fn.param(p) if s is None else s for p, s in zip(places, shape.strides, strict=True)]
    writer = _Writer(fn, shape, strides)
    if kind == "direct":
        writer.direct()
    else:
        writer.turned()
    return name


@dataclass(slots=True)
class _Writer:
    fn: Function
    shape: Shape
    strides: list[Index]

    def at(self, base: Val, *steps: tuple[Index, Index]) -> Val:
        """The address of the element that is `index * stride` further for each pair."""
        for index, stride in steps:
            base = self.fn.gep(base, self.fn.mul(index, stride), memory_element(self.shape.dtype))
        return base

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        return VectorMath(self.fn, self.shape.isa).fma(x, y, z)

    def start(self, places: list[Val]) -> list[Val]:
        if not self.shape.accumulate:
            return [const(0, self.shape.vector)] * len(places)
        return [self.fn.load(p, self.shape.vector, self.shape.dtype.itemsize) for p in places]

    def finish(self, places: list[Val], values: list[Val]) -> None:
        for p, v in zip(places, values, strict=True):
            self.fn.store(v, p, self.shape.dtype.itemsize)

    # -- B along its rows --------------------------------------------------------------------------------------------
    def direct(self) -> None:
        shape, fn = self.shape, self.fn
        mr, nv = shape.block
        width = nv * shape.lanes
        whole = shape.n // width * width
        with fn.loop(0, whole, width) as q:
            self._columns(q.index, nv, 0, mr)
        rest = shape.n - whole
        if rest:
            self._columns(whole, -(-rest // shape.lanes), rest % shape.lanes, mr)

    def _columns(self, column: Index, vectors: int, tail: int, mr: int) -> None:
        """All rows of `vectors` vectors of columns, the last of which has `tail` lanes (0: all)."""
        whole = self.shape.m // mr * mr
        with self.fn.loop(0, whole, mr) as p:
            self._block(p.index, column, mr, vectors, tail)
        if self.shape.m > whole:
            self._block(whole, column, self.shape.m - whole, vectors, tail)

    def _block(self, row: Index, column: Index, rows: int, vectors: int, tail: int) -> None:
        fn, shape = self.fn, self.shape
        sam, sak, sbk, _, ldc = self.strides
        lanes = shape.lanes
        a, b = self.at(fn.param(0), (row, sam)), self.at(fn.param(3), (column, 1))
        c = self.at(fn.param(6), (row, ldc), (column, 1))
        places = [self.at(c, (i, ldc), (j * lanes, 1)) for i in range(rows) for j in range(vectors)]
        with fn.loop(0, fn.param(10), 1, self.start(places)) as k:
            line = self.at(b, (k.index, sbk))
            rights = [
                self._load(self.at(line, (j * lanes, 1)), tail if j == vectors - 1 else 0) for j in range(vectors)
            ]
            left = self.at(a, (k.index, sak))
            following: list[Val] = []
            for i in range(rows):
                x = fn.splat(fn.load(self.at(left, (i, sam)), shape.vector.scalar), lanes)
                for j in range(vectors):
                    following.append(self.fma(x, rights[j], k.carried[i * vectors + j]))
            k.next = following
        self.finish(places, k.results)

    def _load(self, p: Val, tail: int) -> Val:
        fn, t, size = self.fn, self.shape.vector, self.shape.dtype.itemsize
        if not tail:
            return fn.load(p, t, size)
        m = I1.wide(t.lanes)
        mask = "<" + ", ".join(f"i1 {'true' if i < tail else 'false'}" for i in range(t.lanes)) + ">"
        fn.module.declare(f"declare {t.text} @llvm.masked.load.{t.suffix}.p0(ptr, {m.text}, {t.text})")
        args = f"ptr align {size} {p.ref}, {m.text} {mask}, {t.text} zeroinitializer"
        return fn.effect(f"call {t.text} @llvm.masked.load.{t.suffix}.p0({args})", t)

    # -- B along its columns -----------------------------------------------------------------------------------------
    def turned(self) -> None:
        """Lanes are columns; a last, overlapping vector of columns covers what is left of them."""
        shape, fn = self.shape, self.fn
        whole = shape.n // shape.lanes * shape.lanes
        with fn.loop(0, whole, shape.lanes) as q:
            self._turned_columns(q.index)
        if shape.n > whole and not shape.accumulate:
            self._turned_columns(shape.n - shape.lanes)
        elif shape.n > whole:
            self._ragged(whole)

    def _turned_columns(self, column: Index) -> None:
        fn, shape = self.fn, self.shape
        _, _, _, sbn, ldc = self.strides
        lanes, size, k = shape.lanes, shape.dtype.itemsize, fn.param(10)
        b, c = self.at(fn.param(3), (column, sbn)), self.at(fn.param(6), (column, 1))
        places = [self.at(c, (i, ldc)) for i in range(shape.m)]
        whole = fn.mul(fn.div(k, lanes), lanes)
        with fn.loop(0, whole, lanes, self.start(places)) as at:
            corner, values = self.at(b, (at.index, 1)), list(at.carried)
            rows = [fn.load(self.at(corner, (j, sbn)), shape.vector, size) for j in range(lanes)]
            for step, line in enumerate(transpose(fn, rows)):
                for i in range(shape.m):
                    values[i] = self.fma(self._left(i, fn.add(at.index, step)), line, values[i])
            at.next = values
        with fn.loop(whole, k, 1, at.results) as one:
            line = self._strided(self.at(b, (one.index, 1)), sbn)
            one.next = [self.fma(self._left(i, one.index), line, v) for i, v in enumerate(one.carried)]
        self.finish(places, one.results)

    def _left(self, row: int, k: Index) -> Val:
        """An element of A in every lane."""
        place = self.at(self.fn.param(0), (row, self.strides[0]), (k, self.strides[1]))
        return self.fn.splat(self.fn.load(place, self.shape.vector.scalar), self.shape.lanes)

    def _strided(self, p: Val, step: Index) -> Val:
        """One element of each lane's column."""
        fn, t = self.fn, self.shape.vector
        v = Val("poison", t)
        for i in range(t.lanes):
            x = fn.load(self.at(p, (i, step)), t.scalar)
            v = fn.op(f"insertelement {t.text} {v.ref}, {x!r}, i64 {i}", t, (v, x))
        return v

    def _ragged(self, column: int) -> None:
        """Single columns, where going over some of them twice would add twice."""
        fn, shape = self.fn, self.shape
        sam, sak, _, sbn, ldc = self.strides
        one = shape.vector.scalar
        for j in range(column, shape.n):
            for i in range(shape.m):
                place = self.at(fn.param(6), (i, ldc), (j, 1))
                with fn.loop(0, fn.param(10), 1, [fn.load(place, one)]) as k:
                    x = fn.load(self.at(fn.param(0), (i, sam), (k.index, sak)), one)
                    y = fn.load(self.at(fn.param(3), (k.index, 1), (j, sbn)), one)
                    k.next = [self.fma(x, y, k.carried[0])]
                fn.store(k.results[0], place)
