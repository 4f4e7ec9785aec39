"""Element types: how each dtype is held in registers and in memory, and how one becomes another.

In registers floats up to 32 bits are f32 (already rounded to their dtype), bools are i1, complex numbers two floats.
Memory holds the storage type; small floats are packed and unpacked by integer arithmetic where no instruction does it.
"""

from __future__ import annotations

from typing import TypeAlias

from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import F32, F64, I1, Ty, Val, const, ty
from tessera.immutable import immutable
from tessera.language import dtypes, rounding
from tessera.language.dtypes import DType


@immutable
class Pair:
    """A complex value."""

    re: Val
    im: Val


Elem: TypeAlias = "Val | Pair"


def register_type(d: DType, lanes: int = 1) -> Ty:
    """The type of one component in registers."""
    if d.kind == "bool":
        return I1.wide(lanes)
    if d.is_complex:
        return (F32 if d.bits == 64 else F64).wide(lanes)
    if d.is_float:
        return (F64 if d.bits == 64 else F32).wide(lanes)
    return ty("i", d.bits, lanes)


def real_part(d: DType) -> DType:
    """The dtype of a complex dtype's components; a real dtype itself."""
    return (dtypes.f32 if d.bits == 64 else dtypes.f64) if d.is_complex else d


def memory_element(d: DType) -> str:
    """The LLVM type whose size is the element's in memory, for address arithmetic."""
    return {"f32": "float", "tf32": "float", "f64": "double"}.get(d.name, f"i{8 * d.itemsize}")


def constant(value: bool | int | float | complex, d: DType, vm: VectorMath) -> Elem:
    """`value` as an element of `d`, rounded to it."""
    if d.is_complex:
        z = complex(value)
        t = register_type(d)
        return Pair(const(z.real, t), const(z.imag, t))
    if isinstance(value, complex):
        value = value.real
    if d.kind == "bool":
        return const(bool(value), I1)
    if d.is_float:
        held = float(rounding.rounded_number(value, d)) if d.is_low_precision else float(value)
        return const(held, register_type(d))
    return const(int(value), register_type(d))


# -- rounding to the small floats --------------------------------------------------------------------------------------
def _bias(d: DType) -> int:
    return (1 << (d.exponent - 1)) - 1


def round_to(x: Val, d: DType, vm: VectorMath) -> Val:
    """x (f32) rounded to the nearest value of `d`, ties to even, still held as f32; NaN becomes 0 where `d` has none.
    Other dtypes: x itself."""
    fn = vm.fn
    if not d.is_low_precision:
        return x
    if d.name == "f16" and has_half(vm):
        half = ty("f", 16, x.ty.lanes)
        return fn.convert("fpext", fn.convert("fptrunc", x, half), F32)
    if d.name == "fp8_e8m0":
        return _to_power(x, vm)
    bits = vm.bits(x)
    keep = 23 - d.mantissa
    lsb = fn.binary("and", fn.binary("lshr", bits, const(keep, bits.ty)), const(1, bits.ty))
    bumped = fn.binary("add", bits, fn.binary("add", lsb, const((1 << (keep - 1)) - 1, bits.ty)))
    y = fn.convert("bitcast", fn.binary("and", bumped, const(-(1 << keep), bits.ty)), x.ty)
    if d.exponent < 8:
        y = _round_range(x, y, d, vm)
    if not d.has_nan:
        return fn.select(vm.is_nan(x), vm.k(0.0, x), y)
    quiet = fn.binary("or", bits, const(1 << 22, bits.ty))  # the low bits of a NaN are not stored
    return fn.select(vm.is_nan(x), fn.convert("bitcast", quiet, x.ty), y)


