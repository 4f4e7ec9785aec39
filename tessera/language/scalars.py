"""The scalar functions that both layers share: `graph.exp` maps one over a tensor, `tile.exp` over a tile.

Each is defined once here: its arity, what dtypes it takes and gives, its NumPy meaning and its cost. Targets emit code
by name; a test checks that every target knows every name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tessera.language.dtypes import DType
from tessera.language.lazy import np

Accepts = Literal["any", "number", "real", "float", "complex", "integer", "bool", "integral_or_bool", "ordered"]
"""ordered: real numbers and bools"""
Gives = Literal["same", "bool", "float", "real", "complex"]
"""same: the promoted operand dtype; float: as `same`, but integers become f32; real: the real part's dtype; complex:
the complex dtype with such parts."""


ACCEPTED: dict[Accepts, Callable[[DType], bool]] = {
    "any": lambda d: True,
    "number": lambda d: d.kind != "bool",
    "real": lambda d: d.kind not in ("bool", "complex"),
    "ordered": lambda d: not d.is_complex,
    "float": lambda d: d.is_float,
    "complex": lambda d: d.is_complex,
    "integer": lambda d: d.is_integer,
    "bool": lambda d: d.kind == "bool",
    "integral_or_bool": lambda d: d.is_integer or d.kind == "bool",
}


def elements(accepts: Accepts) -> str:
    """The name of a class of dtypes in messages."""
    special = {"integral_or_bool": "integers or bools", "ordered": "real numbers or bools"}
    return special.get(accepts, f"{accepts} elements")


@dataclass(frozen=True, slots=True)
class Scalar:
    """One scalar function. `flops` is the customary operation count used by cost models, not an instruction count."""

    name: str
    arity: int
    doc: str
    reference: Callable[..., Any]
    accepts: Accepts = "number"
    gives: Gives = "same"
    flops: int = 1
    symbol: str = ""
    """the Python operator that means it, such as "+" """
    parameters: tuple[str, ...] = ("x", "y", "z")
    in_graphs: Accepts | None = None
    """the dtypes that the operator of graphs takes where they are more: it spells them in other functions"""


TABLE: dict[str, Scalar] = {}


def _def(name: str, arity: int, doc: str, ref: Callable[..., Any], **rest: Any) -> None:
    names = rest.pop("parameters", ("x", "y", "z")[:arity])
    TABLE[name] = Scalar(name, arity, doc, ref, parameters=names, **rest)


def _np(name: str) -> Callable[..., Any]:
    """NumPy's function of that name, looked up when it is called: importing this module must not import NumPy."""

    def call(*arrays: Any) -> Any:
        return getattr(np, name)(*arrays)

    return call


def _fma(x: Any, y: Any, z: Any) -> Any:
    return x * y + z


def _pow(x: Any, y: Any) -> Any:
    """Integers to negative powers give 1 / x**-y without its fraction, on every target; NumPy refuses them.

    For an exponent that is one 0.5 for all of x, `np.power` takes the root, which is NaN for -inf and -0 for -0.
    """
    dtype = np.result_type(x, y)
    if dtype.kind == "f":
        return np.float_power(x, y).astype(dtype)
    if dtype.kind != "i":
        return np.power(x, y)
    small = np.where(x == 1, 1, np.where(x == -1, 1 - 2 * (y & 1), 0)).astype(dtype)
    return np.where(y < 0, small, np.power(x, np.where(y < 0, 0, y)))


def _rsqrt(x: Any) -> Any:
    return 1 / np.sqrt(x)


def _reciprocal(x: Any) -> Any:
    return np.reciprocal(x) if np.iscomplexobj(x) else 1 / x


def _make_complex(x: Any, y: Any) -> Any:
    x, y = np.broadcast_arrays(x, y)
    z = np.empty(x.shape, np.complex128 if x.dtype == np.float64 else np.complex64)
    z.real, z.imag = x, y
    return z


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


def _each(f: Callable[[float], float], x: Any) -> Any:
    """A function of the C library, correctly rounded to a unit or so in f64, of each element."""
    wide = np.asarray(x, dtype=np.float64)
    return np.fromiter(map(f, wide.ravel()), dtype=np.float64, count=wide.size).reshape(wide.shape)


def _erf(x: Any) -> Any:
    return _each(math.erf, x).astype(np.asarray(x).dtype)


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


def _silu(x: Any) -> Any:
    return x * _sigmoid(x)


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(x: Any) -> Any:
    """max(x, 0) - |x| Phi(-|x|): x (1 + erf(x / sqrt(2))) / 2 cancels far below 0."""
    wide = np.asarray(x, dtype=np.float64)
    a = np.minimum(np.abs(wide), 39.0)  # up to where Phi(-|x|) is 0
    return (np.where(wide < 0, 0, wide) - a * 0.5 * _each(math.erfc, a / math.sqrt(2))).astype(np.asarray(x).dtype)


