"""What is known of offsets before launch: their range and what divides them.

An access that is proved to stay inside its view needs no check, and one that is proved to start at a multiple of 16
bytes is a plain vector access: both make kernels shorter and faster, and change no result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.facts import RememberingFacts
from tessera.compiler.ir.types import ViewType
from tessera.compiler.tile.program import Program, Window
from tessera.language.dims import Dim, Expr, Facts, dim_max, dim_min, prod


@dataclass(frozen=True, slots=True)
class Range:
    """low <= value <= high (None: unknown); `multiple` divides it (0 divides nothing but 0)."""

    low: Dim | None = None
    high: Dim | None = None
    multiple: int = 1


def divisor(d: Dim) -> int:
    """The greatest number that divides a size whatever its symbols are."""
    if isinstance(d, Expr):
        return math.gcd(*(c for _, c in d.terms))
    return abs(d)


def _add(a: Dim | None, b: Dim | None) -> Dim | None:
    return None if a is None or b is None else a + b


def _not_negative(r: Range) -> bool:
    return isinstance(r.low, int) and r.low >= 0


@dataclass(slots=True)
class Bounds:
    """Ranges of a kernel's index values.

    `aligned` holds the view arguments whose memory starts at 16 bytes, `facts` what every launch guarantees of sizes.
    """

    kernel: Op
    aligned: frozenset[Value]
    facts: Facts = field(default_factory=Facts)
    _known: dict[Value, Range] = field(default_factory=dict[Value, Range])

    def of(self, v: Value) -> Range:
        if v not in self._known:
            self._known[v] = self._find(v)
        return self._known[v]

    def _find(self, v: Value) -> Range:
        op = v.op
        if op is None:
            return self._counter(v)
        match op.name.partition(".")[2]:
            case "dim":
                d = self.facts.normal(op.attrs["dim"])  # type: ignore[arg-type]
                return Range(0 if isinstance(d, Expr) and _is_size(d) else d, d, divisor(d))
            case "program_id":
                grid: tuple[Dim, ...] = self.kernel.attrs["grid"]  # type: ignore[assignment]
                return Range(0, self.facts.normal(grid[int(op.attrs["axis"])]) - 1)  # type: ignore[call-overload]
            case "iadd" | "isub" | "imul" | "idiv" | "imod" | "imin" | "imax" as name:
                return _combine(name, self.of(op.operands[0]), self.of(op.operands[1]))
            case _:
                return Range()

    def _counter(self, v: Value) -> Range:
        """The counter of a loop; carried values may be anything."""
        loop = v.owner.region.op if not isinstance(v.owner, Op) and v.owner.region else None
        if loop is None or loop.name not in ("tile.for", "tile.pipeline") or v.index != 0:
            return Range()
        lower, upper, step = (self.of(x) for x in loop.operands[:3])
        multiple = math.gcd(lower.multiple, step.multiple)
        if not isinstance(step.low, int) or step.low <= 0 or lower.low is None:
            return Range(multiple=multiple)
        high = _add(upper.high, -1)
        if isinstance(lower.low, int) and lower.low == lower.high and isinstance(high, int) and step.low == step.high:
            high = lower.low + max(0, high - lower.low) // step.low * step.low
        elif high is not None and step.low == step.high and self.divisor(high + 1 - lower.low) % step.low == 0:
            high = high + 1 - step.low  # it starts at lower.low or behind it, and the last step is a whole one
        return Range(lower.low, high, multiple)

    def divisor(self, d: Dim) -> int:
        """The greatest number known to divide a size."""
        return divisor(self.facts.normal(d))

    def overhangs(self, extent: Dim, offset: Range, size: Dim | None) -> bool:
        """Whether positions offset .. offset + size - 1 may lie outside 0 .. extent - 1."""
        if size is None or offset.high is None or not _not_negative(offset):
            return True
        room = self.facts.normal(extent) - offset.high - self.facts.normal(size)
        return not isinstance(room, int) or room < 0

    def start(self, view: Value) -> int:
        """How many elements the start of a view is known to be a multiple of, from a 16-byte boundary."""
        t = view.type
        assert isinstance(t, ViewType)
        full = max(1, 16 // t.dtype.itemsize)
        if view.op is None:
            return full if view in self.aligned else 1
        if view.op.name != "tile.subview":
            return 1
        source = view.op.operands[0]
        known = [
            self.of(o).multiple * self.divisor(s) for o, s in zip(view.op.operands[1:], strides_of(source), strict=True)
        ]
        return math.gcd(self.start(source), *known)

    def vectors(self, view: Value, offsets: list[Range], vector: int, swapped: bool = False) -> bool:
        """Whether every run of `vector` elements of a tile at these offsets is contiguous and aligned; `swapped`: seen
        with the axes in reverse order."""
        steps = strides_of(view)
        if swapped:
            steps, offsets = steps[::-1], offsets[::-1]
        if not steps or steps[-1] != 1:
            return False
        parts = [self.start(view), offsets[-1].multiple, *(self.divisor(s) for s in steps[:-1])]
        return math.gcd(*parts) % vector == 0


def bounds_of(program: Program, kernel: Op) -> Bounds:
    """Those of a kernel by what holds in every launch of its program: asserts, and where arguments start."""
    facts = RememberingFacts()
    for check in program.checks:
        facts.learn(check.left, check.right)
    return Bounds(kernel, _aligned(program, kernel), facts)


def _aligned(program: Program, kernel: Op) -> frozenset[Value]:
    """Arguments that start at a multiple of 16 bytes in every launch. Buffers do: `steps` sees to it."""
    args = kernel.region.block.args
    off: set[Value] = set()
    for launch in program.launches:
        if launch.kernel is kernel:
            for arg, window in zip(args, launch.args, strict=True):
                if (
                    isinstance(window, Window)
                    and isinstance(arg.type, ViewType)
                    and divisor(window.offset) * arg.type.dtype.itemsize % 16
                ):
                    off.add(arg)
    return frozenset(a for a in args if a not in off)


def strides_of(view: Value) -> list[Dim]:
    """A view's strides in elements. Those of a window are its source's, whatever its type leaves out."""
    t = view.type
    assert isinstance(t, ViewType)
    if view.op is not None and view.op.name == "tile.subview":
        drop: tuple[int, ...] = view.op.attrs.get("drop", ())  # type: ignore[assignment]
        return [s for a, s in enumerate(strides_of(view.op.operands[0])) if a not in drop]
    if t.strides is not None:
        return list(t.strides)
    return [prod(t.shape[a + 1 :]) for a in range(t.rank)]


def _is_size(d: Expr) -> bool:
    """Whether an expression is surely not negative: sums of products of sizes."""
    return all(c > 0 for _, c in d.terms)


def _combine(name: str, a: Range, b: Range) -> Range:
    match name:
        case "iadd":
            return Range(_add(a.low, b.low), _add(a.high, b.high), math.gcd(a.multiple, b.multiple))
        case "isub":
            low = None if a.low is None or b.high is None else a.low - b.high
            high = None if a.high is None or b.low is None else a.high - b.low
            return Range(low, high, math.gcd(a.multiple, b.multiple))
        case "imul":
            multiple = a.multiple * b.multiple
            if _not_negative(a) and _not_negative(b):
                assert a.low is not None and b.low is not None
                return Range(a.low * b.low, None if a.high is None or b.high is None else a.high * b.high, multiple)
            return Range(multiple=multiple)
        case "idiv":
            if _not_negative(a) and isinstance(b.low, int) and b.low > 0:
                return Range(0, a.high if b.low != b.high or a.high is None else a.high // b.low)
        case "imod":
            if isinstance(b.low, int) and b.low > 0 and b.high is not None:
                return Range(0, b.high - 1, math.gcd(a.multiple, b.multiple))
        case "imin":
            low = dim_min(a.low, b.low) if isinstance(a.low, int) and isinstance(b.low, int) else None
            highs = [h for h in (a.high, b.high) if h is not None]
            high = highs[0] if len(highs) == 1 else dim_min(*highs) if highs else None
            return Range(low, high, math.gcd(a.multiple, b.multiple))
        case "imax":
            low = dim_max(a.low, b.low) if isinstance(a.low, int) and isinstance(b.low, int) else None
            high = None if a.high is None or b.high is None else dim_max(a.high, b.high)
            return Range(low, high, math.gcd(a.multiple, b.multiple))
        case _:
            pass
    return Range()
