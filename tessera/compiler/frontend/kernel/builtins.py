"""The functions of `ts.tile`, one Python function each. Their Python signatures are the signatures that users see.

The first parameter is the kernel layer; the others are what the program passes. They raise KernelFault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel import folds, operators
from tessera.compiler.frontend.kernel import names as kernel_names
from tessera.compiler.frontend.kernel import outputs as kernel_outputs
from tessera.compiler.frontend.kernel.grid import REGISTER, SERIAL
from tessera.compiler.frontend.kernel.registry import TILE_FUNCTIONS, tile
from tessera.compiler.frontend.kernel.tiles import KernelFault, static_size, tile_type
from tessera.compiler.frontend.kernel.values import (
    Axis,
    Context,
    Each,
    Lanes,
    Panel,
    Shared,
    Transposed,
    View,
    Window,
    marks,
    shown,  # fmt: skip
)
from tessera.compiler.frontend.names.values import Counting, is_sequence, is_static, is_tuple, type_name
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, SharedType, TileType, shape_text
from tessera.language import dtypes
from tessera.language.dims import Expr
from tessera.language.dtypes import DType
from tessera.language.scalars import TABLE

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

SWIZZLES = ("none", "xor")
_MORE = (folds,)  # imported for the functions that it registers


# where a program is


@tile("context")
def context(k: KernelState) -> Context:
    """The bound dims and the schedule's parameters."""
    return Context(k.dims(), k.config)


@tile("linear_id")
def linear_id(k: KernelState) -> Lanes:
    """The global element index, as a vector of BLOCK lanes."""
    size = k.setting("BLOCK")
    c = k.coordinates.on_grid(("linear", None), "i", None, size, k.ev.builder.span)
    return Lanes(c.offset, size, c.axis, launch=c)


@tile("program_id")
def program_id(k: KernelState, axis: Any = 0) -> Expr:
    """This program's number on grid axis `axis` (0, 1 or 2); the axis' length follows from what it indexes."""
    if not isinstance(axis, int) or not 0 <= axis <= 2:
        raise KernelFault("TS403", f"a grid has the axes 0, 1 and 2, not {axis!r}")
    c = k.coordinates.on_grid(("program", axis), f"pid{axis}", None, 1, k.ev.builder.span)
    c.number = axis
    assert isinstance(c.offset, Expr)
    return c.offset


@tile("num_programs")
def num_programs(k: KernelState, axis: int = 0) -> Expr:
    """How many programs run along grid axis `axis`."""
    program_id(k, axis)
    c = k.coordinates.named[("program", axis)]
    return k.coordinates.later(lambda: k.coordinates.count(c), f"programs{axis}")


@tile("each")
def each(k: KernelState) -> Each:
    """An index: the one element of an axis that this program has, as of leading dims that no index mentions."""
    return Each()


# loops


def _counting(k: KernelState, path: str, bounds: tuple[Any, ...]) -> Counting:
    if not 1 <= len(bounds) <= 3:
        raise KernelFault("TS105", f"range takes 1 to 3 arguments, {len(bounds)} were given")
    bounds = tuple(k.operand(b) if isinstance(b, Window) else b for b in bounds)
    start, stop, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    for b in (start, stop, step):
        ok = isinstance(b, (int, Expr)) and not isinstance(b, bool)
        if not ok and not (
            isinstance(b, Value) and isinstance(b.type, TileType) and not b.type.rank and b.type.dtype.is_integer
        ):
            raise KernelFault("TS105", f"range counts integers, not {repr(b) if is_static(b) else type_name(b)}")
    if isinstance(step, int) and step <= 0:
        raise KernelFault("TS105", f"a tile loop ascends: its step must be positive, not {step}")
    return Counting(start, stop, step, path)


@tile("range")
def range_(k: KernelState, *bounds: Any) -> Counting:
    """Outermost: a grid axis. Nested: a serial ascending loop."""
    return _counting(k, "tessera.tile.range", bounds)


@tile("range_k")
def range_k(k: KernelState, *bounds: Any) -> Counting:
    """A serial ascending loop wherever it stands."""
    return _counting(k, "tessera.tile.range_k", bounds)


@tile("static_range")
def static_range(k: KernelState, *bounds: Any) -> range:
    """A loop that is unrolled, over bounds known at compile time."""
    known = [k.known(b) for b in bounds]
    if not all(isinstance(b, int) for b in known) or not 1 <= len(known) <= 3:
        raise KernelFault(
            "TS404",
            "static_range is unrolled, so its bounds must be known at compile time; range_k loops when the kernel runs",
        )
    return range(*known)