def _gelu_tanh(x: Any) -> Any:
    """x sigmoid(2u): x (1 + tanh(u)) / 2 cancels far below 0."""
    return x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


# arithmetic
_def("add", 2, "x + y", _np("add"), accepts="any", symbol="+")
_def("sub", 2, "x - y", _np("subtract"), symbol="-")
_def("mul", 2, "x * y", _np("multiply"), accepts="any", symbol="*")
_def("div", 2, "x / y; integers divide as f32", _np("divide"), gives="float", symbol="/", flops=1)
_def("floordiv", 2, "floor(x / y)", _np("floor_divide"), accepts="real", symbol="//", flops=2)
_def("mod", 2, "x - y * floor(x / y): the sign of y", _np("mod"), accepts="real", symbol="%", flops=3)
_def("pow", 2, "x to the power y", _pow, symbol="**", flops=20)
_def("maximum", 2, "the larger of x and y; NaN if either is NaN", _np("maximum"), accepts="real", in_graphs="ordered")
_def("minimum", 2, "the smaller of x and y; NaN if either is NaN", _np("minimum"), accepts="real", in_graphs="ordered")
_def(
    "atan2",
    2,
    "the angle of the point (y, x)",
    _np("arctan2"),
    parameters=("y", "x"),
    accepts="real",
    gives="float",
    flops=25,
)
_def("fma", 3, "x * y + z, rounded once where the target can", _fma, accepts="float", flops=2)
# comparison and logic
_def("eq", 2, "x == y", _np("equal"), accepts="any", gives="bool", symbol="==")
_def("ne", 2, "x != y", _np("not_equal"), accepts="any", gives="bool", symbol="!=")
_def("lt", 2, "x < y", _np("less"), accepts="real", in_graphs="ordered", gives="bool", symbol="<")
_def("le", 2, "x <= y", _np("less_equal"), accepts="real", in_graphs="ordered", gives="bool", symbol="<=")
_def("gt", 2, "x > y", _np("greater"), accepts="real", in_graphs="ordered", gives="bool", symbol=">")
_def("ge", 2, "x >= y", _np("greater_equal"), accepts="real", in_graphs="ordered", gives="bool", symbol=">=")
_def("logical_and", 2, "x and y", _np("logical_and"), accepts="any", gives="bool")
_def("logical_or", 2, "x or y", _np("logical_or"), accepts="any", gives="bool")
_def("logical_xor", 2, "x xor y", _np("logical_xor"), accepts="any", gives="bool")
_def("logical_not", 1, "not x", _np("logical_not"), accepts="any", gives="bool")
_def("bit_and", 2, "bitwise and", _np("bitwise_and"), accepts="integral_or_bool", symbol="&")
_def("bit_or", 2, "bitwise or", _np("bitwise_or"), accepts="integral_or_bool", symbol="|")
_def("bit_xor", 2, "bitwise xor", _np("bitwise_xor"), accepts="integral_or_bool", symbol="^")
_def("bit_not", 1, "bitwise not", _np("bitwise_not"), accepts="integral_or_bool", symbol="~")
_def("shift_left", 2, "x << y", _np("left_shift"), accepts="integer", symbol="<<")
_def("shift_right", 2, "x >> y, arithmetic when signed", _np("right_shift"), accepts="integer", symbol=">>")
_def("where", 3, "x where the condition holds, else y", _np("where"), parameters=("c", "x", "y"), accepts="any")
# unary maths
_def("neg", 1, "-x", _np("negative"), symbol="-")
_def("abs", 1, "|x|", _np("abs"), gives="real")
_def("sign", 1, "-1, 0 or 1", _np("sign"), accepts="real", in_graphs="number")
_def("exp", 1, "e**x", _np("exp"), gives="float", flops=10)
_def("exp2", 1, "2**x", _np("exp2"), accepts="real", gives="float", flops=9)
_def("expm1", 1, "e**x - 1, exact near 0", _np("expm1"), accepts="real", in_graphs="number", gives="float", flops=12)
_def("log", 1, "natural logarithm", _np("log"), gives="float", flops=10)
_def("log2", 1, "logarithm to base 2", _np("log2"), accepts="real", in_graphs="number", gives="float", flops=10)
_def("log10", 1, "logarithm to base 10", _np("log10"), accepts="real", in_graphs="number", gives="float", flops=11)
_def("log1p", 1, "log(1 + x), exact near 0", _np("log1p"), accepts="real", in_graphs="number", gives="float", flops=12)
_def("sqrt", 1, "square root", _np("sqrt"), gives="float", flops=1)
_def("rsqrt", 1, "1 / sqrt(x)", _rsqrt, accepts="real", gives="float", flops=2)
_def("reciprocal", 1, "1 / x", _reciprocal, gives="float", flops=1)
_def("square", 1, "x * x", _np("square"))
_def("sin", 1, "sine of radians", _np("sin"), accepts="real", in_graphs="number", gives="float", flops=15)
_def("cos", 1, "cosine of radians", _np("cos"), accepts="real", in_graphs="number", gives="float", flops=15)
_def("tan", 1, "tangent of radians", _np("tan"), accepts="real", in_graphs="number", gives="float", flops=20)
_def("atan", 1, "inverse tangent", _np("arctan"), accepts="real", in_graphs="number", gives="float", flops=20)
_def("sinh", 1, "hyperbolic sine", _np("sinh"), accepts="real", in_graphs="number", gives="float", flops=20)
_def("cosh", 1, "hyperbolic cosine", _np("cosh"), accepts="real", in_graphs="number", gives="float", flops=20)
_def("tanh", 1, "hyperbolic tangent", _np("tanh"), accepts="real", in_graphs="number", gives="float", flops=15)
_def("erf", 1, "error function", _erf, accepts="real", gives="float", flops=20)
_def("floor", 1, "largest integer <= x", _np("floor"), accepts="float", in_graphs="real")
_def("ceil", 1, "smallest integer >= x", _np("ceil"), accepts="float", in_graphs="real")
_def("round", 1, "nearest integer, halves to even", _np("round"), accepts="float", in_graphs="number")
_def("trunc", 1, "x without its fraction", _np("trunc"), accepts="float", in_graphs="real")
_def("isnan", 1, "whether x is NaN", _np("isnan"), accepts="float", in_graphs="any", gives="bool")
_def("isinf", 1, "whether x is infinite", _np("isinf"), accepts="float", in_graphs="any", gives="bool")
_def(
    "isfinite",
    1,
    "whether x is neither NaN nor infinite",
    _np("isfinite"),
    accepts="float",
    in_graphs="any",
    gives="bool",
)
_def(
    "signbit", 1, "whether x has a minus, as -0.0 has", _np("signbit"), accepts="float", in_graphs="real", gives="bool"
)
# complex numbers
_def("real", 1, "the real part of x", _np("real"), accepts="complex", in_graphs="number", gives="real")
_def("imag", 1, "the imaginary part of x; 0 of a real number", _np("imag"), accepts="complex", in_graphs="number",
     gives="real")  # fmt: skip
