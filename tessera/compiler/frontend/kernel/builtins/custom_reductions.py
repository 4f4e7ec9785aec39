"""Reductions and scans with a function of your own."""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.builtins.joining import part
from tessera.compiler.frontend.kernel.tiles import NUMBERS, KernelFault, demand_dtype, tile_type
from tessera.compiler.frontend.kernel.values import Share
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import UNKNOWN, Builtin, Unknown, is_sequence, type_name
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.builtin import TileBuiltin
from tessera.compiler.tile.dialect import FOLDED
from tessera.errors import Note
from tessera.language import dtypes
from tessera.language.dims import prod

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState

RULES = """

`combine` is a function or lambda of two elements, the left one first, that gives one. Over a tuple of tiles it takes
two tuples and gives one, or it takes all elements of the left, then of the right one. It must be associative and need
not be commutative, for the order of elements is kept. It computes with elements alone; an `if` in it chooses among
them."""
COST = (
    "One call of `combine` for each element{}. The tiles are in scratch memory, or in shared memory on a GPU, where "
    "the threads combine as many pairs at once as there are."
)
DTYPES = "any -> the dtype, f32 for narrower floats"


class Reduce(TileBuiltin):
    """Reduces the elements along `axis` (one, a tuple, or all by default) by your own function.

    Elements that do not exist, at a ragged edge or behind a mask, are left out. If no element exists, the result is
    `identity`, a number for each tile, by default 0. Neighbours are combined first, then neighbouring results, in the
    same order on every target."""

    shapes = "`[M, N] -> [N]` for axis 0, `[M]` for axis 1, `[]` for both; of a tuple a tuple"
    dtypes = DTYPES
    cost = COST.format("")
    example = """
def nearer_to_one(a, b):
    return b if abs(b - 1) < abs(a - 1) else a

@ts.kernel
def example(x: Tensor["M", "N", ts.f32], y: Tensor["M", ts.f32]):
    y[0:2] = ts.tile.reduce(x[0:2, :], nearer_to_one, axis=1)

>>> y = np.zeros(2, np.float32)
>>> example(np.array([[3, 0.5, 2], [5, 7, 4]], np.float32), y)
>>> y
[0.5 4. ]
"""

    @property
    def doc(self) -> str:
        return super().doc + RULES

    def build(
        self, k: KernelState, values: Any, combine: Any, axis: Any = None, identity: Any = None, keepdim: bool = False
    ) -> Any:
        node, tiles = k.calling, _tiles(k, values, "reduce")
        t, axes = tile_type(tiles[0]), k.tiles.axes_of(tiles[0], axis)
        k.demand_whole(tiles[0], axes)
        given = _identity(k, identity, values, tiles, "reduce")
        block = _combined(k, node, tiles, combine, is_sequence(values))
        if block is None:
            return UNKNOWN
        kept = tuple(a for a in range(t.rank) if a not in axes)
        names = k.tiles.identities.of(tiles[0])
        size = k.known(prod([t.shape[a] for a in axes]))
        if size == 0 and given is None:
            raise KernelFault("TS402", "a reduce over no elements gives its identity; pass identity=")
        if size == 0:
            assert given is not None
            shape = tuple(t.shape[a] for a in kept)
            out = [k.tiles.full(shape, n, tile_type(v).dtype) for n, v in zip(given, tiles, strict=True)]
        else:
            lines = [_line(k, v, kept, axes) for v in tiles]
            out = _fold(k, lines, block, axes[0] if len(axes) == 1 else len(kept), False, given)
        for v in out:
            k.tiles.identities.set(v, tuple(names[a] for a in kept), (t.rank, kept) if kept else None)
        out = [k.tiles.insert_axes(v, axes) for v in out] if keepdim else out
        return tuple(out) if is_sequence(values) else out[0]


