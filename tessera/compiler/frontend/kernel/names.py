"""Names in kernels: parameters with the dims of their annotations, and coordinates called after dims."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.kernel.grid import PREFIX
from tessera.compiler.frontend.kernel.index import UnboundIndexError
from tessera.compiler.frontend.kernel.state import KernelState
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import (
    LEADING,
    PRIVATE,
    UNNAMED,
    Coordinate,
    View,
    marked,
    marks,
    size_text,
)
from tessera.compiler.frontend.names.values import MISSING, UNKNOWN, is_live_array
from tessera.compiler.ir.types import Shape, TensorType, TileType, ViewType
from tessera.compiler.unit import Param
from tessera.language import dims, dtypes
from tessera.language.annotations import Annotation, TensorAnn, TileAnn, TupleAnn, UnknownAnn
from tessera.language.dims import Dim, Expr


def parameter(k: KernelState, name: str, type: TensorType, annotation: Annotation) -> Any:
    """The next argument of the kernel: a view of memory, or a scalar."""
    _name_dims(k)
    argument = len(k.arguments)
    if type.rank == 0 and not isinstance(annotation, (TensorAnn, TileAnn)):
        k.arguments.append(Param(name, None, type.dtype))
        return k.ev.block.add_arg(TileType((), type.dtype), name)
    shape = symbolic_shape(k, type.shape, annotation)
    concrete = tuple(map(k.tiles.known, shape))
    k.arguments.append(Param(name, concrete, type.dtype, optional=bool(getattr(annotation, "optional", False))))
    value = k.ev.block.add_arg(ViewType(concrete, type.dtype), name)
    wanted: Sequence[Any] = getattr(annotation, "shape", None) or ()
    if ... in wanted and k.lead is None:
        at = list(wanted).index(...)
        k.lead = type.shape[at : at + len(shape) - len(wanted) + 1]
    leading = len(shape) - len(wanted) + 1 if len(wanted) > 1 and wanted[0] is ... else 0
    k.views[name] = View(name, value, shape, type.dtype, argument, leading)
    return k.views[name]


def _name_dims(k: KernelState) -> None:
    """In a kernel the name of a dim stays symbolic, so that axes keep their identity; its size is known beside it."""
    for name, size in k.ev.frame.dims.items():
        if isinstance(size, int):
            k.sizes[name] = size
            k.ev.frame.names[name] = dims.symbol(name)


def symbolic_shape(k: KernelState, actual: Shape, annotation: Annotation) -> Shape:
    """Dims as annotated, so that axes keep their identity; sizes without a name get a symbol for that size.

    Among axes without a name, those with the same place are one axis: counted from the last within `...`, which is the
    same leading axes in every parameter, and from the last of all where nothing is annotated.
    """
    annotated = getattr(annotation, "shape", None)
    wanted: Sequence[Any] = annotated or (...,)
    first = last = 0
    if ... in wanted:
        first, last = list(wanted).index(...), list(wanted).index(...) + len(actual) - len(wanted) + 1
        wanted = [*wanted[:first], *[None] * (last - first), *wanted[first + 1 :]]
    out: list[Dim] = []
    for a, (want, have) in enumerate(zip(wanted, actual, strict=True)):
        if isinstance(want, Expr):
            if not isinstance(rest := dims.substitute(want, k.sizes), int) and rest != have:
                k.indices.given[rest] = have
            out.append(want)
        elif isinstance(have, int):
            leading = first <= a < last
            place = last - a if leading else len(actual) - a
            name = f"{have}{PRIVATE}{place}{(LEADING if annotated else UNNAMED) if leading else ''}"
            k.sizes[name] = have
            out.append(dims.symbol(name))
            if leading and isinstance(annotation, (TensorAnn, TileAnn)):
                k.coordinates.batches[out[-1]] = have, place
        else:
            out.append(have)
    return tuple(out)


def implicit(k: KernelState, name: str) -> Coordinate:
    """`tile_m`: the grid coordinate over the dim M."""
    if name not in k.implicit:
        k.implicit[name] = named_coordinate(k, dim_of(k, name), width(k, name), name)
    return k.implicit[name]


def named_coordinate(k: KernelState, extent: Dim, step: Dim, name: str = "") -> Coordinate:
    """The grid coordinate over a dim, whichever way the program names it."""
    c = k.coordinates.on_grid(("tile", extent), name or f"{PREFIX}{extent}".lower(), extent, step, k.builder.span)
    if c.step != step:
        raise KernelFault(
            "TS403", f"{c.name} walks {size_text(extent)} in steps of {c.step} and of {step}; use one width"
        )
    return c


def dim_of(k: KernelState, name: str) -> Dim:
    """The dim that `tile_m` walks: M. Raises KernelFault."""
    wanted = name.removeprefix(PREFIX).lower()
    for known in k.ev.dims:
        if known.lower() == wanted:
            return dims.symbol(known)
    named = ", ".join(k.ev.dims) or "none"
    raise KernelFault("TS403", f"{name} walks the dim {wanted.upper()}, which no annotation binds (bound: {named})")


def width(k: KernelState, name: str) -> Dim:
    """How far the coordinate goes in one step: the width of the slice that it starts."""
    s = k.plan.widths.get(name)
    if s is None:
        return 1
    assert s.upper is not None
    names, symbol = k.ev.frame.names, marked(name)
    saved = names.get(name, MISSING)
    names[name] = symbol
    try:
        upper = k.ev.eval(s.upper)
    except UnboundIndexError:  # more is done with the coordinate than adding to it
        upper = UNKNOWN
    finally:
        names.pop(name)
        if saved is not MISSING:
            names[name] = saved
    width = k.known(upper - symbol) if isinstance(upper, (int, Expr)) else UNKNOWN
    if not isinstance(width, (int, Expr)) or marks(width) or (isinstance(width, int) and width <= 0):
        raise KernelFault("TS403", f"the slice that {name} starts must have a width that is known at compile time")
    return width


def shown_shape(k: KernelState, shape: Shape) -> Shape:
    """A parameter's shape for people: private symbols give way to the sizes they stand for."""
    return tuple(k.tiles.known(d) if PRIVATE in str(d) else d for d in shape)


