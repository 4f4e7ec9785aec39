"""Tables of roots of unity: numbers that are known when a program is compiled, and read from memory when it runs."""

from __future__ import annotations

from typing import Any, Literal

from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Infer, Operator
from tessera.compiler.ir.types import Shape, TensorType
from tessera.language import dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np

Form = Literal["line", "matrix", "chirp", "response"]


def roots(exponents: Any, n: int) -> Any:
    """exp(-2 pi i e / n) for an array of whole numbers e, as complex128.

    An angle is brought into the first eighth of a turn with whole numbers, and its sine and cosine are computed there
    in the widest floats of the machine, so that each part is off by one rounding at most.
    """
    e = np.mod(np.asarray(exponents, np.int64), n) * 8
    eighth, rest = np.divmod(e, n)  # the angle is (eighth + rest / n) eighths of a turn
    odd = eighth % 2 == 1
    angle = np.where(odd, n - rest, rest).astype(np.longdouble) / n * (np.arctan(np.longdouble(1)))
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = np.where((eighth + 1) // 2 % 2 == 1, sin, cos), np.where((eighth + 1) // 2 % 2 == 1, cos, sin)
    real = np.where((eighth >= 2) & (eighth < 6), -a, a)
    imaginary = np.where(eighth < 4, -b, b)
    out = np.empty(e.shape, np.complex128)
    out.real, out.imag = real, imaginary
    return out


def chirp(count: int) -> Any:
    """exp(-i pi j^2 / count) for j below `count`."""
    j = np.arange(count, dtype=object if count > 2**31 else np.int64)
    return roots((j * j % (2 * count)).astype(np.int64), 2 * count)


class RootsOfUnity(Operator):
    """Numbers on the unit circle, or what is made of them, as a constant in memory.

    `line`: exp(-2 pi i j / n) for j below `count`. `matrix`: exp(-2 pi i j k / n), [count, count]. `chirp`:
    exp(-i pi j^2 / n), and `response`: the transform, of `count` elements, of its conjugate wrapped around, divided by
    `count` (L. Bluestein, "A linear filtering approach to the computation of the discrete Fourier transform", 1970).
    `conjugate`: with i for -i.
    """

    kind = "table"
    differentiable = False
    functions = ()
    methods = ()

    def infer(
        self, t: Infer, n: int, count: int, form: str = "line", conjugate: bool = False,
        dtype: DType = dtypes.complex64,
    ) -> TensorType:  # fmt: skip
        out = TensorType(self.shape(count, form), t.dtype(dtype))
        t.require(out, "complex")
        t.canonical(dtype=out.dtype)
        return out

    @staticmethod
    def shape(count: int, form: str) -> Shape:
        return (count, count) if form == "matrix" else (count,)

    def reference(self, n: int, count: int, form: str, conjugate: bool, dtype: DType) -> Any:
        j = np.arange(count, dtype=np.int64)
        if form == "response":
            wrapped = np.zeros(count, np.complex128)
            wave = np.conj(chirp(n))
            wrapped[:n] = wave
            wrapped[count - n + 1 :] = wave[:0:-1]
            found = np.fft.fft(wrapped) / count
        elif form == "chirp":
            found = chirp(n)[:count]
        else:
            found = roots(np.multiply.outer(j, j) if form == "matrix" else j, n)
        if not conjugate:
            return found
        # The wrapped chirp is even, so that the transform of its conjugate is the conjugate of its transform.
        return np.conj(found)

    def partition(self, cut: Cut, **attrs: Any) -> None:
        """A table has no symbolic size."""

    def flops(self, operands: Any, results: Any, **attrs: Any) -> Dim:
        return 0
