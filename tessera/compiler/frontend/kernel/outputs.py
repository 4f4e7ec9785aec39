"""Where a kernel's results go: at this program's coordinates, which follow from the identities of the tile's axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel import names as kernel_names
from tessera.compiler.frontend.kernel.access import Stored
from tessera.compiler.frontend.kernel.axes import axis_text
from tessera.compiler.frontend.kernel.coordinates import linear
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Axis, Coordinate, Panel, View, Window, marks, shown
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TileType, ViewType, shape_text
from tessera.language.dims import Dim, Expr
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

ROW_ELEMENTS = 8192
"""elements of a row block that a parameter read as a whole is divided into"""


# a parameter read as a whole: its row block


def rows_of(k: KernelState, view: View) -> Window:
    """The rows of this program: leading axes are grid axes, the last one is whole."""
    rank = len(view.shape)
    offsets: list[Dim] = [0] * rank
    sizes: list[Dim] = [1] * rank
    kept = list(range(max(rank - 2, 0), rank))
    axes: list[Axis] = []
    for a in range(rank - 2):
        offsets[a] = k.coordinates.batch(view, a).offset
    if rank >= 2:
        extent = view.shape[rank - 2]
        c = k.coordinates.on_grid(("rows", extent), f"rows_{shown(extent)}", extent, rows_per_program(k, view))
        k.divided.add(c)
        offsets[rank - 2], sizes[rank - 2] = c.offset, c.step
        axes.append(c.axis)
    if rank:
        sizes[rank - 1] = k.tiles.known(view.shape[rank - 1])
        axes.append(Axis(view.shape[rank - 1]))
    return Window(view, tuple(offsets), tuple(sizes), tuple(kept), tuple(axes))


def rows_per_program(k: KernelState, view: View) -> int:
    if "ROWS" in k.config:
        return k.setting("ROWS")
    width = k.tiles.known(view.shape[-1])
    return max(1, min(8, ROW_ELEMENTS // max(width, 1))) if isinstance(width, int) else 4


# Tile parameters loaded with a shape


def panel(k: KernelState, view: View, shape: Shape, prefetch: Any) -> Any:
    """This program's block of a parameter; axes whose dim no output has stay open for `load_partition`."""
    spare = len(view.shape) - len(shape)
    if spare < 0:
        raise KernelFault(
            "TS402", f"{view.name} has {len(view.shape)} axes, the shape {shape_text(shape)} has {len(shape)}"
        )
    offsets: list[Dim | None] = [k.coordinates.batch_offset(view, a) for a in range(spare)]
    axes: list[Axis | None] = [None] * spare
    output = kernel_names.output_dims(k)
    for a, size in enumerate(shape, start=spare):
        extent = view.shape[a]
        if extent == size:
            offsets.append(0)
            axes.append(Axis(extent))
        elif extent in output:
            c = kernel_names.named_coordinate(k, extent, k.tiles.known(size))
            offsets.append(c.offset)
            axes.append(c.axis)
        else:
            offsets.append(None)
            axes.append(None)
    sizes = (*[1] * spare, *map(k.tiles.known, shape))
    if None not in offsets:
        kept = tuple(range(spare, len(sizes)))
        found = tuple(a for a in axes if a is not None)
        return k.memory.load(Window(view, tuple(o for o in offsets if o is not None), sizes, kept, found))
    k.stages = max(k.stages, prefetch)
    return Panel(view, sizes, tuple(offsets), tuple(axes))


def partition(k: KernelState, p: Panel, at: Sequence[Any]) -> Window:
    open_axes = [a for a, o in enumerate(p.offsets) if o is None]
    if len(at) != len(open_axes):
        names = ", ".join(str(p.view.shape[a]) for a in open_axes)
        raise KernelFault(
            "TS402", f"the panel of {p.view.name} is open along {names}: {len(open_axes)} positions, not {len(at)}"
        )
    offsets, axes = list(p.offsets), list(p.axes)
    for a, position in zip(open_axes, at, strict=True):
        offsets[a] = k.index(position)
        axes[a] = k.coordinates.walking(offsets[a], p.view.shape[a]).axis  # type: ignore[arg-type]
    kept = tuple(a for a, axis in enumerate(axes) if axis is not None)
    return Window(
        p.view, tuple(o for o in offsets if o is not None), p.shape, kept, tuple(a for a in axes if a is not None)
    )


# stores at the program's own coordinates


