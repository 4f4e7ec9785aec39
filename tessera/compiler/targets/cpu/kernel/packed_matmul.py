"""A packed, register-blocked matrix product: C = A @ B over strided operands, as one function of a module.

The scheme is that of Goto and van de Geijn (2008): for each slab of `KC` steps of k, panels of A and of B are packed
(converting storage types on the way) and a micro-kernel keeps an MR x NR block of C in registers. A step is one k, or
several where an instruction adds several products of narrow numbers (narrow.py). Slabs are whole chains of products
(language/order.py), and groups of chains are whole slabs: blocking and threads do not change a bit. The sums of a group
wait in a second matrix, block by block, until the group ends: the code of a block then knows where each of its rows is,
and keeps few addresses. Where k is one slab, all blocks use the same place there.

Complex matrices are packed as real ones of twice the size: a row (re, im) for each element of A, and the rows (re, im)
and (-im, re) for each of B, so that the product of the real matrices is C as stored in memory. An element's products
ascend with k, those of the real part before those of the imaginary one.

C is scratch of the caller: `rows(m)` rows of `ldc` elements, a multiple of NR; elements beyond m and n are filler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from tessera.compiler.targets.cpu.elementary.convert import memory_element, register_type
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.kernel.chains import added, in_steps
from tessera.compiler.targets.cpu.kernel.instructions import narrow, tiles
from tessera.compiler.targets.cpu.kernel.packing.lines import lines_function
from tessera.compiler.targets.cpu.kernel.packing.panels import WIDE, PackedPanel, pack_function, parts
from tessera.compiler.targets.cpu.kernel.packing.scattered import offset_at, offsets, scattered_function
from tessera.compiler.targets.cpu.kernel.results import ResultBlock
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I32, I64, PTR, Index, Ty, Val, const
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.order import CHAIN, SPAN

KC = 256
"""steps of k packed at a time: an MR x KC panel of A and a KC x NR panel of B share the first-level cache"""
MOST_ROWS, FEWER = 14, 3
"""rows of a block in registers at most, where there are 32 of them, and how many sizes are tried from there on down"""
ALL_ROWS = 6
"""rows of a block where there are 16 registers: fewer take as long"""
MUCH = 1 << 22
"""products of a program from which on code of its own for the last rows and columns is worth compiling"""
FEW_COLUMNS = 256
"""up to which panels of the left operand are read so seldom that the time to pack them counts more"""
FEWEST_ROWS = 4
"""rows of a last block that take as long as fewer: with two vectors each they hide how long an instruction takes"""
KNOWN = 1 << 20
"""more rows than any program computes"""
assert KC % CHAIN == 0 and SPAN % KC == 0, "a slab is whole chains, a group whole slabs"


@immutable
class PackedMatmul:
    """One kind of product. `lhs_along` says which axis of A has stride 1 ("m", "k" or ""), `rhs_along` which of B; "m2"
    and "n2": stride 2, where rows or columns are several axes.

    `rows` and `columns` bound m and n where they are small, so that fewer accumulators are kept. `levels`: see
    language/order.py. For complex operands `acc` is the real dtype; m, n, k and C's pitch are the real matrices' own.
    """

    isa: VectorISA
    lhs: DType
    rhs: DType
    acc: DType
    lhs_along: str = ""
    rhs_along: str = ""
    rows: int = 1 << 30
    columns: int = 1 << 30
    accumulate: bool = False
    """C holds what the products are added to"""
    levels: int = 3
    lhs_axes: tuple[int, int] = (1, 1)
    """how many strided axes m and k are in A; rhs_axes: n and k in B"""
    rhs_axes: tuple[int, int] = (1, 1)
    halves: tuple[bool, bool] = (False, False)
    """which operands hold bf16 in the upper halves of f32, as scratch memory does"""
    ready: int = 0
    """how many panels of B have been packed before, of each slab one behind the other; 0: B is packed here"""
    stored: DType | None = None
    """what results are stored as, to memory that has room for them alone (results.py); None: they stay in C"""
    one_slab: bool = False
    """k is known to be a slab at most"""
    much: bool = False
    """there is enough to compute that the last rows and columns have code of their own"""

    @property
    def element(self) -> Ty:
        return register_type(self.acc)

    @property
    def lanes(self) -> int:
        return self.isa.lanes(self.acc.bits)

    @property
    def values(self) -> tuple[DType, DType]:
        """What the elements of the operands are."""
        lhs, rhs = (dtypes.bf16 if half else t for half, t in zip(self.halves, (self.lhs, self.rhs), strict=True))
        return lhs, rhs

    @property
    def together(self) -> int:
        """How many neighbours in k a step has."""
        return narrow.together(self.isa, *self.values, self.acc)

    @property
    def tiled(self) -> bool:
        """Whether the block is in tile registers (tiles.py)."""
        return tiles.fits(self.isa, *self.values, self.acc)

    @property
    def moved(self) -> bool:
        """Whether B's bytes are packed 128 off; what that adds is summed once for each row of A, and taken off."""
        return self.together == 4 and not self.tiled and narrow.is_moved(self.lhs, self.rhs)

    @property
    def in_lines(self) -> bool:
        """Whether rows of A are packed one behind the other, as they are in memory (packing/lines.py). Not for bf16 or
        many columns, where panels are read more often: processors do not foresee as many lines as a block has rows."""
        bytes_along = self.together == 4 and not self.tiled and self.lhs_along == "k" and self.lhs_axes == (1, 1)
        return bytes_along and self.columns <= FEW_COLUMNS

    @property
    def line(self) -> int:
        """Words of a slab's row of A. Lines are an odd number of those of the cache apart, so in different sets."""
        return KC + self.lanes if self.in_lines else KC

    @property
    def slab(self) -> int:
        """How far k is packed at a time."""
        return KC * self.together

    @property
    def chain(self) -> int:
        """How many products are added one after the other; integers have no order to keep."""
        return CHAIN if self.acc.is_float else self.slab

    @property
    def mr(self) -> int:
        """Rows of the block in registers: with two vectors of columns, at most all registers but those for A and B.

        See `panel_rows`.
        """
        rows = max(1, self.rows)
        if self.tiled:
            even = _evenly(rows, 2 * tiles.ROWS)
            return even + even % 2 if even > tiles.ROWS else even
        return self._panel_rows[0]

    @property
    def last_rows(self) -> int:
        """Rows of the last block, where they are known and it has code of its own; else 0."""
        return 0 if self.tiled or not self.much else self._panel_rows[1]

    @property
    def _panel_rows(self) -> tuple[int, int]:
        wide = self.isa.registers >= 32
        most, fewest = (MOST_ROWS, FEWEST_ROWS) if wide else (ALL_ROWS, ALL_ROWS)
        return panel_rows(max(1, self.rows), most, fewest, rest=self.much)

    @property
    def ends_narrow(self) -> bool:
        """Whether the last columns fill no more than a vector, and have code of their own."""
        two = self.nr == 2 * self.lanes and self.much and not self.tiled
        return two and 0 < self.columns % self.nr <= self.lanes

    @property
    def tile(self) -> tiles.TileBlock:
        """The block as tile registers have it; sums of integers are one group."""
        groups = self.levels == 3 and self.acc.is_float
        return tiles.TileBlock(*self.values, self.acc, self.mr, self.nr, self.together, groups, self.accumulate)

    @property
    def nr(self) -> int:
        return self.lanes if self.columns <= self.lanes else 2 * self.lanes

    def panel(self, right: bool) -> PackedPanel:
        storage, width, own = (self.rhs, self.nr, "n") if right else (self.lhs, self.mr, "m")
        along = {own: "p", f"{own}2": "p2", "k": "k"}.get(self.rhs_along if right else self.lhs_along, "")
        moved = self.moved and right
        return PackedPanel(self.isa, storage, self.acc, width, along, right, KC, self.together, moved, self.tiled)

    @property
    def name(self) -> str:
        along = f"{self.lhs_along or 'x'}{self.rhs_along or 'x'}"
        rest = "_lines" * self.in_lines + f"_last{self.last_rows}" * bool(self.last_rows) + "_narrow" * self.ends_narrow
        size = f"{self.mr}x{self.nr}{rest}_{self.levels}"
        axes = (*self.lhs_axes, *self.rhs_axes)
        size += "_of" + "".join(map(str, axes)) if axes != (1, 1, 1, 1) else ""
        lhs, rhs = (f"{t}{'_halves' * half}" for half, t in zip(self.halves, (self.lhs, self.rhs), strict=True))
        return f"matmul_{lhs}_{rhs}_{self.acc}_{along}_{size}{'_add' if self.accumulate else ''}{self._ends}"

    @property
    def _ends(self) -> str:
        ready, stored = f"_ready{self.ready}" * bool(self.ready), f"_to_{self.stored}" if self.stored else ""
        return f"{ready}{'_slab' * self.one_slab}{stored}"

    def padded_rows(self, m: int) -> int:
        return -(-m // self.mr) * self.mr

    def padded_columns(self, n: int) -> int:
        return -(-n // self.nr) * self.nr

    def ready_bytes(self, k: int) -> int:
        """Bytes of all of B, packed before."""
        return -(-k // self.slab) * self.ready * self.nr * KC * self.acc.itemsize

    def waiting(self, m: int, ldc: int) -> int:
        """Elements of `sums` for products of up to m rows, where C's rows are `ldc` apart."""
        if self.tiled:
            return self.padded_rows(m) * ldc if self.levels == 3 else 0
        if self.levels == 1:
            return 0
        return self.mr * self.nr if self.one_slab else self.padded_rows(m) * self.padded_columns(self.columns)

    def workspace(self, m: int) -> int:
        """Bytes of the packed panels for products of up to m rows, and of what moving B adds to each of them."""
        lhs = self.padded_rows(m) * (self.line + self.moved) + (2 + self.moved) * self.lanes
        rhs = 0 if self.ready else KC * self.nr * min(WIDE, -(-self.columns // self.nr))
        return -(-(lhs + rhs) * self.acc.itemsize // 64) * 64


def panel_rows(rows: int, most: int = MOST_ROWS, fewest: int = FEWEST_ROWS, *, rest: bool = True) -> tuple[int, int]:
    """How many of so many rows a panel has, and the last one if it has fewer and code of its own, which `rest` allows,
    else 0. `fewest` rows take as long as fewer.

    All of them should take the least time: a panel takes about as long as its rows, filler included, and a third of a
    row to begin and to end. A last panel of its own has to save a hundredth. The shortest of those that do is taken: it
    has the least code.
    """
    sizes = range(most, max(0, most - FEWER), -1)

    def panel(r: int) -> int:
        return 3 * max(r, fewest) + 1

    def time(r: int) -> int:
        return rows // r * panel(r) + panel(rows % r) * (rows % r > 0)

    even = min((_evenly(rows, r) for r in sizes), key=lambda r: -(-rows // r) * panel(r))

    least = min(map(time, sizes))
    if not rest or rows >= KNOWN or rows <= most or 100 * least > 99 * -(-rows // even) * panel(even):
        return even, 0
    best = min((r for r in sizes if 100 * time(r) <= 101 * least), key=lambda r: rows % r)
    return best, rows % best


def _evenly(rows: int, most: int) -> int:
    """Rows of a panel, at most `most`, of as few panels as there can be."""
    return -(-rows // -(-rows // most))


SIZES = [("c", PTR), ("ldc", I64), ("m", I64), ("n", I64), ("k", I64)]
STORED = [("out", PTR), ("ldo", I64)]
"""where results are stored, and how far rows are apart there"""
PARAMETERS = [("a", PTR), ("sam", I64), ("sak", I64), ("b", PTR), ("sbk", I64), ("sbn", I64), *SIZES]
"""parameters of every function that multiplies matrices with one strided axis of rows and one of columns: C = A @ B"""


def matmul_function(module: LLVMModule, kind: PackedMatmul) -> str:
    """The name of the function `void(A, strides of m and k, B, strides of k and n, C, ldc, m, n, k, workspace, sums)`.

    An operand with several axes is given by the address of its first element, the row (column) to begin at, and the
    size and stride of each axis, those of k last. The function is written into `module` at first use. Strides count
    elements; C, the workspace and `sums` are aligned to 64 bytes. `sums` has room for the sums of a part of k (see
    `PackedMatmul.waiting`). Where results are `stored`, two more parameters say where to, and how far rows are apart
    there; C then holds whole groups of chains, if there are several.
    """
    if any(f.name == kind.name for f in module.functions):
        return kind.name
    left, right = (_operand(module, kind, right) for right in (False, True))
    micros = _micro_kernels(module, kind)
    all_params = [*left.parameters, *right.parameters, *SIZES, ("work", PTR), ("sums", PTR)]
    fn = LLVMFunction(module, kind.name, [*all_params, *(STORED if kind.stored else [])])
    params = [fn.param(i) for i in range(len(fn.params))]
    params, out = params[: len(all_params)], params[len(all_params) :]
    given = params[: len(left.parameters)], params[len(left.parameters) : -7]
    c, ldc, m, n, k, work, sums = params[-7:]
    tables = [fn.alloca("i64", kind.slab) for _ in given]
    elem = kind.element.elem
    panels = fn.div(fn.add(m, kind.mr - 1), kind.mr)
    rows = fn.mul(panels, kind.mr)
    off = fn.gep(work, fn.add(fn.mul(rows, kind.line), kind.lanes), elem)
    packed_rhs = _aligned(fn, fn.gep(off, fn.add(rows, kind.lanes), elem) if kind.moved else off)
    if kind.tiled:
        tiles.configure(fn, kind.tile.rows)
    if not kind.accumulate:
        with fn.when(fn.icmp("eq", k, 0)):
            _clear(fn, kind, c, fn.mul(fn.mul(panels, kind.mr), ldc))
    with fn.loop(0, k, kind.slab) as slab:
        kc = fn.smin(kind.slab, fn.sub(k, slab.index))
        pack_lhs, pack_rhs = (
            x.slab(fn, values, slab.index, kc, table)
            for x, values, table in zip((left, right), given, tables, strict=True)
        )
        if kind.in_lines:
            panel = replace(kind.panel(False), steps=kind.line)
            name = lines_function(module, panel, kind.values if kind.moved else None)
            source, apart, _ = given[0]
            _call(fn, name, fn.gep(source, slab.index, memory_element(kind.lhs)), apart, m, rows, kc, work, off)
        else:
            pack_lhs(0, m, work)
            if kind.moved:
                _sum_moved(fn, kind, work, panels, kc, off)
        with fn.loop(0, n, WIDE * kind.nr) as wide:
            valid = fn.smin(WIDE * kind.nr, fn.sub(n, wide.index))
            pack_rhs(wide.index, valid, packed_rhs)
            if kind.ready:
                before = fn.mul(fn.div(slab.index, kind.slab), kind.ready * kind.nr)
                packed_rhs = fn.gep(given[1][0], fn.mul(fn.add(before, wide.index), KC), elem)
            with fn.loop(0, valid, kind.nr) as q, fn.loop(0, panels) as p:
                row = fn.mul(p.index, kind.mr)
                x, y = fn.gep(work, fn.mul(row, kind.line), elem), fn.gep(packed_rhs, fn.mul(q.index, KC), elem)
                at = fn.add(fn.mul(row, ldc), fn.add(wide.index, q.index))
                part = at if kind.tiled else fn.add(fn.mul(fn.add(wide.index, q.index), rows), fn.mul(row, kind.nr))
                part = 0 if kind.one_slab and not kind.tiled else part
                more = [fn.gep(off, row, elem)] if kind.moved else []
                column = fn.add(wide.index, q.index)
                left_over = fn.sub(m, row), fn.sub(n, column)
                if kind.stored:
                    to = fn.gep(out[0], fn.add(fn.mul(row, out[1]), column), memory_element(kind.stored))
                    more += [to, out[1], *left_over]
                args = x, y, fn.gep(c, at, elem), fn.gep(sums, part, elem), kc, ldc, slab.index, k, *more
                _call_block(fn, kind, micros, left_over, args)
    if kind.tiled:
        tiles.release(fn)
    return kind.name


# -- operands ---------------------------------------------------------------------------------------------------------
Pack: TypeAlias = Callable[[Index, Index, Val], None]
"""packs the elements of a slab from a row (column) on: that, how many, and where to"""


@immutable
class _OneAxis:
    """An operand with one strided axis of its own and one of k."""

    pack_name: str
    dtype: DType
    right: bool

    @property
    def parameters(self) -> list[tuple[str, Ty]]:
        return PARAMETERS[3:6] if self.right else PARAMETERS[:3]

    def slab(self, fn: LLVMFunction, given: Sequence[Val], k: Index, kc: Index, table: Val) -> Pack:
        """For the slab of kc steps that begins at k; `given` are the values of the parameters, `table` has room for an
        offset of each step."""
        del table
        p, *strides = given
        own, deep = reversed(strides) if self.right else strides
        element = memory_element(self.dtype)
        start = fn.gep(p, fn.mul(fn.div(k, parts(self.dtype)), deep), element)

        def pack(first: Index, valid: Index, target: Val) -> None:
            skipped = fn.mul(fn.div(first, parts(self.dtype)), own) if self.right else 0
            _call(fn, self.pack_name, fn.gep(start, skipped, element), own, deep, valid, kc, target)

        return pack


@immutable
class _SeveralAxes:
    """An operand with several axes of its own or of k."""

    pack_name: str
    axes: tuple[int, int]
    right: bool

    @property
    def parameters(self) -> list[tuple[str, Ty]]:
        x = "b" if self.right else "a"
        walks = [(f"{x}{what}{i}", I64) for i in range(sum(self.axes)) for what in ("size", "step")]
        return [(x, PTR), (f"{x}first", I64), *walks]

    def slab(self, fn: LLVMFunction, given: Sequence[Val], k: Index, kc: Index, table: Val) -> Pack:
        source, begin, *numbers = given
        walk = [*zip(numbers[::2], numbers[1::2], strict=True)]
        own, deep = walk[: self.axes[0]], walk[self.axes[0] :]
        offsets(fn, deep, k, kc, table)
        run, (_, left) = deep[-1][0], offset_at(fn, deep, k)

        def pack(first: Index, valid: Index, target: Val) -> None:
            at, flat = fn.add(begin, first), [number for axis in own for number in axis]
            _call(fn, self.pack_name, source, at, valid, kc, table, run, left, target, *flat)

        return pack


@immutable
class _Ready:
    """A right operand that has been packed before, by the address of its first panel."""

    parameters: tuple[tuple[str, Ty], ...] = (("b", PTR),)

    def slab(self, fn: LLVMFunction, given: Sequence[Val], k: Index, kc: Index, table: Val) -> Pack:
        return lambda first, valid, target: None


def _operand(module: LLVMModule, kind: PackedMatmul, right: bool) -> _OneAxis | _SeveralAxes | _Ready:
    if right and kind.ready:
        return _Ready()
    panel, axes = kind.panel(right), kind.rhs_axes if right else kind.lhs_axes
    if axes == (1, 1):
        return _OneAxis(pack_function(module, panel), panel.storage, right)
    return _SeveralAxes(scattered_function(module, panel, axes[0]), axes, right)


def pack_ahead(
    module: LLVMModule, kind: PackedMatmul, name: str, sizes: tuple[int, int], strides: tuple[int, int]
) -> None:
    """Writes `void name(source, target)`, which packs all of B as `kind.ready` says. `sizes` and `strides` are those of
    k and n."""
    (k, n), (sbk, sbn) = sizes, strides
    panel = kind.panel(True)
    pack = pack_function(module, panel)
    fn = LLVMFunction(module, name, [("source", PTR), ("target", PTR)])
    with fn.loop(0, k, kind.slab) as at:
        source = fn.gep(fn.param(0), fn.mul(at.index, sbk), memory_element(kind.rhs))
        place = fn.mul(fn.div(at.index, kind.slab), kind.ready * kind.nr * KC)
        target = fn.gep(fn.param(1), place, kind.element.elem)
        _call(fn, pack, source, sbn, sbk, n, fn.smin(kind.slab, fn.sub(k, at.index)), target)


def _call(fn: LLVMFunction, name: str, *args: Index) -> None:
    fn.do(f"call void @{name}({', '.join(repr(fn.index(a)) for a in args)})")


def _aligned(fn: LLVMFunction, p: Val) -> Val:
    address = fn.op(f"ptrtoint ptr {p.ref} to i64", I64, [p])
    up = fn.op(f"and i64 {fn.index(fn.add(address, 63)).ref}, -64", I64, [address])
    return fn.op(f"inttoptr i64 {up.ref} to ptr", PTR, [up])


def _sum_moved(fn: LLVMFunction, kind: PackedMatmul, work: Val, panels: Index, kc: Index, target: Val) -> None:
    """Stores the opposite of what moving B's bytes adds to the sums of a slab, for each row of the panels of A."""
    vector = I32.wide(kind.lanes)
    steps = fn.div(fn.add(kc, kind.together - 1), kind.together)
    with fn.loop(0, panels) as panel:
        row = fn.mul(panel.index, kind.mr)
        with fn.loop(0, steps, 1, [const(0, vector)]) as step:
            at = fn.add(fn.mul(row, KC), fn.mul(step.index, kind.mr))
            words = fn.load(fn.gep(work, at, I32.elem), vector, 4)
            step.next = [narrow.moved_by(fn, *kind.values, words, step.carried[0])]
        total = fn.binary("sub", const(0, vector), step.results[0])
        fn.store(total, fn.gep(target, row, I32.elem), 4)  # behind the panel's rows are those of the next one


def _clear(fn: LLVMFunction, kind: PackedMatmul, c: Val, count: Index) -> None:
    zero = const(0, kind.element)
    with fn.loop(0, count) as at:
        fn.store(zero, fn.gep(c, at.index, kind.element.elem))


# -- the block in registers -------------------------------------------------------------------------------------------
@immutable
class _Micros:
    """Names of the functions for a block, for the last rows, and for the last columns; "" for those that are not."""

    whole: str
    last_rows: str = ""
    last_columns: str = ""


def _micro_kernels(module: LLVMModule, kind: PackedMatmul) -> _Micros:
    if kind.tiled:
        return _Micros(tiles.micro_kernel(module, f"micro_{kind.name}", kind.tile))
    vectors = kind.nr // kind.lanes
    rows = _micro_kernel(module, kind, kind.last_rows, vectors) if kind.last_rows else ""
    columns = _micro_kernel(module, kind, kind.mr, 1) if kind.ends_narrow else ""
    return _Micros(_micro_kernel(module, kind, kind.mr, vectors), rows, columns)


def _call_block(
    fn: LLVMFunction, kind: PackedMatmul, micros: _Micros, left: tuple[Index, Index], args: Sequence[Index]
) -> None:
    """Calls the function for a block, from which on so many rows and columns are left."""

    def others() -> None:
        if micros.last_columns:
            few = fn.icmp("sle", left[1], kind.lanes)
            fn.either(few, lambda: _call(fn, micros.last_columns, *args), lambda: _call(fn, micros.whole, *args))
        else:
            _call(fn, micros.whole, *args)

    if micros.last_rows:
        few = fn.icmp("eq", left[0], kind.last_rows)
        fn.either(few, lambda: _call(fn, micros.last_rows, *args), others)
    else:
        others()


def _micro_kernel(module: LLVMModule, kind: PackedMatmul, height: int, vectors: int) -> str:
    """The block's sums of a group += panel of A times panel of B, chain by chain; C += those sums at the group's end.

    `sums` has room for the block alone, row by row. `at` is how far k was before this slab, `k` where it ends; `off`:
    where the opposite is of what moved bytes of B add to each row. `rows` and `columns`: how many there are from `out`
    on.
    """
    whole = (height, vectors) == (kind.mr, kind.nr // kind.lanes)
    name = f"micro_{kind.name}{'' if whole else f'_{height}x{vectors}'}"
    size = height, vectors
    params = [("a", PTR), ("b", PTR), ("c", PTR), ("sums", PTR), ("kc", I64), ("ldc", I64), ("at", I64), ("k", I64)]
    params += [("off", PTR)] if kind.moved else []
    params += [*STORED, ("rows", I64), ("columns", I64)] if kind.stored else []
    fn = LLVMFunction(module, name, params)
    a, b, c, sums, kc, ldc, at, k = (fn.param(i) for i in range(8))
    vector = kind.element.wide(kind.lanes)
    zeros = [const(0, vector)] * (height * vectors)
    if kind.moved:  # a slab is one chain
        offs = [fn.load(fn.gep(fn.param(8), i, kind.element.elem), kind.element) for i in range(height)]
        zeros = [fn.splat(off, kind.lanes) for off in offs for _ in range(vectors)]

    def load(places: list[Val]) -> list[Val]:
        return [fn.load(p, vector, kind.acc.itemsize) for p in places]

    def given() -> list[Val]:
        values = load(_block(fn, kind, size, c, ldc))
        return [added(fn, x, y) for x, y in zip(values, zeros, strict=True)] if kind.moved else values

    group = _block(fn, kind, size, sums, kind.nr)
    for p in group if kind.levels > 1 and not kind.one_slab else []:
        fn.prefetch(p, 2)  # wanted at the end of the first chain, and left to another cache since the slab before
    with fn.loop(0, kc, kind.chain, zeros) as part:
        done = fn.add(at, part.index)
        start = zeros
        if kind.accumulate:
            start = fn.choose(fn.icmp("eq", done, 0), given, lambda: zeros)
        end = fn.smin(fn.add(part.index, kind.chain), kc)
        lo, hi = (fn.div(x, kind.together) for x in (part.index, fn.add(end, kind.together - 1)))
        chain = in_steps(fn, kind.isa, lo, hi, start, partial(_products, fn, kind, size, a, b))
        part.next = _wait(fn, kind, chain, group, done, k)
    _finish(fn, kind, size, part.results, (c, ldc), fn.add(at, kc), k)
    return module.only_one(fn)


def _block(fn: LLVMFunction, kind: PackedMatmul, size: tuple[int, int], base: Val, pitch: Index) -> list[Val]:
    """Where the vectors of a block of so many rows and vectors are."""
    starts = range(0, size[1] * kind.lanes, kind.lanes)
    return [fn.gep(base, fn.add(fn.mul(pitch, i), j), kind.element.elem) for i in range(size[0]) for j in starts]


def _wait(fn: LLVMFunction, kind: PackedMatmul, chain: list[Val], group: list[Val], done: Index, k: Val) -> list[Val]:
    """The sums of the group with a chain added, which began at `done`; they go to memory until the next one has
    ended, except for those of the last."""
    if kind.levels == 1:
        return chain

    def with_others() -> list[Val]:
        before = [fn.load(p, v.ty, kind.acc.itemsize) for p, v in zip(group, chain, strict=True)]
        return [added(fn, x, y) for x, y in zip(before, chain, strict=True)]

    groups = kind.levels == 3
    total = fn.choose(fn.icmp("eq", fn.mod(done, SPAN) if groups else done, 0), lambda: chain, with_others)
    end = fn.add(done, kind.chain)
    more = fn.icmp("slt", end, k)
    if groups:
        more = fn.binary("and", more, fn.icmp("ne", fn.mod(end, SPAN), 0))
    with fn.when(more):
        _store(fn, total, group)
    return total


def _finish(
    fn: LLVMFunction, kind: PackedMatmul, size: tuple[int, int], sums: list[Val], c: tuple[Val, Index], end: Index,
    k: Val,
) -> None:  # fmt: skip
    """Adds the sums of a group to C, or stores them where results go; nothing if the group goes on from `end`."""
    places = [] if kind.stored and kind.levels < 3 else _block(fn, kind, size, *c)

    def put(values: list[Val], last: Val) -> None:
        if kind.stored is None:
            _store(fn, values, places)
            return
        pairs = kind.together == 2
        result = ResultBlock(kind.isa, kind.acc, kind.stored, values, size[1], pairs)
        to, pitch, rows, columns = (fn.param(len(fn.params) - i) for i in (4, 3, 2, 1))

        def store() -> None:
            result.store(fn, to, pitch, rows, columns)

        store() if kind.levels < 3 else fn.either(last, store, lambda: _store(fn, values, places))

    def with_others() -> list[Val]:
        before = [fn.load(p, v.ty, kind.acc.itemsize) for p, v in zip(places, sums, strict=True)]
        return [added(fn, x, y) for x, y in zip(before, sums, strict=True)]

    last = fn.icmp("eq", end, k)
    if kind.levels == 1 or kind.one_slab:
        put(sums, last)
    elif kind.levels == 2:
        with fn.when(last):
            put(sums, last)
    else:
        with fn.when(fn.binary("or", last, fn.icmp("eq", fn.mod(end, SPAN), 0))):
            put(fn.choose(fn.icmp("sle", end, SPAN), lambda: sums, with_others), last)


def _store(fn: LLVMFunction, values: list[Val], places: list[Val]) -> None:
    for v, p in zip(values, places, strict=True):
        fn.store(v, p, v.ty.bits // 8)


def _products(
    fn: LLVMFunction, kind: PackedMatmul, size: tuple[int, int], a: Val, b: Val, step: Val, sums: list[Val]
) -> list[Val]:
    """The block with the products of one step added."""
    element = I32 if kind.together > 1 else kind.element
    vector, elem = element.wide(kind.lanes), element.elem
    height, vectors = size
    row = fn.gep(b, fn.mul(step, kind.nr), elem)
    rights = [fn.load(fn.gep(row, j * kind.lanes, elem), vector, 64) for j in range(vectors)]
    column = fn.gep(a, step if kind.in_lines else fn.mul(step, kind.mr), elem)
    apart = kind.line if kind.in_lines else 1
    following: list[Val] = []
    for i in range(height):
        left = fn.splat(fn.load(fn.gep(column, i * apart, elem), element), kind.lanes)
        for j in range(vectors):
            following.append(_multiply_add(fn, kind, left, rights[j], sums[i * vectors + j]))
    return following


def _multiply_add(fn: LLVMFunction, kind: PackedMatmul, x: Val, y: Val, z: Val) -> Val:
    if kind.together > 1:
        return narrow.add_products(fn, *kind.values, x, y, z)
    if kind.acc.is_float:
        return VectorMath(fn, kind.isa).fma(x, y, z)
    return fn.binary("add", fn.binary("mul", x, y), z)
