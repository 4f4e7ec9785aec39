"""Vector elementary functions: exponentials, logarithms, trigonometric and error functions for f32 and f64.

Polynomials are minimax fits (weighted least squares with Lawson's iteration in 40-digit arithmetic, coefficients rounded
one after another); the comment beside each gives the interval and the relative error. Methods follow the usual range
reductions: Cody & Waite, "Software Manual for the Elementary Functions" (1980); log through s = f / (2 + f) as in Tang,
ACM TOMS 16 (1990); erfc(x) = exp(-x^2) R((x - k) / (x + k)) as in Shepherd & Laframboise, Math. Comp. 36 (1981).
Results are within 2 ulp of the exact value (4 for tan, sinh, cosh and what is built on several of them), with IEEE
behaviour for infinities, NaN, signed zero and subnormal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessera.compiler.targets.cpu.emit import F64, I1, Function, Ty, Val, const, ty
from tessera.compiler.targets.cpu.isa import VectorISA

# (e**r - 1 - r) / r**2 on |r| <= ln2/2: 2^-28, 2^-58
EXP = {
    32: (0.4999999403953552, 0.1666652113199234, 0.04166825860738754, 0.008368668146431446, 0.0013821369502693415),
    64: (0.5000000000000011, 0.16666666666666433, 0.04166666666652692, 0.00833333333348196, 0.001388888894435814,
         0.00019841269533145398, 2.4801492432385902e-05, 2.755756301191309e-06, 2.76304628662067e-07, 2.5007353841039554e-08),
}  # fmt: skip
# (2**f - 1) / f on |f| <= 1/2: 2^-28, 2^-59
EXP2 = {
    32: (0.6931471824645996, 0.24022643268108368, 0.055503588169813156, 0.009619000367820263, 0.001339130336418748,
         0.00015197493485175073),
    64: (0.6931471805599453, 0.24022650695910064, 0.05550410866482293, 0.009618129107632071, 0.001333355814616593,
         0.0001540353038734683, 1.5252734035714485e-05, 1.3215491352522272e-06, 1.017798594445545e-07,
         7.0533139942151045e-09, 4.4655123304246286e-10, 2.7804653771246118e-11),
}  # fmt: skip
# (log((1+s)/(1-s))/s - 2) / s**2 in z = s**2 <= 0.02945: 2^-29, 2^-58
LOG = {
    32: (0.6666677594184875, 0.39977580308914185, 0.29870936274528503),
    64: (0.6666666666666734, 0.39999999999416536, 0.28571428742079275, 0.22222198597046916, 0.18183563402522077,
         0.15314067508046836, 0.14795837071835036),
}  # fmt: skip
# (sin(x)/x - 1) / x**2 and (cos(x) - 1 + x**2/2) / x**4 in z = x**2 <= (pi/4)**2: 2^-28, 2^-58
SIN = {
    32: (-0.16666655242443085, 0.008332191966474056, -0.00019518785120453686),
    64: (-0.16666666666666632, 0.00833333333332249, -0.00019841269829856917, 2.7557313706341895e-06,
         -2.505076008396031e-08, 1.5896897170713776e-10),
}  # fmt: skip
COS = {
    32: (0.04166664555668831, -0.0013887312961742282, 2.4432969439658336e-05),
    64: (0.0416666666666666, -0.0013888888888874487, 2.48015872896831e-05, -2.7557314404744506e-07,
         2.087572979493817e-09, -1.1359960179865937e-11),
}  # fmt: skip
# (atan(x)/x - 1) / x**2 in z = x**2 <= (sqrt(2)-1)**2: 2^-30, 2^-59
ATAN = {
    32: (-0.33333316445350647, 0.1999853402376175, -0.14244548976421356, 0.10600484162569046, -0.06093548238277435),
    64: (-0.333333333333332, 0.19999999999953888, -0.14285714280231945, 0.1111111078540663, -0.0909089781739958,
         0.07692061324677976, -0.06663117067280408, 0.05847986161813501, -0.050397481078198504, 0.03807595565125124,
         -0.01791979124683806),
}  # fmt: skip
# (sinh(x)/x - 1) / x**2 in z = x**2 <= 1: 2^-31, 2^-62
SINH = {
    32: (0.1666666716337204, 0.008333316072821617, 0.00019841419998556376, 2.7915382361243246e-06),
    64: (0.16666666666666666, 0.008333333333333519, 0.00019841269841133546, 2.7557319273635694e-06, 2.505209843595931e-08,
         1.60601611553085e-10, 7.581129569438002e-13, 4.421162551379691e-15),
}  # fmt: skip
# erf(x)/x - 1 in z = x**2 <= 0.5625: 2^-29, 2^-56
ERF = {
    32: (0.12837916612625122, -0.376126229763031, 0.11283428966999054, -0.026837024837732315, 0.005118954461067915,
         -0.0006780968979001045),
    64: (0.1283791670955126, -0.3761263890318389, 0.112837916709594, -0.026866170645633555, 0.005223977627134019,
         -0.0008548326872543409, 0.0001205531457105591, -1.4924773359839238e-05, 1.6438846690659555e-06,
         -1.6004669686255958e-07, 1.1691584882394984e-08),
}  # fmt: skip
# (1 + 2x) exp(x**2) erfc(x) in t = (x - k) / (x + k), x from 0 to 10.5 (f32, k = 2) and 27.5 (f64, k = 3): 2^-26, 2^-54
ERFC = {
    32: (1.2769783735275269, -0.09276389330625534, -0.16603097319602966, 0.16405315697193146, -0.05420731008052826,
         -0.008044732734560966, 0.008642972446978092, 0.001273258007131517, -0.001257430762052536,
         -0.00036344717955216765, 2.8720724003505893e-05),
    64: (1.2530080582697296, -0.1356211061245806, -0.04756229435344513, 0.12964515870269472, -0.11927366341551465,
         0.06830802734615561, -0.023770514915081715, 0.0025293917829600906, 0.0018886903229035096,
         -0.0007798319931300254, -0.00010515955681804222, 0.00012509792149985254, 4.948368087446368e-06,
         -2.0095883458848924e-05, -7.27977687524463e-07, 3.462457544800953e-06, 3.4926583354822066e-07,
         -6.03054020740054e-07, -1.3094025932948107e-07, 9.047781027284604e-08, 3.250294917731865e-08,
         -8.078969817802473e-09, -4.016191586707843e-09),
}  # fmt: skip
ERFC_K = {32: 2.0, 64: 3.0}
# ln 2 and pi/2 in parts whose leading ones are exact multiples in every product formed here
LN2 = {32: (0.693145751953125, 1.4286068203094172e-06), 64: (0.6931471803691238, 1.9082149292705877e-10)}
HALF_PI = {
    32: (1.5707963705062866, -4.371139000186241e-08, -1.7151245100059e-15),
    64: (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33),
}
FIELDS = {32: (23, 127), 64: (52, 1023)}  # mantissa bits, exponent bias
# beyond these, exp overflows or vanishes
EXP_RANGE = {32: (-104.0, 89.0), 64: (-746.0, 710.0)}
EXP2_RANGE = {32: (-151.0, 129.0), 64: (-1076.0, 1025.0)}
REDUCIBLE = {32: 5e4, 64: 1e9}
"""the largest |x| whose quadrant the three-part pi/2 finds to full accuracy; beyond, the C library is asked"""


class VectorMath:
    """Emits elementary functions into `fn`. Arguments and results are f32 or f64 values of any number of lanes."""

    def __init__(self, fn: Function, isa: VectorISA) -> None:
        self.fn, self.isa = fn, isa

    # -- short names -------------------------------------------------------------------------------------------------
    def k(self, x: float, like: Val) -> Val:
        return const(x, like.ty)

    def add(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fadd", a, b)

    def sub(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fsub", a, b)

    def mul(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fmul", a, b)

    def div(self, a: Val, b: Val) -> Val:
        return self.fn.binary("fdiv", a, b)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        a, b, c = self.fn.align_lanes(a, b, c)
        return self.fn.intrinsic("fma", a.ty, a, b, c)

    def neg(self, a: Val) -> Val:
        return self.fn.op(f"fneg {a.ty.text} {a.ref}", a.ty, (a,))

    def abs(self, a: Val) -> Val:
        return self.fn.intrinsic("fabs", a.ty, a)

    def sqrt(self, a: Val) -> Val:
        return self.fn.intrinsic("sqrt", a.ty, a)

    def copysign(self, magnitude: Val, sign: Val) -> Val:
        return self.fn.intrinsic("copysign", magnitude.ty, magnitude, sign)

    def rint(self, a: Val) -> Val:
        return self.fn.intrinsic("roundeven", a.ty, a)

    def less(self, a: Val, b: Val) -> Val:
        return self.fn.compare("fcmp olt", a, b)

    def greater(self, a: Val, b: Val) -> Val:
        return self.fn.compare("fcmp ogt", a, b)

    def is_nan(self, a: Val) -> Val:
        return self.fn.compare("fcmp uno", a, a)

    def select(self, c: Val, a: Val, b: Val) -> Val:
        return self.fn.select(c, a, b)

    def clamp(self, x: Val, lo: float, hi: float) -> Val:
        """x limited to [lo, hi]; NaN stays NaN (two min/max instructions: they give the second operand for NaN)."""
        low, high = self.k(lo, x), self.k(hi, x)
        x = self.select(self.greater(low, x), low, x)
        return self.select(self.less(high, x), high, x)

    def poly(self, z: Val, coefficients: Sequence[float]) -> Val:
        p = self.k(coefficients[-1], z)
        for c in coefficients[-2::-1]:
            p = self.fma(p, z, self.k(c, z))
        return p

    def bits(self, a: Val) -> Val:
        return self.fn.convert("bitcast", a, a.ty.as_int())

    def _int(self, value: int, like: Val) -> Val:
        return const(value, like.ty.as_int() if like.ty.kind == "f" else like.ty)

    # -- powers of two -----------------------------------------------------------------------------------------------
    def scale(self, a: Val, n: Val) -> Val:
        """a * 2**n for n integral (as a float), rounded once, for any n within twice the exponent range."""
        t, fn = a.ty, self.fn
        if self.isa.masks and t.lanes * t.bits == 512:
            kind = "ps" if t.bits == 32 else "pd"
            mask = const(-1, ty("i", t.lanes))
            return fn.call_pure(f"llvm.x86.avx512.mask.scalef.{kind}.512", t, a, n, const(0, t), mask, const(4, ty("i", 32)))
        m, bias = FIELDS[t.bits]
        i = fn.convert("fptosi", n, ty("i", t.bits))
        half = fn.binary("ashr", i, self._int(1, i))
        for part in (half, fn.binary("sub", i, half)):
            exponent = fn.binary("shl", fn.binary("add", part, self._int(bias, i)), self._int(m, i))
            a = self.mul(a, fn.convert("bitcast", exponent, t))
        return a

    # -- exponentials ------------------------------------------------------------------------------------------------
    def _exp_parts(self, x: Val) -> tuple[Val, Val, Val]:
        """n, r and q with e**x = 2**n (1 + r + r**2 q)."""
        b = x.ty.bits
        n = self.rint(self.mul(x, self.k(1 / math.log(2), x)))
        r = self.fma(n, self.k(-LN2[b][0], x), x)
        r = self.fma(n, self.k(-LN2[b][1], x), r)
        return n, r, self.poly(r, EXP[b])

    def exp(self, x: Val, halvings: int = 0) -> Val:
        """e**x / 2**halvings."""
        lo, hi = EXP_RANGE[x.ty.bits]
        n, r, q = self._exp_parts(self.clamp(x, lo, hi + halvings))
        p = self.add(self.fma(self.mul(r, r), q, r), self.k(1, x))
        return self.scale(p, self.sub(n, self.k(halvings, x)) if halvings else n)

    def exp2(self, x: Val) -> Val:
        x = self.clamp(x, *EXP2_RANGE[x.ty.bits])
        n = self.rint(x)
        f = self.sub(x, n)
        return self.scale(self.fma(self.poly(f, EXP2[x.ty.bits]), f, self.k(1, x)), n)

    def expm1(self, x: Val) -> Val:
        lo, hi = EXP_RANGE[x.ty.bits]
        n, r, q = self._exp_parts(self.clamp(x, lo, hi))
        p = self.fma(self.mul(r, r), q, r)
        half = self.scale(self.k(0.5, x), n)  # 2**(n-1): 2**n itself overflows just below the largest argument
        twice = self.fma(half, p, self.sub(half, self.k(0.5, x)))
        return self.select(self.fn.compare("fcmp oeq", x, self.k(0, x)), x, self.add(twice, twice))

    # -- logarithms --------------------------------------------------------------------------------------------------
    def _log_parts(self, x: Val) -> tuple[Val, Val, Val, Val]:
        """e, f, s (hfsq + R) and hfsq: x = 2**e (1 + f), log(1 + f) = f - (hfsq - s (hfsq + R)). For 0 < x < inf."""
        t, fn = x.ty, self.fn
        m, bias = FIELDS[t.bits]
        tiny = self.less(x, self.k(2.0 ** (1 - bias), x))
        x = self.select(tiny, self.mul(x, self.k(2.0 ** (m + 2), x)), x)
        i = self.bits(x)
        offset = self._int(_float_bits(math.sqrt(0.5), t.bits), i)
        exponent = fn.binary("ashr", fn.binary("sub", i, offset), self._int(m, i))
        mantissa = fn.convert("bitcast", fn.binary("sub", i, fn.binary("shl", exponent, self._int(m, i))), t)
        e = fn.convert("sitofp", exponent, t)
        e = self.select(tiny, self.sub(e, self.k(m + 2, x)), e)
        f = self.sub(mantissa, self.k(1, x))
        s = self.div(f, self.add(f, self.k(2, x)))
        z = self.mul(s, s)
        r = self.mul(z, self.poly(z, LOG[t.bits]))
        hfsq = self.mul(self.mul(f, f), self.k(0.5, x))
        return e, f, self.mul(s, self.add(hfsq, r)), hfsq

    def _log_ends(self, x: Val, y: Val) -> Val:
        """The values at 0, infinity, below 0 and for NaN put into y = log(x)."""
        inf = self.k(math.inf, x)
        y = self.select(self.fn.compare("fcmp ult", x, self.k(0, x)), self.k(math.nan, x), y)
        y = self.select(self.fn.compare("fcmp oeq", x, self.k(0, x)), self.neg(inf), y)
        return self.select(self.fn.compare("fcmp oeq", x, inf), inf, y)

    def log(self, x: Val, correction: Val | None = None) -> Val:
        """log(x), plus a small correction added where it loses nothing."""
        hi, lo = LN2[x.ty.bits]
        e, f, sr, hfsq = self._log_parts(x)
        low = self.fma(e, self.k(lo, x), sr)
        if correction is not None:
            low = self.add(low, correction)
        y = self.fma(e, self.k(hi, x), self.sub(f, self.sub(hfsq, low)))
        return self._log_ends(x, y)

    def _log_to_base(self, x: Val, scale: float, unit: float) -> Val:
        """log(x) * scale, where unit = log(2) * scale; e * unit is exact enough to keep powers of the base exact."""
        b = x.ty.bits
        e, f, sr, hfsq = self._log_parts(x)
        high = self.fn.convert("bitcast", self.fn.binary("and", self.bits(self.sub(f, hfsq)), self._int(-(1 << (b // 2 - 4)), self.bits(f))), x.ty)  # fmt: skip
        low = self.add(self.sub(self.sub(f, high), hfsq), sr)
        scale_hi, unit_hi = _leading(scale, b), _leading(unit, b)
        tail = self.mul(self.add(high, low), self.k(scale - scale_hi, x))
        tail = self.fma(low, self.k(scale_hi, x), tail)
        tail = self.fma(e, self.k(unit - unit_hi, x), tail)
        head, product = self.mul(e, self.k(unit_hi, x)), self.mul(high, self.k(scale_hi, x))
        total = self.add(head, product)
        lost = self.add(self.sub(head, total), product)  # |head| >= |product| or head is 0
        return self._log_ends(x, self.add(total, self.add(lost, tail)))

    def log2(self, x: Val) -> Val:
        return self._log_to_base(x, 1 / math.log(2), 1.0)

    def log10(self, x: Val) -> Val:
        return self._log_to_base(x, 1 / math.log(10), math.log10(2))

    def log1p(self, x: Val) -> Val:
        one = self.k(1, x)
        u = self.add(x, one)
        # what 1 + x lost in rounding, exactly (two-sum)
        back = self.sub(u, one)
        c = self.add(self.sub(x, back), self.sub(one, self.sub(u, back)))
        y = self.log(u, self.div(c, u))
        y = self.select(self.fn.compare("fcmp oeq", u, one), x, y)
        y = self.select(self.fn.compare("fcmp oeq", x, self.k(math.inf, x)), x, y)
        return self.select(self.fn.compare("fcmp oeq", u, self.k(0, x)), self.k(-math.inf, x), y)

    # -- trigonometric -----------------------------------------------------------------------------------------------
    def _quadrant(self, x: Val) -> tuple[Val, Val]:
        """x = quadrant * pi/2 + r, |r| <= pi/4; the quadrant as an integer."""
        b = x.ty.bits
        n = self.rint(self.mul(x, self.k(2 / math.pi, x)))
        r = x
        for part in HALF_PI[b]:
            r = self.fma(n, self.k(-part, x), r)
        limit = self.clamp(n, -(2.0**30), 2.0**30)  # lanes beyond are recomputed, but must not be undefined
        limit = self.select(self.is_nan(limit), self.k(0, x), limit)
        return self.fn.convert("fptosi", limit, ty("i", b)), r

    def _sin_cos(self, r: Val) -> tuple[Val, Val]:
        z = self.mul(r, r)
        s = self.fma(self.mul(z, r), self.poly(z, SIN[r.ty.bits]), r)
        half = self.mul(z, self.k(0.5, r))
        w = self.sub(self.k(1, r), half)
        lost = self.sub(self.sub(self.k(1, r), w), half)
        c = self.add(w, self.fma(self.mul(z, z), self.poly(z, COS[r.ty.bits]), lost))
        return s, c

    def _odd(self, quadrant: Val) -> Val:
        one = self._int(1, quadrant)
        return self.fn.compare("icmp ne", self.fn.binary("and", quadrant, one), self._int(0, quadrant))

    def _sine(self, x: Val, quarter_turns: int) -> Val:
        q, r = self._quadrant(x)
        if quarter_turns:
            q = self.fn.binary("add", q, self._int(quarter_turns, q))
        s, c = self._sin_cos(r)
        y = self.select(self._odd(q), c, s)
        flip = self.fn.compare("icmp ne", self.fn.binary("and", q, self._int(2, q)), self._int(0, q))
        return self.select(flip, self.neg(y), y)

    def _far(self, x: Val, y: Val, name: str) -> Val:
        """`y`, with the C library's answer where any lane is too large for the range reduction."""
        far = self.greater(self.abs(x), self.k(REDUCIBLE[x.ty.bits], x))
        return self.rarely(far, y, lambda: self.library(name, x))

    def sin(self, x: Val) -> Val:
        y = self._sine(x, 0)
        return self._far(x, self.select(self.fn.compare("fcmp oeq", x, self.k(0, x)), x, y), "sin")

    def cos(self, x: Val) -> Val:
        return self._far(x, self._sine(x, 1), "cos")

    def tan(self, x: Val) -> Val:
        q, r = self._quadrant(x)
        s, c = self._sin_cos(r)
        odd = self._odd(q)
        y = self.div(self.select(odd, self.neg(c), s), self.select(odd, s, c))
        return self._far(x, self.select(self.fn.compare("fcmp oeq", x, self.k(0, x)), x, y), "tan")

    def _atan_positive(self, num: Val, den: Val) -> Val:
        """atan(num / den) for 0 <= num, den."""
        big = self.greater(self.mul(den, self.k(1 + math.sqrt(2), num)), num)
        big = self.fn.binary("xor", big, const(True, big.ty))
        mid = self.greater(num, self.mul(den, self.k(math.sqrt(2) - 1, num)))
        n = self.select(big, self.neg(den), self.select(mid, self.sub(num, den), num))
        d = self.select(big, num, self.select(mid, self.add(num, den), den))
        base = self.select(big, self.k(math.pi / 2, num), self.select(mid, self.k(math.pi / 4, num), self.k(0, num)))
        half = HALF_PI[num.ty.bits][1]
        tail = self.select(big, self.k(half, num), self.select(mid, self.k(half / 2, num), self.k(0, num)))
        t = self.div(n, d)
        z = self.mul(t, t)
        p = self.fma(self.mul(z, t), self.poly(z, ATAN[num.ty.bits]), tail)
        return self.add(base, self.add(t, p))

    def atan(self, x: Val) -> Val:
        a = self.abs(x)
        y = self._atan_positive(self.clamp(a, 0.0, 2.0**100), self.k(1, x))
        return self.copysign(y, x)

    def atan2(self, y: Val, x: Val) -> Val:
        y, x = self.fn.align_lanes(y, x)
        ay, ax = self.abs(y), self.abs(x)
        swap = self.greater(ay, ax)
        num, den = self.select(swap, ax, ay), self.select(swap, ay, ax)
        ratio = self.div(num, den)
        ratio = self.select(self.fn.compare("fcmp oeq", num, den), self.k(1, x), ratio)  # also inf over inf
        ratio = self.select(self.fn.compare("fcmp oeq", den, self.k(0, x)), self.k(0, x), ratio)
        a = self._atan_positive(ratio, self.k(1, x))
        high, low = self.k(math.pi / 2, x), self.k(HALF_PI[x.ty.bits][1], x)
        a = self.select(swap, self.add(self.sub(high, a), low), a)
        zero = self._int(0, self.bits(x))
        left = self.fn.compare("icmp slt", self.bits(x), zero)
        pi = self.add(self.sub(self.k(math.pi, x), a), self.k(2 * HALF_PI[x.ty.bits][1], x))
        a = self.copysign(self.select(left, pi, a), y)
        return self.select(self.fn.compare("fcmp uno", x, y), self.k(math.nan, x), a)

    # -- hyperbolic --------------------------------------------------------------------------------------------------
    def sinh(self, x: Val) -> Val:
        a = self.abs(x)
        z = self.mul(x, x)
        small = self.fma(self.mul(z, x), self.poly(self.clamp(z, 0, 1), SINH[x.ty.bits]), x)
        half = self.exp(a, 1)
        large = self.copysign(self.sub(half, self.div(self.k(0.25, x), half)), x)
        return self.select(self.less(a, self.k(1, x)), small, large)

    def cosh(self, x: Val) -> Val:
        half = self.exp(self.abs(x), 1)
        return self.add(half, self.div(self.k(0.25, x), half))

    def tanh(self, x: Val) -> Val:
        a = self.clamp(self.abs(x), 0.0, {32: 10.0, 64: 22.0}[x.ty.bits])
        t = self.expm1(self.add(a, a))
        return self.copysign(self.div(t, self.add(t, self.k(2, x))), x)

    # -- error function and activations ------------------------------------------------------------------------------
    def _erfc(self, a: Val, square: Val, square_low: Val) -> Val:
        """erfc(a) for a >= 0, given a**2 as the sum of two values."""
        b = a.ty.bits
        k = self.k(ERFC_K[b], a)
        t = self.div(self.sub(a, k), self.add(a, k))
        r = self.div(self.poly(t, ERFC[b]), self.fma(a, self.k(2, a), self.k(1, a)))
        e = self.exp(self.neg(square))
        return self.mul(self.fma(self.neg(e), square_low, e), r)

    def erf(self, x: Val) -> Val:
        a = self.clamp(self.abs(x), 0.0, {32: 5.0, 64: 7.0}[x.ty.bits])
        square = self.mul(a, a)
        low = self.fma(a, a, self.neg(square))
        large = self.sub(self.k(1, x), self._erfc(a, square, low))
        small = self.fma(a, self.poly(square, ERF[x.ty.bits]), a)
        y = self.copysign(self.select(self.less(a, self.k(0.75, x)), small, large), x)
        return self.select(self.is_nan(x), x, y)

    def gelu(self, x: Val) -> Val:
        """x Phi(x): Phi through erfc of |x| / sqrt(2), so that the far negative side keeps its relative accuracy."""
        a = self.clamp(self.abs(x), 0.0, {32: 14.5, 64: 38.5}[x.ty.bits])
        square = self.mul(self.mul(a, a), self.k(0.5, x))
        low = self.fma(self.mul(a, self.k(0.5, x)), a, self.neg(square))
        half = self.mul(self._erfc(self.mul(a, self.k(math.sqrt(0.5), x)), square, low), self.k(0.5, x))
        phi = self.select(self.less(x, self.k(0, x)), half, self.sub(self.k(1, x), half))
        return self.mul(x, phi)

    def gelu_tanh(self, x: Val) -> Val:
        """gelu's tanh form: x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x**3)."""
        c = 2 * math.sqrt(2 / math.pi)
        u = self.mul(x, self.fma(self.mul(x, x), self.k(0.044715 * c, x), self.k(c, x)))
        return self.mul(x, self.sigmoid(u))

    def sigmoid(self, x: Val) -> Val:
        e = self.exp(self.neg(self.abs(x)))
        top = self.select(self.less(x, self.k(0, x)), e, self.k(1, x))
        return self.div(top, self.add(e, self.k(1, x)))

    def silu(self, x: Val) -> Val:
        return self.mul(x, self.sigmoid(x))

    def softplus(self, x: Val) -> Val:
        zero = self.k(0, x)
        positive = self.select(self.less(x, zero), zero, x)
        return self.add(positive, self.log1p(self.exp(self.neg(self.abs(x)))))

    # -- powers and remainders ---------------------------------------------------------------------------------------
    def pow(self, x: Val, y: Val) -> Val:
        x, y = self.fn.align_lanes(x, y)
        if x.ty.bits == 64:
            return self.library("pow", x, y)
        one, zero = self.k(1, x), self.k(0, x)
        wide = F64.wide(x.ty.lanes)
        a, b = self.fn.convert("fpext", self.abs(x), wide), self.fn.convert("fpext", y, wide)
        r = self.fn.convert("fptrunc", self.exp2(self.mul(b, self.log2(a))), x.ty)
        whole = self.fn.compare("fcmp oeq", self.fn.intrinsic("trunc", y.ty, y), y)
        half = self.mul(y, self.k(0.5, y))
        odd = self.fn.binary("and", whole, self.fn.compare("fcmp one", self.fn.intrinsic("trunc", y.ty, half), half))
        r = self.select(odd, self.copysign(r, x), r)
        outside = self.fn.binary("and", self.fn.binary("xor", whole, const(True, whole.ty)), self.less(x, zero))
        finite = self.fn.compare("fcmp one", x, self.k(-math.inf, x))
        r = self.select(self.fn.binary("and", outside, finite), self.k(math.nan, x), r)
        equals = lambda v, c: self.fn.compare("fcmp oeq", v, c)  # noqa: E731
        flat = self.fn.binary("and", equals(x, self.k(-1, x)), equals(self.abs(y), self.k(math.inf, y)))
        certain = self.fn.binary("or", self.fn.binary("or", equals(y, zero), equals(x, one)), flat)
        return self.select(certain, one, r)

    def fmod(self, x: Val, y: Val) -> Val:
        """x - y trunc(x / y), exactly, with the sign of x."""
        x, y = self.fn.align_lanes(x, y)
        ax, ay = self.abs(x), self.abs(y)
        q = self.fn.intrinsic("trunc", x.ty, self.div(ax, ay))
        r = self.fma(self.neg(q), ay, ax)  # exact for a quotient that is one off at most
        r = self.select(self.less(r, self.k(0, x)), self.add(r, ay), r)
        r = self.select(self.less(r, ay), r, self.sub(r, ay))
        m, _ = FIELDS[x.ty.bits]
        safe = self.less(q, self.k(2.0 ** (m - 1), x))
        safe = self.fn.binary("and", safe, self.greater(ay, self.k(2.0 ** (m + 2) * _smallest(x.ty.bits), x)))
        safe = self.fn.binary("and", safe, self.fn.compare("fcmp ord", r, r))  # an infinite y, or NaN
        far = self.fn.binary("xor", safe, const(True, safe.ty))
        return self.rarely(far, self.copysign(r, x), lambda: self.fn.here(self.fn.binary("frem", self.fn.here(x), y)))

    def mod(self, x: Val, y: Val) -> Val:
        """The remainder with the sign of y; 0 takes y's sign as well."""
        x, y = self.fn.align_lanes(x, y)
        r = self.fmod(x, y)
        nonzero = self.fn.compare("fcmp une", r, self.k(0, r))
        differ = self.fn.compare("icmp slt", self.fn.binary("xor", self.bits(r), self.bits(y)), self._int(0, self.bits(r)))
        r2 = self.select(self.fn.binary("and", nonzero, differ), self.add(r, y), r)
        return self.select(nonzero, r2, self.copysign(self.k(0, r), y))

    def floordiv(self, x: Val, y: Val) -> Val:
        """floor(x / y) of the exact quotient, through the exact remainder."""
        x, y = self.fn.align_lanes(x, y)
        quotient = self.div(x, y)
        r = self.mod(x, y)
        q = self.div(self.sub(x, r), y)
        f = self.fn.intrinsic("floor", q.ty, q)
        f = self.select(self.greater(self.sub(q, f), self.k(0.5, q)), self.add(f, self.k(1, q)), f)
        f = self.select(self.fn.compare("fcmp oeq", q, self.k(0, q)), self.copysign(self.k(0, q), quotient), f)
        kept = self.select(self.fn.compare("fcmp oeq", r, x), self.copysign(self.k(0, q), quotient), self.k(-1, q))
        endless = self.fn.binary("and", self.fn.compare("fcmp oeq", self.abs(y), self.k(math.inf, y)), self.fn.compare("fcmp ord", r, r))  # fmt: skip
        f = self.select(endless, kept, f)
        return self.select(self.fn.compare("fcmp oeq", y, self.k(0, y)), quotient, f)

    # -- the C library -----------------------------------------------------------------------------------------------
    def library(self, name: str, *args: Val) -> Val:
        """One call of the C library's function per lane."""
        args = tuple(self.fn.align_lanes(*args))
        return self.fn.here(self.fn.intrinsic(name, args[0].ty, *[self.fn.here(a) for a in args]))

    def rarely(self, condition: Val, usual: Val, slow: object) -> Val:
        """`usual`, but slow() in the lanes where `condition` holds; slow() runs only if there are such lanes."""
        fn, lanes = self.fn, condition.ty.lanes
        some = condition
        if lanes > 1:
            packed = fn.op(f"bitcast {condition.ty.text} {condition.ref} to i{lanes}", ty("i", lanes), (condition,))
            some = fn.op(f"icmp ne i{lanes} {packed.ref}, 0", I1, (packed,))
        return fn.choose(some, lambda: [fn.select(condition, slow(), usual)], lambda: [usual])[0]  # type: ignore[operator]


def _float_bits(x: float, bits: int) -> int:
    import struct

    return struct.unpack("<i" if bits == 32 else "<q", struct.pack("<f" if bits == 32 else "<d", x))[0]


def _leading(x: float, bits: int) -> float:
    """x with its low mantissa half cleared, so that products with small integers and half-width numbers are exact."""
    if bits == 32:
        return math.ldexp(round(math.ldexp(x, 10)), -10)
    return math.ldexp(round(math.ldexp(x, 24)), -24)


def _smallest(bits: int) -> float:
    return 2.0**-126 if bits == 32 else 2.0**-1022


def float_type(bits: int, lanes: int) -> Ty:
    return ty("f", bits, lanes)