class AssociativeScan(TileBuiltin):
    """An inclusive scan by your own function along `axis`: element i combines elements 0 to i. With `reverse`, it
    combines elements i to the last, and `combine` takes the later element first.

    Elements that do not exist, at a ragged edge or behind a mask, are left out, or replaced by `identity`, a number
    for each tile. The order of combination depends only on the positions, and is the same on every target."""

    shapes = "`[..., N, ...] -> [..., N, ...]`; of a tuple a tuple"
    dtypes = DTYPES
    cost = COST.format(", at most two")
    example = """
@ts.kernel
def example(a: Tensor["n", ts.f32], b: Tensor["n", ts.f32], h: Tensor["n", ts.f32]):
    both = a[0:4], b[0:4]
    _, h[0:4] = ts.tile.associative_scan(both, lambda f, g: (g[0] * f[0], g[0] * f[1] + g[1]))

>>> a, b, h = np.array([0.5, 0.5, 2, 0], np.float32), np.ones(4, np.float32), np.zeros(4, np.float32)
>>> example(a, b, h)
>>> h
[1.  1.5 4.  1. ]
"""

    @property
    def doc(self) -> str:
        return super().doc + RULES

    def build(
        self, k: KernelState, values: Any, combine: Any, axis: Any = -1, reverse: Any = False, identity: Any = None
    ) -> Any:
        node, tiles = k.calling, _tiles(k, values, "associative_scan")
        along = k.tiles.axis_of(tiles[0], axis, "associative_scan")
        k.demand_whole(tiles[0], (along,))
        if not isinstance(reverse, bool):
            raise KernelFault("TS105", f"reverse is True or False, known at compile time, not {reverse!r}")
        given = _identity(k, identity, values, tiles, "associative_scan")
        block = _combined(k, node, tiles, combine, is_sequence(values))
        if block is None:
            return UNKNOWN
        turned = [*[slice(None)] * along, slice(None, None, -1)]
        out = [part(k, v, turned) for v in tiles] if reverse else tiles
        if k.known(tile_type(tiles[0]).shape[along]) != 0:
            out = _fold(k, out, block, along, True, given)
        out = [part(k, v, turned) for v in out] if reverse else out
        out = [k.tiles.identities.like(v, x) for v, x in zip(out, tiles, strict=True)]
        return tuple(out) if is_sequence(values) else out[0]


class ReduceAcross(TileBuiltin):
    """Reduces over programs of the launch: `op` is "sum", "prod", "max" or "min". Store or return the result directly.
    It combines the programs along the grid coordinates that do not appear in the index of the store.

    Each program stores its partial result, and a second launch combines them in ascending order. So results depend only
    on the blocks, not on threads or on which program runs first. There are no atomics."""

    shapes = "`[...] -> [...]`"
    dtypes = "real numbers -> the dtype of the stored-to tensor, f32 or wider for sums of floats"
    cost = "A launch, and memory for one tile of each program."
    example = """
@ts.kernel
def example(x: Tensor["M", "N", ts.f32], y: Tensor["N", ts.f32]):
    for i in ts.tile.range(0, M, 2):
        y[:] = ts.tile.reduce_across(ts.tile.col_sum(x[i : i + 2, :]))

>>> y = np.zeros(3, np.float32)
>>> example(np.arange(15, dtype=np.float32).reshape(5, 3), y)
>>> y
[30. 35. 40.]
"""

    def build(self, k: KernelState, x: Any, op: Any = "sum") -> Share:
        if op not in ("sum", "prod", "max", "min"):
            raise KernelFault("TS105", f'reduce_across combines by "sum", "prod", "max" or "min", not {op!r}')
        tile = k.tile(x)
        demand_dtype("reduce_across", tile_type(tile).dtype, "real")
        own = tile_type(tile).dtype
        return Share(k.tiles.cast(tile, own.accumulate if op in ("sum", "prod") else own.compute), op)


def _tiles(k: KernelState, values: Any, name: str) -> list[Value]:
    """The operands, in the dtypes that arithmetic is done in and in one shape."""
    given = list(values) if is_sequence(values) else [values]
    if not given:
        raise KernelFault("TS105", f"{name} takes a tile or a tuple of tiles, not an empty tuple")
    tiles, _ = k.tiles.together([k.tiles.compute(k.tile(v)) for v in given])
    return tiles


def _identity(
    k: KernelState, identity: Any, values: Any, tiles: Sequence[Value], name: str
) -> tuple[bool | int | float | complex, ...] | None:
    """The given value of elements that do not exist: a number of each tile's dtype."""
    if identity is None:
        return None
    given = [k.known(n) for n in (identity if is_sequence(values) and is_sequence(identity) else [identity])]
    if len(given) != len(tiles):
        raise KernelFault("TS105", f"identity of {name} is one number for each of {len(tiles)} tiles, not {len(given)}")
    out: list[bool | int | float | complex] = []
    for n, v in zip(given, tiles, strict=True):
        dtype = tile_type(v).dtype
        kept = dtypes.number(n, dtype) if isinstance(n, NUMBERS) else None
        if kept is None:
            text = repr(n) if isinstance(n, NUMBERS) else type_name(n)
            raise KernelFault("TS105", f"identity of {name} is a number of {dtype} known at compile time, not {text}")
        out.append(kept)
    return tuple(out)


