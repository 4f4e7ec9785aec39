"""A packed, register-blocked matrix product: C = A @ B over strided operands, as one function of a module.

The scheme is that of Goto and van de Geijn (2008): for each slab of `KC` columns of A, panels of A and of B are packed
(converting storage types on the way) and a micro-kernel keeps an MR x NR block of C in registers. Slabs are whole
chains of products (language/order.py), and groups of chains are whole slabs: blocking and threads do not change a bit.
The sum of a group stands in C where there is one, else in a second matrix, and is added to C at the group's end.

Complex matrices are packed as real ones of twice the size: a row (re, im) for each element of A, and the rows (re, im)
and (-im, re) for each of B, so that the product of the real matrices is C as it lies in memory. An element's products
ascend with k, those of the real part before those of the imaginary one.

C is scratch of the caller: `rows(m)` rows of `ldc` elements, a multiple of NR; what lies beyond m and n is filler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tessera.compiler.targets.cpu.elementary.convert import Pair, memory_element, register_type, storage_type, unpack
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.kernel.chains import added
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.transpose import transpose
from tessera.compiler.targets.cpu.llvm.values import I1, I64, PTR, Index, Ty, Val, const
from tessera.language.dtypes import DType
from tessera.language.order import CHAIN, SPAN

KC = 256
"""columns of A packed at a time: an MR x KC panel of A and a KC x NR panel of B share the first-level cache"""
assert KC % CHAIN == 0 and SPAN % KC == 0, "a slab is whole chains, a group whole slabs"


@dataclass(frozen=True, slots=True)
class PackedMatmul:
    """One kind of product. `lhs_along` says which axis of A has stride 1 ("m", "k" or ""), `rhs_along` which of B.

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
        return self.lanes if self.columns <= self.lanes else 2 * self.lanes

    @property
    def name(self) -> str:
        along = f"{self.lhs_along or 'x'}{self.rhs_along or 'x'}"
        size = f"{self.mr}x{self.nr}_{self.levels}"
        return f"matmul_{self.lhs}_{self.rhs}_{self.acc}_{along}_{size}{'_add' if self.accumulate else ''}"

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
    ("m", I64), ("n", I64), ("k", I64),
]  # fmt: skip
"""of every function that multiplies: C = A @ B"""


def matmul_function(module: LLVMModule, kind: PackedMatmul) -> str:
    """The name of the function `void(A, strides of m and k, B, strides of k and n, C, ldc, m, n, k, workspace, sums)`.

    It is written into `module` at first use. Strides count elements; C, the workspace and `sums` are aligned to 64
    bytes. `sums` is a matrix like C where there may be several groups of chains; else it is C.
    """
    if any(f.name == kind.name for f in module.functions):
        return kind.name
    pack_lhs, pack_rhs = (_pack_function(module, kind, right) for right in (False, True))
    micro = _micro_kernel(module, kind)
    fn = LLVMFunction(module, kind.name, [*PARAMETERS, ("work", PTR), ("sums", PTR)])
    a, sam, sak, b, sbk, sbn, c, ldc, m, n, k, work, sums = (fn.param(i) for i in range(13))
    elem = kind.element.elem
    panels = fn.div(fn.add(m, kind.mr - 1), kind.mr)
    packed_rhs = fn.gep(work, fn.add(fn.mul(fn.mul(panels, kind.mr), KC), kind.lanes), elem)
    packed_rhs = _aligned(fn, packed_rhs)
    if not kind.accumulate:
        with fn.when(fn.icmp("eq", k, 0)):
            _clear(fn, kind, c, fn.mul(fn.mul(panels, kind.mr), ldc))
    with fn.loop(0, k, KC) as slab:
        kc = fn.smin(KC, fn.sub(k, slab.index))
        row_k, column_k = (fn.div(slab.index, parts(d)) for d in (kind.lhs, kind.rhs))
        with fn.loop(0, panels) as p:
            row = fn.mul(p.index, kind.mr)
            source = fn.gep(a, fn.add(fn.mul(row, sam), fn.mul(row_k, sak)), memory_element(kind.lhs))
            target = fn.gep(work, fn.mul(row, KC), elem)
            _call(fn, pack_lhs, source, sam, sak, fn.smin(kind.mr, fn.sub(m, row)), kc, target)
        with fn.loop(0, n, kind.nr) as q:
            column = fn.div(q.index, parts(kind.rhs))
            source = fn.gep(b, fn.add(fn.mul(column, sbn), fn.mul(column_k, sbk)), memory_element(kind.rhs))
            _call(fn, pack_rhs, source, sbn, sbk, fn.smin(kind.nr, fn.sub(n, q.index)), kc, packed_rhs)
            with fn.loop(0, panels) as p:
                row = fn.mul(p.index, kind.mr)
                panel = fn.gep(work, fn.mul(row, KC), elem)
                at = fn.add(fn.mul(row, ldc), q.index)
                _call(fn, micro, panel, packed_rhs, fn.gep(c, at, elem), fn.gep(sums, at, elem), kc, ldc, slab.index, k)
    return kind.name


