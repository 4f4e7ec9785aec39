"""Loading and storing blocks of tensors, and shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel import outputs as kernel_outputs
from tessera.compiler.frontend.kernel.access import anywhere
from tessera.compiler.frontend.kernel.builtins.creation import known_dtype, known_shape, written_shape
from tessera.compiler.frontend.kernel.builtins.subscripts import stored
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.frontend.kernel.values import Axis, Lanes, Panel, Shared, TileWindow, View
from tessera.compiler.frontend.names.values import is_slice, is_tuple
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import SharedType, shape_text
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.language.dims import Expr
from tessera.language.dtypes import f32

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

SWIZZLES = ("none", "xor")


class AllocShared(TileBuiltin):
    """A new, uninitialised tile in shared memory.

    `swizzle` is "none" or "xor". With either, the compiler swaps the 16-byte pieces of rows within 32, 64 or 128 bytes
    if that avoids bank conflicts; the panel shows the layout. Results do not depend on it.
    """

    shapes = "gives `shape`, known at compile time"
    dtypes = "gives `dtype`"
    cost = "Its bytes of a multiprocessor's shared memory (TS405 where there are too few); on a CPU scratch memory."
    example = """
@ts.kernel
def example(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    s = ts.tile.alloc_shared((2, 4), ts.f32)
    ts.tile.store(s, x[tile_m : tile_m + 2, tile_n : tile_n + 4])
    ts.tile.barrier()
    return s + 1

>>> example(np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32))
[[2. 3. 4. 5.]
 [6. 7. 8. 9.]]
"""

    def build(self, k: KernelState, shape: Any, dtype: Any = f32, swizzle: str = "none") -> Shared:
        if swizzle not in SWIZZLES:
            raise KernelFault("TS105", f"swizzle is one of {', '.join(SWIZZLES)}, not {swizzle!r}")
        t = SharedType(known_shape(k, shape), known_dtype(dtype), swizzle)
        value = k.tiles.builder.value("tile.alloc_shared", (), t)
        span = k.ev.builder.span
        assert span is not None
        return Shared("", value, tuple(Axis(size=d) for d in written_shape(shape)), span)


class CpAsync(TileBuiltin):
    """Starts copying a block of a tensor into a shared tile. The data are there after the next barrier."""

    also = ("copy_async",)
    shapes = "the shared tile's shape"
    dtypes = "the shared tile's dtype: a copy does not convert"
    cost = "The block's bytes from memory, while the program continues; on a CPU immediately."
    example = """
@ts.kernel
def example(x: Tensor["M", "N", ts.f32]) -> Tensor["M", "N", ts.f32]:
    s = ts.tile.alloc_shared((2, 4), ts.f32)
    ts.tile.cp_async(s, x[tile_m : tile_m + 2, tile_n : tile_n + 4])
    ts.tile.barrier()
    return s * 2

>>> example(np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32))
[[ 2.  4.  6.  8.]
 [10. 12. 14. 16.]]
"""

    def build(self, k: KernelState, shared: Any, source: Any) -> None:
        if not isinstance(shared, Shared):
            raise KernelFault("TS406", "cp_async copies into a tile of alloc_shared")
        w = source if isinstance(source, TileWindow) else k.window_of(source)
        if w.shape != shared.type.shape:
            block, own = shape_text(w.shape), shape_text(shared.type.shape)
            raise KernelFault("TS402", f"the block {block} does not fit the shared tile {own}")
        if w.view.dtype != shared.type.dtype:
            held = f"{w.view.name} holds {w.view.dtype}, the shared tile {shared.type.dtype}"
            raise KernelFault("TS402", f"{held}; an async copy does not convert")
        view, offsets = k.memory.subview(w)
        k.tiles.builder.op("tile.copy_async", [shared.value, view, *offsets])
        shared.axes = w.axes
        k.filled.add(shared.value)


class Barrier(TileBuiltin):
    """Waits for this program's async copies, then for all its threads."""

    cost = "A few dozen cycles on a GPU, nothing on a CPU. The compiler inserts a missing one, with a note (TS408)."
    example = CpAsync.example

    def build(self, k: KernelState) -> None:
        k.tiles.builder.op("tile.barrier")


class Load(TileBuiltin):
    """A block of a tensor as a tile. Elements that are masked out, or outside of the tensor, are `other`; without
    `other` they are padding: 0, and left out of reductions.

    With `shape`, this program's block of a parameter; axes that no output has stay open for `load_partition`, and
    `prefetch` is the number of partitions in flight.
    """

    shapes = "the block's shape; `mask` has the block's axes, or some of them"
    dtypes = "the tensor's"
    cost = "The block's bytes, where they are not cached; neighbours along the last axis are read together."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32]) -> Tensor["n", ts.f32]:
    for i in ts.tile.range(0, n, 4):
        y = ts.tile.load(x[i : i + 4], mask=x[i : i + 4] > 2, other=-1.0)
    return y

