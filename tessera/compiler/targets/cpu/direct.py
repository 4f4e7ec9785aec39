"""Small matrix products straight from the operands' own memory, without packing.

The direct way keeps a block of C in registers, as the packed product does, but broadcasts elements of A and loads rows
of B where they lie; it pays where there is too little work to repay copying. The turned way is for a few rows of A and
a B whose columns are contiguous (a matrix times a vector is its plainest case): squares of B are transposed in
registers on the way. Both add the products of an element in ascending k with fused multiply-adds, so that the bits are
those of every other path.

Products with a vector whose operands both run along k are sums over rows, and are added in the order of sums (see
reduce.py): a single chain would wait for each addition. Whether a product is one follows from the operands' whole
shapes, which no schedule changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tessera.compiler.targets.cpu.convert import memory_element, register_type
from tessera.compiler.targets.cpu.emit import Function, Module
from tessera.compiler.targets.cpu.isa import VectorISA
from tessera.compiler.targets.cpu.matmul import PARAMETERS, transpose
from tessera.compiler.targets.cpu.values import I1, Index, Ty, Val, const, ty
from tessera.compiler.targets.cpu.vectormath import VectorMath
from tessera.language.dtypes import DType

SMALL = 1 << 21
"""multiplications of a product that is not worth packing"""
FEW_ROWS = 4
"""rows of A for which B is never worth packing; twice as many where there are registers for them"""
ROWS = 8
"""rows of B that are added to C together where A is a vector"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A product of m by n by k; `strides` are those of A (m, k), B (k, n) and C's rows; None: known at run time."""

    isa: VectorISA
    dtype: DType
    m: int
    n: int
    strides: tuple[int | None, ...]
    accumulate: bool
    vector_product: bool = False
    """one of the whole operands is a vector"""

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
    """Which of this file's ways suits the product: "dots", "direct", "turned", or "" for none."""
    if shape.vector_product and shape.strides[1] == 1 and shape.strides[2] == 1 and not shape.accumulate:
        return "dots"
    if shape.strides[3] == 1:
        small = k is not None and shape.m * shape.n * k <= SMALL
        return "direct" if small or shape.m <= FEW_ROWS else ""
    few = 2 * FEW_ROWS if shape.isa.registers >= 32 else FEW_ROWS
    return "turned" if shape.strides[2] == 1 and shape.m <= few and shape.n >= shape.lanes else ""


def direct_function(module: Module, shape: Shape, kind: str) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use."""
    name = shape.name(kind)
    if any(f.name == name for f in module.functions):
        return name
    fn = Function(module, name, PARAMETERS)
    places = (1, 2, 4, 5, 7)
    strides: list[Index] = [fn.param(p) if s is None else s for p, s in zip(places, shape.strides, strict=True)]
    writer = _Writer(fn, shape, strides)
    match kind:
        case "dots":
            writer.dots()
        case "direct" if shape.m == 1:
            writer.rows_of_b()
        case "direct":
            writer.direct()
        case _:
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

    # -- products with a vector --------------------------------------------------------------------------------------
    def dots(self) -> None:
        """Each element on its own: 2048 bits of partial sums, halved until one is left."""
        fn, shape = self.fn, self.shape
        sam, _, _, sbn, ldc = self.strides
        vectors = 2048 // shape.dtype.bits // shape.lanes
        step, k = vectors * shape.lanes, fn.param(10)
        zero = const(0, shape.vector)

        def one(row: Index, column: Index) -> None:
            a, b = self.at(fn.param(0), (row, sam)), self.at(fn.param(3), (column, sbn))

            def add(start: Index, sums: list[Val], load: Callable[[Val, Index], Val]) -> list[Val]:
                places = [fn.add(start, j * shape.lanes) for j in range(vectors)]
                return [
                    self.fma(load(self.at(a, (p, 1)), p), load(self.at(b, (p, 1)), p), v)
                    for p, v in zip(places, sums, strict=True)
                ]

            whole = fn.mul(fn.div(k, step), step)
            with fn.loop(0, whole, step, [zero] * vectors) as at:
                at.next = add(at.index, at.carried, lambda p, _: fn.load(p, shape.vector, shape.dtype.itemsize))
            with fn.loop(whole, k, step, at.results) as rest:
                rest.next = add(rest.index, rest.carried, lambda p, i: self._masked(p, self._below(fn.sub(k, i))))
            sums = rest.results
            while len(sums) > 1:
                half = len(sums) // 2
                sums = [fn.binary("fadd", sums[i], sums[i + half]) for i in range(half)]
            total, lanes = sums[0], shape.lanes
            while lanes > 2:
                lanes //= 2
                low, high = (fn.shuffle(total, None, range(s, s + lanes)) for s in (0, lanes))
                total = fn.binary("fadd", low, high)
            result = fn.binary("fadd", fn.extract(total, 0), fn.extract(total, 1))
            fn.store(result, self.at(fn.param(6), (row, ldc), (column, 1)), shape.dtype.itemsize)

        with fn.loop(0, fn.param(8)) as i, fn.loop(0, fn.param(9)) as j:
            one(i.index, j.index)

    def _below(self, count: Index) -> Val:
        """Lanes whose number is less than `count`, which may be negative."""
        fn, t = self.fn, ty("i", 64, self.shape.lanes)
        return fn.compare("icmp slt", fn.lane_numbers(t), fn.splat(fn.index(count), t.lanes))

    def rows_of_b(self) -> None:
        """A vector times B: several rows of B at a time are added to C, which stays in the first-level cache."""
        fn, shape = self.fn, self.shape
        lanes, k = shape.lanes, fn.param(10)
        whole = shape.n // lanes * lanes
        if not shape.accumulate:
            with fn.loop(0, shape.n, lanes) as at:
                fn.store(const(0, shape.vector), self.at(fn.param(6), (at.index, 1)), shape.dtype.itemsize)

        def add(first: Index, rows: int) -> None:
            lefts = [self._left(0, fn.add(first, i)) for i in range(rows)]
            lines = [self.at(fn.param(3), (fn.add(first, i), self.strides[2])) for i in range(rows)]

            def columns(column: Index, tail: int) -> None:
                place = self.at(fn.param(6), (column, 1))
                total = fn.load(place, shape.vector, shape.dtype.itemsize)
                for left, line in zip(lefts, lines, strict=True):
                    total = self.fma(left, self._load(self.at(line, (column, 1)), tail), total)
                fn.store(total, place, shape.dtype.itemsize)

            with fn.loop(0, whole, lanes) as at:
                columns(at.index, 0)
            if shape.n > whole:
                columns(whole, shape.n - whole)

        most = fn.mul(fn.div(k, ROWS), ROWS)
        with fn.loop(0, most, ROWS) as at:
            add(at.index, ROWS)
        with fn.loop(most, k) as at:
            add(at.index, 1)

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
        if not tail:
            return self.fn.load(p, self.shape.vector, self.shape.dtype.itemsize)
        m = I1.wide(self.shape.lanes)
        return self._masked(
            p, Val("<" + ", ".join(f"i1 {'true' if i < tail else 'false'}" for i in range(m.lanes)) + ">", m)
        )

    def _masked(self, p: Val, mask: Val) -> Val:
        """Zeros in the lanes that are not read."""
        fn, t, m = self.fn, self.shape.vector, mask.ty
        fn.module.declare(f"declare {t.text} @llvm.masked.load.{t.suffix}.p0(ptr, {m.text}, {t.text})")
        args = f"ptr align {self.shape.dtype.itemsize} {p.ref}, {mask!r}, {t.text} zeroinitializer"
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
