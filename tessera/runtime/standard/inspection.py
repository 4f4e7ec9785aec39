"""Relations between dtypes, and the capabilities of this namespace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from tessera.compiler.machines import HOST
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.runtime.arrays import devices as machine
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.eager.operators import function
from tessera.runtime.eager.tensor import Tensor
from tessera.runtime.standard.host import dtype_named, public, refused, tensor

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

STANDARD: dict[str, DType] = {
    "bool": dtypes.bool_,
    **{d.name: d for d in dtypes.ALL if d.is_integer},
    "float32": dtypes.f32, "float64": dtypes.f64, "complex64": dtypes.complex64, "complex128": dtypes.complex128,
}  # fmt: skip
"""the dtypes that the standard has, by its names"""
KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",), "signed integer": ("int",), "unsigned integer": ("uint",), "integral": ("int", "uint"),
    "real floating": ("float",), "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}  # fmt: skip


@dataclass(frozen=True)
class FloatInfo:
    """What `finfo` says of a float; of a complex dtype, of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """What `iinfo` says of an integer."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(given: Any) -> DType:
    """A dtype, or that of an array."""
    if adapter_of(given) is not None:
        return tensor(given).dtype
    return dtype_named(given)


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a float dtype, or of an array's. Raises LaunchError TS501 for other dtypes."""
    d = _dtype_of(type).part
    if not d.is_float:
        raise refused(f"finfo is about floats, not {d}; iinfo is about integers")
    bias = 2 ** (d.exponent - 1) - 1
    return FloatInfo(d.bits, 2.0**-d.mantissa, _exact(d), -_exact(d), 2.0 ** (1 - bias), d)


def _exact(d: DType) -> float:
    """The largest finite value."""
    import ml_dtypes  # slow: 5 ms, for questions about small floats

    return float(ml_dtypes.finfo(d.numpy).max)


def iinfo(type: Any, /) -> IntegerInfo:
    """Limits of an integer dtype, or of an array's. Raises LaunchError TS501 for other dtypes."""
    d = _dtype_of(type)
    if not d.is_integer:
        raise refused(f"iinfo is about integers, not {d}; finfo is about floats")
    signed = d.kind == "int"
    return IntegerInfo(d.bits, 2 ** (d.bits - signed) - 1, -(2 ** (d.bits - 1)) if signed else 0, d)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind ("real floating", "integral" ...), is a certain dtype, or one of a tuple of both."""
    found = dtype_named(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(found, k) for k in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise refused(f"{kind!r} is not a kind of dtype; the kinds are {', '.join(map(repr, KINDS))}")
        return found.kind in KINDS[kind]
    return found == dtype_named(kind)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether `to` holds every value of `from_`, a dtype or an array's."""
    a, b = _dtype_of(from_), dtype_named(to)
    if a.is_integer and (b.is_float or b.is_complex):
        return a.bits - (a.kind == "int") <= b.part.mantissa + 1
    return dtypes.promote(a, b) == b


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an operator on such operands has; Python numbers adapt. Raises LaunchError TS302 where none is."""
    numbers = [v for v in arrays_and_dtypes if isinstance(v, (bool, int, float, complex))]
    given = [_dtype_of(v) for v in arrays_and_dtypes if not isinstance(v, (bool, int, float, complex))]
    if not given and not numbers:
        raise refused("result_type needs at least one array, dtype or number")

    def both(a: DType, b: DType) -> DType:
        found = dtypes.promote(a, b)
        if found is None:
            raise refused(f"{a} and {b} have no common dtype", "TS302")
        return found

    out = reduce(both, given) if given else None
    for value in sorted(numbers, key=lambda v: (isinstance(v, complex), isinstance(v, float), not isinstance(v, bool))):
        weak = dtypes.weak(value, out)
        assert weak is not None
        out = weak if out is None else both(out, weak)
    assert out is not None
    return out


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """`x` converted to `dtype` and moved to `device`; a copy even where nothing changes, unless `copy` is False."""
    x, wanted = tensor(x), dtype_named(dtype)
    cast = function("cast")
    assert cast is not None
    made = x if x.dtype == wanted else cast(x, wanted)
    made = made if device is None else made.to(device)
    return made.copy() if copy and made is x else made


class NamespaceInfo:
    """What the namespace has: `xp.__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return HOST

    def devices(self) -> list[str]:
        return [d.name for d in machine.devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        return {
            "real floating": dtypes.f32, "complex floating": dtypes.complex64,
            "integral": dtypes.int64, "indexing": dtypes.int64,
        }  # fmt: skip

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes, of a kind or a tuple of kinds."""
        return {n: d for n, d in STANDARD.items() if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    return NamespaceInfo()


public(globals(), __all__)
