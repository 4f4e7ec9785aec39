"""Instructions that add several products of narrow numbers to each lane of f32 or int32.

The operands of such an instruction are words of 32 bits that hold neighbours in k. What it computes:

- `vdpbf16ps` (AVX512_BF16): two fused multiply-adds of bf16, that of the upper halves first, each rounded to nearest;
  subnormal operands and sums count as zero. With the earlier k in the upper half it adds in the order of
  language/order.py, so the bits are those of `fma` wherever all of these numbers are normal. `vcvtne2ps2bf16` rounds
  such sums.
- `vpdpbusd` (AVX512_VNNI, AVX_VNNI): four products of an unsigned and a signed byte, modulo 2**32. Where both operands
  are signed or both unsigned, the right one is moved by 128, and 128 times the sum of the left one is taken off again.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I8, Ty, Val, const, ty
from tessera.language import dtypes
from tessera.language.dtypes import DType

BFLOAT = ty("bf", 16)
BYTES = (dtypes.int8, dtypes.uint8)
WORDS = (dtypes.int32, dtypes.uint32)


def together(isa: VectorISA, lhs: DType, rhs: DType, acc: DType) -> int:
    """How many products one instruction adds to a lane; 1 where none of these instructions fits."""
    if (isa.bf16_products or isa.bf16_tiles) and lhs == rhs == dtypes.bf16 and acc == dtypes.f32:
        return 2
    if (isa.byte_products or isa.byte_tiles) and lhs in BYTES and rhs in BYTES and acc in WORDS:
        return 4
    return 1


def is_moved(lhs: DType, rhs: DType) -> bool:
    """Whether the right operand's bytes are packed 128 off, so that one operand is signed and the other is not."""
    return lhs in BYTES and lhs == rhs


def add_pairs(fn: LLVMFunction, x: Val, y: Val, z: Val) -> Val:
    """z + the products of the halves of x and y, the upper ones first."""
    bits = 32 * z.ty.lanes
    return _call(fn, f"llvm.x86.avx512bf16.dpbf16ps.{bits}", x, y, z, BFLOAT)


def add_bytes(fn: LLVMFunction, x: Val, y: Val, z: Val) -> Val:
    """z + the products of x's bytes, unsigned, and y's, signed."""
    return _call(fn, f"llvm.x86.avx512.vpdpbusd.{32 * z.ty.lanes}", x, y, z, I8)


def moved_by(fn: LLVMFunction, lhs: DType, rhs: DType, x: Val, z: Val) -> Val:
    """z + what moving the right operand adds to the products with the words `x` of the left one."""
    halves = const(0x80808080, x.ty)  # 128 each where the right bytes are unsigned, -128 where they are signed
    return add_products(fn, lhs, rhs, x, halves, z)


def add_products(fn: LLVMFunction, lhs: DType, rhs: DType, x: Val, y: Val, z: Val) -> Val:
    """z + the products of the words x of the left operand and y of the right one."""
    if lhs == dtypes.bf16:
        return add_pairs(fn, x, y, z)
    return add_bytes(fn, x, y, z) if lhs == dtypes.uint8 else add_bytes(fn, y, x, z)


def rounded(fn: LLVMFunction, *parts: Val) -> Val:
    """One or two vectors of 16 sums of `add_pairs` as they are stored in bf16, rounded to nearest; subnormal ones count
    as zero, as in the sums."""
    name, lanes = ("cvtne2ps2bf16" if len(parts) == 2 else "cvtneps2bf16"), 16 * len(parts)
    found = fn.call_pure(f"llvm.x86.avx512bf16.{name}.512", BFLOAT.wide(lanes), *reversed(parts))
    stored = ty("i", 16, lanes)
    return fn.op(f"bitcast {found!r} to {stored.text}", stored, (found,))


def _call(fn: LLVMFunction, name: str, x: Val, y: Val, z: Val, element: Ty) -> Val:
    t = element.wide(x.ty.bits * x.ty.lanes // element.bits)
    parts = [fn.op(f"bitcast {v.ty.text} {v.ref} to {t.text}", t, (v,)) for v in (x, y)]
    return fn.call_pure(name, z.ty, z, *parts)