@tile("cdiv")
def cdiv(k: KernelState, a: Any, b: Any) -> Any:
    """a / b rounded up."""
    x, y = (k.operand(v) for v in (a, b))
    for v in (x, y):
        number = isinstance(v, (int, Expr)) and not isinstance(v, bool)
        if not number and not (isinstance(v, Value) and tile_type(v).dtype.is_integer):
            raise KernelFault("TS105", f"cdiv divides whole numbers, not {repr(v) if is_static(v) else type_name(v)}")
    at = k.ev.definition.tree
    if not isinstance(x, Value) and not isinstance(y, Value):
        return -operators.binary(k, at, "//", -x, y)
    whole = operators.binary(k, at, "//", x, y)  # neither -x nor x + y - 1 need be a number of the dtype
    rest = k.tiles.map("ne", operators.binary(k, at, "%", x, y), 0)
    return operators.binary(k, at, "+", whole, k.tiles.cast(rest, tile_type(whole).dtype))


@tile(SERIAL)
def serial(k: KernelState, name: str) -> Counting:
    """The range of an implicit serial coordinate; `kernel_grid.plan` writes it."""
    return Counting(0, kernel_names.dim_of(k, name), kernel_names.width(k, name), f"tessera.tile.{SERIAL}")


@tile(REGISTER)
def register(k: KernelState, x: Any) -> Value:
    """What an accumulation in registers starts from, in the accumulator's dtype; `kernel_grid.plan` writes it."""
    return k.tiles.compute(k.tile(x))


# making tiles


def _shape(k: KernelState, shape: Any) -> Shape:
    sizes = shape if is_sequence(shape) else (shape,)
    out = tuple(k.tiles.known(static_size(s, "a tile's extent")) for s in sizes)
    for d in out:
        if marks(d):
            raise KernelFault("TS404", f"a tile's extent must be known at compile time, not {shown(d)}")
    return out


def _said(shape: Any) -> Shape:
    """A shape that `_shape` has accepted, as it is written."""
    return tuple(shape) if is_sequence(shape) else (shape,)


def _dtype(given: Any) -> DType:
    found = dtypes.of(given)
    if found is None:
        raise KernelFault("TS301", f"{given!r} is not a dtype")
    return found


@tile("zeros")
def zeros(k: KernelState, shape: Any, dtype: Any = dtypes.f32) -> Value:
    """A tile of zeros."""
    return k.tiles.full(_shape(k, shape), 0, _dtype(dtype), _said(shape))


@tile("ones")
def ones(k: KernelState, shape: Any, dtype: Any = dtypes.f32) -> Value:
    """A tile of ones."""
    return k.tiles.full(_shape(k, shape), 1, _dtype(dtype), _said(shape))


@tile("full")
def full(k: KernelState, shape: Any, value: Any, dtype: Any = dtypes.f32) -> Value:
    """A tile that holds `value` everywhere."""
    return k.tiles.full(_shape(k, shape), value, _dtype(dtype), _said(shape))


@tile("zeros_like")
def zeros_like(k: KernelState, x: Any) -> Value:
    """Zeros of the shape and dtype of `x`."""
    t = k.tile(x)
    out = k.tiles.full(tile_type(t).shape, 0, tile_type(t).dtype)
    return k.tiles.identities.like(out, t)


@tile("arange")
def arange(k: KernelState, start: Any, stop: Any = None) -> Lanes:
    """The integers start, start + 1, ... below `stop`; with one argument from 0."""
    lower, upper = (0, start) if stop is None else (start, stop)
    if not (isinstance(lower, (int, Expr)) and isinstance(upper, (int, Expr))):
        raise KernelFault("TS404", "arange goes from and to sizes known at compile time")
    size = k.known(upper - lower)
    if not isinstance(size, int) or size <= 0:
        raise KernelFault("TS404", f"arange needs a positive length known at compile time, not {size}")
    return Lanes(lower, size, Axis(size=upper - lower))


# memory


@tile("alloc_shared")
def alloc_shared(k: KernelState, shape: Any, dtype: Any = dtypes.f32, swizzle: str = "none") -> Shared:
    """A tile in shared memory, with nothing in it yet. `swizzle`: "none" or "xor"."""
    if swizzle not in SWIZZLES:
        raise KernelFault("TS105", f"swizzle is one of {', '.join(SWIZZLES)}, not {swizzle!r}")
    t = SharedType(_shape(k, shape), _dtype(dtype), swizzle)
    value = k.tiles.builder.value("tile.alloc_shared", (), t)
    span = k.ev.builder.span
    assert span is not None
    return Shared("", value, tuple(Axis(size=d) for d in _said(shape)), span)


