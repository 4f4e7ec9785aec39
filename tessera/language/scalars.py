"""The scalar functions that both layers share: `graph.exp` maps one over a tensor, `tile.exp` over a tile.

Each is defined once here: its arity, what dtypes it takes and gives, its NumPy meaning and its cost. Targets emit code
by name; a test checks that every target knows every name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tessera.language.lazy import np

Accepts = Literal["any", "number", "real", "float", "integer", "bool", "integral_or_bool"]
Gives = Literal["same", "bool", "float", "real"]
"""same: the promoted operand dtype; float: as `same`, but integers become f32; real: the real part's dtype."""


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


TABLE: dict[str, Scalar] = {}


def _def(name: str, arity: int, doc: str, ref: Callable[..., Any], **rest: Any) -> None:
    TABLE[name] = Scalar(name, arity, doc, ref, **rest)


def _erf(x: Any) -> Any:
    """Elementwise from the C library's erf, correctly rounded to a unit or so in f64."""
    wide = np.asarray(x, dtype=np.float64)
    flat = np.fromiter((math.erf(v) for v in wide.ravel()), dtype=np.float64, count=wide.size)
    return flat.reshape(wide.shape).astype(np.asarray(x).dtype)


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(x: Any) -> Any:
    return (0.5 * x * (1 + _erf(x / np.sqrt(2.0).astype(x.dtype)))).astype(np.asarray(x).dtype)


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


