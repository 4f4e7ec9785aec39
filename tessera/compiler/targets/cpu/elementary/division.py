"""Integer division of vectors, rounding down; processors divide integers one at a time, if at all.

Known divisors become shifts or a multiplication by the reciprocal (Granlund & Montgomery, PLDI 1994); up to 32 bits the
quotient of floats is exact enough to be rounded down; 64 bits take two quotients of f64, the second of the remainder.
A zero divisor gives 0, as in NumPy.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.llvm.values import Val, const, ty
from tessera.language.dtypes import DType


def floor_divide(x: Val, y: Val, dtype: DType, vm: VectorMath) -> Val:
    """floor(x / y)."""
    fn, signed = vm.fn, dtype.kind == "int"
    if y.const is not None:
        found = _by_constant(x, int(y.const), dtype, vm)
        if found is not None:
            return found
    zero = fn.compare("icmp eq", y, const(0, y.ty))
    safe = fn.select(zero, const(1, y.ty), y)
    if dtype.bits <= 32:
        q = _by_float(x, safe, dtype, vm)
    elif not signed:
        q = fn.binary("udiv", x, safe)
    else:
        minus = fn.compare("icmp eq", y, const(-1, y.ty))  # the smallest integer over -1 would trap
        safe = fn.select(minus, const(1, y.ty), safe)
        q = _by_two_floats(x, safe, vm) if vm.isa.masks and x.ty.lanes > 1 else _one_by_one(x, safe, vm)
        q = fn.select(minus, fn.binary("sub", const(0, x.ty), x), q)
    return fn.select(zero, const(0, x.ty), q)


def remainder(x: Val, y: Val, dtype: DType, vm: VectorMath) -> Val:
    """x - y * floor(x / y); 0 for a zero divisor."""
    fn = vm.fn
    if y.const is not None and _is_power(int(y.const)):
        return fn.binary("and", x, const(int(y.const) - 1, x.ty))
    product = fn.binary("mul", floor_divide(x, y, dtype, vm), y)
    zero = fn.compare("icmp eq", y, const(0, y.ty))
    return fn.select(zero, const(0, x.ty), fn.binary("sub", x, product))


def _is_power(c: int) -> bool:
    return c > 0 and c & (c - 1) == 0


def _by_constant(x: Val, c: int, dtype: DType, vm: VectorMath) -> Val | None:
    """By a divisor known here; None where it is as good as any other."""
    fn, signed = vm.fn, dtype.kind == "int"
    if c == 0:
        return const(0, x.ty)
    if _is_power(c):
        return fn.binary("ashr" if signed else "lshr", x, const(c.bit_length() - 1, x.ty))
    if not signed or c < 0 or dtype.bits > 32:
        return None
    # floor(x / c) is ~floor(~x / c) for negative x: xor with the sign makes x one of 0 ... 2**n - 1
    n, steps = dtype.bits - 1, (c - 1).bit_length()
    multiplier = (1 << (n + steps)) // c + 1
    sign = fn.binary("ashr", x, const(n, x.ty))
    wide = fn.convert("zext", fn.binary("xor", x, sign), ty("i", 2 * dtype.bits))
    product = fn.binary("mul", wide, const(multiplier, wide.ty))
    q = fn.convert("trunc", fn.binary("lshr", product, const(n + steps, wide.ty)), x.ty)
    return fn.binary("xor", q, sign)


def _by_float(x: Val, y: Val, dtype: DType, vm: VectorMath) -> Val:
    """Up to 32 bits: a quotient that is not an integer is further from one than the float's rounding."""
    fn, signed = vm.fn, dtype.kind == "int"
    t = ty("f", 32 if dtype.bits <= 16 else 64)
    name = "sitofp" if signed else "uitofp"
    f = vm.floor(vm.div(fn.convert(name, x, t), fn.convert(name, y, t)))
    whole = fn.convert("fptosi", f, ty("i", 64 if dtype.bits == 32 else 32))  # wide enough for -2**31 // -1
    return fn.convert("trunc", whole, x.ty)


def _by_two_floats(x: Val, y: Val, vm: VectorMath) -> Val:
    """Signed 64 bits: the f64 quotient is off by at most 2**12; that of the remainder is the nearest integer."""
    fn, t = vm.fn, ty("f", 64)
    divisor = fn.convert("sitofp", y, t)
    largest = const(
        2.0**63 - 1024, t.wide(x.ty.lanes)
    )  # the next float, to which 2**63 - 1 is rounded, is not an integer

    def quotient(of: Val) -> Val:
        f = vm.rint(vm.div(fn.convert("sitofp", of, t), divisor))
        return fn.convert("fptosi", fn.intrinsic("minnum", f.ty, f, largest), x.ty)

    first = quotient(x)
    rest = fn.binary("sub", x, fn.binary("mul", first, y))
    second = quotient(rest)
    rest = fn.binary("sub", rest, fn.binary("mul", second, y))
    q = fn.binary("add", first, second)
    # now 2 |rest| <= |y| up to rounding: down by one where its sign is not the divisor's
    zero = const(0, x.ty)
    wrong = fn.compare("icmp slt", fn.binary("xor", rest, y), zero)
    low = fn.binary("and", wrong, fn.compare("icmp ne", rest, zero))
    return fn.binary("sub", q, fn.convert("zext", low, x.ty))


def _one_by_one(x: Val, y: Val, vm: VectorMath) -> Val:
    fn = vm.fn
    q, r = fn.binary("sdiv", x, y), fn.binary("srem", x, y)
    uneven = fn.compare("icmp ne", r, const(0, r.ty))
    opposite = fn.compare("icmp slt", fn.binary("xor", r, y), const(0, r.ty))
    return fn.binary("sub", q, fn.convert("zext", fn.binary("and", uneven, opposite), q.ty))