@tile("cp_async", "copy_async")
def cp_async(k: KernelState, shared: Any, source: Any) -> None:
    """Starts copying a block of a tensor into a shared tile; it has arrived after the next barrier."""
    if not isinstance(shared, Shared):
        raise KernelFault("TS406", "cp_async copies into a tile of alloc_shared")
    w = source if isinstance(source, Window) else k.window_of(source)
    if w.shape != shared.type.shape:
        raise KernelFault(
            "TS402", f"the block {shape_text(w.shape)} does not fit the shared tile {shape_text(shared.type.shape)}"
        )
    if w.view.dtype != shared.type.dtype:
        raise KernelFault(
            "TS402",
            f"{w.view.name} holds {w.view.dtype}, the shared tile {shared.type.dtype}; an async copy converts nothing",
        )
    view, offsets = k.memory.subview(w)
    k.tiles.builder.op("tile.copy_async", [shared.value, view, *offsets])
    shared.axes = w.axes
    k.filled.add(shared.value)


@tile("barrier")
def barrier(k: KernelState) -> None:
    """Waits for this program's async copies, then for all its threads."""
    k.tiles.builder.op("tile.barrier")


@tile("load")
def load(k: KernelState, source: Any, shape: Any = None, mask: Any = None, other: Any = None, prefetch: Any = 1) -> Any:
    """A block of a tensor as a tile. With `shape`, this program's block; axes that no output has are left to
    `load_partition`. `other`: what elements masked out are, and those outside of the tensor; without it they are
    padding, which no reduction sees. `prefetch`: how many partitions are under way at once."""
    if isinstance(source, Shared):
        return k.tile(source)
    if not isinstance(prefetch, int) or isinstance(prefetch, bool) or prefetch < 1:
        raise KernelFault("TS105", f"prefetch is how many partitions are under way at once, not {prefetch!r}")
    if shape is not None:
        if not isinstance(source, View):
            raise KernelFault("TS406", "load(..., shape=...) takes a parameter of the kernel")
        _shape(k, shape)  # refuses what is no shape; the sizes go on as written, for `ctx.D` means all of D
        return kernel_outputs.panel(k, source, tuple(shape) if is_sequence(shape) else (shape,), prefetch)
    place = k.place_of(source)
    if mask is not None:
        place = k.masked(place, k.tile(mask))
    return k.memory.load(place, k.memory.filling(place.view.dtype, other))


@tile("load_partition")
def load_partition(k: KernelState, panel: Any, *at: Any) -> Value:
    """The partition of a loaded panel that starts at element `at` of its open axis (of each open axis, in order)."""
    if not isinstance(panel, Panel):
        raise KernelFault(
            "TS402", "load_partition takes what load(tensor, shape=...) gave, with an axis that no output has"
        )
    return k.memory.load(kernel_outputs.partition(k, panel, at))


@tile("store")
def store(k: KernelState, target: Any, value: Any, mask: Any = None) -> None:
    """Writes a tile to a block of a tensor; to a whole parameter, at this program's coordinates."""
    if isinstance(target, Shared):
        _store_shared(k, target, k.tile(value))
        return
    value = value if isinstance(value, (bool, int, float, complex, Expr)) else k.tile(value)
    place = kernel_outputs.own_place(k, target, value) if isinstance(target, View) else k.place_of(target)
    if mask is not None:
        place = k.masked(place, k.tile(mask))
    assert k.ev.builder.span is not None
    k.memory.store(place, value, k.ev.builder.span)


def _store_shared(k: KernelState, target: Shared, value: Value) -> None:
    if tile_type(value).shape != target.type.shape:
        raise KernelFault(
            "TS402",
            f"{shape_text(tile_type(value).shape)} does not fit the shared tile {shape_text(target.type.shape)}",
        )
    value = k.tiles.cast(value, target.type.dtype)
    k.tiles.builder.op("tile.store_shared", (target.value, value))
    target.axes = k.tiles.identities.of(value)
    k.filled.add(target.value)


@tile("gather")
def gather(k: KernelState, source: Any, index: Any, *more: Any) -> Value:
    """Elements of a tensor at computed indices, one integer tile per axis."""
    if not isinstance(source, View):
        raise KernelFault("TS406", "gather reads a parameter of the kernel")
    return k.memory.load(k.memory.place(source, tuple(map(k.operand, (index, *more)))))


@tile("scatter")
def scatter(k: KernelState, target: Any, index: Any, value: Any) -> None:
    """Writes elements at computed indices, which must be distinct."""
    if not isinstance(target, View):
        raise KernelFault("TS406", "scatter writes to a parameter of the kernel")
    assert k.ev.builder.span is not None
    k.memory.store(
        k.memory.place(target, tuple(map(k.operand, index)) if is_tuple(index) else k.operand(index), storing=True),
        k.tile(value),
        k.ev.builder.span,
    )


# arithmetic


@tile("mma", "dot")
def mma(k: KernelState, a: Any, b: Any, accumulator: Any = None) -> Value:
    """accumulator + a @ b. `accumulator`: a dtype (sums start at 0) or a tile; by default f32 for floats up to f32."""
    left, left_axes = k.matrix(a)
    right, right_axes = k.matrix(b)
    given = k.tile(accumulator) if k.is_tile(accumulator) else accumulator
    return k.tiles.mma(left, right, left_axes, right_axes, given)


