"""Products in tile registers (AMX): blocks of up to 32 rows and 32 columns in four registers of 16 rows of 64 bytes.

`tdpbf16ps` multiplies 16 rows of 32 bf16 with 32 rows of 16 columns, which are stored as words of two neighbours in k:
for each element the products of even k are one chain of 16 fused multiply-adds, those of odd k another one; both start
at zero, and their sum is added to the element. All of it rounds to nearest, and subnormal operands and sums count as
zero. `tdpbssd` and its like multiply four bytes of any sign for each word, modulo 2**32.

So the products of bf16 have an order of their own (docs/decisions/0117): blocks of 32 products are added one after the
other, up to those of a group (language/order.py); groups are added in ascending order.

The registers are configured where a product begins, and released where it ends: no other code sees their state.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.elementary.convert import register_type
from tessera.compiler.targets.cpu.kernel.chains import added
from tessera.compiler.targets.cpu.kernel.instructions.narrow import BYTES, WORDS
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I64, PTR, Index, Val
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.order import SPAN

ROWS = 16
"""of a register, each of 64 bytes; also the words of a row"""
SUMS, LEFT, RIGHT = 0, 4, 6
"""the first register of the four of sums, of the two of either operand"""


@immutable
class TileBlock:
    """A block of `height` by `width` sums in registers of `rows` rows; `words` hold `together` neighbours in k of the
    operands' dtypes. `groups`: there may be several; `accumulate`: C holds what the products are added to."""

    lhs: DType
    rhs: DType
    acc: DType
    height: int
    width: int
    together: int
    groups: bool
    accumulate: bool

    @property
    def rows(self) -> int:
        return self.height if self.height <= ROWS else self.height // 2


def fits(isa: VectorISA, lhs: DType, rhs: DType, acc: DType) -> bool:
    """Whether tile registers multiply these dtypes."""
    if lhs == rhs == dtypes.bf16 and acc == dtypes.f32:
        return isa.bf16_tiles
    return isa.byte_tiles and lhs in BYTES and rhs in BYTES and acc in WORDS


def configure(fn: LLVMFunction, rows: int) -> None:
    """Left operands and sums have `rows` rows each."""
    shapes = [rows] * LEFT + [rows] * (RIGHT - LEFT) + [ROWS] * 2
    # palette 1; from byte 16 on the bytes of a row of each register, from byte 48 on their rows
    data = [1] + [0] * 15 + [64, 0] * 8 + [0] * 16 + shapes + [0] * 8
    name = f"@tiles_of_{rows}"
    values = ", ".join(f"i8 {b}" for b in data)
    text = f"{name} = private constant [64 x i8] [{values}], align 64"
    if text not in fn.module.globals:
        fn.module.globals.append(text)
    _do(fn, "ldtilecfg", f"ptr {name}")


def release(fn: LLVMFunction) -> None:
    _do(fn, "tilerelease")


def micro_kernel(module: LLVMModule, name: str, kind: TileBlock) -> str:
    """The block's sums += panel of A times panel of B, with the parameters of the other micro-kernels.

    The sums of the first group are in C, those of later ones in `sums` until they are added to C at their end.
    """
    params = [("a", PTR), ("b", PTR), ("c", PTR), ("sums", PTR), ("kc", I64), ("ldc", I64), ("at", I64), ("k", I64)]
    fn = LLVMFunction(module, name, params)
    a, b, c, sums, kc, ldc, at, k = (fn.param(i) for i in range(8))
    elem, down, across = register_type(kind.acc).elem, kind.height // kind.rows, kind.width // ROWS
    place, later = c, fn.icmp("sge", at, SPAN)
    if kind.groups:
        place = fn.select(later, sums, c)
    pitch = fn.mul(ldc, kind.acc.itemsize)
    registers = [
        (SUMS + 2 * i + j, fn.gep(place, fn.add(fn.mul(ldc, i * kind.rows), j * ROWS), elem))
        for i in range(down)
        for j in range(across)
    ]

    def load() -> None:
        for number, p in registers:
            _do(fn, "tileloadd64", f"i8 {number}", f"ptr {p.ref}", repr(pitch))

    def clear() -> None:
        for number, _ in registers:
            _do(fn, "tilezero", f"i8 {number}")

    begins = fn.icmp("eq", fn.mod(at, SPAN) if kind.groups else at, 0)
    if kind.accumulate:
        begins = fn.binary("and", begins, fn.icmp("sgt", at, 0))
    fn.either(begins, clear, load)
    step = ROWS * kind.together
    with fn.loop(0, fn.div(fn.add(kc, step - 1), step)) as each:
        left = fn.gep(a, fn.mul(each.index, kind.height * ROWS), "i32")
        right = fn.gep(b, fn.mul(each.index, kind.width * ROWS), "i32")
        loaded: set[int] = set()

        def operand(register: int, p: Val, stride: int) -> int:
            if register not in loaded:
                loaded.add(register)
                _do(fn, "tileloadd64", f"i8 {register}", f"ptr {p.ref}", f"i64 {stride}")
            return register

        for i in range(down):
            for j in range(across):
                y = operand(RIGHT + j, fn.gep(right, j * ROWS, "i32"), 4 * kind.width)
                x = operand(LEFT + i, fn.gep(left, i * kind.rows * ROWS, "i32"), 4 * ROWS)
                add_products(fn, kind.lhs, kind.rhs, SUMS + 2 * i + j, x, y)
    for number, p in registers:
        _do(fn, "tilestored64", f"i8 {number}", f"ptr {p.ref}", repr(pitch))
    if kind.groups:
        end = fn.add(at, kc)
        ends = fn.binary("or", fn.icmp("eq", end, k), fn.icmp("eq", fn.mod(end, SPAN), 0))
        with fn.when(fn.binary("and", later, ends)):
            _add(fn, kind, sums, c, ldc)
    return module.only_one(fn)


def _add(fn: LLVMFunction, kind: TileBlock, sums: Val, c: Val, ldc: Index) -> None:
    """A group's sums are added to the block of C."""
    element = register_type(kind.acc)
    vector, elem = element.wide(ROWS), element.elem
    with fn.loop(0, kind.height) as row:
        for j in range(0, kind.width, ROWS):
            at = fn.add(fn.mul(row.index, ldc), j)
            p, q = fn.gep(c, at, elem), fn.gep(sums, at, elem)
            both = (fn.load(x, vector, kind.acc.itemsize) for x in (p, q))
            fn.store(added(fn, *both), p, kind.acc.itemsize)


def add_products(fn: LLVMFunction, lhs: DType, rhs: DType, sums: int, x: int, y: int) -> None:
    """The register `sums` += those of the left operand x and of the right one y."""
    signs = "".join("u" if t == dtypes.uint8 else "s" for t in (lhs, rhs))
    name = "tdpbf16ps" if lhs == dtypes.bf16 else f"tdpb{signs}d"
    _do(fn, name, *(f"i8 {register}" for register in (sums, x, y)))


def _do(fn: LLVMFunction, name: str, *args: str) -> None:
    """An instruction on tile registers, which LLVM takes by their numbers."""
    types = ", ".join(x.split()[0] for x in args)
    fn.module.declare(f"declare void @llvm.x86.{name}({types})")
    fn.do(f"call void @llvm.x86.{name}({', '.join(args)})")