>>> example(np.array([1, 2, 3, 4, 5], np.float32))
[-1. -1.  3.  4.  5.]
"""

    def build(
        self, k: KernelState, source: Any, shape: Any = None, mask: Any = None, other: Any = None, prefetch: Any = 1
    ) -> Any:
        if isinstance(source, Shared):
            return k.tile(source)
        if not isinstance(prefetch, int) or isinstance(prefetch, bool) or prefetch < 1:
            raise KernelFault("TS105", f"prefetch is how many partitions are under way at once, not {prefetch!r}")
        if shape is not None:
            if not isinstance(source, View):
                raise KernelFault("TS406", "load(..., shape=...) takes a parameter of the kernel")
            if isinstance(shape, (Lanes, Value)):
                at = f"ts.tile.load({source.name}[...], mask=...)"
                raise KernelFault(
                    "TS406", f"load(x, shape) takes the shape of a block; indices stand in brackets: {at}"
                )
            known_shape(k, shape)  # refuses what is not a shape; the sizes go on as written, for `ctx.D` means all of D
            return kernel_outputs.panel(k, source, written_shape(shape), prefetch)
        place = k.place_of(source)
        if mask is not None:
            place = k.masked(place, k.tile(mask))
        elif other is not None:
            place = anywhere(place)
        return k.memory.load(place, k.memory.filling(place.view.dtype, other))


class LoadPartition(TileBuiltin):
    """The partition of `load(tensor, shape=...)` that starts at element `at` of its open axis (of each open axis, in
    order)."""

    shapes = "the `shape` that `load` was given"
    dtypes = "the tensor's"
    cost = "As `load`; fetched `prefetch` steps ahead."
    example = """
@ts.kernel
def example(x: Tensor["M", "K", ts.f32]) -> Tensor["M", ts.f32]:
    panel = ts.tile.load(x, shape=(2, 4))
    total = ts.tile.zeros((2,))
    for k in ts.tile.range_k(0, K, 4):
        total += ts.tile.row_sum(ts.tile.load_partition(panel, k))
    return total

>>> example(np.ones((4, 6), np.float32))
[6. 6. 6. 6.]
"""

    def build(self, k: KernelState, panel: Any, *at: Any) -> Value:
        if not isinstance(panel, Panel):
            wanted = "load_partition takes what load(tensor, shape=...) gave, with an axis that no output has"
            raise KernelFault("TS402", wanted)
        return k.memory.load(kernel_outputs.partition(k, panel, at))


class Store(TileBuiltin):
    """Writes a tile to a block of a tensor; to a whole parameter, at this program's coordinates."""

    shapes = "the block's, or one that broadcasts to it; `mask` has the block's axes, or some of them"
    dtypes = "any number; rounded to the tensor's dtype"
    cost = "The block's bytes; neighbours along the last axis are written together."
    example = """
@ts.kernel
def example(x: Tensor["n", ts.f32], y: Tensor["n", ts.f32]):
    for i in ts.tile.range(0, n, 4):
        ts.tile.store(y[i : i + 4], x[i : i + 4], mask=x[i : i + 4] > 2)

>>> y = np.zeros(5, np.float32)
>>> example(np.array([1, 2, 3, 4, 5], np.float32), y)
>>> y
[0. 0. 3. 4. 5.]
"""

    def build(self, k: KernelState, target: Any, value: Any, mask: Any = None) -> None:
        if isinstance(target, Shared):
            store_shared(k, target, k.tile(value))
            return
        value = value if isinstance(value, (bool, int, float, complex, Expr)) else k.tile(value)
        place = kernel_outputs.own_place(k, target, value) if isinstance(target, View) else k.place_of(target)
        if mask is not None:
            place = k.masked(place, k.tile(mask))
        assert k.ev.builder.span is not None
        k.memory.store(place, value, k.ev.builder.span)


def store_shared(k: KernelState, target: Shared, value: Value) -> None:
    if tile_type(value).shape != target.type.shape:
        given, own = shape_text(tile_type(value).shape), shape_text(target.type.shape)
        raise KernelFault("TS402", f"{given} does not fit the shared tile {own}")
    value = k.tiles.cast(value, target.type.dtype)
    k.tiles.builder.op("tile.store_shared", (target.value, value))
    target.axes = k.tiles.identities.of(value)
    k.filled.add(target.value)


def store_part(k: KernelState, target: Shared, index: Any, value: Any) -> None:
    """`s[0:8] = value`. Raises KernelFault where nothing has been stored to the others before."""
    items: list[Any] = list(index) if is_tuple(index) else [index]
    all_of_it = all(i is ... or (is_slice(i) and (i.start, i.stop, i.step) == (None, None, None)) for i in items)
    if target.value not in k.filled and not all_of_it:
        why = "a part of this shared tile is stored to before anything is in it, so that the others would hold anything"
        raise KernelFault("TS407", f"{why}; store to all of it first: ts.tile.store(s, ts.tile.zeros(s.shape))")
    t = target.type
    if all_of_it and k.is_tile(value):
        value = k.tile(value)
        if tile_type(value).shape == t.shape:
            store_shared(k, target, value)
            return
    if target.value in k.filled:
        before = k.tiles.load_shared(target.value, target.axes)
    else:
        before = k.tiles.full(t.shape, 0, t.dtype)
    store_shared(k, target, stored(k, before, [k.index_tiles(i) for i in items], value))
