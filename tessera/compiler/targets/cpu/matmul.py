"""A packed, register-blocked matrix product: C = A @ B over strided operands, as one function of a module.

The scheme is that of Goto and van de Geijn (2008): for each slab of `KC` columns of A, panels of A and of B are packed
(converting storage types on the way) and a micro-kernel keeps an MR x NR block of C in registers. C is the incoming
accumulator of every slab, so that each element is one chain of fused multiply-adds in ascending k: blocking, slabs and
threads do not change a bit.

C is scratch of the caller: `rows(m)` rows of `ldc` elements, a multiple of NR; what lies beyond m and n is filler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tessera.compiler.targets.cpu.convert import memory_element, register_type, storage_type, unpack
from tessera.compiler.targets.cpu.emit import Function, Module
from tessera.compiler.targets.cpu.isa import VectorISA
from tessera.compiler.targets.cpu.values import I1, I64, PTR, Index, Ty, Val, const
from tessera.compiler.targets.cpu.vectormath import VectorMath
from tessera.language.dtypes import DType

KC = 256
"""columns of A packed at a time: an MR x KC panel of A and a KC x NR panel of B share the first-level cache"""


@dataclass(frozen=True, slots=True)
class Matmul:
    """One kind of product. `lhs_along` says which axis of A has stride 1 ("m", "k" or ""), `rhs_along` which of B.

    `rows` bounds m where it is small, so that fewer accumulators are kept.
    """

    isa: VectorISA
    lhs: DType
    rhs: DType
    acc: DType
    lhs_along: str = ""
    rhs_along: str = ""
    rows: int = 1 << 30
    accumulate: bool = False
    """C holds what the products are added to"""

    @property
    def element(self) -> Ty:
        return register_type(self.acc)

    @property
    def lanes(self) -> int:
        return self.isa.lanes(self.acc.bits)

    @property
    def mr(self) -> int:
        """Rows of the block in registers: with two vectors of columns, all registers but those for A and B."""
        return min(14 if self.isa.registers >= 32 else 6, max(1, self.rows))

    @property
    def nr(self) -> int:
        return 2 * self.lanes

    @property
    def name(self) -> str:
        along = f"{self.lhs_along or 'x'}{self.rhs_along or 'x'}"
        return f"matmul_{self.lhs}_{self.rhs}_{self.acc}_{along}_{self.mr}x{self.nr}{'_add' if self.accumulate else ''}"

    def padded_rows(self, m: int) -> int:
        return -(-m // self.mr) * self.mr

    def padded_columns(self, n: int) -> int:
        return -(-n // self.nr) * self.nr

    def workspace(self, m: int) -> int:
        """Bytes of the packed panels for products of up to m rows."""
        lhs = self.padded_rows(m) * KC + self.lanes
        return -(-(lhs + KC * self.nr) * self.acc.itemsize // 64) * 64


PARAMETERS = [
    ("a", PTR), ("sam", I64), ("sak", I64), ("b", PTR), ("sbk", I64), ("sbn", I64), ("c", PTR), ("ldc", I64),
    ("m", I64), ("n", I64), ("k", I64), ("work", PTR),
]  # fmt: skip


def matmul_function(module: Module, kind: Matmul) -> str:
    """The name of the function `void(A, strides of m and k, B, strides of k and n, C, ldc, m, n, k, workspace)`.

    It is written into `module` at first use. Strides count elements; C and the workspace are aligned to 64 bytes.
    """
    if any(f.name == kind.name for f in module.functions):
        return kind.name
    pack_lhs = _pack_function(module, kind, kind.lhs, kind.lhs_along == "m", kind.lhs_along == "k", kind.mr)
    pack_rhs = _pack_function(module, kind, kind.rhs, kind.rhs_along == "n", kind.rhs_along == "k", kind.nr)
    micro = _micro_kernel(module, kind)
    fn = Function(module, kind.name, PARAMETERS)
    a, sam, sak, b, sbk, sbn, c, ldc, m, n, k, work = (fn.param(i) for i in range(12))
    elem = kind.element.elem
    panels = fn.div(fn.add(m, kind.mr - 1), kind.mr)
    packed_rhs = fn.gep(work, fn.add(fn.mul(fn.mul(panels, kind.mr), KC), kind.lanes), elem)
    packed_rhs = _aligned(fn, packed_rhs)
    if not kind.accumulate:
        with fn.when(fn.icmp("eq", k, 0)):
            _clear(fn, kind, c, fn.mul(fn.mul(panels, kind.mr), ldc))
    with fn.loop(0, k, KC) as slab:
        kc = fn.smin(KC, fn.sub(k, slab.index))
        first = const(False, I1) if kind.accumulate else fn.icmp("eq", slab.index, 0)
        with fn.loop(0, panels) as p:
            row = fn.mul(p.index, kind.mr)
            source = fn.gep(a, fn.add(fn.mul(row, sam), fn.mul(slab.index, sak)), memory_element(kind.lhs))
            target = fn.gep(work, fn.mul(row, KC), elem)
            _call(fn, pack_lhs, source, sam, sak, fn.smin(kind.mr, fn.sub(m, row)), kc, target)
        with fn.loop(0, n, kind.nr) as q:
            source = fn.gep(b, fn.add(fn.mul(q.index, sbn), fn.mul(slab.index, sbk)), memory_element(kind.rhs))
            _call(fn, pack_rhs, source, sbn, sbk, fn.smin(kind.nr, fn.sub(n, q.index)), kc, packed_rhs)
            with fn.loop(0, panels) as p:
                row = fn.mul(p.index, kind.mr)
                panel = fn.gep(work, fn.mul(row, KC), elem)
                block = fn.gep(c, fn.add(fn.mul(row, ldc), q.index), elem)
                _call(fn, micro, panel, packed_rhs, block, kc, ldc, first)
    return kind.name


def _call(fn: Function, name: str, *args: Index) -> None:
    fn.do(f"call void @{name}({', '.join(repr(fn.index(a)) for a in args)})")


def _aligned(fn: Function, p: Val) -> Val:
    address = fn.op(f"ptrtoint ptr {p.ref} to i64", I64, [p])
    up = fn.op(f"and i64 {fn.index(fn.add(address, 63)).ref}, -64", I64, [address])
    return fn.op(f"inttoptr i64 {up.ref} to ptr", PTR, [up])


def _clear(fn: Function, kind: Matmul, c: Val, count: Index) -> None:
    zero = const(0, kind.element)
    with fn.loop(0, count) as at:
        fn.store(zero, fn.gep(c, at.index, kind.element.elem))


# -- the block in registers -------------------------------------------------------------------------------------------
def _micro_kernel(module: Module, kind: Matmul) -> str:
    """C[mr, nr] = (first ? 0 : C) + panel of A times panel of B, k ascending."""
    name = f"micro_{kind.name}"
    fn = Function(module, name, [("a", PTR), ("b", PTR), ("c", PTR), ("kc", I64), ("ldc", I64), ("first", I1)])
    a, b, c, kc, ldc, first = (fn.param(i) for i in range(6))
    vector, elem = kind.element.wide(kind.lanes), kind.element.elem
    vectors = kind.nr // kind.lanes
    blocks = [fn.gep(c, fn.add(fn.mul(ldc, i), j * kind.lanes), elem) for i in range(kind.mr) for j in range(vectors)]
    zero = const(0, vector)
    start = fn.choose(
        first, lambda: [zero] * len(blocks), lambda: [fn.load(p, vector, kind.acc.itemsize) for p in blocks]
    )
    with fn.loop(0, kc, 1, start) as at:
        row = fn.gep(b, fn.mul(at.index, kind.nr), elem)
        rights = [fn.load(fn.gep(row, j * kind.lanes, elem), vector, 64) for j in range(vectors)]
        column = fn.gep(a, fn.mul(at.index, kind.mr), elem)
        following: list[Val] = []
        for i in range(kind.mr):
            left = fn.splat(fn.load(fn.gep(column, i, elem), kind.element), kind.lanes)
            for j in range(vectors):
                following.append(_multiply_add(fn, kind, left, rights[j], at.carried[i * vectors + j]))
        at.next = following
    for p, v in zip(blocks, at.results, strict=True):
        fn.store(v, p, kind.acc.itemsize)
    return name


def _multiply_add(fn: Function, kind: Matmul, x: Val, y: Val, z: Val) -> Val:
    if kind.acc.is_float:
        return VectorMath(fn, kind.isa).fma(x, y, z)
    return fn.binary("add", fn.binary("mul", x, y), z)


# -- packing ----------------------------------------------------------------------------------------------------------
def _pack_function(module: Module, kind: Matmul, storage: DType, along_panel: bool, along_k: bool, width: int) -> str:
    """`void(source, panel stride, k stride, valid, kc, target)`: target[k][width] with zeros beyond `valid`."""
    how = "p" if along_panel else "k" if along_k else "x"
    name = f"pack_{storage}_{kind.acc}_{how}{width}_{kind.isa.name}"
    if any(f.name == name for f in module.functions):
        return name
    params = [("source", PTR), ("sp", I64), ("sk", I64), ("valid", I64), ("kc", I64), ("target", PTR)]
    packer = _Packer(Function(module, name, params), kind, storage, width)
    fn = packer.fn
    source, sp, sk, valid, kc, target = (fn.param(i) for i in range(6))
    fast = packer.straight if along_panel else packer.turned if along_k else None
    if fast is None:
        packer.one_by_one(source, sp, sk, valid, 0, kc, target)
        return name
    full = fn.icmp("eq", valid, width)
    with fn.when(full):
        fast(source, sp, sk, kc, target)
    with fn.when(fn.op(f"xor i1 {full.ref}, true", I1, [full])):
        packer.one_by_one(source, sp, sk, valid, 0, kc, target)
    return name


@dataclass(slots=True)
class _Packer:
    fn: Function
    kind: Matmul
    storage: DType
    width: int

    def read(self, p: Val, lanes: int) -> Val:
        """`lanes` consecutive elements in the accumulator's type."""
        fn, vm = self.fn, VectorMath(self.fn, self.kind.isa)
        t = storage_type(self.storage, lanes)
        loaded = unpack(fn.load(p, t, self.storage.itemsize), self.storage, vm)
        assert isinstance(loaded, Val)
        return widened(fn, loaded, self.storage, self.kind.acc)

    def at(self, base: Val, offset: Index) -> Val:
        return self.fn.gep(base, offset, memory_element(self.storage))

    def straight(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val) -> None:
        """The panel's axis has stride 1: rows are copied in the largest powers of two."""
        fn, elem = self.fn, self.kind.element.elem
        with fn.loop(0, kc) as at:
            row, out = self.at(source, fn.mul(at.index, sk)), fn.gep(target, fn.mul(at.index, self.width), elem)
            done = 0
            while done < self.width:
                lanes = min(self.kind.lanes, 1 << ((self.width - done).bit_length() - 1))
                fn.store(self.read(self.at(row, done), lanes), fn.gep(out, done, elem), self.kind.acc.itemsize)
                done += lanes

    def turned(self, source: Val, sp: Val, sk: Val, kc: Val, target: Val) -> None:
        """k has stride 1: square blocks are transposed in registers; what is left of k goes one by one.

        A row of fewer than `lanes` elements is stored in full: the next row overwrites what is too much.
        """
        fn, lanes, elem = self.fn, self.kind.lanes, self.kind.element.elem
        whole = fn.mul(fn.div(kc, lanes), lanes)
        zero = const(0, self.kind.element.wide(lanes))
        with fn.loop(0, whole, lanes) as at:
            corner = self.at(source, at.index)
            columns: list[list[Val]] = []
            for start in range(0, self.width, lanes):
                have = min(lanes, self.width - start)
                rows = [self.read(self.at(corner, fn.mul(sp, start + i)), lanes) for i in range(have)]
                columns.append(transpose(fn, rows + [zero] * (lanes - have)))
            for i in range(lanes):
                out = fn.gep(target, fn.mul(fn.add(at.index, i), self.width), elem)
                for j, column in enumerate(columns):
                    fn.store(column[i], fn.gep(out, j * lanes, elem), self.kind.acc.itemsize)
        with fn.loop(whole, kc) as at:
            self.row(source, sp, sk, self.width, at.index, target)

    def one_by_one(self, source: Val, sp: Val, sk: Val, valid: Index, start: Index, kc: Val, target: Val) -> None:
        with self.fn.loop(start, kc) as at:
            self.row(source, sp, sk, valid, at.index, target)

    def row(self, source: Val, sp: Val, sk: Val, valid: Index, k: Index, target: Val) -> None:
        """One k of the panel, zeros beyond `valid`."""
        fn, elem = self.fn, self.kind.element.elem
        base, out = self.at(source, fn.mul(k, sk)), fn.gep(target, fn.mul(k, self.width), elem)
        with fn.loop(0, valid) as at:
            fn.store(self.read(self.at(base, fn.mul(at.index, sp)), 1), fn.gep(out, at.index, elem))
        with fn.loop(valid, self.width) as at:
            fn.store(const(0, self.kind.element), fn.gep(out, at.index, elem))


def widened(fn: Function, v: Val, old: DType, new: DType) -> Val:
    """An element in registers as one of the accumulator's dtype: wider, or the same."""
    t = register_type(new)
    if v.ty.kind == t.kind and v.ty.bits == t.bits:
        return v
    if new.is_float:
        name = "fpext" if old.is_float else "uitofp" if old.kind in ("uint", "bool") else "sitofp"
    else:
        name = "zext" if old.kind in ("uint", "bool") else "sext"
    convert: Callable[..., Val] = fn.convert
    return convert(name, v, t)


def transpose(fn: Function, rows: list[Val]) -> list[Val]:
    """As many vectors as lanes, transposed by repeated perfect shuffles of row i with row i + half."""
    n = len(rows)
    low = [x for i in range(n // 2) for x in (i, n + i)]
    high = [x for i in range(n // 2, n) for x in (i, n + i)]
    for _ in range(n.bit_length() - 1):
        mixed: list[Val] = []
        for i in range(n // 2):
            a, b = rows[i], rows[i + n // 2]
            mixed += [fn.shuffle(a, b, low), fn.shuffle(a, b, high)]
        rows = mixed
    return rows
