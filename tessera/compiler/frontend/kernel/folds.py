"""The functions of `ts.tile` that combine elements along an axis: reductions, prefixes and sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.kernel.registry import TILE_FUNCTIONS, tile
from tessera.compiler.frontend.kernel.tiles import KernelFault, tile_type
from tessera.compiler.ir.core import Value

if TYPE_CHECKING:
    from tessera.compiler.frontend.kernel.state import KernelState


def _reduction(name: str, op: str) -> None:
    def along(
        k: KernelState, x: Any, axis: Any = None, keepdim: bool = False, keepdims: bool = False, dim: Any = None
    ) -> Value:
        return k.reduce(op, k.tile(x), dim if axis is None else axis, bool(keepdim or keepdims))

    def rows(k: KernelState, x: Any, keepdim: bool = False) -> Value:
        return k.reduce(op, _matrix(k, x, f"row_{name}"), 1, keepdim)

    def columns(k: KernelState, x: Any, keepdim: bool = False) -> Value:
        return k.reduce(op, _matrix(k, x, f"col_{name}"), 0, keepdim)

    along.__doc__ = f"The {name} along `axis` (all axes without one)."
    rows.__doc__ = f"The {name} of each row, as a vector that belongs to the rows."
    columns.__doc__ = f"The {name} of each column, as a vector that belongs to the columns."
    TILE_FUNCTIONS[name] = along
    TILE_FUNCTIONS[f"row_{name}"] = rows
    TILE_FUNCTIONS[f"col_{name}"] = columns


def _matrix(k: KernelState, x: Any, name: str) -> Value:
    value = k.tile(x)
    if tile_type(value).rank != 2:
        raise KernelFault("TS402", f"{name} takes a tile of two axes, not {tile_type(value).pretty()}")
    return value


for _name, _op in (("sum", "sum"), ("prod", "prod"), ("max", "max"), ("min", "min"), ("any", "any"), ("all", "all"),
                   ("argmax", "argmax"), ("argmin", "argmin"), ("mean", "mean")):  # fmt: skip
    _reduction(_name, _op)


def _whole(k: KernelState, x: Any, axis: Any, what: str) -> Value:
    """A tile of which this program sees all along `axis`."""
    value = k.tile(x)
    k.demand_whole(value, (k.tiles.axis_of(value, axis, what),))
    return value


def _scan(name: str, op: str) -> None:
    def along(k: KernelState, x: Any, axis: int = -1) -> Value:
        return k.tiles.scan(op, _whole(k, x, axis, f"a running {op}"), axis)

    along.__doc__ = f"The running {op} along `axis`, in ascending order."
    TILE_FUNCTIONS[name] = along


for _name, _op in (("cumsum", "sum"), ("cumprod", "prod"), ("cummax", "max"), ("cummin", "min")):
    _scan(_name, _op)


@tile("sort")
def sort(k: KernelState, x: Any, axis: Any = -1, descending: Any = False) -> Value:
    """The elements along `axis` in ascending order, NaN last; equal ones keep their order."""
    return _sorted(k, x, axis, descending, positions=False)


@tile("argsort")
def argsort(k: KernelState, x: Any, axis: Any = -1, descending: Any = False) -> Value:
    """Where the elements that `sort` puts in each place come from."""
    return _sorted(k, x, axis, descending, positions=True)


def _sorted(k: KernelState, x: Any, axis: Any, descending: Any, positions: bool) -> Value:
    if not isinstance(descending, bool):
        raise KernelFault("TS105", f"descending is True or False, known at compile time, not {descending!r}")
    return k.tiles.sort(_whole(k, x, axis, "sort"), axis, descending, positions)