@tile("where")
def where(k: KernelState, condition: Any, x: Any, y: Any) -> Value:
    """x where the condition holds, else y."""
    return k.tiles.where(k.operand(condition), k.operand(x), k.operand(y))


@tile("cast")
def cast(k: KernelState, x: Any, dtype: Any) -> Value:
    """The elements converted to `dtype`, rounded to nearest even."""
    value = k.operand(x)
    return k.tiles.cast(value, _dtype(dtype)) if isinstance(value, Value) else k.tiles.scalar(value, _dtype(dtype))


@tile("causal_mask")
def causal_mask(k: KernelState, scores: Any, q0: Any, k0: Any, value: float = float("-inf")) -> Value:
    """`scores` where query q0 + row is not before key k0 + column, else `value`."""
    x = k.tile(scores)
    t = tile_type(x)
    if t.rank != 2:
        raise KernelFault("TS402", f"causal_mask takes scores of two axes, not {t.pretty()}")
    rows = k.memory.ramp(k.index(q0), t.shape, 0)
    columns = k.memory.ramp(k.index(k0), t.shape, 1)
    allowed = k.tiles.builder.map("ge", rows, columns)
    k.tiles.identities.like(allowed, x)
    return k.tiles.where(allowed, x, value)


@tile("transpose", "permute", "trans")
def transpose(k: KernelState, x: Any, *axes: Any) -> Any:
    """The axes in reverse order, or in the order given."""
    if isinstance(x, Shared) and not axes and len(x.type.shape) == 2:
        return Transposed(x)
    order = axes[0] if len(axes) == 1 and is_sequence(axes[0]) else axes
    return k.tiles.transpose(k.tile(x), tuple(order) or None)


@tile("reshape", "view")
def reshape(k: KernelState, x: Any, *shape: Any) -> Value:
    """The same elements in C order under another shape."""
    value = k.tile(x)
    sizes = shape[0] if len(shape) == 1 and is_sequence(shape[0]) else shape
    new = _shape(k, sizes)
    if k.count(new) != k.count(tile_type(value).shape):
        raise KernelFault("TS402", f"{shape_text(tile_type(value).shape)} cannot become {shape_text(new)}")
    return k.tiles.reshape(value, new, _said(sizes))


@tile("expand_dims", "unsqueeze")
def expand_dims(k: KernelState, x: Any, axis: Any) -> Value:
    """A new axis of size 1 at `axis`."""
    value = k.tile(x)
    rank = tile_type(value).rank + 1
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise KernelFault("TS204", f"axis {axis!r} is out of range")
    return k.tiles.insert_axes(value, [axis % rank])


@tile("print", "debug_print")
def print_(k: KernelState, *values: Any) -> None:
    """Shows tiles once per program, with the texts before them as labels."""
    label = ""
    for v in values:
        if isinstance(v, str):
            label = v
            continue
        shown = k.operand(v)
        value = (
            shown
            if isinstance(shown, Value)
            else k.tiles.scalar(shown, dtypes.int64 if isinstance(v, (int, Expr)) else dtypes.f32)
        )
        k.tiles.builder.op("tile.print", (value,), (), {"label": label})


@tile("debug_assert", "device_assert", "static_assert")
def debug_assert(k: KernelState, condition: Any, message: str = "") -> None:
    """In debug mode every element must hold, of those that the `if`s around it leave."""
    known = k.operand(condition)
    if not isinstance(known, Value):
        if not known:
            raise KernelFault("TS106", message or "the assertion is false")
        return
    holds = k.tiles.truth(known)
    if k.memory.mask is not None:
        (holds, mask), _ = k.tiles.together([holds, k.memory.mask])
        holds = k.tiles.map("logical_or", holds, k.tiles.map("logical_not", mask))
    k.tiles.builder.op("tile.assert", (holds,), (), {"message": message})


# elementwise functions: all of language.scalars


def _elementwise(name: str) -> Callable[..., Any]:
    arity = TABLE[name].arity

    def one(k: KernelState, x: Any) -> Any:
        return k.apply(name, x)

    def two(k: KernelState, x: Any, y: Any) -> Any:
        return k.apply(name, x, y)

    def three(k: KernelState, x: Any, y: Any, z: Any) -> Any:
        return k.apply(name, x, y, z)

    f = (one, two, three)[arity - 1]
    f.__doc__ = TABLE[name].doc
    return f


for _name in TABLE:
    TILE_FUNCTIONS.setdefault(_name, _elementwise(_name))
for _alias, _name in (("fabs", "abs"), ("power", "pow"), ("negative", "neg")):
    TILE_FUNCTIONS.setdefault(_alias, TILE_FUNCTIONS[_name])
