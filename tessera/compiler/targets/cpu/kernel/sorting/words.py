"""Elements as signed integers of the same order: all ways of sorting compare and move these words.

Equal elements have equal words, zeros of both signs too, and all NaN have the largest. Words of up to 32 bits take the
element's position along in their lower half; wider words have a second part, the position, which decides where the
first parts are equal. So where positions matter no two words are equal, and any order of comparisons is stable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tessera.compiler.targets.cpu.elementary.convert import storage_type
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import I32, I64, Index, Val, const
from tessera.language.dtypes import DType

Word: TypeAlias = "list[Val]"
"""one or two parts, each a scalar or a vector"""


class Words:
    """`dtype` is how memory holds the elements; `positions`: the result is the positions, not the elements."""

    def __init__(self, fn: LLVMFunction, dtype: DType, descending: bool, positions: bool) -> None:
        self.fn, self.dtype, self.descending, self.positions = fn, dtype, descending, positions
        self.storage = storage_type(dtype, 1)
        self.key = I32 if self.storage.bits <= 32 else I64
        self.packed = positions and self.key is I32
        self.kinds = [self.key, I64] if positions and self.key is I64 else [I64 if self.packed else self.key]
        """the types of a word's parts"""
        self.result = I64 if positions else self.storage
        self.restored = dtype.is_float and not positions
        """whether elements with equal words differ: zeros of both signs, and NaN"""

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest key."""
        bits = self.key.bits if self.dtype.is_float or self.storage.bits == self.key.bits else self.storage.bits + 1
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def last(self, lanes: int) -> Word:
        """A word that nothing comes behind."""
        return [const((1 << (t.bits - 1)) - 1, t.wide(lanes)) for t in self.kinds]

    def of(self, v: Val, position: Val) -> Word:
        """The words of elements as memory holds them, at these positions (i64, as many lanes)."""
        key = self.key_of(v)
        if not self.packed:
            return [key, position][: len(self.kinds)]
        fn = self.fn
        high = fn.binary("shl", fn.convert("sext", key, I64), const(32, I64.wide(key.ty.lanes)))
        return [fn.binary("or", high, position)]

    def before(self, a: Word, b: Word) -> Val:
        """Where `a` comes before `b`."""
        fn = self.fn
        found = fn.compare("icmp slt", a[-1], b[-1])
        for x, y in zip(a[-2::-1], b[-2::-1], strict=True):
            same = fn.binary("and", fn.compare("icmp eq", x, y), found)
            found = fn.binary("or", fn.compare("icmp slt", x, y), same)
        return found

    def least(self, a: Word, b: Word) -> Word:
        if len(a) == 1:
            return [self.fn.intrinsic("smin", a[0].ty, a[0], b[0])]
        return self.select(self.before(b, a), b, a)

    def ordered(self, a: Word, b: Word) -> tuple[Word, Word]:
        """The lesser and the greater, lane by lane."""
        if len(a) == 1:
            return self.least(a, b), [self.fn.intrinsic("smax", a[0].ty, a[0], b[0])]
        swapped = self.before(b, a)
        return self.select(swapped, b, a), self.select(swapped, a, b)

    def select(self, condition: Val, a: Word, b: Word) -> Word:
        return [self.fn.select(condition, x, y) for x, y in zip(a, b, strict=True)]

    def load(self, memory: Sequence[Val], at: Index, lanes: int) -> Word:
        """`memory` holds each part by itself."""
        fn = self.fn
        return [fn.load(fn.gep(p, at, t.text), t.wide(lanes)) for p, t in zip(memory, self.kinds, strict=True)]

    def store(self, word: Word, memory: Sequence[Val], at: Index) -> None:
        for v, p, t in zip(word, memory, self.kinds, strict=True):
            self.fn.store(v, self.fn.gep(p, at, t.text))

    def key_of(self, v: Val) -> Val:
        """What decides the order of elements, by a signed comparison."""
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

    def found(self, parts: Word) -> Val:
        """The result for a word: the element as memory holds it, but for which zero or NaN it was; or its position."""
        fn, word = self.fn, parts[-1]
        if self.packed:
            return fn.binary("and", word, const((1 << 32) - 1, word.ty))
        if self.positions:
            return word
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