def _combined(k: KernelState, node: ast.AST, tiles: Sequence[Value], combine: Any, several: bool) -> Block | None:
    """A block that combines two elements of each tile; None where an error has been said. Raises KernelFault."""
    if not isinstance(combine, (Closure, Builtin)) and not callable(combine):
        raise KernelFault("TS105", f"combine is a function or a lambda, not {type_name(combine)}")
    block, n = Block(), len(tiles)
    elements = [TileType((), tile_type(v).dtype) for v in tiles]
    args = [block.add_arg(t, hint) for hint in ("left", "right") for t in elements]
    before, mask = len(k.ev.findings.errors), k.memory.mask
    k.choosing, outer, k.memory.mask = True, k.choosing, None
    try:
        with k.builder.inside(block):
            found = k.ev.call(node, combine, _arguments(combine, args, several), {})
            if isinstance(found, Unknown) or len(k.ev.findings.errors) > before:
                return None
            given = list(found) if several and is_sequence(found) else [found]
            if len(given) != n or is_sequence(found) != several:
                what = f"{len(given)} values" if is_sequence(found) else f"one value, {type_name(found)}"
                raise KernelFault("TS402", f"combine gives {what}; it takes elements of {n} tiles, and gives as many")
            yields = [_element(k, v, t, i) for i, (v, t) in enumerate(zip(given, elements, strict=True))]
    finally:
        k.choosing, k.memory.mask = outer, mask
    for op in block.ops:
        if op.name not in FOLDED:
            what = "a load" if op.name in ("tile.subview", "tile.load") else op.name.partition(".")[2]
            message = f"combine computes with the elements that it takes, and {what} is more than that"
            k.ev.error("TS102", f"{message}; compute it before, or use elementwise functions", node,
                       notes=[Note(f"{what} here", op.span)])  # fmt: skip
            return None
    block.append(Op("tile.yield", yields, (), k.ev.span(node)))
    return block


def _arguments(combine: Any, args: list[Value], several: bool) -> list[Any]:
    """Two elements, two tuples, or as many elements as the function has parameters."""
    if not several:
        return args
    half, taken = len(args) // 2, 2
    if isinstance(combine, Closure):
        a = combine.node.args
        taken = len(a.posonlyargs) + len(a.args) - len(combine.defaults)
    elif isinstance(combine, types.FunctionType):
        taken = combine.__code__.co_argcount - len(combine.__defaults__ or ())
    return args if taken == len(args) and half > 1 else [tuple(args[:half]), tuple(args[half:])]


def _element(k: KernelState, value: Any, wanted: TileType, i: int) -> Value:
    """What combine gives of one tile, as an element of it. Raises KernelFault where it is something else."""
    found = k.operand(value)
    if not isinstance(found, Value):
        dtype = dtypes.weak(found if isinstance(found, NUMBERS) else 0, wanted.dtype) or wanted.dtype
        found = k.tiles.scalar(found, dtype)
    t = tile_type(found)
    if t.rank:
        raise KernelFault("TS402", f"combine gives a tile {t.pretty()} in place {i}; it combines element by element")
    if t.dtype != wanted.dtype:
        message = f"combine takes {wanted.dtype} in place {i} and gives {t.dtype}"
        raise KernelFault("TS302", f"{message}; it must give what it takes: convert with cast")
    return found


def _line(k: KernelState, x: Value, kept: tuple[int, ...], axes: tuple[int, ...]) -> Value:
    """`x` with the axes that are reduced as one: where they are several, the last."""
    if len(axes) == 1:
        return x
    shape = tile_type(x).shape
    if (*kept, *axes) != tuple(range(len(shape))):
        x = k.tiles.transpose(x, (*kept, *axes))
    joined = (*(shape[a] for a in kept), k.known(prod([shape[a] for a in axes])))
    return k.tiles.reshape(x, joined, joined)


def _fold(
    k: KernelState, tiles: Sequence[Value], block: Block, axis: int, prefixes: bool, identity: Any
) -> list[Value]:
    shapes = [tile_type(v).shape for v in tiles]
    shapes = [s if prefixes else (*s[:axis], *s[axis + 1 :]) for s in shapes]
    types = [TileType(s, tile_type(v).dtype) for s, v in zip(shapes, tiles, strict=True)]
    attrs: dict[str, Any] = {"axis": axis, "prefixes": prefixes}
    if identity is not None:
        attrs["identity"] = identity
    return k.builder.op("tile.fold", tiles, types, attrs, regions=[Region([block])]).results
