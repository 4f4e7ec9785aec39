"""Ranges and divisors of a kernel's index values, for all sizes and in every program.

The one analysis behind all that leaves a mask, a clip or a check away. What it says is proved, each rule by the
sentence beside it; where no rule applies, nothing is known, and the access keeps its check. Three things hold
throughout:

- sizes are integers from 0 on, and index arithmetic is that of whole numbers (64 bits, floor division);
- a statement about a counter or a program number is about steps and programs that run: of a loop without steps, and
  of a grid without programs, anything is true;
- a loop's step that is not positive is taken as 1 by every target, so that counters only ascend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TileType
from tessera.immutable import immutable, mutable
from tessera.language import dtypes
from tessera.language.dims import Dim, DimError, Expr, Facts, bounds, dim_max, dim_min, floordiv


@immutable
class Interval:
    """low <= value <= high (None: unknown); `multiple` divides it (0 divides nothing but 0)."""

    low: Dim | None = None
    high: Dim | None = None
    multiple: int = 1


def divisor(d: Dim) -> int:
    """The greatest number that divides a size whatever its symbols are: it divides each term."""
    if isinstance(d, Expr):
        return math.gcd(*(c for _, c in d.terms))
    return abs(d)


@mutable
class Intervals:
    """Ranges of a kernel's index values. `facts`: what every launch guarantees of sizes."""

    kernel: Op
    facts: Facts = field(default_factory=Facts)
    _known: dict[Value, Interval] = field(default_factory=dict[Value, Interval])

    def of(self, v: Value) -> Interval:
        if v not in self._known:
            self._known[v] = self._find(v)
        return self._known[v]

    # what follows for an access
    def inside(self, offset: Value, size: Dim | None, extent: Dim) -> tuple[bool, bool]:
        """Whether offset >= 0, and whether offset + size <= extent, for certain. `size` None: not known."""
        r = self.of(offset)
        return self.not_negative(r.low), self.fits(r.high, size, extent)

    def overhangs(self, extent: Dim, offset: Interval, size: Dim | None) -> bool:
        """Whether positions offset .. offset + size - 1 may be outside 0 .. extent - 1."""
        return not (self.not_negative(offset.low) and self.fits(offset.high, size, extent))

    def fits(self, high: Dim | None, size: Dim | None, extent: Dim) -> bool:
        """offset <= high, so offset + size <= extent where extent - size - high >= 0."""
        return high is not None and size is not None and self.not_negative(extent - high - size)

    def not_negative(self, d: Dim | None) -> bool:
        return d is not None and self._least(d, 0)

    def positive(self, d: Dim | None) -> bool:
        return d is not None and self._least(d, 1)

    def _least(self, d: Dim, at_least: int) -> bool:
        if isinstance(d, int):
            return d >= at_least
        low = bounds(self.facts.normal(d), self.facts, least=0)[0]
        return low is not None and low >= at_least

    def divisor(self, d: Dim) -> int:
        """The greatest number known to divide a size."""
        return divisor(self.facts.normal(d))

    # what a value is
    def _find(self, v: Value) -> Interval:
        op = v.op
        if op is None:
            return self._counter(v)
        match op.name.partition(".")[2]:
            case "dim":
                d = self.facts.normal(op.attrs["dim"])  # type: ignore[arg-type]
                return Interval(d, d, divisor(d))
            case "program_id":  # numbers of programs are 0 .. length of the axis - 1
                grid: tuple[Dim, ...] = self.kernel.attrs["grid"]  # type: ignore[assignment]
                return Interval(0, self.facts.normal(grid[int(op.attrs["axis"])]) - 1)  # type: ignore[call-overload]
            case "to_index":
                found = _unsigned(op.operands[0])
                return found if found.high is not None else self.of(op.operands[0])
            case "to_scalar":
                return self.of(op.operands[0])
            case name if name in ("iota", "constant", *_MOVES, *_SUMS):
                return self._elements(op, name) if _counts(v) else Interval()
            case name if name in _RULES:
                return _RULES[name](self, self.of(op.operands[0]), self.of(op.operands[1]))
            case _:
                return Interval()

    def _elements(self, op: Op, name: str) -> Interval:
        """All elements of a tile of whole numbers of 64 bits."""
        if name == "iota":  # places along an axis are 0 .. length - 1
            shape = cast("TileType", op.result.type).shape
            return Interval(0, self.facts.normal(shape[int(op.attrs["axis"])]) - 1)  # type: ignore[call-overload]
        if name == "constant":
            value = int(op.attrs["value"])  # type: ignore[call-overload]
            return Interval(value, value, abs(value))
        if name in _MOVES:  # the same elements at other places
            return self.of(op.operands[0])
        return _SUMS[name](self, self.of(op.operands[0]), self.of(op.operands[1]))

    def _counter(self, v: Value) -> Interval:
        """The counter of a loop; carried values may be anything."""
        loop = v.owner.region.op if isinstance(v.owner, Block) and v.owner.region else None
        if loop is None or loop.name not in ("tile.for", "tile.pipeline") or v.index != 0:
            return Interval()
        lower, upper, step = (self.of(x) for x in loop.operands[:3])
        # It is lower + k * step with k >= 0. A step that may be taken as 1 instead divides nothing.
        multiple = math.gcd(lower.multiple, step.multiple) if self.positive(step.low) else 1
        if upper.high is None:
            return Interval(lower.low, None, multiple)
        last = upper.high - 1  # it is below `upper`
        if _exact(lower) and _exact(step) and isinstance(step.low, int) and step.low > 0:
            # lower + k * step <= last, so that k <= (last - lower) // step: both numbers are known exactly.
            assert lower.low is not None
            return Interval(lower.low, lower.low + floordiv(last - lower.low, step.low) * step.low, multiple)
        # The greatest multiple of `multiple` up to `last`. The step itself says nothing: the place of the first step is
        # not known, and the last may be anywhere below `upper`.
        return Interval(lower.low, floordiv(last, multiple) * multiple if multiple else last, multiple)


