"""Stateless random numbers: the same seed and shape give the same bits, on every target, whatever computes them.

The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
Element number i in row-major order draws words 0 and 1 of the block whose counter is i + offset and whose key is the
seed, so no two elements share a draw and none depends on another. For roundings, which need few bits of many elements,
draws of 32 bits are a hash of the element's number and the key (C. Wellons' lowbias32, with the key's halves mixed in).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import REGISTRY, Infer, Operator, tensor
from tessera.compiler.graph.operators.creation import sizes
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.lazy import np

WORD = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)


def philox(counter: Any, key: Any) -> Any:
    """Philox4x32-10 on uint64 arrays: word0 | word1 << 32 of the block (counter lo, counter hi, 0, 0)."""
    counter, key = np.asarray(counter, np.uint64), np.asarray(key, np.uint64)
    word, shift = np.uint64(WORD), np.uint64(32)
    c0, c1 = counter & word, counter >> shift
    c2 = c3 = np.zeros_like(counter)
    k0, k1 = key & word, key >> shift
    for _ in range(10):
        p0, p1 = np.uint64(MULTIPLIERS[0]) * c0, np.uint64(MULTIPLIERS[1]) * c2
        c0, c1, c2, c3 = (p1 >> shift) ^ c1 ^ k0, p1 & word, (p0 >> shift) ^ c3 ^ k1, p0 & word
        k0, k1 = (k0 + np.uint64(WEYL[0])) & word, (k1 + np.uint64(WEYL[1])) & word
    return c0 | c1 << shift


FINAL = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)
"""products of MurmurHash3's last step, by which keys that are alike differ in half of their bits"""
LOW_BIAS = (0x7FEB352D, 0x846CA68B)


def hashed(number: Any, key: Any) -> Any:
    """32 bits of element `number` under a key, as uint32."""
    with np.errstate(over="ignore"):
        key = np.asarray(key, np.uint64)
        for product in FINAL:
            key = (key ^ key >> np.uint64(33)) * np.uint64(product)
        key = key ^ key >> np.uint64(33)
        x = np.asarray(number, np.uint64).astype(np.uint32) ^ key.astype(np.uint32)
        x = (x ^ x >> np.uint32(16)) * np.uint32(LOW_BIAS[0]) ^ (key >> np.uint64(32)).astype(np.uint32)
        x = (x ^ x >> np.uint32(15)) * np.uint32(LOW_BIAS[1])
        return x ^ x >> np.uint32(16)


class RandomBits(Operator):
    """64 random bits for each element, as uint64. Element i uses counter i + `offset` under the key `seed`.

    As uint32, 32 bits for each element, which take a tenth of the time: a hash of i + `offset` and the seed, good for
    rounding and masks, not for simulations. Elements 2**32 apart have the same.
    """

    kind = "random"
    methods = ()
    differentiable = False
    apart = ("seed",)

    def infer(
        self, t: Infer, seed: TensorType, shape: Shape, offset: Dim = 0, dtype: DType = dtypes.uint64
    ) -> TensorType:
        if seed.rank:
            t.fail("TS213", f"a seed is one integer, not a tensor with {seed.rank} axes", operand=0)
        t.require(seed, "integer", operand=0)
        t.convert(0, seed, dtypes.uint64)
        if (kind := t.dtype(dtype)) not in (dtypes.uint64, dtypes.uint32):
            t.fail("TS301", f"random bits are uint64 or uint32, not {kind}")
        out = TensorType(sizes(t, shape), kind)
        t.canonical(shape=out.shape, offset=t.dim(offset, "offset"), dtype=kind)
        return out

    def partition(self, cut: Cut, seed: TensorType, shape: Shape, offset: Dim, dtype: DType) -> None:
        cut.whole(f"each of {cut.dim} draws by its position, and a part does not know where it starts")

    def reference(self, seed: Any, shape: tuple[int, ...], offset: int, dtype: DType = dtypes.uint64) -> Any:
        numbers = np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(offset)
        return (philox if dtype == dtypes.uint64 else hashed)(numbers, seed).reshape(shape)

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * (80 if results[0].dtype == dtypes.uint64 else 10)


BITS = cast("RandomBits", REGISTRY["random_bits"])


