"""What the kernel layer computes with, beside tiles (`ir.core.Value`) and index arithmetic (`dims.Dim`).

Every index a kernel computes (`tile_m + 64`, `q_block`, `pid * BM`) is a Dim over the kernel's sizes and over symbols
for its coordinates, so slice widths, offsets and bounds are decided by the dimension algebra. `kernel_index` turns
such a Dim into index ops where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Literal

from tessera.compiler.frontend.names.values import LayerValue
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, SharedType, ViewType, shape_text
from tessera.errors import Span
from tessera.immutable import immutable, mutable
from tessera.language.dims import Dim, Expr, symbol, symbols
from tessera.language.dtypes import DType

MARK = "%"
"""first character of the symbols that stand for coordinates and counters; no dim's name has it"""
NUMBER = "#"
"""what stands in them between a name, which is for people alone, and a number, which is theirs alone"""

PRIVATE = "'"
"""in the symbols of sizes that have no name: the size, and the place of the axis"""
LEADING, UNNAMED = "...", "?"
"""behind the place: of an axis that `...` stands for, of one that no annotation mentions"""


class Axis:
    """The identity of a tile's axis: the coordinate it walks, or the dim it covers, or nothing known yet.

    Broadcasting follows identities, so that `scores - row_max(scores)` subtracts row by row whatever the lengths are.
    Axes without an origin (of `zeros`, `alloc_shared`) take on the one they are combined with.
    """

    __slots__ = ("_origin", "_parent", "inserted", "size")

    def __init__(self, origin: Coordinate | Dim | None = None, size: Dim | None = None, inserted: bool = False) -> None:
        self._origin, self._parent = origin, None
        self.inserted = inserted
        self.size = size
        """its length as the program says it: D//2, also where the size of D is known"""

    def root(self) -> Axis:
        axis: Axis = self
        while axis._parent is not None:
            axis = axis._parent
        return axis

    @property
    def origin(self) -> Coordinate | Dim | None:
        return self.root()._origin

    @property
    def walks(self) -> frozenset[str]:
        """The coordinates that move its start; none where that is fixed."""
        origin = self.origin
        return origin.walks if isinstance(origin, Coordinate) else frozenset()

    @property
    def dim(self) -> Dim | None:
        """The dim that it lies in."""
        origin = self.origin
        return origin.extent if isinstance(origin, Coordinate) else origin

    @property
    def stretches(self) -> bool:
        """Whether it is what None inserts, one element that meets any axis."""
        return self.inserted and self.origin is None

    def same(self, other: Axis) -> bool:
        a, b = self.root(), other.root()
        return a is b or (a._origin is not None and a._origin == b._origin)

    def join(self, other: Axis) -> None:
        """An axis of unknown identity becomes the other one; two known ones stay what they are."""
        a, b = self.root(), other.root()
        if a is b:
            return
        if a._origin is None:
            a._parent = b
        elif b._origin is None:
            b._parent = a


Axes = tuple[Axis, ...]


@mutable(eq=False)
class Coordinate:
    """An index that walks a dim. `offset` stands for it in Dims; `extent` is where it ends, None until that is known.

    grid: one step per program. loop: serial, inside a program. program: a grid axis asked for by `program_id` or
    `linear_id`, whose length follows from what it indexes. derived: another coordinate displaced, or a fixed offset.
    """

    name: str
    offset: Dim
    kind: Literal["grid", "loop", "program", "derived"]
    extent: Dim | None = None
    start: Dim = 0
    step: Dim = 1
    span: Span | None = None
    number: int | None = None
    """the grid axis that `program_id(number)` asked for"""
    batch: bool = False
    """whether it is a leading dim that no index mentions"""
    walks: frozenset[str] = frozenset()
    """the coordinates that move it: itself, unless it is derived"""
    axis: Axis = field(init=False)

    def __post_init__(self) -> None:
        if self.kind != "derived":
            self.walks = marks(self.offset)
        self.axis = Axis(self)


def marked(name: str) -> Expr:
    """The symbol of a coordinate or counter."""
    return symbol(MARK + name)


def shown(d: Dim) -> str:
    """An index for display, with the names of coordinates and counters."""
    return re.sub(rf"(?<![\w)]){MARK}|{NUMBER}[0-9]+", "", str(d))  # behind a number or a name, % is the remainder


def unmarked(text: str) -> str:
    """A text in which indices stand, with the names of coordinates and counters."""
    return re.sub(rf"(?<![\w)]){MARK}([A-Za-z_][\w.]*(?:\(\))?){NUMBER}[0-9]+", r"\1", text)