def _unsigned(v: Value) -> Interval:
    """An unsigned number is from 0 to the largest of its dtype, also under another shape and as a wider integer."""
    while v.op is not None and v.op.name in ("tile.reshape", "tile.cast"):
        inner, outer = (cast("TileType", x.type).dtype for x in (v.op.operands[0], v))
        if inner != outer and not (inner.is_integer and outer.is_integer and inner.bits < outer.bits):
            break
        v = v.op.operands[0]
    dtype = cast("TileType", v.type).dtype
    return Interval(0, (1 << dtype.bits) - 1) if dtype.kind == "uint" else Interval()


def _counts(v: Value) -> bool:
    """Whether it is of whole numbers of 64 bits, as index arithmetic is: narrower ones may wrap around."""
    return cast("TileType", v.type).dtype == dtypes.int64


def _exact(r: Interval) -> bool:
    return r.low is not None and r.low == r.high


def _add(r: Intervals, a: Interval, b: Interval) -> Interval:
    """Sums are between the sums of the ends; a divisor of both divides the sum."""
    low = None if a.low is None or b.low is None else a.low + b.low
    high = None if a.high is None or b.high is None else a.high + b.high
    return Interval(low, high, math.gcd(a.multiple, b.multiple))


def _sub(r: Intervals, a: Interval, b: Interval) -> Interval:
    """The least difference takes the greatest away, and the other way round."""
    low = None if a.low is None or b.high is None else a.low - b.high
    high = None if a.high is None or b.low is None else a.high - b.low
    return Interval(low, high, math.gcd(a.multiple, b.multiple))