def _to_power(x: Val, vm: VectorMath) -> Val:
    """The nearest power of two that fp8_e8m0 holds, the greater one of two; NaN where x is negative or NaN."""
    fn = vm.fn
    bits = vm.bits(vm.abs(x))

    def k(v: int) -> Val:
        return const(v, bits.ty)

    tiny = fn.select(fn.compare("icmp ult", bits, k(0x600000)), k(0x400000), k(0x800000))  # 2**-127 is a subnormal f32
    power = fn.binary("and", fn.binary("add", bits, k(0x400000)), k(-(1 << 23)))
    power = fn.select(fn.compare("icmp ult", bits, k(0x800000)), tiny, power)
    most = k(0x7F000000)
    power = fn.select(fn.compare("icmp ugt", bits, most), most, power)
    power = fn.select(fn.compare("icmp ugt", power, most), most, power)
    known = fn.compare("fcmp oge", x, vm.k(0, x))
    return fn.select(known, fn.convert("bitcast", power, x.ty), vm.k(float("nan"), x))


def _round_range(x: Val, y: Val, d: DType, vm: VectorMath) -> Val:
    """Corrects y = x rounded to d's mantissa where d's exponent range is too small for it."""
    fn = vm.fn
    a = vm.abs(x)
    step = vm.k(
        1.5 * 2.0 ** (23 + 1 - _bias(d) - d.mantissa), x
    )  # adding it leaves multiples of the smallest subnormal
    small = vm.copysign(vm.sub(vm.add(a, step), step), x)
    y = fn.select(vm.less(a, vm.k(2.0 ** (1 - _bias(d)), x)), small, y)
    beyond = vm.greater(vm.abs(y), vm.k(d.maximum, x))
    limit = float("inf") if d.bits == 16 else d.maximum  # fp8 and smaller saturate
    return fn.select(beyond, vm.copysign(vm.k(limit, x), x), y)


def has_half(vm: VectorMath) -> bool:
    """Whether the processor converts f16 itself."""
    return vm.isa.name != "sse2"


# -- storage -----------------------------------------------------------------------------------------------------------
def storage_type(d: DType, lanes: int) -> Ty:
    """The type that is loaded and stored for `lanes` elements."""
    if d.is_complex:
        return register_type(d, 2 * lanes)
    if d.name in ("f32", "tf32", "f64"):
        return register_type(d, lanes)
    if d.name == "f16":
        return ty("i", 16, lanes)
    return ty("i", 8 * d.itemsize, lanes)


def unpack(v: Val, d: DType, vm: VectorMath) -> Elem:
    """A loaded storage value as an element."""
    fn = vm.fn
    if d.is_complex:
        lanes = v.ty.lanes // 2
        if lanes == 1:
            return Pair(fn.extract(v, 0), fn.extract(v, 1))
        return Pair(fn.shuffle(v, None, range(0, 2 * lanes, 2)), fn.shuffle(v, None, range(1, 2 * lanes, 2)))
    if d.kind == "bool":
        return fn.compare("icmp ne", v, const(0, v.ty))
    if not d.is_float or d.bits >= 32:
        return v
    if d.name == "f16" and has_half(vm):
        return fn.convert("fpext", fn.convert("bitcast", v, ty("f", 16)), F32)
    if d.name == "bf16" and _in_pairs(v, vm):
        return _halves_apart(v, vm)
    word = ty("i", 32)
    wide = fn.convert("zext", v, word)
    if d.name == "fp8_e8m0":
        least, none = (const(n, wide.ty) for n in (0x400000, 0x7FC00000))
        power = fn.select(
            fn.compare("icmp eq", wide, const(0, wide.ty)), least, fn.binary("shl", wide, const(23, wide.ty))
        )
        nan = fn.compare("icmp eq", wide, const(255, wide.ty))
        return fn.convert("bitcast", fn.select(nan, none, power), F32)
    if d.name == "bf16":
        return fn.convert("bitcast", fn.binary("shl", wide, const(16, wide.ty)), F32)
    width = d.exponent + d.mantissa
    magnitude = fn.binary("and", wide, const((1 << width) - 1, wide.ty))
    placed = fn.convert("bitcast", fn.binary("shl", magnitude, const(23 - d.mantissa, wide.ty)), F32)
    x = vm.mul(placed, vm.k(2.0 ** (127 - _bias(d)), placed))
    if d.name in ("f16", "fp8_e5m2"):
        top = const(((1 << d.exponent) - 1) << d.mantissa, wide.ty)
        special = fn.binary("or", vm.bits(placed), const(0x7F800000, wide.ty))
        x = fn.select(fn.compare("icmp uge", magnitude, top), fn.convert("bitcast", special, F32), x)
    elif d.name == "fp8_e4m3":
        x = fn.select(fn.compare("icmp eq", magnitude, const(0x7F, wide.ty)), vm.k(float("nan"), x), x)
    sign = fn.binary("shl", fn.binary("lshr", wide, const(width, wide.ty)), const(31, wide.ty))
    return fn.convert("bitcast", fn.binary("or", vm.bits(x), sign), F32)