def marks(d: Dim) -> frozenset[str]:
    """The coordinates and counters that occur in an index."""
    return frozenset(s for s in symbols(d) if s.startswith(MARK))


@immutable(eq=False)
class View(LayerValue):
    """A tensor parameter, or a window onto one: the kernel's handle on global memory."""

    name: str
    value: Value
    shape: Shape
    dtype: DType
    argument: int
    """index among the kernel's arguments"""
    leading: int = 0
    """how many axes stand for the `...` that its annotation begins with"""

    @property
    def type(self) -> ViewType:
        assert isinstance(self.value.type, ViewType)
        return self.value.type

    @property
    def described(self) -> str:
        return f"the tensor {self.name}"


@immutable(eq=False)
class Lanes(LayerValue):
    """The index numbers base, base + 1, ... along `axis`, at `position` among `rank` axes (`i[:, None]` has rank 2).

    `launch` marks those of `linear_id`, some of which do not exist in the last program.
    """

    base: Dim
    size: Dim
    axis: Axis
    rank: int = 1
    position: int = 0
    launch: Coordinate | None = None

    @property
    def shape(self) -> Shape:
        return tuple(self.size if a == self.position else 1 for a in range(self.rank))

    @property
    def described(self) -> str:
        return f"a vector of {self.size} indices"


@immutable(eq=False)
class EachIndex(LayerValue):
    """`ts.tile.each()`, an index: the one element of an axis that this program has."""

    @property
    def described(self) -> str:
        return "each(), which is an index"


@immutable
class LanesType:
    """Lanes of `linear_id` for display: their range is known only when all uses have been seen."""

    size: Dim
    end: Callable[[], Dim | None]

    def pretty(self) -> str:
        end = self.end()
        return f"lanes of {end}, {self.size} at a time" if end is not None else f"{self.size} lanes"


@immutable(eq=False)
class Share(LayerValue):
    """This program's share of a result, which is complete when all programs have run."""

    tile: Value
    op: str

    @property
    def described(self) -> str:
        return "what reduce_across gives"


@immutable(eq=False)
class TileWindow(LayerValue):
    """A block of a view: `view[offsets : offsets + sizes]`, of which the tile has the axes `kept`."""

    view: View
    offsets: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    kept: tuple[int, ...]
    """the view's axes that the tile has, in order"""
    axes: Axes
    mask: Value | None = None
    checked: bool = False
    """the program computed where it starts, so it must stay inside the view wherever `mask` holds"""
    shifted: tuple[int, Lanes] | None = None
    """an axis that lanes of `linear_id` walk from elsewhere than its start"""

    @property
    def shape(self) -> tuple[Dim, ...]:
        return tuple(self.sizes[a] for a in self.kept)

    @property
    def described(self) -> str:
        return f"a block {shape_text(self.shape)} of {self.view.name}"


@mutable(eq=False)
class Shared(LayerValue):
    """A shared tile. `axes` are those of what was last copied into it."""

    name: str
    value: Value
    axes: Axes
    span: Span

    @property
    def type(self) -> SharedType:
        assert isinstance(self.value.type, SharedType)
        return self.value.type

    @property
    def described(self) -> str:
        return f"a shared tile {self.type.pretty()}"


@immutable(eq=False)
class Transposed(LayerValue):
    """`shared.T`: read with its two axes exchanged."""

    of: Shared

    @property
    def described(self) -> str:
        return f"{self.of.described}, transposed"


@immutable(eq=False)
class Panel(LayerValue):
    """`tile.load(A, shape=(BM, BK))` where A's axis `open` is walked by a loop: one block of it is a partition."""

    view: View
    shape: tuple[Dim, ...]
    offsets: tuple[Dim | None, ...]
    axes: tuple[Axis | None, ...]

    @property
    def described(self) -> str:
        return f"a block of {self.view.name} with an open axis"


@immutable(eq=False)
class LaunchContext(LayerValue):
    """`ts.tile.context()`: the bound dims and the schedule's parameters."""

    sizes: Mapping[str, Dim]
    config: Mapping[str, Any]

    @property
    def described(self) -> str:
        return "a context"


def axis_text(axis: Axis) -> str:
    """How messages call an axis."""
    origin = axis.origin
    if isinstance(origin, Coordinate) and (origin.walks or origin.extent is None):
        return origin.name
    return size_text(axis.dim) if axis.dim is not None else "no coordinate"


def size_text(d: Dim) -> str:
    """A dim as people write it: the size of one that has no name."""
    return re.sub(rf"{PRIVATE}\d+(\?|\.\.\.)?", "", shown(d))


def sizes_text(shape: Shape) -> str:
    """A tensor's shape as people write it."""
    return f"[{', '.join(map(size_text, shape))}]"
