"""Elements as signed integers of the same order: all ways of sorting compare and move these words.

Equal elements have equal words, zeros of both signs too, and all NaN have the largest. Words of up to 32 bits take the
element's position along in their lower half, so that no two are equal and any order of comparisons is stable; positions
of wider words are in memory of their own.
"""

from __future__ import annotations

from tessera.compiler.targets.cpu.elementary.convert import storage_type
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import I32, I64, Ty, Val, const
from tessera.language.dtypes import DType


class Words:
    """`dtype` is how memory holds the elements; `positions`: the result is the positions, not the elements."""

    def __init__(self, fn: LLVMFunction, dtype: DType, descending: bool, positions: bool) -> None:
        self.fn, self.dtype, self.descending, self.positions = fn, dtype, descending, positions
        self.storage = storage_type(dtype, 1)
        self.key = I32 if self.storage.bits <= 32 else I64
        self.packed = positions and self.key is I32
        self.paired = positions and self.key is I64
        self.type = I64 if self.packed else self.key
        self.result = I64 if positions else self.storage
        self.restored = dtype.is_float and not positions
        """whether elements with equal words differ: zeros of both signs, and NaN"""

    @property
    def last(self) -> Val:
        """A word that nothing comes behind."""
        return const((1 << (self.type.bits - 1)) - 1, self.type)

    def of(self, v: Val, position: Val) -> Val:
        """The words of elements as memory holds them, at these positions (i64, as many lanes)."""
        key = self._key(v)
        if not self.packed:
            return key
        fn = self.fn
        high = fn.binary("shl", fn.convert("sext", key, I64), const(32, I64.wide(key.ty.lanes)))
        return fn.binary("or", high, position)

    def _key(self, v: Val) -> Val:
        fn, k = self.fn, self.key.wide(v.ty.lanes)
        if self.dtype.is_float:
            key = self._mirrored(fn.convert("bitcast", v, self.key))
            zero = const(0, k)
            key = fn.select(fn.compare("fcmp oeq", v, const(0.0, v.ty)), zero, key)
            key = fn.select(fn.compare("fcmp uno", v, v), const((1 << (k.bits - 1)) - 1, k), key)
        elif self.dtype.kind == "int":
            key = fn.convert("sext", v, self.key)
        else:
            key = fn.convert("zext", v, self.key) if v.ty.bits < k.bits else self._half(v)
        return fn.binary("xor", key, const(-1, k)) if self.descending else key

    def _mirrored(self, bits: Val) -> Val:
        """A float's bits as an integer in its order, and back: the order of negative numbers is reversed."""
        fn, t = self.fn, bits.ty
        sign = fn.binary("ashr", bits, const(t.bits - 1, t))
        return fn.binary("xor", bits, fn.binary("and", sign, const((1 << (t.bits - 1)) - 1, t)))

    def _half(self, v: Val) -> Val:
        return self.fn.binary("xor", v, const(-(1 << (v.ty.bits - 1)), v.ty))

    def found(self, word: Val) -> Val:
        """The result for a word: the element as memory holds it, but for which zero or NaN it was; or its position."""
        fn = self.fn
        if self.packed:
            return fn.binary("and", word, const((1 << 32) - 1, word.ty))
        key = fn.binary("xor", word, const(-1, word.ty)) if self.descending else word
        if self.dtype.is_float:
            return fn.convert("bitcast", self._mirrored(key), self.storage)
        if self.dtype.kind != "int" and self.storage.bits == key.ty.bits:
            return self._half(key)
        return fn.convert("trunc", key, self.storage)

    def special(self, v: Val) -> Val:
        """Whether an element is one that its word does not determine: -0 or NaN."""
        fn = self.fn
        bits = fn.convert("bitcast", v, self.key)
        negative = fn.compare("icmp eq", bits, const(-(1 << (bits.ty.bits - 1)), bits.ty))
        return fn.binary("or", negative, fn.compare("fcmp uno", v, v))

    def digits(self, wide: int) -> list[tuple[int, int, int]]:
        """The digits that distinguish words, the least one first: shift, bits, and what turns them into the words'
        order (the top bit is a sign). Positions are not among them."""
        below = 32 if self.packed else 0
        bits = self.key.bits if self.dtype.is_float else self.storage.bits
        signed = self.dtype.is_float or self.dtype.kind == "int" or bits == self.key.bits
        out = [(below + at, min(wide, bits - at), 0) for at in range(0, bits, wide)]
        shift, size, _ = out[-1]
        return [*out[:-1], (shift, size, 1 << (size - 1) if signed else 0)]

    def vector(self, lanes: int) -> Ty:
        return self.type.wide(lanes)
