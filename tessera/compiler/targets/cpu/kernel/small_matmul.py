"""Matrix products straight from the operands' own memory, without packing.

The direct way keeps a block of C in registers, as the packed product does, but broadcasts elements of A and loads rows
of B in place; it pays where there is too little work to repay copying, and with vectors of 512 bits wherever caches
bring in time what is read again. Where B's columns do not lie side by side, or too far apart, a block of them is copied
and then read by all rows of A. turned.py is for a few rows of A and a B whose
columns are contiguous, dots.py for products with so few results that lanes would stay empty.

All add in the order of language/order.py with fused multiply-adds, so that the bits are those of every other path.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from tessera.compiler.targets.cpu.elementary.convert import memory_element, register_type
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.kernel.chains import Chains, added, chains_in_lanes, sums
from tessera.compiler.targets.cpu.kernel.instructions import narrow
from tessera.compiler.targets.cpu.kernel.packed_matmul import KC, PARAMETERS
from tessera.compiler.targets.cpu.kernel.packing.panels import PackedPanel, pack_function
from tessera.compiler.targets.cpu.kernel.results import store_lanes
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.transpose import interleaved, transpose
from tessera.compiler.targets.cpu.llvm.values import I32, I64, PTR, Index, Ty, Val, const
from tessera.compiler.tile.loops.sizes import NEAR, SMALL, SPREAD
from tessera.immutable import immutable, mutable
from tessera.language.dtypes import DType
from tessera.language.order import CHAIN, SPAN, levels

FEW_ROWS = 4
"""rows of A for which B is never worth packing; twice as many where there are registers for them"""
MANY_ROWS = 48
"""rows of A from which on it repays to transpose blocks of B that are as wide as the direct way reads them"""
ROWS = 8
"""rows of B that are added to C together where A is a vector; half as many where rows are a multiple of two pages
apart, whose lines drive each other out of a first-level cache before they are read"""

PAGE, WAYS = 1 << 12, 8
"""bytes from one element to the next one in the same set of a first-level cache, and how many lines a set has"""
LARGE = 1 << 20
"""bytes of a matrix that is not expected in a core's own caches"""
AHEAD = 1 << 16
"""bytes of a large matrix between a read and what memory is asked for at that time: enough to hide its delay"""

Step: TypeAlias = "Callable[[Index, Index, list[Val]], list[Val]]"
"""Adds products to sums: those from a place on, how many."""


