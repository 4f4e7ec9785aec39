"""What the oracle computes with: dtypes, promotion, rounding, and tensors that know how far they may be wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

MOST = 1 << 21
"""the elements of the largest tensor"""


class Unfit(Exception):
    """The program has no result that could be predicted well enough: it is not tried."""


@dataclass(frozen=True)
class Kind:
    """A dtype: `held` is how its values stand in files and results, `wide` how the oracle computes with them."""

    name: str
    held: Any
    wide: Any
    eps: float = 0.0
    sums: float = 0.0
    """the precision of sums"""
    limit: float = math.inf

    @property
    def bits(self) -> int:
        return np.dtype(self.held).itemsize * 8

    @property
    def letter(self) -> str:
        return np.dtype(self.wide).kind


def _kinds() -> dict[str, Kind]:
    f32, f64 = 2.0**-24, 2.0**-53
    out = [
        Kind("f64", np.float64, np.float64, f64, f64, 1e12),
        Kind("f32", np.float32, np.float64, f32, f32, 1e7),
        Kind("f16", np.float16, np.float64, 2.0**-11, f32, 2e3),
        Kind("bf16", ml_dtypes.bfloat16, np.float64, 2.0**-8, f32, 1e6),
        Kind("complex64", np.complex64, np.complex128, f32, f32, 1e5),
        Kind("complex128", np.complex128, np.complex128, f64, f64, 1e8),
        Kind("bool_", np.bool_, np.bool_),
    ]
    for bits in (8, 16, 32, 64):
        for name in (f"int{bits}", f"uint{bits}"):
            out.append(Kind(name, np.dtype(name).type, np.dtype(name).type))
    return {k.name: k for k in out}


KINDS = _kinds()
FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = tuple(n for n in KINDS if "int" in n)


def promote(a: Kind, b: Kind) -> Kind:
    """The common dtype, as the language's page on dtypes has it."""
    if a is b or b.letter == "b":
        return a
    if a.letter == "b":
        return b
    if "c" in (a.letter, b.letter):
        wide = {"complex128", "f64"} & {a.name, b.name}
        return KINDS["complex128" if wide else "complex64"]
    if a.letter == b.letter:
        if a.bits == b.bits:
            raise Unfit("no common type")
        return a if a.bits > b.bits else b
    if "f" in (a.letter, b.letter):
        return a if a.letter == "f" else b
    signed, unsigned = (a, b) if a.letter == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 64:
        raise Unfit("no common type")
    return KINDS[f"int{unsigned.bits * 2}"]


def weak(value: Any, beside: Kind) -> Kind:
    """The dtype that a Python number takes beside an array."""
    if isinstance(value, bool):
        return beside
    if isinstance(value, int):
        return KINDS["int64"] if beside.letter == "b" else beside
    if beside.letter in "fc":
        return beside
    return KINDS["f32"]


def plain(value: Any, beside: Kind) -> Wanted:
    """A Python number beside an array."""
    kind = weak(value, beside)
    if kind.letter in "iu" and not np.iinfo(kind.held).min <= value <= np.iinfo(kind.held).max:
        raise Unfit("the dtype does not hold the number")
    return Wanted(rounded(value, kind), kind)


def ordered(*operands: Operand) -> None:
    """Raises Unfit where there is no order among them."""
    if any(x.kind.letter in "cb" if isinstance(x, Wanted) else isinstance(x, (bool, complex)) for x in operands):
        raise Unfit("no order")


def numbers(*operands: Operand) -> None:
    """Raises Unfit where all are bools."""
    if all(x.kind.letter == "b" if isinstance(x, Wanted) else isinstance(x, bool) for x in operands):
        raise Unfit("no arithmetic of bools")


def rounded(x: Any, kind: Kind) -> Any:
    """Wide values as the dtype holds them; those of 16 bits come from f32."""
    with np.errstate(all="ignore"):
        if kind.name in ("f16", "bf16"):
            return np.asarray(x).astype(np.float32).astype(kind.held).astype(np.float64)
        return np.asarray(x).astype(kind.held).astype(kind.wide)


def largest(x: Any) -> float:
    """The largest finite magnitude."""
    a = np.abs(np.asarray(x)).astype(np.float64)
    a = a[np.isfinite(a)]
    return float(a.max()) if a.size else 0.0


def total_is_exact(terms: Any, eps: float) -> bool:
    """Whether a sum of these comes out the same in any order: all are multiples of a step that is fine enough."""
    a = np.abs(np.asarray(terms))
    if not np.all(np.isfinite(a)):
        return False
    total = float(a.sum())
    parts = (np.asarray(terms).real, np.asarray(terms).imag)
    return any(
        all(np.all(p * 2**k == np.round(p * 2**k)) for p in parts) and total * 2**k * eps < 0.5 for k in (0, 4, 12)
    )