# arithmetic
_def("add", 2, "x + y", lambda x, y: np.add(x, y), accepts="any", symbol="+")
_def("sub", 2, "x - y", lambda x, y: np.subtract(x, y), symbol="-")
_def("mul", 2, "x * y", lambda x, y: np.multiply(x, y), accepts="any", symbol="*")
_def("div", 2, "x / y; integers divide as f32", lambda x, y: np.divide(x, y), gives="float", symbol="/", flops=1)
_def("floordiv", 2, "floor(x / y)", lambda x, y: np.floor_divide(x, y), accepts="real", symbol="//", flops=2)
_def("mod", 2, "x - y * floor(x / y): the sign of y", lambda x, y: np.mod(x, y), accepts="real", symbol="%", flops=3)
_def("pow", 2, "x to the power y", lambda x, y: np.power(x, y), symbol="**", flops=20)
_def("maximum", 2, "the larger of x and y; NaN if either is NaN", lambda x, y: np.maximum(x, y), accepts="real")
_def("minimum", 2, "the smaller of x and y; NaN if either is NaN", lambda x, y: np.minimum(x, y), accepts="real")
_def("atan2", 2, "the angle of the point (y, x)", lambda y, x: np.arctan2(y, x), accepts="real", gives="float", flops=25)
_def("fma", 3, "x * y + z, rounded once where the target can", lambda x, y, z: x * y + z, accepts="float", flops=2)
# comparison and logic
_def("eq", 2, "x == y", lambda x, y: np.equal(x, y), accepts="any", gives="bool", symbol="==")
_def("ne", 2, "x != y", lambda x, y: np.not_equal(x, y), accepts="any", gives="bool", symbol="!=")
_def("lt", 2, "x < y", lambda x, y: np.less(x, y), accepts="real", gives="bool", symbol="<")
_def("le", 2, "x <= y", lambda x, y: np.less_equal(x, y), accepts="real", gives="bool", symbol="<=")
_def("gt", 2, "x > y", lambda x, y: np.greater(x, y), accepts="real", gives="bool", symbol=">")
_def("ge", 2, "x >= y", lambda x, y: np.greater_equal(x, y), accepts="real", gives="bool", symbol=">=")
_def("logical_and", 2, "x and y", lambda x, y: np.logical_and(x, y), accepts="any", gives="bool")
_def("logical_or", 2, "x or y", lambda x, y: np.logical_or(x, y), accepts="any", gives="bool")
_def("logical_xor", 2, "x xor y", lambda x, y: np.logical_xor(x, y), accepts="any", gives="bool")
_def("logical_not", 1, "not x", lambda x: np.logical_not(x), accepts="any", gives="bool")
_def("bit_and", 2, "bitwise and", lambda x, y: np.bitwise_and(x, y), accepts="integral_or_bool", symbol="&")
_def("bit_or", 2, "bitwise or", lambda x, y: np.bitwise_or(x, y), accepts="integral_or_bool", symbol="|")
_def("bit_xor", 2, "bitwise xor", lambda x, y: np.bitwise_xor(x, y), accepts="integral_or_bool", symbol="^")
_def("bit_not", 1, "bitwise not", lambda x: np.bitwise_not(x), accepts="integral_or_bool", symbol="~")
_def("shift_left", 2, "x << y", lambda x, y: np.left_shift(x, y), accepts="integer", symbol="<<")
_def("shift_right", 2, "x >> y, arithmetic when signed", lambda x, y: np.right_shift(x, y), accepts="integer", symbol=">>")
_def("where", 3, "x where the condition holds, else y", lambda c, x, y: np.where(c, x, y), accepts="any")
# unary maths
_def("neg", 1, "-x", lambda x: np.negative(x), symbol="-")
_def("abs", 1, "|x|", lambda x: np.abs(x), gives="real")
_def("sign", 1, "-1, 0 or 1", lambda x: np.sign(x), accepts="real")
_def("exp", 1, "e**x", lambda x: np.exp(x), gives="float", flops=10)
_def("exp2", 1, "2**x", lambda x: np.exp2(x), accepts="real", gives="float", flops=9)
_def("expm1", 1, "e**x - 1, exact near 0", lambda x: np.expm1(x), accepts="real", gives="float", flops=12)
_def("log", 1, "natural logarithm", lambda x: np.log(x), gives="float", flops=10)
_def("log2", 1, "logarithm to base 2", lambda x: np.log2(x), accepts="real", gives="float", flops=10)
_def("log10", 1, "logarithm to base 10", lambda x: np.log10(x), accepts="real", gives="float", flops=11)
_def("log1p", 1, "log(1 + x), exact near 0", lambda x: np.log1p(x), accepts="real", gives="float", flops=12)
_def("sqrt", 1, "square root", lambda x: np.sqrt(x), gives="float", flops=1)
_def("rsqrt", 1, "1 / sqrt(x)", lambda x: 1 / np.sqrt(x), accepts="real", gives="float", flops=2)
_def("reciprocal", 1, "1 / x", lambda x: 1 / x, gives="float", flops=1)
_def("square", 1, "x * x", lambda x: np.square(x))
_def("sin", 1, "sine of radians", lambda x: np.sin(x), accepts="real", gives="float", flops=15)
_def("cos", 1, "cosine of radians", lambda x: np.cos(x), accepts="real", gives="float", flops=15)
_def("tan", 1, "tangent of radians", lambda x: np.tan(x), accepts="real", gives="float", flops=20)
_def("atan", 1, "inverse tangent", lambda x: np.arctan(x), accepts="real", gives="float", flops=20)
_def("sinh", 1, "hyperbolic sine", lambda x: np.sinh(x), accepts="real", gives="float", flops=20)
_def("cosh", 1, "hyperbolic cosine", lambda x: np.cosh(x), accepts="real", gives="float", flops=20)
_def("tanh", 1, "hyperbolic tangent", lambda x: np.tanh(x), accepts="real", gives="float", flops=15)
_def("erf", 1, "error function", _erf, accepts="real", gives="float", flops=20)
_def("floor", 1, "largest integer <= x", lambda x: np.floor(x), accepts="float")
_def("ceil", 1, "smallest integer >= x", lambda x: np.ceil(x), accepts="float")
_def("round", 1, "nearest integer, halves to even", lambda x: np.round(x), accepts="float")
_def("trunc", 1, "x without its fraction", lambda x: np.trunc(x), accepts="float")
_def("isnan", 1, "whether x is NaN", lambda x: np.isnan(x), accepts="float", gives="bool")
_def("isinf", 1, "whether x is infinite", lambda x: np.isinf(x), accepts="float", gives="bool")
_def("isfinite", 1, "whether x is neither NaN nor infinite", lambda x: np.isfinite(x), accepts="float", gives="bool")
# activations that targets evaluate in one go, stable at both ends
_def("relu", 1, "max(x, 0)", lambda x: np.maximum(x, 0), accepts="real")
_def("sigmoid", 1, "1 / (1 + e**-x)", _sigmoid, accepts="real", gives="float", flops=12)
_def("silu", 1, "x * sigmoid(x)", lambda x: x * _sigmoid(x), accepts="real", gives="float", flops=13)
_def("softplus", 1, "log(1 + e**x) without overflow", _softplus, accepts="real", gives="float", flops=22)
_def("gelu", 1, "x * Phi(x), Phi the normal distribution function (erf form)", _gelu, accepts="real", gives="float", flops=23)
_def("gelu_tanh", 1, "gelu's tanh approximation", _gelu_tanh, accepts="real", gives="float", flops=22)

BY_SYMBOL: dict[tuple[str, int], str] = {(s.symbol, s.arity): s.name for s in TABLE.values() if s.symbol}

REDUCERS: dict[str, str] = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and",
}  # fmt: skip
"""Reductions by the scalar function that combines two partial results; argmax and argmin carry an index as well."""