@immutable
class Shape:
    """A product of m by n by k; `strides` are those of A (m, k), B (k, n) and C's rows; None: known at run time."""

    isa: VectorISA
    dtype: DType
    m: int
    n: int
    k: int | None
    strides: tuple[int | None, ...]
    accumulate: bool
    n_is_bound: bool = False
    """fewer columns may be left; not for the direct way"""
    large: bool = False
    """B is a part of a large matrix, or of one of unknown size (turned.py and lines.py), or too large for the caches
    (one row of A): memory is asked ahead"""
    m_is_bound: bool = False
    """there may be fewer rows, but one; results of the others are filler. For the direct way and turned.py"""
    scaled: bool = False
    """C is multiplied by a number for each column before products are added; for the direct way, and whole vectors"""
    copied: bool = False
    """the direct way copies each block of B's columns before it is read, which then lies in rows"""
    continued: bool = False
    """chains are added to those in C; for the direct way, several rows, and 512 bits"""
    exact: bool = False
    """C has room for the results alone, not for whole vectors; for the direct way, and several rows or whole vectors"""
    pairs: bool = False
    """a step of k is a word with two neighbours of bf16 (narrow.py); for the direct way, and one chain"""
    walked: tuple[bool, bool] = (False, False)
    """whether tables say where A's elements and B's lines of each k are (windows.py); for the direct way, and several
    rows"""

    @property
    def lanes(self) -> int:
        return self.isa.lanes(self.dtype.bits)

    @property
    def vector(self) -> Ty:
        return register_type(self.dtype, self.lanes)

    @property
    def sums_in_memory(self) -> bool:
        """Whether the direct way adds chains to C rather than to sums in registers, which then leave a larger block
        without room."""
        return self.isa.masks and self.m > FEW_ROWS and (self.continued or levels(self.k) == 2) and not self.pairs

    @property
    def reads_in_place(self) -> bool:
        """Whether a large block may be computed the direct way: what is read again comes from a core's own caches,
        and vectors are long enough to hide how long that takes."""
        return self.isa.masks and self.k is not None and 0 < self.k <= NEAR and self.spans_little(1)

    def spans_little(self, stride: int) -> bool:
        """Whether lines so far apart, one for each k, lie in few pages."""
        step = self.strides[stride]
        return self.k is not None and step is not None and self.k * step * self.dtype.itemsize <= SPREAD

    @property
    def is_crowded(self) -> bool:
        """Whether rows of B drive each other out of a first-level cache while a block of columns is read."""
        step = self.strides[2]
        if self.isa.registers >= 32 or step is None or self.k is None:
            return False
        return self.k > WAYS * PAGE // math.gcd(step * self.dtype.itemsize, PAGE)

    @property
    def copy_bytes(self) -> int:
        """Of a block of B's columns."""
        assert self.k is not None
        return self.k * self.block[1] * self.lanes * self.dtype.itemsize

    @property
    def block(self) -> tuple[int, int]:
        """Rows and vectors of columns kept in registers: the most that leave room for a row of B and an element of A.
        With many columns four vectors are side by side, which takes the fewest loads for a product. Where sums of
        several chains are added, they take registers too, and LLVM would rather spill those of the inner loop."""
        wide, several = self.isa.registers >= 32, levels(self.k) > 1 and not self.sums_in_memory
        room = (20 if several else 24 if self.sums_in_memory else 28) if wide else (8 if several else 12)
        across = -(-self.n // self.lanes)
        if self.m_is_bound:
            return min(self.m, FEW_ROWS), min(across, room // FEW_ROWS)
        if wide and self.m > 6 and across > 2:
            vectors = -(-across // -(-across // 4))
            return _evenly(self.m, (room + 3 - vectors) // vectors), vectors
        vectors = min(across, max(2 if across > 1 else 1, room // max(self.m, 1), 1), room // 2 if self.m > 1 else 8)
        vectors = min(vectors, 8)
        return _evenly(self.m, max(1, room // vectors)), vectors

    def name(self, kind: str) -> str:
        strides = "_".join("x" if s is None else str(s) for s in self.strides)
        add = (
            ("_add" if self.accumulate else "")
            + ("_bound" if self.n_is_bound else "")
            + ("_large" if self.large else "")
            + ("_few" if self.m_is_bound else "")
            + ("_scaled" if self.scaled else "")
            + ("_copied" if self.copied else "")
            + ("_continued" if self.continued else "")
            + ("_exact" if self.exact else "")
            + ("_pairs" if self.pairs else "")
            + "".join(f"_walked_{side}" for side, walked in zip("ab", self.walked, strict=True) if walked)
        )
        k = "x" if self.k is None else self.k
        return f"{kind}_{self.dtype}_{self.m}x{self.n}x{k}_{strides}{add}"


def _evenly(rows: int, most: int) -> int:
    """Rows of a block, at most `most`, so that the last block is not much smaller than the others: sums of few rows
    wait for themselves."""
    return -(-rows // -(-rows // most))


def direct_kind(shape: Shape, packed: bool = False) -> str:
    """Which way suits the product: "dots", "lines", "direct", "copied" (the direct way, which copies B), "turned", or
    "" for none of those without packing. `packed`: B's panels are there already."""
    m, n, k = shape.m, shape.n, shape.k
    large = shape.reads_in_place and not packed
    if shape.strides[3] == 1 and (n > 1 or shape.strides[2] != 1):
        small = k is not None and m * n * k <= SMALL
        if small and m >= MANY_ROWS and shape.is_crowded:
            return "copied" if levels(k) == 1 else ""
        if small or m <= FEW_ROWS:
            return "direct"
        return "" if not large else "direct" if shape.spans_little(2) else "copied"
    few = 2 * FEW_ROWS if shape.isa.registers >= 32 else FEW_ROWS
    if shape.strides[2] != 1 or m > few:
        return "copied" if shape.strides[2] == 1 and large and m >= MANY_ROWS else ""
    if shape.strides[1] == 1 and not shape.accumulate and n < shape.lanes and _dots_are_faster(n, k):
        return "dots"
    one_group = k is not None and chains_in_lanes(k, shape.lanes) is not None
    long = m == 1 and not shape.accumulate and n >= 4 * shape.lanes
    return "lines" if long and one_group and are_apart(shape.strides[3], PAGE, shape.dtype) else "turned"


def are_apart(stride: int | None, size: int, d: DType) -> bool:
    """Whether elements so far apart are known to be a multiple of so many bytes apart."""
    return stride is not None and stride * d.itemsize % size == 0


def _dots_are_faster(n: int, k: int | None) -> bool:
    """Roughly: a vector of results waits 4 cycles for each product, one result for a chain, then for memory."""
    return k is None or n * (4 * CHAIN + k // 4) < 4 * k


def direct_function(module: LLVMModule, shape: Shape) -> str:
    """The name of a function with the parameters of `matmul_function`, written into `module` at first use."""
    return written(module, shape, "direct", Writer, Writer.rows_of_b if shape.m == 1 else Writer.direct)


W = TypeVar("W", bound="Writer")


def written(module: LLVMModule, shape: Shape, kind: str, writer: type[W], write: Callable[[W], None]) -> str:
    """The name of the function of this kind, which `write` writes into `module` if it is not there yet."""
    name = shape.name(kind)
    if not any(f.name == name for f in module.functions):
        more = [("scale", PTR)] * shape.scaled + [("work", PTR)] * shape.copied
        more += [(p, PTR) for p, walked in zip(("aplaces", "bplaces"), shape.walked, strict=True) if walked]
        fn = LLVMFunction(module, name, [*PARAMETERS, *more])
        places = (1, 2, 4, 5, 7)
        strides: list[Index] = [fn.param(p) if s is None else s for p, s in zip(places, shape.strides, strict=True)]
        write(writer(fn, shape, strides))
    return name


@mutable
class Writer:
    fn: LLVMFunction
    shape: Shape
    strides: list[Index]

    def at(self, base: Val, *steps: tuple[Index, Index]) -> Val:
        """The address of the element that is `index * stride` further for each pair."""
        for index, stride in steps:
            base = self.fn.gep(base, self.fn.mul(index, stride), memory_element(self.shape.dtype))
        return base

    def fma(self, x: Val, y: Val, z: Val) -> Val:
        if self.shape.pairs:
            return narrow.add_pairs(self.fn, x, y, z)
        return VectorMath(self.fn, self.shape.isa).fma(x, y, z)

    def row(self, i: Index) -> Index:
        """A row of A, or the last one there is."""
        return self.fn.smin(i, self.fn.sub(self.fn.param(8), 1)) if self.shape.m_is_bound else i

    def start(self, places: list[Val]) -> list[Val]:
        if not self.shape.accumulate:
            return [const(0, self.shape.vector)] * len(places)
        return [self.fn.load(p, self.shape.vector, self.shape.dtype.itemsize) for p in places]

    def finish(self, places: list[Val], values: list[Val]) -> None:
        for p, v in zip(places, values, strict=True):
            self.fn.store(v, p, self.shape.dtype.itemsize)

    def square(self, rows: list[Val], left: Index) -> list[Val]:
        """A vector from each of these places, transposed; the first `left` elements of each are read.

        Halves of vectors go from memory to where they belong, which is cheaper than to shuffle them later. All of a row
        is read at once, since rows may be in one set of the cache.
        """
        fn, lanes, size = self.fn, self.shape.lanes, self.shape.dtype.itemsize
        piece = min(16 // size, lanes)
        if lanes < 2 * piece:
            return transpose(fn, [self._first(p, self.shape.vector, left, 0) for p in rows])
        half, t = lanes // 2, self.shape.vector.wide(lanes // 2)
        lower = [i for p in range(0, lanes, 2 * piece) for i in range(p, p + piece)]
        held: list[list[Val]] = [[] for _ in range(lanes // piece)]
        for j in range(piece):
            own = rows[j::piece]  # lanes j of all pieces
            loaded = [[self._first(self.at(p, (at, 1)), t, left, at) for at in (0, half)] for p in own]
            for at in range(2):
                joined = [
                    fn.shuffle(x[at], y[at], range(lanes)) for x, y in zip(loaded[::2], loaded[1::2], strict=True)
                ]
                if len(joined) == 1:
                    held[at].append(joined[0])
                    continue
                for k in range(2):
                    mask = [i + k * piece for i in lower]
                    held[2 * at + k].append(fn.shuffle(joined[0], joined[1], [*mask, *(lanes + i for i in mask)]))
        return [v for some in held for v in interleaved(fn, some, piece)]

    def _first(self, p: Val, t: Ty, left: Index, at: int) -> Val:
        """The vector at `p`, whose lanes are elements at, at + 1 ...; only those below `left` are read."""
        if isinstance(left, int) and left >= at + t.lanes:
            return self.fn.load(p, t, self.shape.dtype.itemsize)
        if isinstance(left, int) and left <= at:
            return const(0, t)
        return self._masked(p, self._less(range(at, at + t.lanes), left), t)

    def rows_of_b(self) -> None:
        """A vector times B: several rows of B at a time are added to sums that stay in the first-level cache."""
        fn, shape = self.fn, self.shape
        depth, c, k = levels(shape.k), fn.param(6), fn.param(10)
        element = memory_element(shape.dtype)
        chain = c if depth == 1 else fn.alloca(element, -(-shape.n // shape.lanes) * shape.lanes)
        group = c if depth < 3 else fn.alloca(element, -(-shape.n // shape.lanes) * shape.lanes)
        zero, nothing = const(0, shape.vector), const(-0.0, shape.vector)
        if depth == 1:
            if not shape.accumulate:
                self._each_vector(lambda at: self._put(zero, c, at))
            self._add_rows(chain, 0, k)
            return
        self._each_vector(lambda at: self._put(self._get(c, at) if shape.accumulate else zero, chain, at))
        self._each_vector(lambda at: self._put(nothing, c, at))

        def move(source: Val, target: Val, left: Val, at: Index) -> None:
            self._put(added(fn, self._get(target, at), self._get(source, at)), target, at)
            self._put(left, source, at)

        def one_group(lo: Index, hi: Index) -> None:
            with fn.loop(lo, hi, CHAIN) as at:
                self._add_rows(chain, at.index, fn.smin(fn.add(at.index, CHAIN), hi))
                self._each_vector(lambda v: move(chain, group, zero, v))

        if depth == 2:
            one_group(0, k)
            return
        self._each_vector(lambda at: self._put(nothing, group, at))
        with fn.loop(0, k, SPAN) as at:
            one_group(at.index, fn.smin(fn.add(at.index, SPAN), k))
            self._each_vector(lambda v: move(group, c, nothing, v))
        with fn.when(fn.icmp("sle", k, 0)):
            self._each_vector(lambda v: self._put(self._get(chain, v), c, v))

    def _each_vector(self, write: Callable[[Index], None]) -> None:
        with self.fn.loop(0, self.shape.n, self.shape.lanes) as at:
            write(at.index)

    def _get(self, base: Val, at: Index) -> Val:
        return self.fn.load(self.at(base, (at, 1)), self.shape.vector, self.shape.dtype.itemsize)

    def _put(self, v: Val, base: Val, at: Index) -> None:
        self.fn.store(v, self.at(base, (at, 1)), self.shape.dtype.itemsize)

    def _add_rows(self, target: Val, lo: Index, hi: Index) -> None:
        """The rows of B from `lo` on, each times its element of A."""
        fn, shape = self.fn, self.shape
        whole = shape.n // shape.lanes * shape.lanes
        together = ROWS // 2 if are_apart(shape.strides[2], 2 * PAGE, shape.dtype) else ROWS
        ahead = -(-AHEAD // (shape.n * shape.dtype.itemsize * together)) * together

        def add(first: Index, rows: int) -> None:
            lefts = [self._left(0, fn.add(first, i)) for i in range(rows)]
            lines = [self.at(fn.param(3), (fn.add(first, i), self.strides[2])) for i in range(rows)]

            def columns(column: Index, tail: int) -> None:
                total = self._get(target, column)
                for line in lines if shape.large and rows == together and not tail else []:
                    fn.prefetch(self.at(line, (ahead, self.strides[2]), (column, 1)), 2)
                for left, line in zip(lefts, lines, strict=True):
                    total = self.fma(left, self._load(self.at(line, (column, 1)), tail), total)
                self._put(total, target, column)

            with fn.loop(0, whole, shape.lanes) as at:
                columns(at.index, 0)
            if shape.n > whole:
                columns(whole, shape.n - whole)

        most = fn.add(lo, fn.mul(fn.div(fn.sub(hi, lo), together), together))
        with fn.loop(lo, most, together) as at:
            add(at.index, together)
        with fn.loop(most, hi) as at:
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
        tail = rest % shape.lanes
        if not tail or not shape.copied or shape.accumulate or shape.n < shape.lanes:
            if rest:
                self._columns(whole, -(-rest // shape.lanes), tail, mr)
            return
        # the columns of a part of a vector would be copied one by one: rather some columns are computed twice
        vectors = -(-rest // shape.lanes)
        if shape.n < vectors * shape.lanes:
            self._columns(0, vectors - 1, 0, mr)
            vectors = 1
        self._columns(shape.n - vectors * shape.lanes, vectors, 0, mr)

    def _columns(self, column: Index, vectors: int, tail: int, mr: int) -> None:
        """All rows of `vectors` vectors of columns; the last vector has `tail` lanes (0: all)."""
        right = self._right(column, vectors, tail)
        if self.shape.m_is_bound:
            with self.fn.loop(0, self.fn.param(8), mr) as p:
                self._block(p.index, column, mr, vectors, tail, right)
            return
        whole = self.shape.m // mr * mr
        with self.fn.loop(0, whole, mr) as p:
            self._block(p.index, column, mr, vectors, tail, right)
        if self.shape.m > whole:
            self._block(whole, column, self.shape.m - whole, vectors, tail, right)

    def _right(self, column: Index, vectors: int, tail: int) -> tuple[Val, Index]:
        """Where vectors of B's columns begin, and how far their rows are apart."""
        fn, shape = self.fn, self.shape
        if not shape.copied:
            return self.at(fn.param(3), (column, 1)), self.strides[2]
        width, along = vectors * shape.lanes, "p" if shape.strides[3] == 1 else "k"
        panel = PackedPanel(shape.isa, shape.dtype, shape.dtype, width, along, True, KC)
        source, own, deep = self.at(fn.param(3), (column, self.strides[3])), self.strides[3], self.strides[2]
        valid, work = width - (shape.lanes - tail if tail else 0), fn.param(len(fn.params) - 1)
        assert shape.k is not None
        given: list[Index] = [source, own, deep, valid, shape.k, work]
        fn.do(f"call void @{pack_function(fn.module, panel)}({', '.join(repr(fn.index(x)) for x in given)})")
        return work, width

    def _block(self, row: Index, column: Index, rows: int, vectors: int, tail: int, right: tuple[Val, Index]) -> None:
        fn, shape = self.fn, self.shape
        sam, sak, _, _, ldc = self.strides
        lanes, (b, sbk) = shape.lanes, right
        filled = not tail or shape.copied
        a = [self.at(fn.param(0), (self.row(fn.add(row, i)), sam)) for i in range(rows)]
        c = self.at(fn.param(6), (row, ldc), (column, 1))
        places = [self.at(c, (i, ldc), (j * lanes, 1)) for i in range(rows) for j in range(vectors)]
        # with few columns in the last vector, half or a quarter of it is enough, which takes some processors less time
        last = min(lanes, max(1 << (tail - 1).bit_length(), 16 // shape.dtype.itemsize)) if tail else lanes
        types = [shape.vector] * (vectors - 1) + [shape.vector.wide(last)]

        def chain(starts: list[Index], count: Index, values: list[Val]) -> list[Val]:
            (first,) = starts
            with fn.loop(0, count, 1, values) as at:
                k = fn.add(first, at.index)
                line, own = self.at(b, self._step(1, k, sbk)), self._step(0, k, sak)
                rights = [
                    self._first(self.at(line, (j * lanes, 1)), t, lanes if filled or j < vectors - 1 else tail, 0)
                    for j, t in enumerate(types)
                ]
                following: list[Val] = []
                for i in range(rows):
                    x = fn.splat(fn.load(self.at(a[i], own), shape.vector.scalar), lanes)
                    if vectors > 1 and types[-1] is not shape.vector and shape.isa.masks:
                        x = fn.unseen(x)  # whose half LLVM would rather make by another instruction
                    for j, t in enumerate(types):
                        some = x if t is shape.vector else fn.shuffle(x, None, range(t.lanes))
                        following.append(self.fma(some, rights[j], at.carried[i * vectors + j]))
                at.next = following
            return at.results

        zeros, size = [const(0, t) for t in types] * rows, shape.dtype.itemsize

        ends = [*[lanes] * (vectors - 1), tail if tail and shape.exact else last] * rows

        def load() -> list[Val]:
            return [self._first(p, t, end, 0) for p, t, end in zip(places, types * rows, ends, strict=True)]

        def finish(values: list[Val]) -> None:
            for p, v, end in zip(places, values, ends, strict=True):
                if end == v.ty.lanes:
                    fn.store(v, p, size)
                else:
                    store_lanes(fn, v, p, self._less(range(v.ty.lanes), end), size)

        def given() -> list[Val]:
            """What the first chain starts with."""
            if not shape.accumulate:
                return zeros
            if not shape.scaled:
                return load()
            scale = self.at(fn.param(11), (column, 1))
            factors = [fn.load(self.at(scale, (j * lanes, 1)), t, size) for j, t in enumerate(types)]
            return [fn.binary("fmul", v, f) for v, f in zip(load(), factors * rows, strict=True)]

        if not shape.sums_in_memory:
            finish(self.sums(given(), chain))
            return
        k = fn.param(10) if shape.k is None else shape.k
        with fn.loop(0, k, CHAIN) as part:
            first = fn.icmp("eq", part.index, 0)
            start = fn.choose(first, given, lambda: zeros) if shape.accumulate else zeros
            found = chain([part.index], fn.smin(CHAIN, fn.sub(k, part.index)), start)

            def more() -> list[Val]:
                return [added(fn, x, y) for x, y in zip(load(), found, strict=True)]

            total = more() if shape.continued else fn.choose(first, lambda: found, more)
            finish(total)

    def _step(self, side: int, k: Index, stride: Index) -> tuple[Index, Index]:
        """How many elements, and of which stride, the place of this k is behind that of the first one in A or in B."""
        fn, walked = self.fn, self.shape.walked
        if not walked[side]:
            return k, stride
        table = fn.param(len(fn.params) - (2 if all(walked) and side == 0 else 1))
        return fn.load(fn.gep(table, k, "i64"), I64), 1

    def sums(self, start: list[Val], chains: Chains, together: int = 1) -> list[Val]:
        k = self.shape.k
        return sums(self.fn, self.fn.param(10) if k is None else k, levels(k), start, chains, together)

    def _load(self, p: Val, tail: int) -> Val:
        if not tail:
            return self.fn.load(p, self.shape.vector, self.shape.dtype.itemsize)
        return self._first(p, self.shape.vector, tail, 0)

    def _masked(self, p: Val, mask: Val, t: Ty) -> Val:
        """Zeros in the lanes that are not read."""
        fn, m = self.fn, mask.ty
        fn.module.declare(f"declare {t.text} @llvm.masked.load.{t.suffix}.p0(ptr, {m.text}, {t.text})")
        args = f"ptr align {self.shape.dtype.itemsize} {p.ref}, {mask!r}, {t.text} zeroinitializer"
        return fn.effect(f"call {t.text} @llvm.masked.load.{t.suffix}.p0({args})", t)

    def by_squares(self, count: Index, values: list[Val], step: Step) -> list[Val]:
        """`step` for groups of `lanes` products, then once more for the rest of `count`."""
        fn, lanes = self.fn, self.shape.lanes
        whole = fn.mul(fn.div(count, lanes), lanes)
        with fn.loop(0, whole, lanes, values) as at:
            at.next = step(at.index, lanes, list(at.carried))
        if whole is count or whole == count:
            return at.results
        if isinstance(count, int):
            return step(whole, fn.sub(count, whole), at.results)
        with fn.loop(whole, count, lanes, at.results) as rest:  # runs once or not at all
            rest.next = step(rest.index, fn.sub(count, whole), list(rest.carried))
        return rest.results

    def inside(self, i: int, left: Index) -> Index:
        """Place i of a square, or the last one that is read."""
        return i if left == self.shape.lanes else self.fn.smin(i, self.fn.sub(left, 1))

    def kept(self, i: int, left: Index, new: list[Val], old: list[Val]) -> list[Val]:
        """The sums with the products of place i, where there is one: products of zeros could turn -0.0 into 0.0."""
        if isinstance(left, int):
            return new if i < left else old
        some = self._less([i] * self.shape.lanes, left)
        return [self.fn.select(some, x, y) for x, y in zip(new, old, strict=True)]

    def _less(self, places: Sequence[int], left: Index) -> Val:
        """In which lanes the place is before `left`."""
        fn, t = self.fn, I32.wide(len(places))
        numbers = Val(f"<{', '.join(f'i32 {i}' for i in places)}>", t)
        return fn.compare("icmp slt", numbers, fn.convert("trunc", fn.index(left), I32))

    def _left(self, row: int, k: Index) -> Val:
        """An element of A in every lane."""
        place = self.at(self.fn.param(0), (self.row(row), self.strides[0]), (k, self.strides[1]))
        return self.fn.splat(self.fn.load(place, self.shape.vector.scalar), self.shape.lanes)
