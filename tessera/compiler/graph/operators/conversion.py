"""Conversions with another rule than `cast`: held at the largest finite value, or rounded at random without bias."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import REGISTRY, Infer, Operator, OperatorParameter, tensor
from tessera.compiler.graph.operators.elementwise import Cast
from tessera.compiler.graph.operators.random import BITS, UNIFORM
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.language.rounding import round_to, to_compute

CAST = REGISTRY[Cast.name]
DRAWS = 3
"""of an element, under one key"""
NAN = 0x7FC00000
"""the bits of f32's NaN"""
APART = 0x9E3779B97F4A7C15
"""what keys of draws with 64 bits differ by"""


class Conversion(Operator, abstract=True):
    """A cast whose derivative is that of `cast`: as if nothing were rounded, and nothing out of range."""

    methods = ()

    def target(self, t: Infer, x: TensorType, dtype: object) -> TensorType:
        target = t.dtype(dtype)
        t.require(x, "real", operand=0)
        if target.kind in ("bool", "complex") or target == dtypes.fp8_e8m0:
            t.fail("TS301", f"{self.name} gives integers and signed floats, not {target}; use cast")
        t.canonical(dtype=target)
        return x.with_dtype(target)

    def partition(self, cut: Cut, x: TensorType, *rest: TensorType, **attrs: Any) -> None:
        """Each element by itself."""


class SaturateCast(Conversion):
    """`x` with elements of `dtype`; numbers beyond its largest finite value, also infinity, become that value.

    Rounded to nearest even, as `cast` does. NaN stays NaN in floats and becomes 0 in integers. Integers are limited
    to the range of `dtype`, where `cast` wraps.
    """

    batching = "map"

    def infer(self, t: Infer, x: TensorType, dtype: DType) -> TensorType:
        return self.target(t, x, dtype)

    def reference(self, x: Any, dtype: DType) -> Any:
        if dtype.is_float:
            limit: Any = dtype.compute.numpy.type(dtype.maximum)
            return round_to(np.clip(to_compute(round_to(x, dtype), dtype), -limit, limit), dtype)
        if x.dtype.kind in "iu":
            low, high = _range(dtype)
            info = np.iinfo(x.dtype)
            x = np.clip(x, max(low, int(info.min)), min(high, int(info.max)))
        return round_to(x, dtype)

    def decompose(self, g: GraphBuilder, x: Value, dtype: DType) -> Value:
        own = tensor(x).dtype
        if dtype.is_float:
            y = g.cast(x, dtype)  # in 8 bits and fewer infinity has become the largest value already
            return y if dtype.bits <= 8 else g.clip(y, -dtype.maximum, dtype.maximum)
        if own.is_integer:
            (low, high), (least, most) = _range(dtype), _range(own)
            x = x if low <= least else g.maximum(x, low)
            x = x if high >= most else g.minimum(x, high)
        return g.cast(x, dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, dtype: DType) -> Any:
        return CAST.adjoint(g, out, ct, x, dtype=dtype)  # type: ignore[misc]

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, dtype: DType) -> Value | None:
        return CAST.tangent(g, out, tangents, x, dtype=dtype)  # type: ignore[misc]


