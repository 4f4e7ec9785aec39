"""Results of kernels: arguments behind the parameters, made for what is returned, or declared to be stored in parts."""

from __future__ import annotations

import ast

from tessera.compiler.frontend.kernel import names
from tessera.compiler.frontend.kernel.access import Stored
from tessera.compiler.frontend.kernel.state import KernelState
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import Coordinate, View
from tessera.compiler.frontend.names.values import MISSING
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import ViewType
from tessera.language import dims
from tessera.language.annotations import Annotation
from tessera.language.dims import Dim
from tessera.language.dtypes import DType


def allocate(k: KernelState, shape: tuple[Dim, ...], dtype: DType, name: str) -> View:
    """A further argument of the kernel, for a result that no parameter receives. Until the kernel has been read, and
    with it the arrays from outside, its number counts back from -1."""
    concrete = tuple(map(k.tiles.known, shape))
    value = k.ev.block.add_arg(ViewType(concrete, dtype), name)
    k.allocated.append(View(name, value, shape, dtype, -1 - len(k.allocated)))
    return k.allocated[-1]


def declare(k: KernelState, node: ast.AnnAssign, annotation: Annotation) -> None:
    """`out: Tensor["N", "D", ts.f32]`: a result of that shape, 0 where nothing is stored. Raises KernelFault."""
    if not isinstance(node.target, ast.Name):
        raise KernelFault("TS102", "a result is declared under a name of its own")
    name = node.target.id
    if k.ev.frame.depth or k.builder.block is not k.ev.block or k.memory.mask is not None:
        raise KernelFault("TS102", f"declare the result {name} outside of branches, loops and inner functions")
    if k.ev.frame.names.get(name, MISSING) is not MISSING:
        raise KernelFault("TS406", f"{name} already stands for something; a result has a name of its own")
    wanted, dtype = getattr(annotation, "shape", None), getattr(annotation, "dtype", None)
    if wanted is None or dtype is None:
        raise KernelFault("TS406", f'a result says its shape and dtype: {name}: Tensor["N", "D", ts.f32]')
    if ... in wanted and k.lead is None:
        raise KernelFault("TS403", f"the `...` of {name} is that of a parameter, and none has one")
    unknown = sorted(set[str]().union(*(dims.symbols(d) for d in wanted if d is not ...)) - k.ev.dims.keys())
    if unknown:
        bound = ", ".join(k.ev.dims) or "none"
        raise KernelFault("TS403", f"{name} has the dim {unknown[0]}, which no parameter binds (bound: {bound})")
    actual = tuple(k.known(n) for d in wanted for n in ((k.lead or ()) if d is ... else (d,)))
    view = allocate(k, names.symbolic_shape(k, actual, annotation), dtype, name)
    k.views[name] = view
    k.ev.assign_name(name, view, node.target)


def number(k: KernelState, argument: int) -> int:
    """The place of an argument among all: results stand last."""
    return argument if argument >= 0 else len(k.arguments) - 1 - argument


def put_last(k: KernelState) -> None:
    """Arrays from outside that were met behind a result come before it."""
    made = {v.value for v in k.allocated}
    args = k.ev.block.args
    args[:] = [*(a for a in args if a not in made), *(v.value for v in k.allocated)]
    for i, a in enumerate(args):
        a.index = i


def check_declared(k: KernelState) -> None:
    """Refuses results that are declared and not stored to, or not returned."""
    for view in k.allocated:
        if k.views.get(view.name) is not view:
            continue
        if view.argument not in k.memory.written:
            _refuse(k, view, "is declared, and nothing is stored to it")
        elif view.argument not in k.results:
            _refuse(k, view, "is stored to, and not returned")


def _refuse(k: KernelState, view: View, why: str) -> None:
    declarations = (n for n in ast.walk(k.ev.definition.tree) if isinstance(n, ast.AnnAssign) and n.value is None)
    at = next(n for n in declarations if isinstance(n.target, ast.Name) and n.target.id == view.name)
    k.ev.error("TS406", f"the result {view.name} {why}", at)


def zeroed(k: KernelState) -> tuple[int, ...]:
    """The declared results that hold 0 before the first program runs: all but those that programs surely write whole,
    and never read."""
    declared = [v for v in k.allocated if k.views.get(v.name) is v]
    whole = {s.view.argument for s in k.memory.stores if writes_all(k, s)}
    return tuple(number(k, v.argument) for v in declared if v.argument not in whole or _read(v.value))


def _read(v: Value) -> bool:
    others = (u for u in v.users if u.name not in ("tile.store", "tile.scatter"))
    return any(u.name != "tile.subview" or _read(u.result) for u in others)


def writes_all(k: KernelState, s: Stored) -> bool:
    """Whether a store's blocks, one from each program, are all of its tensor: each axis is whole, or walked from 0 to
    its end by a coordinate of the grid of its own, in steps no longer than the block."""
    w = s.window
    if w is None or w.mask is not None or s.op.block is not k.ev.block:
        return False
    known, walked = k.tiles.known, list[Coordinate]()
    for start, size, extent in zip(w.offsets, map(known, w.sizes), map(known, w.view.shape), strict=True):
        if start == 0 and size == extent:
            continue
        c = next((c for c in k.coordinates.grid if c.offset == start), None)
        if c is None or c in walked or c.start != 0:
            return False
        if known(c.extent if c.extent is not None else k.coordinates.extent(c)) != extent:
            return False
        step = known(c.step)
        if not (step == size or (isinstance(step, int) and isinstance(size, int) and step <= size)):
            return False
        walked.append(c)
    return True
