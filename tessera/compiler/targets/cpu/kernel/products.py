"""Matrix products of tiles (`tile.mma`) and of whole operands in global memory (`tile.contract`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TileType, ViewType
from tessera.compiler.targets.cpu.elementary.convert import memory_element, real_part, register_type
from tessera.compiler.targets.cpu.kernel.chains import added
from tessera.compiler.targets.cpu.kernel.function import PITCH, KernelFunction, load_of, writes
from tessera.compiler.targets.cpu.kernel.instructions import tiles
from tessera.compiler.targets.cpu.kernel.operands import MatrixOperand
from tessera.compiler.targets.cpu.kernel.packed_matmul import KC, MUCH, PackedMatmul, matmul_function
from tessera.compiler.targets.cpu.kernel.packing.scattered import offset_at, offsets
from tessera.compiler.targets.cpu.kernel.packing.words import FEW_PAIRS, multiplies_words, words_function
from tessera.compiler.targets.cpu.kernel.results import Destination, destination
from tessera.compiler.targets.cpu.kernel.small_matmul import (
    FEW_ROWS,
    LARGE,
    Shape,
    direct_function,
    direct_kind,
)
from tessera.compiler.targets.cpu.kernel.vectors.diagonal import diagonal_function
from tessera.compiler.targets.cpu.kernel.vectors.dots import dots_function
from tessera.compiler.targets.cpu.kernel.vectors.lines import lines_function
from tessera.compiler.targets.cpu.kernel.vectors.turned import turned_function
from tessera.compiler.targets.cpu.kernel.windows import run_of
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import Index, Val, const
from tessera.compiler.targets.cpu.loops.index import dtype_of, unsupported
from tessera.compiler.targets.cpu.loops.memory import Cell, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.dialect import matrix_axes, matrix_sizes
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.sizes import NEAR, SMALL
from tessera.compiler.tile.passes.turn_products import changes
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.order import SPAN, levels
from tessera.language.scalars import TABLE

_SOME_ROWS = 16
"""of an open number: two of the usual blocks of registers would be mostly filler"""
SAVED, FEW = 1.08, 16
"""A block is computed transposed where that saves so much of the work, if it has at least so many rows and columns."""
IN_BLOCKS = ("direct", "copied")
"""the ways that need no panels of the left operand"""


def _operand(k: KernelFunction, v: Value) -> MatrixOperand:
    if v not in k.ev.cells and k.reads_in_place(v):
        found = load_of(v)
        assert found is not None
        load, turned = found
        p, strides, _, view = k.ev.window(load)
        a, b = strides
        return MatrixOperand(p, (b, a) if turned else (a, b), dtype_of(view))
    cell = k.ev.cells[v]
    halves = cell.dtype == dtypes.f32 and dtype_of(v) == dtypes.bf16
    return MatrixOperand(cell.ptr, (cell.strides[0], cell.strides[1]), cell.dtype, halves=halves)


def _check(op: Op, lhs: DType, rhs: DType, acc: DType) -> None:
    if acc.is_complex and lhs == rhs == acc:
        return
    if acc.is_complex or lhs.is_complex or rhs.is_complex or acc.kind == "bool" or acc.is_low_precision:
        unsupported(op, f"a matrix product of {lhs} and {rhs} accumulated in {acc}")
    if acc.is_integer and (lhs.is_float or rhs.is_float):
        unsupported(op, f"a product of floats accumulated in {acc}")


def _direct(
    isa: VectorISA,
    a: MatrixOperand,
    b: MatrixOperand,
    acc: DType,
    sizes: tuple[int, int, Index],
    pitch: Index,
    *,
    accumulate: bool,
    packed: bool = False,
) -> tuple[str, Shape]:
    """How the product of these rows, columns and steps of k is computed without packing; "" where it is packed."""
    rows, columns, k = sizes
    strides = tuple(s if isinstance(s, int) else None for s in (*a.strides, *b.strides, pitch))
    shape = Shape(isa, acc, rows, columns, k if isinstance(k, int) else None, strides, accumulate)
    plain = a.dtype == b.dtype == acc and acc.is_float and a.walks is None and b.walks is None
    plain = plain and not (a.halves and b.halves)
    return direct_kind(shape, packed) if plain else "", shape


@immutable
class Product:
    """C (+)= A @ B with C in the scratch matrix at `c`, whose rows are `pitch` elements apart. `m` and `n` are the
    sizes here, at most `rows` and `columns`."""

    a: MatrixOperand
    b: MatrixOperand
    acc: DType
    c: Val
    pitch: int
    m: Index
    n: Index
    k: Index
    rows: int
    columns: int
    accumulate: bool
    last: tuple[int, int] = (0, 0)
    """how many rows and columns the last block has, where that is known and fewer; else 0"""
    open: bool = False
    """how many rows there are is known at launch, and may be few"""
    ready: tuple[Val, int] | None = None
    """of a right operand that has been packed before: where its panels from column 0 of the block on are, and how many
    panels all of it has"""
    few: bool = False
    """there is at least one row, and the other ones of `rows` need not be there"""
    scale: Val | None = None
    """where the numbers are that what is accumulated to is multiplied by, one for each column"""
    out: Destination | None = None
    """where the results are stored; None: they stay in `c`"""
    run: int = 0
    """how many columns are side by side, where the right operand is windows that are read in place (windows.py)"""

    @property
    def swapped(self) -> Product:
        """The same product as C^T = B^T @ A^T."""
        last = self.last[1], self.last[0]
        turned = replace(self, a=self.b.turned, b=self.a.turned, m=self.n, n=self.m, last=last)
        return replace(turned, rows=self.columns, columns=self.rows)

    def write(self, k: KernelFunction) -> None:
        """Calls the function that suits the sizes; at a ragged edge one for that, or the packed product, which takes
        any."""
        if self.open:
            self._by_rows(k, self._bounds(k))
            return
        fn = k.fn
        if self.run:
            self._by_runs(k)
            return
        if self._is_long(k):
            self._by_groups(k)
            return
        kind, shape = self._kind(k)
        if kind == "" or (self.few and kind not in ("direct", "turned")) or not self._has_room(shape):
            self._packed(k)
            return
        shape = self._in_blocks(kind, shape)
        if kind not in IN_BLOCKS and not isinstance(self.n, int):
            shape = replace(shape, n_is_bound=True)
        if kind in ("turned", "lines"):
            shape = replace(shape, large=self.b.large)
        elif kind == "direct" and shape.m == 1:
            shape = replace(shape, large=self.b.far)
        match kind:
            case "dots":
                direct = dots_function(k.module, shape)
            case "lines":
                direct = lines_function(k.module, shape)
            case "turned":
                direct = turned_function(k.module, shape)
            case _:
                direct = direct_function(k.module, shape)
        given = self._arguments(k, shape)
        if self._has_rows and (shape.n_is_bound or isinstance(self.n, int)):
            _call(fn, direct, given)
        else:
            full = fn.icmp("eq", self.n, self.columns)
            full = full if self._has_rows else fn.binary("and", fn.icmp("eq", self.m, self.rows), full)
            fn.choose(full, lambda: _call(fn, direct, given), lambda: self._edge(k))

    def _is_long(self, k: KernelFunction) -> bool:
        """Whether k is several groups of which a product reads both operands where they are."""
        if not isinstance(self.k, int) or self.k <= SPAN or not k.isa.masks:
            return False
        if self.ready is not None or self.few or self.accumulate:
            return False
        known = isinstance(self.m, int) and isinstance(self.n, int) and self.m > FEW_ROWS and self.acc.is_float
        return known and self._kind(k)[0] == "" and replace(self, k=NEAR)._kind(k)[0] == "direct"

    def _by_groups(self, k: KernelFunction) -> None:
        """Computes each group by itself, in parts that the caches hold, and adds it to the result."""
        fn, depth, element = k.fn, self.k, register_type(self.acc)
        assert isinstance(depth, int)
        lanes = k.isa.lanes(self.acc.bits)
        sums = k.raw(self.rows * self.pitch * self.acc.itemsize)

        def group(start: Index, count: int) -> None:
            for lo in range(0, count, NEAR):
                at = fn.add(start, lo)
                part = replace(
                    self, a=self.a.moved(fn, 1, at), b=self.b.moved(fn, 0, at), k=min(NEAR, count - lo), c=sums
                )
                _, shape = part._kind(k)
                direct = direct_function(k.module, replace(shape, continued=lo > 0))
                _call(fn, direct, part._arguments(k, shape))
            each(lambda p, q: fn.store(added(fn, load(p), load(q)), p, self.acc.itemsize))

        def load(p: Val) -> Val:
            return fn.load(p, element.wide(lanes), self.acc.itemsize)

        def each(write: Callable[[Val, Val], None]) -> None:
            with fn.loop(0, self.rows) as row, fn.loop(0, -(-self.columns // lanes) * lanes, lanes) as column:
                place = fn.add(fn.mul(row.index, self.pitch), column.index)
                write(fn.gep(self.c, place, element.elem), fn.gep(sums, place, element.elem))

        each(lambda p, q: fn.store(const(-0.0, element.wide(lanes)), p, self.acc.itemsize))
        whole = depth // SPAN * SPAN
        with fn.loop(0, whole, SPAN) as at:
            group(at.index, SPAN)
        if depth > whole:
            group(whole, depth - whole)

    def _by_runs(self, k: KernelFunction) -> None:
        """Computes columns that are side by side, then the next ones."""
        fn, walks, element = k.fn, self.b.walks, memory_element(self.acc)
        assert isinstance(self.k, int) and walks is not None
        left, tables = self.a, [k.raw(8 * self.k)]
        offsets(fn, walks[0], 0, self.k, tables[0])
        if left.walks is not None:
            ((_, step),), deep = left.walks
            tables.insert(0, k.raw(8 * self.k))
            offsets(fn, deep, 0, self.k, tables[0])
            left = MatrixOperand(fn.gep(left.ptr, fn.mul(left.start[0], step), element), (step, 0), self.acc)
        c, pitch = (self.out.ptr, self.out.pitch) if self.out else (self.c, self.pitch)
        strides = tuple(s if isinstance(s, int) else None for s in (*left.strides, 0, 1, pitch))
        shape = Shape(k.isa, self.acc, self.rows, self.run, self.k, strides, False, exact=self.out is not None)

        def some(first: Index, columns: int) -> list[Val]:
            function = direct_function(k.module, replace(shape, n=columns, walked=(self.a.walks is not None, True)))
            place, _ = offset_at(fn, walks[1], fn.add(self.b.start[1], first))
            begin, to = fn.gep(self.b.ptr, place, element), fn.gep(c, first, element)
            sizes = (self.m, columns, fn.index(self.k))
            return _call(fn, function, [left.ptr, *left.strides, begin, 0, 1, to, pitch, *sizes, *tables])

        if len(walks[1]) > 1:
            with fn.loop(0, self.n, self.run) as at:
                some(at.index, self.run)
        elif isinstance(self.n, int):
            some(0, self.n)
        else:
            fn.choose(fn.icmp("eq", self.n, self.columns), lambda: some(0, self.columns), lambda: some(0, self.last[1]))

    def _in_blocks(self, kind: str, shape: Shape) -> Shape:
        exact = self.out is not None
        return replace(shape, m_is_bound=self.few, scaled=self.scale is not None, copied=kind == "copied", exact=exact)

    def _has_room(self, shape: Shape) -> bool:
        """Whether one row of results, which the direct way fills up to whole vectors, may be where it is stored."""
        return self.out is None or shape.m > 1 or shape.n % shape.lanes == 0

    @property
    def _has_rows(self) -> bool:
        """Whether a function for `rows` rows takes those that there are."""
        return isinstance(self.m, int) or self.few

    def _bounds(self, k: KernelFunction) -> list[int]:
        """Numbers of rows up to which a product of few rows has code of its own: what suits as many rows as there are
        in the whole block packs both operands, and fills up large blocks of registers."""
        found = {FEW_ROWS, _SOME_ROWS}
        few = replace(self, rows=1, m=1, open=False)
        if few._kind(k)[0]:
            found.add(1)
            if isinstance(self.k, int):
                found.add(min(self.rows, SMALL // max(1, self.columns * self.k)))
        return sorted(bound for bound in found if 1 <= bound < self.rows)

    def _by_rows(self, k: KernelFunction, bounds: Sequence[int]) -> None:
        """Tests at launch how many rows there are."""
        if not bounds:
            replace(self, open=False).write(k)
            return
        bound = bounds[0]
        some = replace(self, rows=bound, m=1 if bound == 1 else self.m, open=False, few=bound > 1)
        test = k.fn.icmp("eq" if bound == 1 else "sle", self.m, bound)
        k.fn.either(test, lambda: some.write(k), lambda: self._by_rows(k, bounds[1:]))

    def _kind(self, k: KernelFunction) -> tuple[str, Shape]:
        """How it is computed, see `_direct`."""
        sizes = (self.rows, self.columns, self.k)
        packed, pitch = self.ready is not None, self.out.pitch if self.out else self.pitch
        return _direct(k.isa, self.a, self.b, self.acc, sizes, pitch, accumulate=self.accumulate, packed=packed)

    def _edge(self, k: KernelFunction) -> list[Val]:
        """A block with fewer rows or columns: the last one, where that is known of one axis alone."""
        rows, columns = self.last
        rows, columns = (self.rows, columns) if self._has_rows else (rows, self.columns)
        if not rows or not columns or not (self._has_rows or isinstance(self.n, int)):
            return self._packed(k)
        kind, shape = replace(self, rows=rows, columns=columns)._kind(k)
        if kind not in IN_BLOCKS or not self._has_room(shape):
            return self._packed(k)
        shape = self._in_blocks(kind, shape)
        return _call(k.fn, direct_function(k.module, shape), self._arguments(k, shape))

    def takes_scale(self, k: KernelFunction) -> bool:
        kind, shape = self._kind(k)
        return kind == "direct" and shape.m > 1 and shape.n % shape.lanes == 0 and isinstance(self.m, int)

    def _arguments(self, k: KernelFunction, shape: Shape) -> list[Index]:
        more = [] if self.scale is None else [self.scale]
        more += [k.raw(shape.copy_bytes)] if shape.copied else []
        to = (self.out.ptr, self.out.pitch) if shape.exact and self.out else (self.c, self.pitch)
        return [self.a.ptr, *self.a.strides, self.b.ptr, *self.b.strides, *to, self.m, self.n, self.k, *more]

    def _sizes(self) -> list[Index]:
        return [self.c, self.pitch, self.m, self.n, self.k]

    def stores(self, k: KernelFunction, out: Destination) -> bool:
        """Whether it is computed in a way that can store the results itself."""
        if self.run:
            return out.dtype == self.acc
        kind, shape = replace(self, out=out)._kind(k)
        if self._is_long(k):
            return False
        if kind == "":
            return not tiles.fits(k.isa, self.a.value, self.b.value, self.acc)
        return kind in IN_BLOCKS and out.dtype == self.acc and self._has_room(shape)

    def _packed(self, k: KernelFunction) -> list[Val]:
        if self.acc.is_complex:
            return self._real(k.fn)._packed(k)
        along = {0: "m", 1: "k", None: ""}[self.a.along], {0: "k", 1: "n", None: ""}[self.b.along]
        if k.isa.masks:
            along = "m2" if self.a.skips(0) else along[0], "n2" if self.b.skips(1) else along[1]
        known = self.k if isinstance(self.k, int) else None
        depth = levels(known)
        kind = PackedMatmul(
            k.isa, self.a.dtype, self.b.dtype, self.acc, *along, self.rows, self.columns, self.accumulate, depth,
            self.a.axes, self.b.turned.axes, (self.a.halves, self.b.halves), self.ready[1] if self.ready else 0,
            self.out.dtype if self.out else None,
        )  # fmt: skip
        if not self.acc.is_float:  # a slab is one chain, and all of them are one group
            depth = 1 if known is not None and known <= kind.slab else 2
            kind = replace(kind, levels=depth)
        one_slab = known is not None and known <= kind.slab
        much = known is not None and self.rows * self.columns * known >= MUCH
        kind = replace(kind, one_slab=one_slab, much=much)
        waiting = kind.waiting(self.rows, max(self.pitch, kind.padded_columns(self.columns)))
        unused = kind.levels < 3 and self.out is not None  # C's own memory
        sums = self.c if unused or not waiting else k.raw(waiting * self.acc.itemsize)
        work = k.raw(kind.workspace(self.rows))
        right = [self.ready[0]] if self.ready else self.b.arguments(1)
        to = [self.out.ptr, self.out.pitch] if self.out else []
        given = [*self.a.arguments(0), *right, *self._sizes(), work, sums, *to]
        return _call(k.fn, matmul_function(k.module, kind), given)

    def _real(self, fn: LLVMFunction) -> Product:
        """A complex product as matmul.py takes it. A row whose elements are neighbours is one of real ones too."""
        a, part = self.a, real_part(self.acc)
        if a.unit == "1":
            a = MatrixOperand(a.ptr, (fn.mul(a.strides[0], 2), 1), part)
        return replace(
            self,
            a=a,
            acc=part,
            pitch=2 * self.pitch,
            columns=2 * self.columns,
            n=fn.mul(self.n, 2),
            k=fn.mul(self.k, 2),
        )


def _call(fn: LLVMFunction, name: str, args: list[Index]) -> list[Val]:
    fn.do(f"call void @{name}({', '.join(repr(fn.index(x)) for x in args)})")
    return []


@writes("mma")
def write_mma(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    """The accumulator's elements are put into the result's memory, then the products are added there."""
    a, b, acc = op.operands
    sizes = [d for v in (a, b) for d in shape_of(v) if isinstance(d, int)]
    if len(sizes) != 4:
        unsupported(op, "a product of tiles of unknown size")
    m, depth, _, n = sizes
    cell = k.ev.cells.get(op.result) or k.matrix(op.result)
    k.ev.cells[op.result] = cell
    pitch = cell.strides[0] or PITCH
    assert isinstance(pitch, int)
    words = [_words(k, op, i) for i in range(2)] if multiplies_words(k.isa, op) else [None]
    if (x := words[0]) is not None and (y := words[-1]) is not None:
        added, scale = _start(k, op, cell, n % k.isa.lanes(32) == 0, plan, writer)
        strides = *x.strides, *y.strides, pitch
        shape = Shape(k.isa, dtypes.f32, m, n, depth // 2, strides, added, pairs=True, scaled=scale is not None)  # type: ignore[arg-type]
        given = [x.ptr, *x.strides, y.ptr, *y.strides, cell.ptr, pitch, m, n, depth // 2]
        _call(k.fn, direct_function(k.module, shape), [*given, *([] if scale is None else [scale])])
        return
    left, right = _operand(k, a), _operand(k, b)
    narrow = dtype_of(acc) == dtypes.f32 and dtype_of(a) == dtype_of(b) == dtypes.bf16
    pairs = k.isa.bf16_products and not (left.halves and right.halves and m * n * depth <= FEW_PAIRS)
    if not (k.isa.bf16_tiles or pairs) or not narrow or op.attrs.get("subnormals"):
        left, right = (replace(x, halves=False) for x in (left, right))
    _check(op, left.dtype, right.dtype, dtype_of(acc))
    product = Product(left, right, dtype_of(acc), cell.ptr, pitch, m, n, depth, m, n, True)
    added, scale = _start(k, op, cell, product.takes_scale(k), plan, writer)
    replace(product, accumulate=added, scale=scale).write(k)


def _start(
    k: KernelFunction, op: Op, cell: Cell, takes_scale: bool, plan: Planner, writer: NestWriter
) -> tuple[bool, Val | None]:
    """Brings what the products are added to into the result's memory; says whether there is something, and what its
    columns are still to be multiplied by."""
    acc, cells = op.operands[2], k.ev.cells
    if _is_zero(acc):
        return False, None
    if acc in cells and cells[acc].ptr is cell.ptr:
        return True, None
    found = scaling_of(acc)
    if found is not None and takes_scale:
        tile, scale = found
        if tile in cells and cells[tile].ptr is cell.ptr and scale in cells and cells[scale].strides == (1,):
            return True, cells[scale].ptr
    writer.write(plan.copy(acc, cell))
    k.ev.memo = {}
    return True, None


def scaling_of(acc: Value) -> tuple[Value, Value] | None:
    """A tile and a number for each of its columns, where `acc` is their product."""
    if acc.op is None or acc.op.name != "tile.mul":
        return None
    for tile, factor in (acc.op.operands, acc.op.operands[::-1]):
        if factor.op is not None and factor.op.name == "tile.broadcast" and factor.op.attrs["axes"] == (1,):
            return tile, factor.op.operands[0]
    return None


def _words(k: KernelFunction, op: Op, i: int) -> MatrixOperand | None:
    """An operand of a product that multiplies words; None for one without neighbours."""
    v, right = op.operands[i], i == 1
    if (found := k.words.get((v, right))) is not None:
        return found
    x = _operand(k, v)
    own, deep = reversed(x.strides) if right else x.strides
    if own != 1 and deep != 1:
        return None
    width, depth = shape_of(v)[::-1] if right else shape_of(v)
    assert isinstance(width, int) and isinstance(depth, int)
    along = "p" if own == 1 else "k"
    name, strides = words_function(k.module, k.isa, x.dtype, (width, depth), along, right)
    target = k.raw(width * depth * 2)
    _call(k.fn, name, [x.ptr, own, deep, width, depth, target])
    step, deep_step = strides
    return MatrixOperand(target, (deep_step, step) if right else (step, deep_step), dtypes.int32)


def lay_out(k: KernelFunction, loop: Op) -> None:
    """Writes the words of operands that a loop does not change before it."""
    for op in loop.walk():
        if op.name != "tile.mma" or not multiplies_words(k.isa, op):
            continue
        for i, v in enumerate(op.operands[:2]):
            stays = isinstance(v.type, TileType) and not changes(v, loop)  # shared memory is written again
            if stays and (v, i == 1) not in k.words and (words := _words(k, op, i)) is not None:
                k.words[v, i == 1] = words


def _is_zero(v: Value) -> bool:
    """Whether all elements are a plain 0, so that a product has nothing to be added to; -0.0 may show in its bits."""
    op = v.op
    while op is not None and op.name == "tile.broadcast":
        op = op.operands[0].op
    value = op.attrs["value"] if op is not None and op.name == "tile.constant" else None
    return value == 0 and not isinstance(value, complex) and str(value) in ("0", "0.0")


@writes("contract")
def write_contract(k: KernelFunction, op: Op, plan: Planner, _writer: NestWriter) -> None:
    """The part of the block that is inside the product; at the edges the rest is zero where something may see it."""
    if op.attrs.get("diagonal"):
        _write_diagonal(k, op)
        return
    ev, fn = k.ev, k.fn
    rows, columns = shape_of(op.result)
    if not isinstance(rows, int) or not isinstance(columns, int):
        unsupported(op, "a contraction block of unknown size")
    dtype = dtype_of(op.result)
    narrow = columns <= k.isa.lanes(8 * dtype.itemsize) // 2 and rows >= 2 * columns
    left, right = (_whole(k, op, i) for i in range(2))
    pieces = right.along == 1 and k.isa.registers < 32  # of panels of 6: copying them takes longer than filler
    least = min(rows, columns) >= FEW and SAVED * _work(k, dtype, columns, rows) < _work(k, dtype, rows, columns)
    _check(op, left.dtype, right.dtype, dtype_of(op.result))
    row, col = ev.index(op.operands[2]), ev.index(op.operands[3])
    (height, extent), (_, width) = (matrix_sizes(op, i) for i in range(2))
    depth = ev.dim(extent)
    # what is not packed has no panels to fill up; complex products have an order of their parts
    kind, _ = _direct(k.isa, left, right, dtype, (rows, columns, depth), PITCH, accumulate=False)
    ahead = op.attrs.get("packed")
    m, n = _left(k, height, op.operands[2], rows), _left(k, width, op.operands[3], columns)
    run = run_of(k.isa, left, right, dtype, (rows, columns, depth), op.operands[3]) if isinstance(m, int) else 0
    swap = (
        (narrow or (least and not pieces and kind not in IN_BLOCKS and not run))
        and not (dtype.is_complex or ahead)
        and op.result not in ev.cells
    )
    cell = ev.cells.get(op.result) or k.matrix(op.result, turned=swap)
    ev.cells[op.result] = cell
    pitch = cell.strides[1 if swap else 0] or PITCH
    assert isinstance(pitch, int)
    if not (isinstance(m, int) and isinstance(n, int)) and not _only_stored(op.result):
        ragged = fn.binary("or", fn.icmp("slt", m, rows), fn.icmp("slt", n, columns))
        with fn.when(ragged):
            lines, long = (columns, rows) if swap else (rows, columns)
            size = (pitch * (lines - 1) + long) * cell.dtype.itemsize
            fn.module.declare("declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            fn.do(f"call void @llvm.memset.p0.i64({cell.ptr!r}, i8 0, i64 {size}, i1 false)")
    a, b = left.moved(fn, 0, row), right.moved(fn, 1, col)
    last = _rest(height, rows), _rest(width, columns)
    run = 0 if swap or not (isinstance(n, int) or isinstance(width, int)) else run
    product = Product(a, b, dtype_of(op.result), cell.ptr, pitch, m, n, depth, rows, columns, False, last, run=run)
    few = not isinstance(height, int) and not dtype.is_complex
    ready = None if ahead is None else _ready(k, ahead, dtype, col)  # type: ignore[arg-type]
    if swap:
        product.swapped.write(k)
        return
    product = replace(product, open=few, ready=ready)
    if (found := destination(k, op, plan)) is not None and product.stores(k, found[1]):
        k.stored.add(found[0])
        del ev.cells[op.result]
        product = replace(product, out=found[1])
    product.write(k)


def _ready(k: KernelFunction, ahead: tuple[int, int], dtype: DType, column: Index) -> tuple[Val, int]:
    """The panels of a right operand that was packed before (constants.py), from a column on."""
    argument, panels = ahead
    first = k.fn.mul(column, KC)  # panels are as wide as they hold columns
    return k.fn.gep(k.ev.base(k.kernel.region.block.args[argument]), first, register_type(dtype).elem), panels


def _only_stored(v: Value) -> bool:
    """Whether elements go through elementwise operators to stores, which leave out what is beyond the edges."""
    return all(
        op.name == "tile.store" or ((op.name == "tile.cast" or op.name[5:] in TABLE) and _only_stored(op.result))
        for op, _ in v.uses
    )


def _work(k: KernelFunction, dtype: DType, rows: int, columns: int) -> int:
    """How large a block is once it is filled up to whole register blocks."""
    kind = PackedMatmul(k.isa, dtype, dtype, held(dtype), rows=rows, columns=columns)
    return kind.padded_rows(rows) * kind.padded_columns(columns)


def _write_diagonal(k: KernelFunction, op: Op) -> None:
    """The part of the column that is inside the product; the rest is filler, which no store writes."""
    ev = k.ev
    rows = shape_of(op.result)[0]
    assert isinstance(rows, int) and op.result not in ev.cells
    dtype = held(dtype_of(op.result))
    lanes = k.isa.lanes(dtype.bits)
    cell = Cell(k.raw(-(-rows // lanes) * lanes * dtype.itemsize), (1 if rows > 1 else 0, 0), dtype)
    ev.cells[op.result] = cell
    row, (height, depth) = op.operands[2], matrix_sizes(op, 0)
    (a, b), count = (_whole(k, op, i) for i in range(2)), _left(k, height, row, rows)
    strides = tuple(s if isinstance(s, int) else None for s in (*a.strides, *b.strides, PITCH))
    shape = Shape(k.isa, cell.dtype, 1, rows, depth if isinstance(depth, int) else None, strides, False, True)
    starts = [
        k.fn.gep(x.ptr, k.fn.mul(ev.index(row), step), memory_element(x.dtype))
        for x, step in ((a, a.strides[0]), (b, b.strides[1]))
    ]
    sizes = [cell.ptr, PITCH, 1, count, ev.dim(depth)]
    _call(k.fn, diagonal_function(k.module, shape), [starts[0], *a.strides, starts[1], *b.strides, *sizes])


def _whole(k: KernelFunction, op: Op, i: int) -> MatrixOperand:
    """An operand of a contraction."""
    v, (rows, columns) = op.operands[i], matrix_axes(op, i)
    assert isinstance(v.type, ViewType)
    s, dtype = k.ev.view_strides(v), dtype_of(v)
    sizes = [d for d in matrix_sizes(op, i) if isinstance(d, int)]
    known, size = len(sizes) == 2, prod(sizes) * dtype.itemsize
    large, far = not known or size >= LARGE, known and size > k.isa.cached_bytes
    found = MatrixOperand(k.ev.base(v), (s[rows[-1]], s[columns[-1]]), dtype, large, far)
    if len(rows) == len(columns) == 1:
        return found
    first, second = ([(k.ev.dim(v.type.shape[a]), s[a]) for a in axes] for axes in (rows, columns))
    return replace(found, walks=(first, second))


def _rest(extent: Dim, size: int) -> int:
    """How much of `extent` the last of its blocks has, where it has less than the others; 0 where that is not known."""
    return extent % size if isinstance(extent, int) else 0


def _left(k: KernelFunction, extent: Dim, start: Value, size: int) -> Index:
    """How many of `size` rows (columns) from `start` on are inside the matrix."""
    if all(k.ev.bounds.inside(start, size, extent)):
        return size
    return k.fn.smax(k.fn.smin(k.fn.sub(k.ev.dim(extent), k.ev.index(start)), size), 0)