class StochasticCast(Conversion):
    """`x` rounded to one of its two neighbours in `dtype`, with probabilities that make the mean of the result `x`.

    `key` is an integer: element number i draws from Philox4x32-10 under this key by its number, so that the same key
    rounds the same way on every target, for any schedule and number of threads. Use another key for each step and
    tensor: the same key always rounds a value the same way. The probability is exact from f32 to bf16, which draws 16
    bits of `random_bits(key, shape, dtype=uint32)`; others draw 64 bits of Philox4x32-10, and it is within 2**-24 (from
    f64: 2**-53). Tensors of one shape may share a key, and the time for its bits: with `draw` 0, 1 and 2 an element has
    draws of which any two are independent.
    Values that `dtype` represents exactly do not change. Values beyond its largest finite one are rounded as by `cast`;
    to bf16 they become that or infinity, as if infinity were the next number.
    """

    apart = ("key",)
    says: ClassVar = {
        "key": "an integer that decides which way elements are rounded: give each call another, as a parameter "
        "`key: ts.int64` of the function",
        "draw": "0, 1 or 2: which of the draws that an element has under the key",
    }

    @cached_property
    def parameters(self) -> tuple[OperatorParameter, ...]:
        x, key, dtype, draw = super().parameters
        return (x, dtype, key, draw)

    def infer(self, t: Infer, x: TensorType, key: TensorType, dtype: DType, draw: int = 0) -> TensorType:
        t.require(x, "float", operand=0)
        t.require(key, "integer", operand=1)
        if key.rank:
            t.fail("TS213", f"a key is one integer, not a tensor with {key.rank} axes", operand=1)
        out = self.target(t, x, dtype)
        if not out.dtype.is_float:
            t.fail("TS301", f"stochastic_cast gives floats, not {out.dtype}; use cast")
        if (which := t.integer(draw, "draw")) not in range(DRAWS):
            t.fail("TS213", f"an element has the draws 0 to {DRAWS - 1} under a key, not draw {which}; use another key")
        t.canonical(draw=which)
        return out

    def partition(self, cut: Cut, x: TensorType, *rest: TensorType, **attrs: Any) -> None:
        cut.whole("each element draws by its place in the whole")

    def reference(self, x: Any, key: Any, dtype: DType, draw: int) -> Any:
        wide, own = x.dtype.type, dtypes.f64 if x.dtype.itemsize == 8 else dtypes.f32
        if dtypes.widens(own, dtype):
            return round_to(x, dtype)
        seed = np.asarray(key).astype(np.uint64)
        with np.errstate(all="ignore"):
            if _by_bits(own, dtype):
                bits = BITS.reference(seed, x.shape, 0, dtypes.uint32)
                part = (bits >> np.uint32(16), bits, bits ^ bits >> np.uint32(16))[draw] & np.uint32(0xFFFF)
                chosen = ((x.view(np.uint32) + part) & np.uint32(0xFFFF0000)).view(np.float32)
                return round_to(np.where(np.isnan(x), wide(np.nan), chosen), dtype)
            size = np.abs(x)
            place = np.maximum(np.ldexp(wide(1), np.frexp(size)[1] - 1), wide(_least(dtype)))
            steps = size / place * wide(2.0**dtype.mantissa)
            below = np.floor(steps)
            up = UNIFORM.reference(seed + np.uint64(_apart(draw)), x.shape, 0.0, 1.0, own) < steps - below
            chosen = np.copysign((below + up) * wide(2.0**-dtype.mantissa) * place, x)
            return round_to(np.where(size < wide(dtype.maximum), chosen, x), dtype)

    def decompose(self, g: GraphBuilder, x: Value, key: Value, dtype: DType, draw: int) -> Value:
        if dtypes.widens(tensor(x).dtype, dtype):
            return g.cast(x, dtype)
        return g.straight_through(x, _drawn(g, g.compute(x), key, dtype, draw))

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, key: Value, dtype: DType, draw: int) -> Any:
        return (*CAST.adjoint(g, out, ct, x, dtype=dtype), None)  # type: ignore[misc]

    def tangent(
        self, g: GraphBuilder, out: Value, tangents: Any, x: Value, key: Value, dtype: DType, draw: int
    ) -> Value | None:
        return CAST.tangent(g, out, tangents, x, dtype=dtype)  # type: ignore[misc]


def _drawn(g: GraphBuilder, x: Value, key: Value, dtype: DType, draw: int) -> Value:
    """bf16: the half of the bits that f32 has more, and 16 random ones, carry into those that stay. Others: |x| is
    counted in steps of `dtype`'s last place. They are powers of two, so that no product rounds."""
    wide, shape = tensor(x).dtype, tensor(x).shape
    if _by_bits(wide, dtype):
        carried = g.add(g.bitcast(x, dtypes.uint32), _part(g, key, shape, draw))
        carried = g.where(g.isnan(x), NAN, carried)  # infinity has no lower half that could carry
        return g.bitcast(g.cast(g.shift_right(carried, 16), dtypes.uint16), dtype)
    size = g.abs(x)
    bits = dtypes.uint64 if wide == dtypes.f64 else dtypes.uint32
    power = g.bitcast(g.bit_and(g.bitcast(size, bits), _exponents(wide)), wide)
    place = g.maximum(power, _least(dtype))
    steps = g.mul(g.div(size, place), 2.0**dtype.mantissa)
    below = g.floor(steps)
    key = g.add(g.cast(key, dtypes.uint64), _apart(draw)) if draw else key
    up = g.lt(g.uniform(key, shape, dtype=wide), g.sub(steps, below))
    chosen = g.mul(g.mul(g.where(up, g.add(below, 1.0), below), 2.0**-dtype.mantissa), place)
    signed = g.where(g.signbit(x), g.neg(chosen), chosen)
    return g.cast(g.where(g.lt(size, dtype.maximum), signed, x), dtype)


def _apart(draw: int) -> int:
    return draw * APART % 2**64


def _part(g: GraphBuilder, key: Value, shape: Shape, draw: int) -> Value:
    """16 of an element's 32 random bits: the upper half, the lower one, or both halves combined by exclusive or, which
    is independent of either."""
    bits = g.random_bits(key, shape, dtype=dtypes.uint32)
    if draw == 0:
        return g.shift_right(bits, 16)
    return g.bit_and(bits if draw == 1 else g.bit_xor(bits, g.shift_right(bits, 16)), 0xFFFF)


def _by_bits(wide: DType, dtype: DType) -> bool:
    """Whether elements of `dtype` are those of `wide` without the lower 16 bits."""
    return wide == dtypes.f32 and dtype == dtypes.bf16


def _exponents(wide: DType) -> int:
    """The bits of the exponent: with the others 0, those of the greatest power of two that is not above."""
    return (2**wide.exponent - 1) << wide.mantissa


def _range(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer."""
    most = int(dtype.maximum)
    return (-most - 1 if dtype.kind == "int" else 0), most


def _least(dtype: DType) -> float:
    """The smallest normal number."""
    return 2.0 ** (2 - 2 ** (dtype.exponent - 1))