def _mul(r: Intervals, a: Interval, b: Interval) -> Interval:
    """Products of divisors divide the product. A factor keeps an order (c >= 0) or turns it round (c < 0); the product
    of two numbers that are not negative is between the products of their ends."""
    multiple = a.multiple * b.multiple
    for x, y in ((a, b), (b, a)):
        if _exact(y) and isinstance(c := y.low, int):
            low, high = (x.low, x.high) if c >= 0 else (x.high, x.low)
            return Interval(None if low is None else low * c, None if high is None else high * c, multiple)
    if r.not_negative(a.low) and r.not_negative(b.low):
        assert a.low is not None and b.low is not None
        return Interval(a.low * b.low, None if a.high is None or b.high is None else a.high * b.high, multiple)
    return Interval(multiple=multiple)


def _div(r: Intervals, a: Interval, b: Interval) -> Interval:
    """Floor division by one number above 0 keeps the order. By several: a quotient of numbers from 0 on is not
    negative, and the greatest is that of the greatest by the least. Multiples of m * c, divided by c, are those of
    m."""
    if not r.positive(b.low):
        return Interval()
    assert b.low is not None
    if _exact(b):
        low = None if a.low is None else _quotient(a.low, b.low)
        high = None if a.high is None else _quotient(a.high, b.low)
        whole = isinstance(b.low, int) and a.multiple % b.low == 0
        return Interval(low, high, a.multiple // b.low if whole and isinstance(b.low, int) else 1)
    if r.not_negative(a.low):
        return Interval(0, None if a.high is None else _quotient(a.high, b.low))
    return Interval()


def _quotient(a: Dim, b: Dim) -> Dim | None:
    try:
        return floordiv(a, b)
    except DimError:  # by 0
        return None


def _mod(r: Intervals, a: Interval, b: Interval) -> Interval:
    """A remainder by a number above 0 is between 0 and that number less 1; it is a - b * q, so a divisor of both
    divides it. A number from 0 on that is below the divisor is its own remainder, and no remainder of a number from 0
    on exceeds the number."""
    if not r.positive(b.low):
        return Interval()
    multiple, high = math.gcd(a.multiple, b.multiple), None if b.high is None else b.high - 1
    if r.not_negative(a.low):
        if a.high is not None and b.low is not None and r.positive(b.low - a.high):
            return Interval(a.low, a.high, multiple)
        high = a.high if high is None else high if a.high is None else dim_min(high, a.high)
    return Interval(0, high, multiple)


def _min(r: Intervals, a: Interval, b: Interval) -> Interval:
    """The smaller one is one of them: not below the smaller low end, and not above either high end."""
    low = None if a.low is None or b.low is None else dim_min(a.low, b.low)
    high = a.high if b.high is None else b.high if a.high is None else dim_min(a.high, b.high)
    return Interval(low, high, math.gcd(a.multiple, b.multiple))


def _max(r: Intervals, a: Interval, b: Interval) -> Interval:
    """The greater one is one of them: not above the greater high end, and not below either low end."""
    low = a.low if b.low is None else b.low if a.low is None else dim_max(a.low, b.low)
    high = None if a.high is None or b.high is None else dim_max(a.high, b.high)
    return Interval(low, high, math.gcd(a.multiple, b.multiple))


_RULES: dict[str, Callable[[Intervals, Interval, Interval], Interval]] = {
    "iadd": _add, "isub": _sub, "imul": _mul, "idiv": _div, "imod": _mod, "imin": _min, "imax": _max,
    "minimum": _min, "maximum": _max,
}  # fmt: skip
_SUMS = {"add": _add, "sub": _sub, "mul": _mul}
_MOVES = ("broadcast", "reshape", "transpose")


def defined_in(v: Value, block: Block) -> bool:
    """Whether `v` is defined in the block, or inside one of its ops."""
    at: Block | None = v.owner if isinstance(v.owner, Block) else v.owner.block
    while at is not None:
        if at is block:
            return True
        op = at.region.op if at.region else None
        at = op.block if op is not None else None
    return False