def own_place(k: KernelState, view: View, value: Any) -> Window:
    """The block of `view` that a tile with these axes belongs to. Raises KernelFault TS403 where that is open."""
    tile = value if isinstance(value, Value) else k.tiles.scalar(value, view.dtype)
    t, axes = tile_type(tile), k.tiles.identities.of(tile)
    places = _match(k, view, t, axes)
    offsets: list[Dim] = []
    sizes: list[Dim] = []
    for a, extent in enumerate(view.shape):
        i = places.get(a)
        if i is not None:
            origin = axes[i].origin
            offsets.append(origin.offset if isinstance(origin, Coordinate) else 0)
            sizes.append(t.shape[i])
        elif k.tiles.known(extent) == 1:
            offsets.append(0)
            sizes.append(1)
        else:
            offsets.append(_batch_offset(k, view, a))
            sizes.append(1)
    kept = tuple(sorted(places))
    return Window(view, tuple(offsets), tuple(sizes), kept, tuple(axes[places[a]] for a in kept))


def _batch_offset(k: KernelState, view: View, axis: int) -> Dim:
    extent = view.shape[axis]
    found = [c for c in k.coordinates.grid if c.step == 1 and k.coordinates.end(c) == extent]
    if not found:
        open_ = f"nothing in the kernel walks the axis {extent} of {view.name}, so its place is not known"
        raise KernelFault("TS403", f"{open_}; store with an index: {view.name}[...] = value")
    return found[0].offset


def _match(k: KernelState, view: View, t: TileType, axes: Sequence[Axis]) -> dict[int, int]:
    """For axes of the view: the axis of the tile that lies along it. From the last axis on, by identity, in order."""
    out: dict[int, int] = {}
    a = len(view.shape) - 1
    for i in range(t.rank - 1, -1, -1):
        while a >= 0 and not _lies_along(k, axes[i], t.shape[i], view.shape[a]):
            a -= 1
        if a < 0:
            known = axes[i].origin is not None
            why = f"it runs along {axis_text(axes[i])}" if known else "nothing says which coordinate it belongs to"
            lost = f"axis {i} of the tile {t.pretty()} has no place in {view.name} {shape_text(view.shape)}"
            raise KernelFault("TS403", f"{lost}: {why}. Store it into a parameter at an index instead.")
        out[a] = i
        a -= 1
    return out


def _lies_along(k: KernelState, axis: Axis, size: Dim, extent: Dim) -> bool:
    origin = axis.origin
    if isinstance(origin, Coordinate):
        end = origin.extent if origin.extent is not None else k.coordinates.extent(origin)
        return end == extent or k.tiles.known(end) == k.tiles.known(extent)
    if origin is not None:
        return origin == extent
    return size == k.tiles.known(extent)


def inferred_shape(k: KernelState, tile: Value) -> tuple[Dim, ...]:
    """The whole that a program's tile is a block of, where no annotation says it: batch axes, then the tile's own."""
    out: list[Dim] = [c.extent for c in k.coordinates.grid if c.name.startswith("batch") and c.extent is not None]
    for axis, size in zip(k.tiles.identities.of(tile), tile_type(tile).shape, strict=True):
        origin = axis.origin
        if isinstance(origin, Coordinate):
            out.append(origin.extent if origin.extent is not None else k.coordinates.extent(origin))
        else:
            out.append(size if origin is None else origin)
    return tuple(out)


def allocate(k: KernelState, shape: tuple[Dim, ...], dtype: DType, name: str) -> View:
    """A further argument of the kernel, for a result that no parameter receives."""
    concrete = tuple(map(k.tiles.known, shape))
    value = k.ev.block.add_arg(ViewType(concrete, dtype), name)
    return View(name, value, shape, dtype, len(k.ev.block.args) - 1)


def races(k: KernelState) -> Iterator[tuple[Stored, Coordinate, str]]:
    """Stores with which programs along one grid axis get into each other's way: (store, the axis' coordinate, how)."""
    for s in k.memory.stores:
        for c in k.coordinates.grid:
            if s.window is None or k.tiles.known(k.coordinates.count(c)) == 1:
                continue
            mark = str(c.offset)
            along = [a for a, offset in enumerate(s.window.offsets) if mark in marks(offset)]
            if not along:
                if not any(k.coordinates.decides(c, offset) for offset in s.window.offsets):
                    yield s, c, "same"
            elif all(_overlap(k, c, s.window.offsets[a], s.window.sizes[a]) for a in along):
                yield s, c, "overlap"


def _overlap(k: KernelState, c: Coordinate, offset: Dim, size: Dim) -> bool:
    """Whether blocks of `size` that start a step of `c` apart share elements."""
    if not isinstance(offset, Expr):
        return False
    stride, _ = linear(offset, str(c.offset))
    step = k.tiles.known(c.step)
    return stride is not None and isinstance(step, int) and isinstance(size, int) and size > stride * step > 0
