"""Element types, their aliases, promotion, and their NumPy types.

Storage types that a target cannot compute in (`compute` differs from the type itself) are converted at load and
store; memory always holds the storage type.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from tessera.errors import AnnotationError, Diagnostic

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["float", "int", "uint", "bool", "complex"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """`bits` counts storage bits; `numpy_name` is NumPy's or ml_dtypes' name; `accumulate` is the least accumulator.

    Each dtype is one object, in copies as well: types are compared and hashed all the time.
    """

    name: str
    kind: Kind
    bits: int
    numpy_name: str
    exponent: int = 0
    mantissa: int = 0
    maximum: float = 0.0
    itemsize: int = field(init=False, repr=False)
    """bytes per element in memory (sub-byte types are stored one to a byte, as ml_dtypes does)"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "itemsize", max(1, self.bits // 8))

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def is_low_precision(self) -> bool:
        """Floats narrower than f32 (tf32 included): computed and accumulated in f32."""
        return self.kind == "float" and (self.bits < 32 or self.name == "tf32")

    @property
    def has_nan(self) -> bool:
        """Floats of fewer than 8 bits have none: NaN becomes 0."""
        return self.kind in ("float", "complex") and self.bits >= 8

    @property
    def compute(self) -> DType:
        """The type arithmetic is done in: f32 for narrower floats, else itself."""
        return f32 if self.is_low_precision else self

    @property
    def part(self) -> DType:
        """The dtype of a complex number's parts; the dtype itself where it is real."""
        return (f32 if self.bits == 64 else f64) if self.is_complex else self

    @property
    def paired(self) -> DType:
        """The complex dtype with parts of this dtype."""
        return complex128 if self.bits == 64 else complex64

    @property
    def accumulate(self) -> DType:
        """The least accumulator of sums: f32 for floats up to f32, int64/uint64 for integers and bool."""
        if self.kind == "bool" or self.kind == "int":
            return int64
        if self.kind == "uint":
            return uint64
        return self.compute

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        """Also to another library's dtype, or its name, as for NumPy's arrays: `x.dtype == np.float32`."""
        return self is other or (type(other) is not DType and other is not None and of(other) is self)

    __hash__ = object.__hash__

    def __rmatmul__(self, tensor: object) -> object:
        """`Tensor @ f32`: a tensor of any shape with this dtype."""
        if getattr(tensor, "__tessera_builtin__", "") != "tessera.Tensor":
            return NotImplemented
        return tensor["...", self]  # type: ignore[index]

    @property
    def no_dims(self) -> str:
        """Why `f32["B"]` is an error."""
        return f'{self} is a dtype: write Tensor["B", {self}] for a tensor of {self}'

    __iter__: ClassVar[None] = None

    def __getitem__(self, item: object) -> NoReturn:
        raise AnnotationError(Diagnostic("TS211", self.no_dims))

    def __reduce__(self) -> tuple[Callable[[str], DType | None], tuple[str]]:
        return named, (self.name,)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype of the storage (ml_dtypes' for the small floats)."""
        return _numpy_dtype(self.numpy_name)

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """`numpy`, where NumPy looks for it: `np.zeros(3, x.dtype)`, `np.finfo(x.dtype)`."""
        return self.numpy


@lru_cache(maxsize=64)
def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    np = importlib.import_module("numpy")
    if hasattr(np, name):
        return np.dtype(getattr(np, name))
    return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))


f64 = DType("f64", "float", 64, "float64", 11, 52, 1.7976931348623157e308)
f32 = DType("f32", "float", 32, "float32", 8, 23, 3.4028234663852886e38)
tf32 = DType("tf32", "float", 32, "float32", 8, 10, 3.4011621342146535e38)
f16 = DType("f16", "float", 16, "float16", 5, 10, 65504.0)
bf16 = DType("bf16", "float", 16, "bfloat16", 8, 7, 3.3895313892515355e38)
fp8_e4m3 = DType("fp8_e4m3", "float", 8, "float8_e4m3fn", 4, 3, 448.0)
fp8_e5m2 = DType("fp8_e5m2", "float", 8, "float8_e5m2", 5, 2, 57344.0)
fp8_e8m0 = DType("fp8_e8m0", "float", 8, "float8_e8m0fnu", 8, 0, 2.0**127)
"""powers of two: the scales of blocks in the OCP Microscaling formats. It has no sign and no 0"""
fp6_e2m3 = DType("fp6_e2m3", "float", 6, "float6_e2m3fn", 2, 3, 7.5)
fp6_e3m2 = DType("fp6_e3m2", "float", 6, "float6_e3m2fn", 3, 2, 28.0)
fp4_e2m1 = DType("fp4_e2m1", "float", 4, "float4_e2m1fn", 2, 1, 6.0)
int8, int16, int32, int64 = (
    DType(f"int{bits}", "int", bits, f"int{bits}", maximum=2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)
)
uint8, uint16, uint32, uint64 = (
    DType(f"uint{bits}", "uint", bits, f"uint{bits}", maximum=2**bits - 1) for bits in (8, 16, 32, 64)
)
bool_ = DType("bool", "bool", 8, "bool", maximum=1.0)
complex64 = DType("complex64", "complex", 64, "complex64")
complex128 = DType("complex128", "complex", 128, "complex128")

