"""How tensor copies (TMA) see a kernel's arguments, and which copies of tiles they can make."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.tile.offsets import Bounds, strides_of
from tessera.immutable import immutable
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

LINE = 128
"""Bytes of the longest line of a swizzle."""
BOX = 256
"""Positions of one axis that a tensor copy takes at most (CUDA Driver API, cuTensorMapEncodeTiled)."""
RANK = 5
"""Axes of a tensor map at most."""


@immutable
class TensorMap:
    """How a tensor copy sees an argument: axes innermost first, strides in elements (the innermost is 1)."""

    argument: int
    dtype: DType
    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    box: tuple[int, ...]

    def describe(self) -> dict[str, object]:
        """As JSON."""
        return {
            "argument": self.argument,
            "dtype": self.dtype.name,
            "sizes": [str(d) for d in self.sizes],
            "strides": [str(d) for d in self.strides],
            "box": list(self.box),
        }


@immutable
class SwizzledTile:
    """A shared tile that products of warpgroups read, with room for whole groups of lines. The mirror of `Swizzled` in
    include/tessera/tma.cuh."""

    rows: int
    cols: int
    padded_rows: int
    padded_cols: int
    itemsize: int
    widest: int = LINE
    """bytes of a line at most"""
    stages: int = 0
    """of a ring; 0: it is none"""

    @property
    def bytes(self) -> int:
        return self.padded_rows * self.padded_cols * self.itemsize

    @property
    def line(self) -> int:
        """Elements of a line."""
        row = self.padded_cols * self.itemsize
        return next(n for n in (LINE, 64, 32) if n <= self.widest and row % n == 0) // self.itemsize

    @property
    def padded(self) -> bool:
        return (self.rows, self.cols) != (self.padded_rows, self.padded_cols)

    def describe(self) -> str:
        """For people."""
        more = f" in {self.padded_rows}x{self.padded_cols}" if self.padded else ""
        several = f", {self.stages} stages" if self.stages > 1 else ""
        return f"{self.rows}x{self.cols}{more}, wgmma's swizzle of {self.line * self.itemsize} bytes{several}"


@immutable
class Fetch:
    """A copy of a tile by tensor copies. `at`: for each axis of the map, the values whose sum is the coordinate."""

    map: TensorMap
    at: tuple[tuple[Value, ...], ...]


def plan_fetch(
    view: Value, offsets: Sequence[Value], tile: SwizzledTile, kernel: Op, bounds: Bounds, stored: frozenset[Value]
) -> Fetch | str:
    """The copy of `view` at `offsets` into `tile`, or why tensor copies cannot make it. `stored`: the arguments whose
    memory the kernel writes, which tensor copies need not see."""
    argument, axes, starts = _window(view)
    t, v = argument.type, view.type
    assert isinstance(t, ViewType) and isinstance(v, ViewType)
    if argument in stored:
        return "the kernel stores to its memory"
    if argument not in bounds.aligned:
        return "its memory may start between 16-byte boundaries"
    if tile.padded_rows > BOX:
        return f"more than {BOX} rows"
    shape = [*(1,) * (v.rank - 2), tile.rows, tile.cols]
    for a, (axis, offset) in enumerate(zip(axes, offsets, strict=True)):
        whole = v.shape[a] == t.shape[axis] and all(map(is_zero, starts[axis]))
        if not whole and bounds.overhangs(v.shape[a], bounds.of(offset), shape[a]):
            return "a window that leaves out rows or columns"
    for axis, offset in zip(axes, offsets, strict=True):
        starts[axis].append(offset)
    steps, per = strides_of(argument), 16 // t.dtype.itemsize
    row, inner = axes[-2:]
    if steps[inner] != 1:
        return "neighbours along its last axis are not neighbours in memory"
    outer = [a for a in range(t.rank) if a not in (row, inner) and t.shape[a] != 1 and steps[a] != 0]
    order = [inner, row, *outer]
    if any(t.shape[a] != 1 and (bounds.divisor(steps[a]) % per or steps[a] == 0) for a in order[1:]):
        return "its lines may start between 16-byte boundaries"
    if len(order) > RANK:
        return f"more than {RANK} axes"
    strides: list[Dim] = [per if t.shape[a] == 1 else steps[a] for a in order[1:]]
    box = (tile.line, tile.padded_rows, *(1,) * len(outer))
    number = kernel.region.block.args.index(argument)
    made = TensorMap(number, t.dtype, tuple(t.shape[a] for a in order), (1, *strides), box)
    return Fetch(made, tuple(tuple(x for x in starts[a] if not is_zero(x)) for a in order))


def _window(view: Value) -> tuple[Value, list[int], dict[int, list[Value]]]:
    """The argument behind a view, its axis behind each of the view's, and where the windows start along each."""
    if view.op is None:
        rank = len(view.type.shape)  # type: ignore[union-attr]
        return view, list(range(rank)), {a: [] for a in range(rank)}
    argument, axes, starts = _window(view.op.operands[0])
    for axis, start in zip(axes, view.op.operands[1:], strict=True):
        starts[axis].append(start)
    drop: tuple[int, ...] = view.op.attrs.get("drop", ())  # type: ignore[assignment]
    return argument, [axis for a, axis in enumerate(axes) if a not in drop], starts


def widest_line(n: int, itemsize: int) -> int:
    """Bytes of the longest lines of a right operand whose n columns run along them. Products take the columns in parts
    of 256, 128, 64 ... 8: with such lines each part begins where a line does, and all but one of 8 columns are whole
    lines, as the layouts are described (PTX ISA, "Strides")."""
    return min(LINE, max(32, (n & -n) * itemsize))


def is_zero(v: Value) -> bool:
    return v.op is not None and v.op.name == "tile.dim" and v.op.attrs["dim"] == 0