def output_dims(k: KernelState) -> set[Dim]:
    """The dims of what the kernel stores to, or else of what it says it returns."""
    stored = [k.views[n].shape for n in k.plan.stored if n in k.views]
    if stored:
        return set[Dim]().union(*map(_dims_of, stored))
    returns = k.ev.returns
    items = returns.items if isinstance(returns, TupleAnn) else (returns,)
    return set[Dim]().union(*(_dims_of(getattr(a, "shape", None)) for a in items))


def _dims_of(shape: tuple[Any, ...] | None) -> set[Dim]:
    return {d for d in shape or () if isinstance(d, (int, Expr))}


# Arrays of closures and globals that a kernel reads: they become further arguments of it.


def capture(k: KernelState, name: str, value: Any, node: ast.AST) -> Any:
    """The view of a live array, made at its first use; a NumPy scalar is a number; anything else is MISSING."""
    if not is_live_array(value):
        return MISSING
    if not hasattr(value, "__setitem__") and hasattr(value, "item") and tuple(value.shape) == ():
        return value.item()
    for array, view in zip(k.captures, k.captured, strict=True):
        if array is value:
            return view
    dtype = dtypes.of(value.dtype)
    if dtype is None:
        return k.ev.error("TS301", f"an array of {value.dtype} cannot be used; Tessera has no such dtype", node)
    type = TensorType(tuple(map(int, value.shape)), dtype)
    found = parameter(k, _free_name(k, name or _name_of(node)), type, UnknownAnn())
    assert isinstance(found, View)
    k.captures.append(value)
    k.captured.append(found)
    k.capture_nodes.append(node)
    return found


def _name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "captured"


def _free_name(k: KernelState, name: str) -> str:
    taken = {p.name for p in k.arguments} | k.views.keys()
    return next(n for i in range(len(taken) + 1) if (n := f"{name}_{i}" if i else name) not in taken)


_TELLING = ("alloc_shared", "linear_id", "program_id", "range", "range_k", "context", "zeros", "full", "mma")
"""functions of `ts.tile` that kernels start with"""


def namespace(ev: Evaluator) -> str:
    """How the author spells `ts.tile`."""
    for node in ast.walk(ev.definition.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TELLING:
            return ast.unparse(node.func.value)
    return "ts.tile"