def pack(x: Elem, d: DType, vm: VectorMath) -> Val:
    """An element (already rounded to `d`) as its storage value."""
    fn = vm.fn
    if isinstance(x, Pair):
        re, im = fn.align_lanes(x.re, x.im)
        lanes = re.ty.lanes
        if lanes == 1:
            two = re.ty.wide(2)
            one = fn.op(f"insertelement {two.text} poison, {re!r}, i64 0", two, (re,))
            return fn.op(f"insertelement {two.text} {one.ref}, {im!r}, i64 1", two, (one, im))
        return fn.shuffle(re, im, [i // 2 + (i % 2) * lanes for i in range(2 * lanes)])
    if d.kind == "bool":
        return fn.convert("zext", x, ty("i", 8))
    if not d.is_float or d.bits >= 32:
        return x
    if d.name == "f16" and has_half(vm):
        return fn.convert("bitcast", fn.convert("fptrunc", x, ty("f", 16)), ty("i", 16))
    bits = vm.bits(x)
    if d.name == "bf16" and _in_pairs(x, vm):
        words = fn.op(f"bitcast {bits!r} to <{2 * x.ty.lanes} x i16>", ty("i", 16, 2 * x.ty.lanes), (bits,))
        return fn.shuffle(words, None, range(1, words.ty.lanes, 2))
    if d.name == "bf16":
        return fn.convert("trunc", fn.binary("lshr", bits, const(16, bits.ty)), ty("i", 16))
    if d.name == "fp8_e8m0":
        return fn.convert("trunc", fn.binary("lshr", bits, const(23, bits.ty)), ty("i", 8))
    return fn.convert("trunc", _pack_small(x, bits, d, vm), ty("i", 8 * d.itemsize))


def _in_pairs(x: Val, vm: VectorMath) -> bool:
    """Whether the bf16 of two registers of f32 are one register in memory, of which AVX-512 moves each half at once."""
    return vm.isa.masks and 16 * x.ty.lanes == vm.isa.bits


def _halves_apart(v: Val, vm: VectorMath) -> Val:
    """A register of bf16 as two of f32: one instruction each moves a half of the words above zeros."""
    fn, n = vm.fn, v.ty.lanes
    upper = fn.op(f"bitcast i{n} {sum(2 << i for i in range(0, n, 2))} to <{n} x i1>", I1.wide(n), ())
    halves: list[Val] = []
    for first in (0, n // 2):
        places = Val("<" + ", ".join(f"i16 {first + i // 2}" for i in range(n)) + ">", v.ty)
        moved = fn.call_pure("llvm.x86.avx512.permvar.hi.512", v.ty, v, places)
        words = fn.select(upper, moved, const(0, v.ty))
        halves.append(fn.op(f"bitcast {words!r} to <{n // 2} x float>", F32.wide(n // 2), (words,)))
    return fn.shuffle(halves[0], halves[1], range(n))


def _pack_small(x: Val, bits: Val, d: DType, vm: VectorMath) -> Val:
    fn, i32 = vm.fn, bits.ty

    def k(v: int) -> Val:
        return const(v, i32)

    width = d.exponent + d.mantissa
    a = vm.abs(x)
    shifted = fn.binary("lshr", fn.binary("and", bits, k(0x7FFFFFFF)), k(23 - d.mantissa))
    normal = fn.binary("sub", shifted, k((127 - _bias(d)) << d.mantissa))
    tiny = vm.mul(a, vm.k(2.0 ** (_bias(d) - 1 + d.mantissa), x))
    is_tiny = vm.less(a, vm.k(2.0 ** (1 - _bias(d)), x))
    counted = fn.convert("fptosi", fn.select(is_tiny, tiny, vm.k(0, x)), ty("i", 32))
    magnitude = fn.select(is_tiny, counted, normal)
    if d.name in ("f16", "fp8_e5m2"):
        top = ((1 << d.exponent) - 1) << d.mantissa
        magnitude = fn.select(fn.compare("fcmp oeq", a, vm.k(float("inf"), x)), k(top), magnitude)
        magnitude = fn.select(vm.is_nan(x), k(top | 1 << (d.mantissa - 1)), magnitude)
    elif d.name == "fp8_e4m3":
        magnitude = fn.select(vm.is_nan(x), k(0x7F), magnitude)
    sign = fn.binary("shl", fn.binary("lshr", bits, k(31)), k(width))
    return fn.binary("or", magnitude, sign)


# -- casts -------------------------------------------------------------------------------------------------------------
def cast(x: Elem, old: DType, new: DType, vm: VectorMath) -> Elem:
    """Converts an element; floats to integers truncate and saturate (NaN gives 0)."""
    fn = vm.fn
    if old == new:
        return x
    if new.is_complex:
        if isinstance(x, Pair):
            old = real_part(old)
            return Pair(_cast_real(x.re, old, real_part(new), vm), _cast_real(x.im, old, real_part(new), vm))
        re = _cast_real(x, old, real_part(new), vm)
        return Pair(re, const(0.0, re.ty))
    if isinstance(x, Pair):
        if new.kind == "bool":
            return fn.binary("or", truth(x.re, vm), truth(x.im, vm))
        x, old = x.re, real_part(old)
    return _cast_real(x, old, new, vm)


def truth(x: Elem, vm: VectorMath) -> Val:
    """Whether x is not zero."""
    if isinstance(x, Pair):
        return vm.fn.binary("or", truth(x.re, vm), truth(x.im, vm))
    if x.ty.kind == "f":
        return vm.fn.compare("fcmp une", x, const(0.0, x.ty))
    return x if x.ty.bits == 1 else vm.fn.compare("icmp ne", x, const(0, x.ty))


def _cast_real(x: Val, old: DType, new: DType, vm: VectorMath) -> Val:
    fn, t = vm.fn, register_type(new)
    if new.kind == "bool":
        return truth(x, vm)
    if new.is_float:
        if t.bits == 32 and new != dtypes.f32 and (old == dtypes.f64 or (old.is_integer and old.bits >= 32)):
            return round_to(_to_odd(_double(x, old, vm), vm), new, vm)
        if old.is_float:
            x = fn.convert("fpext" if x.ty.bits < t.bits else "fptrunc", x, t) if x.ty.bits != t.bits else x
            return round_to(x, new, vm) if not _contains(new, old) else x
        return round_to(fn.convert("sitofp" if old.kind == "int" else "uitofp", x, t), new, vm)
    if old.is_float:
        return _whole(x, new, t, vm)
    if x.ty.bits > t.bits:
        return fn.convert("trunc", x, t)
    return fn.convert("sext" if old.kind == "int" else "zext", x, t)


def _double(x: Val, old: DType, vm: VectorMath) -> Val:
    """A double or an integer of 32 or 64 bits as f64. What that cannot hold goes to its odd neighbour."""
    fn = vm.fn
    if old.is_float:
        return x
    signed = old.kind == "int"
    if old.bits == 64:

        def k(v: int) -> Val:
            return const(v, x.ty)

        top = fn.binary("ashr" if signed else "lshr", x, k(53))
        large = fn.compare("icmp ugt", fn.binary("add", top, k(int(signed))), k(int(signed)))
        rest = fn.compare("icmp ne", fn.binary("and", x, k(0x7FF)), k(0))
        odd = fn.binary("or", fn.binary("and", x, k(-0x800)), fn.select(rest, k(0x800), k(0)))
        x = fn.select(large, odd, x)
    return fn.convert("sitofp" if signed else "uitofp", x, F64)


def _to_odd(x: Val, vm: VectorMath) -> Val:
    """An f64 as f32; what that cannot hold goes to its odd neighbour, so that a second rounding to fewer bits gives
    what one rounding would (Boldo, Melquiond: Emulation of a FMA and correctly rounded sums, 2008)."""
    fn = vm.fn
    near = fn.convert("fptrunc", x, F32)
    back, bits = fn.convert("fpext", near, F64), vm.bits(near)
    lower = fn.binary("sub", bits, const(1, bits.ty))
    below = fn.select(fn.compare("fcmp ogt", vm.abs(back), vm.abs(x)), lower, bits)
    odd = fn.convert("bitcast", fn.binary("or", below, const(1, bits.ty)), near.ty)
    return fn.select(fn.compare("fcmp one", back, x), odd, near)


def _whole(x: Val, new: DType, t: Ty, vm: VectorMath) -> Val:
    """A float as an integer of type `t`. LLVM's saturating conversions mean the same, but it takes vectors apart."""
    fn, signed = vm.fn, new.kind == "int"
    high, low = (2.0 ** (new.bits - 1), -(2.0 ** (new.bits - 1))) if signed else (2.0**new.bits, 0.0)
    above, below = fn.compare("fcmp oge", x, vm.k(high, x)), fn.compare("fcmp olt", x, vm.k(low, x))
    inside = fn.compare("fcmp oge", x, vm.k(low, x))  # not for NaN
    inside = fn.binary("and", inside, fn.compare("fcmp olt", x, vm.k(high, x)))
    x = fn.select(inside, x, vm.k(0, x))
    wide = t if t.bits >= 32 else ty("i", 32)
    y = fn.convert("fptosi" if signed or t.bits < 32 else "fptoui", x, wide)
    y = y if wide is t else fn.convert("trunc", y, t)
    ends = const(int(new.maximum), y.ty), const(-int(new.maximum) - 1 if signed else 0, y.ty)
    return fn.select(above, ends[0], fn.select(below, ends[1], y))


def _contains(wide: DType, narrow: DType) -> bool:
    """Whether every value of float dtype `narrow` is one of `wide`."""
    return wide.exponent >= narrow.exponent and wide.mantissa >= narrow.mantissa


def lanes_of(x: Elem) -> int:
    return x.re.ty.lanes if isinstance(x, Pair) else x.ty.lanes


def scope_of(x: Elem) -> int:
    return max(x.re.scope, x.im.scope) if isinstance(x, Pair) else x.scope


def widen(x: Elem, lanes: int, fn: LLVMFunction) -> Elem:
    """x in every lane of `lanes`."""
    if isinstance(x, Pair):
        return Pair(fn.splat(x.re, lanes), fn.splat(x.im, lanes))
    return fn.splat(x, lanes)


def choose(c: Val, a: Elem, b: Elem, fn: LLVMFunction) -> Elem:
    """c ? a : b, lane by lane."""
    if isinstance(a, Pair) and isinstance(b, Pair):
        return Pair(fn.select(c, a.re, b.re), fn.select(c, a.im, b.im))
    assert isinstance(a, Val) and isinstance(b, Val)
    return fn.select(c, a, b)