_def("make_complex", 2, "the complex number x + y i", _make_complex, accepts="float", gives="complex")
# activations that targets evaluate in one go, stable at both ends
_def("relu", 1, "max(x, 0)", _relu, accepts="real")
_def("sigmoid", 1, "1 / (1 + e**-x)", _sigmoid, accepts="real", gives="float", flops=12)
_def("silu", 1, "x * sigmoid(x)", _silu, accepts="real", gives="float", flops=13)
_def("softplus", 1, "log(1 + e**x) without overflow", _softplus, accepts="real", gives="float", flops=22)
_def(
    "gelu",
    1,
    "x * Phi(x), Phi the normal distribution function (erf form)",
    _gelu,
    accepts="real",
    gives="float",
    flops=23,
)
_def("gelu_tanh", 1, "the tanh approximation of gelu", _gelu_tanh, accepts="real", gives="float", flops=22)

TRUTHS = frozenset({"logical_and", "logical_or", "logical_xor"})
"""functions that see of each operand only whether it is zero, so that operands need no common dtype"""
BY_SYMBOL: dict[tuple[str, int], str] = {(s.symbol, s.arity): s.name for s in TABLE.values() if s.symbol}

REDUCERS: dict[str, str] = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and",
}  # fmt: skip
"""Reductions by the scalar function that combines two partial results; argmax and argmin carry an index as well."""


def identity_of(name: str, dtype: DType) -> float:
    """The identity element of a reduction."""
    if name in ("sum", "any"):
        return 0
    if name in ("prod", "all"):
        return 1
    if dtype.kind == "bool":
        low, high = 0, 1
    elif dtype.is_float:
        low, high = -math.inf, math.inf
    else:
        low = 0 if dtype.kind == "uint" else -(2 ** (dtype.bits - 1))
        high = int(dtype.maximum) if dtype.bits < 64 else 2**63 - 1
    return low if name in ("max", "argmax") else high
