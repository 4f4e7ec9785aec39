"""Where a kernel's results go: at this program's coordinates, which follow from the identities of the tile's axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tessera.compiler.frontend.kernel import names as kernel_names
from tessera.compiler.frontend.kernel.access import Stored
from tessera.compiler.frontend.kernel.axes import axis_text, size_text, sizes_text
from tessera.compiler.frontend.kernel.coordinates import linear
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import PRIVATE, Axis, Coordinate, Panel, View, Window, marks
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TileType, ViewType, shape_text
from tessera.language.dims import Dim, Expr
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

Role = Literal["batch", "rows", "whole"]
"""what a program has of an axis of a tensor that it reads as a whole: one element, a block of rows, or all"""
ROW_ELEMENTS = 8192
"""elements of a row block that a parameter read as a whole is divided into"""


# a parameter read as a whole: its row block


def rows_of(k: KernelState, view: View) -> Window:
    """The rows of this program: leading axes are grid axes, the last one is whole.

    The widest tensor that the kernel reads as a whole says so first; a dim of it means the same in the others, so that
    w: ["B", "S"] beside x: ["B", "S", "D"] gives one value per row, and b: ["B"] one number.
    """
    rank = len(view.shape)
    known = _roles(k)
    roles = [known.get(d) for d in view.shape]
    last: list[Role] = ["rows", "whole"]
    usual: list[Role] = [*["batch"] * (rank - 2), *last[max(2 - rank, 0) :]]  # type: ignore[list-item]
    if "rows" in roles:
        usual = ["whole" if r == "whole" else "batch" for r in usual]
    offsets: list[Dim] = []
    sizes: list[Dim] = []
    axes: list[Axis] = []
    kept: list[int] = []
    for a, extent in enumerate(view.shape):
        role = roles[a] or usual[a]
        if role == "batch":
            offsets.append(k.coordinates.batch_offset(view, a))
            sizes.append(1)
            continue
        kept.append(a)
        if role == "rows":
            name = f"rows_{size_text(extent)}"
            c = k.coordinates.on_grid(("rows", extent), name, extent, rows_per_program(k, view))
            k.divided.add(c)
            offsets.append(c.offset)
            sizes.append(c.step)
            axes.append(c.axis)
        else:
            offsets.append(0)
            sizes.append(k.tiles.known(extent))
            axes.append(Axis(extent, extent))
    return Window(view, tuple(offsets), tuple(sizes), tuple(kept), tuple(axes))


def _roles(k: KernelState) -> dict[Dim, Role]:
    """What the dims of the widest tensor that is read as a whole are: divided among programs, in rows, or whole."""
    views = [k.views[n] for n in k.plan.whole if n in k.views]
    widest = max(views, key=lambda v: len(v.shape), default=None)
    if widest is None or len(widest.shape) < 2:
        return {}
    shape = widest.shape
    out: dict[Dim, Role] = dict.fromkeys(shape[:-2], "batch")
    out |= {shape[-2]: "rows", shape[-1]: "whole"}
    return {d: role for d, role in out.items() if shape.count(d) == 1}


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
            axes.append(Axis(extent, extent))
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
        open_ = f"nothing in the kernel walks the axis {size_text(extent)} of {view.name}, so its place is not known"
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
            lost = f"axis {i} of the tile {t.pretty()} has no place in {view.name} {sizes_text(view.shape)}"
            raise KernelFault("TS403", f"{lost}: {why}. Store it into a parameter at an index instead.")
        out[a] = i
        a -= 1
    return out


def _lies_along(k: KernelState, axis: Axis, size: Dim, extent: Dim) -> bool:
    """By name; lengths count only where an axis has none."""
    origin = axis.origin
    if origin is None:
        return axis.size == extent or (_nameless(extent) and size == k.tiles.known(extent))
    end = origin if not isinstance(origin, Coordinate) else origin.extent
    if end is None:
        assert isinstance(origin, Coordinate)
        end = k.coordinates.extent(origin)
    return end == extent or ((_nameless(extent) or _nameless(end)) and k.tiles.known(end) == k.tiles.known(extent))


def _nameless(d: Dim) -> bool:
    return isinstance(d, int) or PRIVATE in str(d)


def inferred_shape(k: KernelState, tile: Value) -> tuple[Dim, ...]:
    """The whole that a program's tile is a block of, where no annotation says it: batch axes, then the tile's own."""
    batches = [c.extent for c in k.coordinates.grid if c.name.startswith("batch") and c.extent is not None]
    out = sorted(batches, key=lambda d: _from_the_last(k, d), reverse=True)
    for axis, size in zip(k.tiles.identities.of(tile), tile_type(tile).shape, strict=True):
        origin = axis.origin
        if isinstance(origin, Coordinate):
            out.append(origin.extent if origin.extent is not None else k.coordinates.extent(origin))
        else:
            out.append(size if origin is None else origin)
    return tuple(out)


def _from_the_last(k: KernelState, dim: Dim) -> int:
    """How far from the last axis a dim lies in the tensors that have it."""
    return max((len(v.shape) - a for v in k.views.values() for a, d in enumerate(v.shape) if d == dim), default=0)


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