def parts(dtype: DType) -> int:
    """Real numbers of an element."""
    return 2 if dtype.is_complex else 1


def _call(fn: LLVMFunction, name: str, *args: Index) -> None:
    fn.do(f"call void @{name}({', '.join(repr(fn.index(a)) for a in args)})")


def _aligned(fn: LLVMFunction, p: Val) -> Val:
    address = fn.op(f"ptrtoint ptr {p.ref} to i64", I64, [p])
    up = fn.op(f"and i64 {fn.index(fn.add(address, 63)).ref}, -64", I64, [address])
    return fn.op(f"inttoptr i64 {up.ref} to ptr", PTR, [up])


def _clear(fn: LLVMFunction, kind: PackedMatmul, c: Val, count: Index) -> None:
    zero = const(0, kind.element)
    with fn.loop(0, count) as at:
        fn.store(zero, fn.gep(c, at.index, kind.element.elem))


# -- the block in registers -------------------------------------------------------------------------------------------
def _micro_kernel(module: LLVMModule, kind: PackedMatmul) -> str:
    """The block's sums of a group += panel of A times panel of B, chain by chain; C += those sums at the group's end.

    `at` is how far k was before this slab, `k` where it ends.
    """
    name = f"micro_{kind.name}"
    params = [("a", PTR), ("b", PTR), ("c", PTR), ("sums", PTR), ("kc", I64), ("ldc", I64), ("at", I64), ("k", I64)]
    fn = LLVMFunction(module, name, params)
    a, b, c, sums, kc, ldc, at, k = (fn.param(i) for i in range(8))
    vector, elem = kind.element.wide(kind.lanes), kind.element.elem
    vectors = kind.nr // kind.lanes

    def block(base: Val) -> list[Val]:
        return [
            fn.gep(base, fn.add(fn.mul(ldc, i), j * kind.lanes), elem) for i in range(kind.mr) for j in range(vectors)
        ]

    def load(places: list[Val]) -> list[Val]:
        return [fn.load(p, vector, kind.acc.itemsize) for p in places]

    zeros = [const(0, vector)] * (kind.mr * vectors)
    group = block(sums if kind.levels == 3 else c)
    with fn.loop(0, kc, CHAIN) as part:
        done = fn.add(at, part.index)
        start = zeros
        if kind.accumulate:
            start = fn.choose(fn.icmp("eq", done, 0), lambda: load(block(c)), lambda: zeros)
        with fn.loop(part.index, fn.smin(fn.add(part.index, CHAIN), kc), 1, start) as chain:
            chain.next = _products(fn, kind, a, b, chain.index, chain.carried)
        first = fn.icmp("eq", fn.mod(done, SPAN) if kind.levels == 3 else done, 0)
        total = chain.results
        if kind.levels > 1:
            total = fn.choose(
                first,
                lambda: chain.results,
                lambda: [added(fn, x, y) for x, y in zip(load(group), chain.results, strict=True)],
            )
        for p, v in zip(group, total, strict=True):
            fn.store(v, p, kind.acc.itemsize)
    if kind.levels == 3:
        end = fn.add(at, kc)
        last = fn.binary("or", fn.icmp("eq", end, k), fn.icmp("eq", fn.mod(end, SPAN), 0))
        with fn.when(last):
            places, whole = block(c), load(group)
            total = fn.choose(
                fn.icmp("sle", end, SPAN),
                lambda: whole,
                lambda: [added(fn, x, y) for x, y in zip(load(places), whole, strict=True)],
            )
            for p, v in zip(places, total, strict=True):
                fn.store(v, p, kind.acc.itemsize)
    return name