ALL: tuple[DType, ...] = (
    f64, f32, tf32, f16, bf16, fp8_e4m3, fp8_e5m2, fp8_e8m0, fp6_e2m3, fp6_e3m2,
    fp4_e2m1, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool_, complex64, complex128,
)  # fmt: skip

BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
ALIASES: dict[str, str] = {
    "float64": "f64", "fp64": "f64", "double": "f64",
    "float32": "f32", "fp32": "f32", "float": "f32",
    "float16": "f16", "fp16": "f16", "half": "f16",
    "bfloat16": "bf16",
    "fp8": "fp8_e4m3", "e4m3": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "f8e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2", "float8_e5m2": "fp8_e5m2", "f8e5m2": "fp8_e5m2",
    "e8m0": "fp8_e8m0", "float8_e8m0fnu": "fp8_e8m0", "f8e8m0": "fp8_e8m0",
    "fp6": "fp6_e2m3", "float6_e2m3fn": "fp6_e2m3", "float6_e3m2fn": "fp6_e3m2",
    "fp4": "fp4_e2m1", "float4_e2m1fn": "fp4_e2m1",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "int": "int64", "long": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "bool_": "bool", "c64": "complex64", "c128": "complex128",
}  # fmt: skip


def named(name: str) -> DType | None:
    """The dtype with this name or alias; None if there is none."""
    return BY_NAME.get(ALIASES.get(name, name))


def of(obj: object) -> DType | None:
    """The dtype for a DType, a name, a Python type, or a NumPy, torch or jax dtype; None if there is none."""
    if isinstance(obj, DType):
        return obj
    if isinstance(obj, str):
        return named(obj)
    if isinstance(obj, type) and obj in (float, int, bool, complex):  # NumPy's float64 dtype equals `float`
        return {float: f32, int: int64, bool: bool_, complex: complex64}[obj]  # type: ignore[index]
    if isinstance(obj, (int, float, complex)):
        return None
    name = getattr(obj, "name", None) or getattr(obj, "__name__", None) or str(obj).removeprefix("torch.")
    return named(str(name))


def promote(a: DType, b: DType) -> DType | None:
    """The common type of two array dtypes; None if an explicit cast is needed.

    Integers give way to floats of any width (as in JAX and PyTorch). Two different floats of the same width, such as
    f16 and bf16, and two different fp8 or smaller formats have no common type: a silent f32 would hide a mistake.
    """
    if a == b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_complex or b.is_complex:
        wide = 128 if 128 in (a.bits if a.is_complex else 0, b.bits if b.is_complex else 0) or f64 in (a, b) else 64
        return complex128 if wide == 128 else complex64
    if a.is_float and b.is_float:
        if {a, b} == {f32, tf32}:
            return f32
        if a.bits == b.bits or min(a.bits, b.bits) <= 8:
            return None
        return a if a.bits > b.bits else b
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return BY_NAME[f"int{unsigned.bits * 2}"] if unsigned.bits < 64 else None


def widens(a: DType, b: DType) -> bool:
    """Whether every value of `a` is a value of `b`."""
    if a.is_float and b.is_float:
        return a.exponent <= b.exponent and a.mantissa <= b.mantissa
    if a.kind == "bool" or (a.is_integer and a.kind == b.kind):
        return a.kind == "bool" or a.bits <= b.bits
    return False


def have_common(found: Iterable[DType]) -> bool:
    """Whether all of these have a common type, applying `promote` in order."""
    joint: DType | None = bool_
    for dtype in found:
        joint = promote(joint, dtype)
        if joint is None:
            return False
    return True


def number(value: complex, dtype: DType) -> bool | int | float | complex | None:
    """A Python number converted to the kind of `dtype`; None if `dtype` cannot hold it."""
    if isinstance(value, complex) and not dtype.is_complex:
        return None
    try:
        complex(value)
        if dtype.is_integer:
            low = -dtype.maximum - 1 if dtype.kind == "int" else 0
            whole = isinstance(value, int) or float(value).is_integer()  # type: ignore[arg-type]
            if not whole or not low <= value <= dtype.maximum:  # type: ignore[operator]
                return None
    except OverflowError:  # an integer of more digits than any float has
        return None
    kinds = {"complex": complex, "int": int, "uint": int, "bool": bool, "float": float}
    return kinds[dtype.kind](value)  # type: ignore[arg-type]


def weak(value: object, other: DType | None) -> DType | None:
    """The dtype of a Python scalar in an operation with an array of dtype `other` (or alone): it adapts, never
    widens."""
    if isinstance(value, bool):
        return other or bool_
    if isinstance(value, int):
        return (other if other and other.kind != "bool" else int64) if other else int64
    if isinstance(value, float):
        return other if other and (other.is_float or other.is_complex) else f32
    if isinstance(value, complex):
        if other and other.is_complex:
            return other
        return complex128 if other == f64 else complex64
    return None
