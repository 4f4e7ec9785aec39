"""`tessera.array_api`: the functions of the Python array API standard, 2024.12, over Tensors.

It is what `t.__array_namespace__()` gives, for code that is written for any library that follows the standard. Most of
its functions are Tessera's operators under the standard's names; so that each is defined once, those whose parameters
agree are the very same objects as at the top level. `fft` is `ts.fft` under the standard's parameters. Functions whose
result's shape depends on data (`unique_values`, `nonzero`), sorting and `linalg` run in NumPy on the CPU and in CuPy on
a GPU: they have no meaning inside `@ts.function`, where they are refused.
"""

from __future__ import annotations

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from typing import Any

from tessera.language.dtypes import bool_ as bool
from tessera.language.dtypes import complex64 as complex64
from tessera.language.dtypes import complex128 as complex128
from tessera.language.dtypes import f32 as float32
from tessera.language.dtypes import f64 as float64
from tessera.language.dtypes import int8 as int8
from tessera.language.dtypes import int16 as int16
from tessera.language.dtypes import int32 as int32
from tessera.language.dtypes import int64 as int64
from tessera.language.dtypes import uint8 as uint8
from tessera.language.dtypes import uint16 as uint16
from tessera.language.dtypes import uint32 as uint32
from tessera.language.dtypes import uint64 as uint64
from tessera.runtime.eager.operators import function
from tessera.runtime.standard import creation, data, fft, inspection, linalg, shapes
from tessera.runtime.standard.inspection import __array_namespace_info__ as __array_namespace_info__

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""of the standard, that this namespace follows"""
__array_api_version__ = VERSIONS[-1]
newaxis = None

OPERATORS = (
    "abs", "acos", "acosh", "add", "all", "any", "argmax", "argmin", "asin", "asinh", "atan", "atan2", "atanh",
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil",
    "clip", "conj", "copysign", "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff",
    "divide", "equal",
    "exp", "expand_dims", "expm1", "flip", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag",
    "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "matmul", "matrix_transpose", "max", "maximum", "mean", "min",
    "minimum", "moveaxis", "multiply", "negative", "nextafter", "not_equal", "positive", "pow", "real", "reciprocal",
    "remainder", "roll", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "squeeze", "stack", "std",
    "subtract", "take", "take_along_axis", "tan", "tanh", "tensordot", "tril", "triu", "trunc", "unstack", "var",
    "vecdot", "where",
)  # fmt: skip
"""names that are operators of Tessera, with the standard's parameters"""

for _name in OPERATORS:
    globals()[_name] = function(_name)
for _module in (creation, data, inspection, shapes):
    globals().update({_name: getattr(_module, _name) for _name in _module.__all__})

__all__ = [
    "bool", "complex128", "complex64", "e", "fft", "float32", "float64", "inf", "int16", "int32", "int64", "int8",
    "linalg", "nan", "newaxis", "pi", "uint16", "uint32", "uint64", "uint8",
    *OPERATORS, *creation.__all__, *data.__all__, *inspection.__all__, *shapes.__all__,
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted([*__all__, "__array_api_version__", "__array_namespace_info__"])


def __getattr__(name: str) -> Any:
    import difflib  # slow: for a name that is not known; nor is it a name of the standard

    close = difflib.get_close_matches(name, __all__, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise AttributeError(f"the array API standard has no {name!r}{hint}")