def _products(fn: LLVMFunction, kind: PackedMatmul, a: Val, b: Val, k: Val, sums: list[Val]) -> list[Val]:
    """The block with the products of one k added."""
    vector, elem = kind.element.wide(kind.lanes), kind.element.elem
    vectors = kind.nr // kind.lanes
    row = fn.gep(b, fn.mul(k, kind.nr), elem)
    rights = [fn.load(fn.gep(row, j * kind.lanes, elem), vector, 64) for j in range(vectors)]
    column = fn.gep(a, fn.mul(k, kind.mr), elem)
    following: list[Val] = []
    for i in range(kind.mr):
        left = fn.splat(fn.load(fn.gep(column, i, elem), kind.element), kind.lanes)
        for j in range(vectors):
            following.append(_multiply_add(fn, kind, left, rights[j], sums[i * vectors + j]))
    return following


def _multiply_add(fn: LLVMFunction, kind: PackedMatmul, x: Val, y: Val, z: Val) -> Val:
    if kind.acc.is_float:
        return VectorMath(fn, kind.isa).fma(x, y, z)
    return fn.binary("add", fn.binary("mul", x, y), z)


# -- packing ----------------------------------------------------------------------------------------------------------
def _pack_function(module: LLVMModule, kind: PackedMatmul, right: bool) -> str:
    """`void(source, panel stride, k stride, valid, kc, target)`: target[k][width] with zeros beyond `valid`."""
    storage, width = (kind.rhs, kind.nr) if right else (kind.lhs, kind.mr)
    along_panel, along_k = (
        (kind.rhs_along == "n", kind.rhs_along == "k") if right else (kind.lhs_along == "m", kind.lhs_along == "k")
    )
    how = "p" if along_panel else "k" if along_k else "x"
    if storage.is_complex:
        how = "right" if right else "left"
    name = f"pack_{storage}_{kind.acc}_{how}{width}_{kind.isa.name}"
    if any(f.name == name for f in module.functions):
        return name
    params = [("source", PTR), ("sp", I64), ("sk", I64), ("valid", I64), ("kc", I64), ("target", PTR)]
    packer = _Packer(LLVMFunction(module, name, params), kind, storage, width)
    fn = packer.fn
    source, sp, sk, valid, kc, target = (fn.param(i) for i in range(6))
    if storage.is_complex:
        packer.complex(source, sp, sk, valid, kc, target, right)
        return name
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
    fn: LLVMFunction
    kind: PackedMatmul
    storage: DType
    width: int

    @property
    def vm(self) -> VectorMath:
        return VectorMath(self.fn, self.kind.isa)

    def read(self, p: Val, lanes: int) -> Val:
        """`lanes` consecutive elements in the accumulator's type."""
        fn, vm = self.fn, self.vm
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
        """k has stride 1: square blocks are transposed in registers; the rest of k is copied element by element.

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

    def complex(self, source: Val, sp: Val, sk: Val, valid: Index, kc: Val, target: Val, right: bool) -> None:
        """Complex elements as real numbers: on the right two columns for each, and two rows of k on either side."""
        fn, elem = self.fn, self.kind.element.elem
        across = 2 if right else 1
        zero = const(0, self.kind.element)
        with fn.loop(0, fn.div(kc, 2)) as at:
            base = self.at(source, fn.mul(at.index, sk))
            lines = [fn.gep(target, fn.mul(fn.add(fn.mul(at.index, 2), i), self.width), elem) for i in range(2)]
            with fn.loop(0, fn.div(valid, across)) as one:
                p = self.at(base, fn.mul(one.index, sp))
                loaded = unpack(
                    fn.load(p, storage_type(self.storage, 1), self.storage.itemsize // 2), self.storage, self.vm
                )
                assert isinstance(loaded, Pair)
                re, im = loaded.re, loaded.im
                for line, values in zip(
                    lines, ((re, im), (self.vm.neg(im), re)) if right else ((re,), (im,)), strict=True
                ):
                    for j, v in enumerate(values):
                        fn.store(v, fn.gep(line, fn.add(fn.mul(one.index, across), j), elem))
            with fn.loop(valid, self.width) as rest:
                for line in lines:
                    fn.store(zero, fn.gep(line, rest.index, elem))


def widened(fn: LLVMFunction, v: Val, old: DType, new: DType) -> Val:
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
