"""The scalar functions of `language.scalars.TABLE` on vectors: what `tile.<name>` computes for each dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tessera.compiler.targets.cpu.elementary.convert import Elem, Pair, cast, choose, register_type, round_to, truth
from tessera.compiler.targets.cpu.elementary.division import floor_divide, remainder
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.llvm.values import I1, Val, const, ty
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

COMPARE = {
    "eq": ("oeq", "eq"),
    "ne": ("une", "ne"),
    "lt": ("olt", "lt"),
    "le": ("ole", "le"),
    "gt": ("ogt", "gt"),
    "ge": ("oge", "ge"),
}
LOGIC = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
BITWISE = {"bit_and": "and", "bit_or": "or", "bit_xor": "xor"}


class Unsupported(Exception):
    """The CPU target has no meaning for this operator on this dtype."""


def apply(
    name: str, operands: Sequence[Elem], dtype: DType, result: DType, vm: VectorMath, narrow: DType | None = None
) -> Elem:
    """`name` applied to elements of `dtype` (the last operands' dtype), giving an element of `result`; `narrow`: what
    the result is then rounded to, where it needs no more digits than that."""
    if name == "where":
        c, a, b = operands
        assert isinstance(c, Val)
        return choose(c, a, b, vm.fn)
    if name in LOGIC:
        return vm.fn.binary(LOGIC[name], truth(operands[0], vm), truth(operands[1], vm))
    if name == "logical_not":
        t = truth(operands[0], vm)
        return vm.fn.binary("xor", t, const(True, t.ty))
    if name == "make_complex":
        re, im = (round_to(v, dtype, vm) for v in operands if isinstance(v, Val))
        return Pair(re, im)
    if dtype.is_complex:
        return _complex(name, [o for o in operands if isinstance(o, Pair)], vm)
    values = [o for o in operands if isinstance(o, Val)]
    if name in COMPARE:
        return _compare(name, values, dtype, vm)
    if TABLE[name].gives == "float" and not dtype.is_float:
        values = [v for v in (cast(v, dtype, result, vm) for v in values) if isinstance(v, Val)]
        dtype = result
    if dtype.is_float:
        if name == "gelu" and narrow is not None and narrow.bits <= 16:
            return vm.short_gelu(values[0], narrow.exponent)
        y = _float(name, values, vm)
        return round_to(y, result, vm) if y.ty.kind == "f" else y
    return _integer(name, values, dtype, vm)


def _compare(name: str, v: Sequence[Val], dtype: DType, vm: VectorMath) -> Val:
    floating, integral = COMPARE[name]
    if dtype.is_float:
        return vm.fn.compare(f"fcmp {floating}", *v)
    if integral not in ("eq", "ne"):
        integral = ("s" if dtype.kind == "int" else "u") + integral
    return vm.fn.compare(f"icmp {integral}", *v)


# -- floats ------------------------------------------------------------------------------------------------------------
def _extreme(predicate: str) -> Callable[[VectorMath, Val, Val], Val]:
    def emit(vm: VectorMath, a: Val, b: Val) -> Val:
        m = vm.select(vm.fn.compare(f"fcmp {predicate}", a, b), a, b)  # b where either is NaN
        return vm.select(vm.is_nan(a), a, m)

    return emit


def _sign(vm: VectorMath, x: Val) -> Val:
    zero = vm.k(0, x)  # for -0 as well
    none = vm.select(vm.is_nan(x), x, zero)
    return vm.select(vm.greater(x, zero), vm.k(1, x), vm.select(vm.less(x, zero), vm.k(-1, x), none))


def _signbit(vm: VectorMath, x: Val) -> Val:
    bits = vm.bits(x)
    return vm.fn.compare("icmp slt", bits, const(0, bits.ty))


def _relu(vm: VectorMath, x: Val) -> Val:
    return vm.select(vm.less(x, vm.k(0, x)), vm.k(0, x), x)


FLOAT: dict[str, Callable[..., Val]] = {
    "add": VectorMath.add, "sub": VectorMath.sub, "mul": VectorMath.mul, "div": VectorMath.div,
    "floordiv": VectorMath.floordiv, "mod": VectorMath.mod, "pow": VectorMath.pow, "atan2": VectorMath.atan2,
    "fma": VectorMath.fma, "maximum": _extreme("ogt"), "minimum": _extreme("olt"),
    "neg": VectorMath.neg, "abs": VectorMath.abs, "sign": _sign, "relu": _relu, "sqrt": VectorMath.sqrt,
    "exp": VectorMath.exp, "exp2": VectorMath.exp2, "expm1": VectorMath.expm1,
    "log": VectorMath.log, "log2": VectorMath.log2, "log10": VectorMath.log10, "log1p": VectorMath.log1p,
    "rsqrt": VectorMath.rsqrt, "reciprocal": VectorMath.reciprocal, "square": VectorMath.square,
    "sin": VectorMath.sin, "cos": VectorMath.cos, "tan": VectorMath.tan, "atan": VectorMath.atan,
    "sinh": VectorMath.sinh, "cosh": VectorMath.cosh, "tanh": VectorMath.tanh,
    "erf": VectorMath.erf, "sigmoid": VectorMath.sigmoid, "silu": VectorMath.silu, "softplus": VectorMath.softplus,
    "gelu": VectorMath.gelu, "gelu_tanh": VectorMath.gelu_tanh,
    "isnan": VectorMath.is_nan, "signbit": _signbit,
    "isinf": VectorMath.is_infinite, "isfinite": VectorMath.is_finite,
    "floor": VectorMath.floor, "ceil": VectorMath.ceil, "round": VectorMath.rint, "trunc": VectorMath.trunc,
}  # fmt: skip


def _float(name: str, v: Sequence[Val], vm: VectorMath) -> Val:
    if name not in FLOAT:
        raise Unsupported
    return FLOAT[name](vm, *v)


# -- integers and bools ------------------------------------------------------------------------------------------------
def _integer(name: str, v: Sequence[Val], dtype: DType, vm: VectorMath) -> Val:
    fn, x = vm.fn, v[0]
    sign = "s" if dtype.kind == "int" else "u"
    if dtype.kind == "bool":
        simple = {"add": "or", "maximum": "or", "mul": "and", "minimum": "and", **BITWISE}
        if name in simple:
            return fn.binary(simple[name], *v)
        if name == "bit_not":
            return fn.binary("xor", x, const(True, x.ty))
        if name in ("abs", "relu", "sign", "square"):
            return x
        raise Unsupported
    if name in BITWISE:
        return fn.binary(BITWISE[name], *v)
    match name:
        case "add" | "sub" | "mul":
            return fn.binary(name, *v)
        case "square":
            return fn.binary("mul", x, x)
        case "neg":
            return fn.binary("sub", const(0, x.ty), x)
        case "bit_not":
            return fn.binary("xor", x, const(-1, x.ty))
        case "abs":
            if sign == "u":
                return x
            return fn.intrinsic("abs", x.ty, x, const(False, I1))
        case "sign":
            zero, one = const(0, x.ty), const(1, x.ty)
            positive = fn.select(fn.compare(f"icmp {sign}gt", x, zero), one, zero)
            return fn.select(fn.compare("icmp slt", x, zero), const(-1, x.ty), positive) if sign == "s" else positive
        case "relu":
            return fn.intrinsic("smax", x.ty, x, const(0, x.ty)) if sign == "s" else x
        case "maximum" | "minimum":
            a, b = fn.align_lanes(*v)
            return fn.intrinsic(f"{sign}{name[:3]}", a.ty, a, b)
        case "shift_left" | "shift_right":
            a, b = fn.align_lanes(*v)
            return _shift(name, a, b, sign, vm)
        case "floordiv":
            a, b = fn.align_lanes(*v)
            return floor_divide(a, b, dtype, vm)
        case "mod":
            a, b = fn.align_lanes(*v)
            return remainder(a, b, dtype, vm)
        case "pow":
            a, b = fn.align_lanes(*v)
            return _integer_power(a, b, dtype, vm)
        case _:
            raise Unsupported


def _shift(name: str, x: Val, y: Val, sign: str, vm: VectorMath) -> Val:
    """Shifts by the width or more give what an infinitely wide shift would; LLVM leaves them undefined."""
    fn, last = vm.fn, const(x.ty.bits - 1, x.ty)
    if name == "shift_right" and sign == "s":
        return fn.binary("ashr", x, fn.intrinsic("umin", x.ty, y, last))
    kind = "shl" if name == "shift_left" else "lshr"
    if y.const is not None and 0 <= y.const < x.ty.bits:
        return fn.binary(kind, x, y)
    inside = fn.compare("icmp ule", y, last)
    shifted = fn.binary(kind, x, fn.select(inside, y, const(0, y.ty)))
    return fn.select(inside, shifted, const(0, x.ty))


def _integer_power(x: Val, y: Val, dtype: DType, vm: VectorMath) -> Val:
    """By squaring, wrapping as multiplication does; a negative exponent gives the truncated 1 / x**-y."""
    fn, t = vm.fn, x.ty
    lanes = t.lanes
    one, zero = const(1, t), const(0, t)
    steps = min(dtype.bits, 64)
    with fn.loop(0, steps, 1, [fn.here(const(1, t)), fn.here(x), fn.here(y)]) as o:
        r, base, e = o.carried
        odd = fn.compare("icmp ne", fn.binary("and", e, one), zero)
        o.next = [fn.select(odd, fn.binary("mul", r, base), r), fn.binary("mul", base, base), fn.binary("lshr", e, one)]
    r = o.results[0]
    if dtype.kind == "uint":
        return r
    parity = fn.compare("icmp ne", fn.binary("and", y, one), zero)
    unit = fn.select(parity, x, one)
    ones = fn.binary("or", fn.compare("icmp eq", x, one), fn.compare("icmp eq", x, const(-1, t)))
    small = fn.select(ones, unit, zero)
    return fn.select(fn.compare("icmp slt", y, const(0, ty("i", t.bits, lanes))), small, r)


# -- complex numbers ---------------------------------------------------------------------------------------------------
def _complex(name: str, v: Sequence[Pair], vm: VectorMath) -> Elem:
    a = v[0]
    b = v[1] if len(v) > 1 else a
    match name:
        case "add":
            return Pair(vm.add(a.re, b.re), vm.add(a.im, b.im))
        case "sub":
            return Pair(vm.sub(a.re, b.re), vm.sub(a.im, b.im))
        case "mul" | "square":
            return _product(a, b, vm)
        case "div":
            return _quotient(a, b, vm)
        case "reciprocal":
            swap, r, den = _divisor(a, vm)
            one = vm.k(1, r)
            re, im = vm.select(swap, r, one), vm.neg(vm.select(swap, one, r))
            return Pair(vm.div(re, den), vm.div(im, den))
        case "neg":
            return Pair(vm.neg(a.re), vm.neg(a.im))
        case "abs":
            return _modulus(a, vm)
        case "real":
            return a.re
        case "imag":
            return a.im
        case "exp":
            return _exponential(a, vm)
        case "log":
            return Pair(vm.log(_modulus(a, vm)), vm.atan2(a.im, a.re))
        case "sqrt":
            return _root(a, vm)
        case "pow":
            z = Pair(vm.log(_modulus(a, vm)), vm.atan2(a.im, a.re))
            p = _complex("exp", [_product(z, b, vm)], vm)
            nothing = vm.fn.binary("xor", truth(b, vm), const(True, ty("i", 1, b.re.ty.lanes)))
            return choose(nothing, Pair(vm.k(1, a.re), vm.k(0, a.re)), p, vm.fn)
        case "eq" | "ne":
            same = vm.fn.binary("and", vm.fn.compare("fcmp oeq", a.re, b.re), vm.fn.compare("fcmp oeq", a.im, b.im))
            return same if name == "eq" else vm.fn.binary("xor", same, const(True, same.ty))
        case _:
            raise Unsupported


def _product(a: Pair, b: Pair, vm: VectorMath) -> Pair:
    re = vm.sub(vm.mul(a.re, b.re), vm.mul(a.im, b.im))
    return Pair(re, vm.add(vm.mul(a.re, b.im), vm.mul(a.im, b.re)))


def _divisor(b: Pair, vm: VectorMath) -> tuple[Val, Val, Val]:
    """Whether the imaginary part is the larger one, the smaller over the larger, and |b|**2 over the larger."""
    swap = vm.greater(vm.abs(b.im), vm.abs(b.re))
    big, small = vm.select(swap, b.im, b.re), vm.select(swap, b.re, b.im)
    r = vm.div(small, big)
    return swap, r, vm.add(big, vm.mul(small, r))


def _quotient(a: Pair, b: Pair, vm: VectorMath) -> Pair:
    """Smith's algorithm (CACM 5, 1962): scaled by the divisor's larger part, so that nothing overflows early."""
    swap, r, den = _divisor(b, vm)
    re = vm.select(swap, vm.add(vm.mul(a.re, r), a.im), vm.add(a.re, vm.mul(a.im, r)))
    im = vm.select(swap, vm.sub(vm.mul(a.im, r), a.re), vm.sub(a.im, vm.mul(a.re, r)))
    return Pair(vm.div(re, den), vm.div(im, den))


def _modulus(a: Pair, vm: VectorMath) -> Val:
    """Infinite where one part is, whatever the other; else NaN where one is."""
    x, y = vm.abs(a.re), vm.abs(a.im)
    swap = vm.less(x, y)
    big, small = vm.select(swap, y, x), vm.select(swap, x, y)
    zero = vm.fn.compare("fcmp oeq", big, vm.k(0, big))
    r = vm.select(zero, vm.k(0, big), vm.div(small, big))
    m = vm.mul(big, vm.sqrt(vm.fma(r, r, vm.k(1, r))))
    m = vm.select(vm.fn.compare("fcmp uno", x, y), vm.add(x, y), m)
    infinite = vm.fn.binary("or", _infinite(x, vm), _infinite(y, vm))
    return vm.select(infinite, vm.k(math.inf, m), m)


def _infinite(magnitude: Val, vm: VectorMath) -> Val:
    return vm.fn.compare("fcmp oeq", magnitude, vm.k(math.inf, magnitude))


def _exponential(a: Pair, vm: VectorMath) -> Pair:
    """exp(re) * (cos(im), sin(im)), special values as in C99's annex G.

    Where exp(re) alone would overflow, part of the exponent is multiplied in last.
    """
    fn, zero = vm.fn, vm.k(0, a.re)
    limit, part = (80, 32.0) if a.re.ty.bits == 32 else (700, 256.0)
    large = vm.greater(a.re, vm.k(limit, a.re))
    e = vm.exp(vm.sub(a.re, vm.select(large, vm.k(part, a.re), zero)))
    scale = vm.select(large, vm.k(math.exp(part), a.re), vm.k(1, a.re))
    re, im = (vm.mul(vm.mul(e, f(a.im)), scale) for f in (vm.cos, vm.sin))
    real = fn.compare("fcmp oeq", a.im, zero)
    lost = fn.compare("fcmp uno", vm.sub(a.im, a.im), zero)  # an angle that is infinite or NaN
    ends = fn.binary("and", lost, _infinite(vm.abs(a.re), vm))
    gone = fn.binary("and", ends, vm.less(a.re, zero))
    im = vm.select(real, a.im, vm.select(gone, vm.copysign(zero, a.im), im))
    return Pair(vm.select(ends, e, re), im)


def _root(a: Pair, vm: VectorMath) -> Pair:
    """The principal square root, the cancelling half through the other; special values as in C99's annex G."""
    m, half = _modulus(a, vm), vm.k(0.5, a.re)
    big = vm.sqrt(vm.add(vm.mul(m, half), vm.mul(vm.abs(a.re), half)))
    zero = vm.fn.compare("fcmp oeq", big, vm.k(0, big))
    small = vm.select(zero, vm.k(0, big), vm.div(vm.mul(vm.abs(a.im), half), big))
    left = vm.less(a.re, vm.k(0, big))
    tall = _infinite(vm.abs(a.im), vm)
    re, im = vm.select(left, small, big), vm.select(left, big, small)
    infinite = vm.k(math.inf, big)
    return Pair(vm.select(tall, infinite, re), vm.copysign(vm.select(tall, infinite, im), a.im))


def identity(reducer: str, dtype: DType, vm: VectorMath) -> Elem:
    """The neutral element of a reducer, as a scalar of `dtype`."""
    t = register_type(dtype)
    if dtype.is_complex:
        return Pair(const(float(reducer == "prod"), t), const(0.0, t))
    if reducer in ("sum", "any"):
        return const(0, t)
    if reducer in ("prod", "all"):
        return const(1, t)
    low = reducer == "max"
    if dtype.is_float:
        return const(-math.inf if low else math.inf, t)
    if dtype.kind == "bool":
        return const(not low, t)
    if dtype.kind == "uint":
        return const(0 if low else -1, t)
    return const(-(1 << (dtype.bits - 1)) if low else (1 << (dtype.bits - 1)) - 1, t)


def combine(reducer: str, a: Elem, b: Elem, dtype: DType, vm: VectorMath) -> Elem:
    """One step of a reducer."""
    name = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and"}
    if reducer in ("sum", "prod") and dtype == dtypes.bool_:
        raise Unsupported
    return apply(name[reducer], [a, b], dtype, dtype, vm)
