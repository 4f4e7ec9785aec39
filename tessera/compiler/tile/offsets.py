"""Which accesses are known before launch to start at a multiple of 16 bytes.

One that is proved to is a plain vector access, and one that is proved to stay inside its view (`Intervals`) needs no
check: both make kernels shorter and faster, and change no result.
"""

from __future__ import annotations

import math

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.tile.program import BufferArg, Program
from tessera.compiler.tile.ranges import Interval, Intervals, divisor
from tessera.immutable import mutable
from tessera.language.dims import Dim, prod
from tessera.language.dims.remembering import RememberingFacts


@mutable
class Bounds(Intervals):
    """Ranges of a kernel's index values, and where its accesses start in memory. `aligned` holds the view arguments
    whose memory starts at a multiple of 16 bytes."""

    aligned: frozenset[Value] = frozenset()

    def start(self, view: Value) -> int:
        """How many elements the start of a view is known to be a multiple of, from a 16-byte boundary: a window starts
        at the sum of its offsets times strides, which is divided by what divides all of them."""
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

    def vectors(self, view: Value, offsets: list[Interval], vector: int, swapped: bool = False) -> bool:
        """Whether every run of `vector` elements of a tile at these offsets is contiguous and aligned: neighbours along
        the last axis are neighbours in memory, and each line, whatever its place along other axes, starts at a multiple
        of `vector` elements from the view's start, which does so from a 16-byte boundary. `swapped`: seen with the axes
        in reverse order."""
        steps = strides_of(view)
        if swapped:
            steps, offsets = steps[::-1], offsets[::-1]
        if not steps or steps[-1] != 1:
            return False
        parts = [self.start(view), offsets[-1].multiple, *(self.divisor(s) for s in steps[:-1])]
        return math.gcd(*parts) % vector == 0


def bounds_of(program: Program, kernel: Op) -> Bounds:
    """The bounds of a kernel that hold in every launch of its program: from asserts and the alignment of arguments."""
    facts = RememberingFacts()
    for check in program.checks:
        facts.learn(check.left, check.right)
    return Bounds(kernel, facts, aligned=aligned_arguments(program, kernel))


def aligned_arguments(program: Program, kernel: Op) -> frozenset[Value]:
    """Arguments that start at a multiple of 16 bytes in every launch. Buffers do: `steps` sees to it."""
    args = kernel.region.block.args
    off: set[Value] = set()
    for launch in program.launches:
        if launch.kernel is kernel:
            for arg, window in zip(args, launch.args, strict=True):
                if (
                    isinstance(window, BufferArg)
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