def bounded(size: int) -> None:
    """Raises Unfit for tensors that are too large to try."""
    if size > MOST:
        raise Unfit("too large")


Operand = Any


class Wanted:
    """A tensor: its value, dtype, and how far a right result may be from the value."""

    __slots__ = ("error", "kind", "value")
    __array_ufunc__ = None

    def __init__(self, value: Any, kind: Kind, error: float = 0.0) -> None:
        self.value, self.kind, self.error = np.asarray(value), kind, float(error)
        bounded(self.value.size)
        if kind.letter in "fc":
            top = largest(self.value)
            if top > kind.limit or not error <= 0.05 * max(1.0, top):
                raise Unfit("out of range")

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def exact(self) -> Any:
        """The value, if it may decide something."""
        if self.error:
            raise Unfit("inexact")
        return self.value

    def like(self, value: Any, kind: Kind | None = None) -> Wanted:
        """Other places of the same elements."""
        return Wanted(value, kind or self.kind, self.error)

    # Python's protocols
    def __bool__(self) -> bool:
        if self.value.size != 1:
            raise Unfit("a condition of several elements")
        return bool(self.exact.reshape(()))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Wanted:
        keys = key if isinstance(key, tuple) else (key,)
        plain = tuple(k.exact if isinstance(k, Wanted) else k for k in keys)
        looked = [k for k in keys if isinstance(k, Wanted)]
        if any(k.kind.letter not in "iu" for k in looked):
            raise Unfit("no index")
        bounded(self.value.size * math.prod(k.value.size for k in looked))
        return self.like(self.value[tuple(k.astype(np.int64) if isinstance(k, np.ndarray) else k for k in plain)])

    @property
    def T(self) -> Wanted:
        return self.like(self.value.T)

    def reshape(self, *shape: int) -> Wanted:
        return self.like(self.value.reshape(shape))


def pair(a: Operand, b: Operand) -> tuple[Wanted, Wanted]:
    """Both as tensors of their common dtype."""
    if not isinstance(a, Wanted):
        a = plain(a, b.kind)
    if not isinstance(b, Wanted):
        b = plain(b, a.kind)
    kind = promote(a.kind, b.kind)
    return cast(a, kind.name), cast(b, kind.name)


def spread(a: Operand, b: Operand) -> tuple[Wanted, Wanted]:
    """A pair that broadcasts to something of a fair size."""
    a, b = pair(a, b)
    bounded(math.prod(np.broadcast_shapes(a.shape, b.shape)))
    return a, b


def cast(x: Wanted, dtype: str) -> Wanted:
    kind = KINDS[dtype]
    if x.kind is kind:
        return x
    if kind.letter == "b":
        return Wanted(x.exact != 0, kind)
    if kind.letter in "iu":
        if x.kind.letter == "c":
            raise Unfit("no cast")
        if x.kind.letter != "f":
            return Wanted(x.value.astype(kind.held), kind)
        low, high = np.iinfo(kind.held).min, np.iinfo(kind.held).max
        cut = np.trunc(np.nan_to_num(x.exact, nan=0.0, posinf=1e30, neginf=-1e30))
        inside = np.where((cut >= low) & (cut < float(high)), cut, 0).astype(kind.held)
        return Wanted(np.where(cut >= float(high), high, np.where(cut < low, low, inside)).astype(kind.held), kind)
    if x.kind.letter == "c" and kind.letter != "c":
        raise Unfit("no cast")
    if x.kind.letter in "iu" and kind.bits <= 16 and x.value.size and largest(x.value) > 2**24:
        raise Unfit("rounded twice")
    if x.kind.letter in "iu" and kind.name == "f32":
        return Wanted(x.value.astype(np.float32).astype(np.float64), kind)
    if x.kind.letter in "iu" and kind.letter == "c":
        return Wanted(x.value.astype(np.float64).astype(np.float32).astype(np.complex128), kind)
    if x.kind.name == "f64" and kind.bits <= 16 and not np.array_equal(rounded(x.value, KINDS["f32"]), x.value):
        raise Unfit("rounded twice")
    return settled(x.value, kind, x.error, 0)


def settled(value: Any, kind: Kind, error: float, ulps: float) -> Wanted:
    """A result rounded to its dtype; `ulps` 0 says that one rounding is all that happens."""
    value = rounded(value, kind)
    if error or ulps:
        error += (ulps + 1) * 2 * kind.eps * max(largest(value), 1e-6)
    return Wanted(value, kind, error)