class RandomOperator(Operator, abstract=True):
    """Made of `random_bits`; the reference follows the decomposition's arithmetic in NumPy."""

    methods = ()
    differentiable = False
    apart = ("seed",)
    says: ClassVar = {"seed": "an integer that decides what is drawn: the same seed draws the same numbers"}

    def bits(self, t: Infer, seed: TensorType, shape: Shape, dtype: object) -> TensorType:
        """Checks what all distributions share; the result's type."""
        bits = BITS.infer(t, seed, shape)
        del t.attrs["offset"]
        out = bits.with_dtype(t.dtype(dtype))
        t.canonical(dtype=out.dtype)
        return out

    def flops(self, operands: Sequence[Any], results: Sequence[TensorType], **attrs: Any) -> Dim:
        return dims.prod(results[0].shape) * 100


def draw(seed: Any, shape: tuple[int, ...]) -> Any:
    """The reference's bits."""
    return BITS.reference(seed, shape, 0)


class Uniform(RandomOperator):
    """Uniformly distributed floats in [low, high) of 24 random bits (f64: 53). Narrow floats may round up to high."""

    def infer(
        self,
        t: Infer,
        seed: TensorType,
        shape: Shape = (),
        low: float = 0.0,
        high: float = 1.0,
        dtype: DType = dtypes.f32,
    ) -> TensorType:
        out = self.bits(t, seed, shape, dtype)
        t.require(out, "float")
        t.canonical(low=t.number(low, "low"), high=t.number(high, "high"))
        return out

    def reference(self, seed: Any, shape: tuple[int, ...], low: float, high: float, dtype: DType) -> Any:
        kept, wide = (53, np.float64) if dtype == dtypes.f64 else (24, np.float32)
        unit = (draw(seed, shape) >> np.uint64(64 - kept)).astype(wide) * wide(2.0**-kept)
        return unit * wide(high - low) + wide(low)

    def decompose(self, g: GraphBuilder, seed: Value, shape: Shape, low: float, high: float, dtype: DType) -> Value:
        kept, wide = (53, dtypes.f64) if dtype == dtypes.f64 else (24, dtypes.f32)
        unit = g.mul(g.cast(g.shift_right(g.random_bits(seed, shape), 64 - kept), wide), 2.0**-kept)
        unit = unit if high - low == 1 else g.mul(unit, high - low)
        return g.to(unit if low == 0 else g.add(unit, low), dtype)


class Normal(RandomOperator):
    """Normally distributed floats: the transform of Box and Muller (1958) of two random words."""

    def infer(
        self,
        t: Infer,
        seed: TensorType,
        shape: Shape = (),
        mean: float = 0.0,
        std: float = 1.0,
        dtype: DType = dtypes.f32,
    ) -> TensorType:
        out = self.bits(t, seed, shape, dtype)
        t.require(out, "float")
        t.canonical(mean=t.number(mean, "mean"), std=t.number(std, "std"))
        return out

    def reference(self, seed: Any, shape: tuple[int, ...], mean: float, std: float, dtype: DType) -> Any:
        wide = dtype.compute.numpy.type
        bits = draw(seed, shape)
        u = ((bits & np.uint64(WORD)).astype(wide) + wide(0.5)) * wide(2.0**-32)
        v = (bits >> np.uint64(32)).astype(wide) * wide(2.0**-32)
        return np.sqrt(wide(-2) * np.log(u)) * np.cos(wide(2 * math.pi) * v) * wide(std) + wide(mean)

    def decompose(self, g: GraphBuilder, seed: Value, shape: Shape, mean: float, std: float, dtype: DType) -> Value:
        wide = dtype.compute
        bits = g.random_bits(seed, shape)
        u = g.mul(g.add(g.cast(g.bit_and(bits, WORD), wide), 0.5), 2.0**-32)  # above 0, so that its logarithm is finite
        v = g.mul(g.cast(g.shift_right(bits, 32), wide), 2.0**-32)
        z = g.mul(g.sqrt(g.mul(g.log(u), -2.0)), g.cos(g.mul(v, 2 * math.pi)))
        z = z if std == 1 else g.mul(z, std)
        return g.to(z if mean == 0 else g.add(z, mean), dtype)


class Randint(RandomOperator):
    """Integers from low up to, but not including, high. The bias is below (high - low) / 2**64."""

    says: ClassVar = {
        **RandomOperator.says,
        "low": "a seed comes first: ts.randint(seed, (3, 4), 0, 10) are 3 x 4 numbers below 10",
        "high": "ts.randint(seed, (3, 4), 0, 10) are 3 x 4 numbers below 10",
    }

    def infer(
        self, t: Infer, seed: TensorType, shape: Shape, low: int, high: int, dtype: DType = dtypes.int64
    ) -> TensorType:
        out = self.bits(t, seed, shape, dtype)
        t.require(out, "integer")
        a, b = t.integer(low, "low", most=2**63), t.integer(high, "high", most=2**63)
        if not -(2**63) <= a < b <= 2**63:
            t.fail("TS213", f"randint needs low < high within 64 bits, not {a} and {b}")
        t.canonical(low=a, high=b)
        return out

    def reference(self, seed: Any, shape: tuple[int, ...], low: int, high: int, dtype: DType) -> Any:
        return (draw(seed, shape) % np.uint64(high - low)).astype(np.int64) + np.int64(low)

    def decompose(self, g: GraphBuilder, seed: Value, shape: Shape, low: int, high: int, dtype: DType) -> Value:
        steps = g.cast(g.mod(g.random_bits(seed, shape), high - low), dtypes.int64)
        return g.to(steps if low == 0 else g.add(steps, low), dtype)


class Bernoulli(RandomOperator):
    """True with probability p."""

    def infer(self, t: Infer, seed: TensorType, shape: Shape, p: float = 0.5) -> TensorType:
        out = self.bits(t, seed, shape, dtypes.bool_)
        del t.attrs["dtype"]
        t.canonical(p=t.number(p, "p", 0, 1))
        return out

    def reference(self, seed: Any, shape: tuple[int, ...], p: float) -> Any:
        return (draw(seed, shape) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24) < np.float32(p)

    def decompose(self, g: GraphBuilder, seed: Value, shape: Shape, p: float) -> Value:
        return g.lt(g.uniform(seed, shape), p)


UNIFORM = cast("Uniform", REGISTRY["uniform"])
BERNOULLI = cast("Bernoulli", REGISTRY["bernoulli"])


class Dropout(Operator):
    """`x` with elements set to 0 with probability `p`, the others divided by 1 - p. `key` is the seed."""

    apart = ("key",)
    says: ClassVar = {
        "key": "an integer that decides which elements are dropped: the same key drops the same ones, so give each "
        "call another, as a parameter `key: ts.int64` of the function",
        "training": "write `if training: x = ts.dropout(x, key, p)`",
        "inplace": "tensors are values, so keep what it gives: x = ts.dropout(x, key, p)",
    }

    def infer(self, t: Infer, x: TensorType, key: TensorType, p: float = 0.5) -> TensorType:
        t.require(x, "float", operand=0)
        if key.dtype.is_float:
            message = f"the key of dropout is an integer that decides which elements are dropped, not {key.dtype}"
            t.fail("TS301", f"{message}; p comes after it: dropout(x, key, p=0.1)", operand=1)
        t.require(key, "integer", operand=1)
        if key.rank:
            t.fail("TS213", f"a key is one integer, not a tensor with {key.rank} axes", operand=1)
        t.canonical(p=t.number(p, "p", 0, 1))
        return x

    def reference(self, x: Any, key: Any, p: float) -> Any:
        kept = ~BERNOULLI.reference(np.asarray(key).astype(np.uint64), x.shape, p)
        return np.where(kept, x * x.dtype.type(1 / (1 - p) if p < 1 else 0), x.dtype.type(0))

    def decompose(self, g: GraphBuilder, x: Value, key: Value, p: float) -> Value:
        gone = g.bernoulli(key, tensor(x).shape, p)
        dtype = tensor(x).dtype
        return g.to(g.where(gone, 0.0, g.mul(g.compute(x), 1 / (1 - p) if p < 1 else 0.0)), dtype)

    def adjoint(self, g: GraphBuilder, out: Value, ct: Value, x: Value, key: Value, p: float) -> tuple[Value, None]:
        return (g.dropout(ct, key, p), None)

    def tangent(self, g: GraphBuilder, out: Value, tangents: Any, x: Value, key: Value, p: float) -> Value:
        return g.dropout(tangents[0], key, p)
