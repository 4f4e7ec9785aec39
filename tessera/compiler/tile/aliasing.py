"""Which parameters of a Program may share memory, and how: what a launch checks before it runs.

A kernel's programs run in any order, and a target may take a tile in pieces. Memory that is stored to through one
parameter and read through another is therefore well defined in one case alone: both are the same array, and every
program reads exactly the tile that it stores, before it stores it once, element by element or with reductions whose
results go back along the axes that they came from. `softmax(x, x)` is in place then; `matmul(a, b, a)` is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.tile.program import BufferArg, Launch, Program, exchanges
from tessera.immutable import immutable
from tessera.language.scalars import TABLE

_ELEMENTWISE = frozenset(f"tile.{name}" for name in TABLE) | {"tile.cast"}


@immutable
class Aliasing:
    """`stored`: the parameters that a program stores to, each of which lies apart from all other arrays. `in_place`:
    one of them and another parameter, which may be one and the same array."""

    stored: tuple[int, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()


def aliasing(program: Program) -> Aliasing:
    param = {b.id: b.param for b in program.buffers if b.role == "input" and b.param is not None}
    written = {p for launch in program.launches for p, stored in _arguments(launch, param) if stored}
    written |= {param[b] for exchange in exchanges(program) for b in exchange.bound if b in param}
    states = {param[i] for i in program.states if i in param}  # nothing else of a call may be one, however it is used
    read = sorted(set(param.values()) - written) if len(program.steps) == 1 else []
    same = [(w, o) for w in sorted(written - states) for o in read if _in_place(program, param, w, o)]
    return Aliasing(tuple(sorted(written)), tuple(same))


def _arguments(launch: Launch, param: Mapping[int, int]) -> list[tuple[int, bool]]:
    """(parameter, whether it is stored to) of a launch's windows onto parameters."""
    writes = cast("Sequence[int]", launch.kernel.attrs.get("writes", ()))
    windows = [(i, a.buffer) for i, a in enumerate(launch.args) if isinstance(a, BufferArg)]
    return [(param[buffer], i in writes) for i, buffer in windows if buffer in param]


def _in_place(program: Program, param: Mapping[int, int], written: int, other: int) -> bool:
    launch = program.steps[0]
    if not isinstance(launch, Launch):
        return False
    windows = [
        (i, a)
        for i, a in enumerate(launch.args)
        if isinstance(a, BufferArg) and param.get(a.buffer) in (written, other)
    ]
    views = {param[a.buffer]: launch.kernel.region.block.args[i] for i, a in windows if a.offset == 0}
    if len(windows) != 2 or len(views) != 2:  # one of them is seen through several windows, or not from its start
        return False
    loads, stores = _accesses(views[other], "tile.load"), _accesses(views[written], "tile.store", "tile.load")
    if not loads or stores is None:
        return False
    stored = [a for a in stores if a.op.name == "tile.store"]
    if len(stored) != 1:  # in a long tile, what is stored last may be computed from what is loaded once more
        return False
    order = {op: i for i, op in enumerate(launch.kernel.region.block.ops)}
    if any(a.op not in order for a in (*loads, *stored)):  # in a loop or a branch
        return False
    if max(order[a.op] for a in loads) > order[stored[0].op]:
        return False
    first = loads[0]
    same = all((a.keys, a.shape) == (first.keys, first.shape) for a in (*loads, *stored))
    return same and _are_disjoint(launch.kernel, first) and _keeps_places(launch.kernel, loads, stored)


@immutable
class _Access:
    """`keys` say where the tile begins along each axis of the whole view, `shape` how long it is there."""

    op: Op
    keys: tuple[Any, ...]
    shape: tuple[Any, ...]


def _accesses(view: Value, *names: str) -> list[_Access] | None:
    """All accesses to a view; None where one is not of these kinds."""
    out: list[_Access] = []
    rank = len(cast("Any", view.type).shape)
    whole: list[Any] = [None] * rank
    pending: list[tuple[Value, list[int], list[Any]]] = [(view, list(range(rank)), whole)]
    while pending:
        seen, axes, keys = pending.pop()
        for op in seen.users:
            offsets = op.operands[1:] if op.name != "tile.store" else op.operands[2:]
            if op.name == "tile.subview":
                drop = cast("Sequence[int]", op.attrs.get("drop", ()))
                inner = list(keys)
                for i, (axis, offset) in enumerate(zip(axes, offsets, strict=True)):
                    key = _key(offset)
                    if i in drop:
                        inner[axis] = key
                    elif key != ("dim", 0):
                        return None
                pending.append((op.result, [a for i, a in enumerate(axes) if i not in drop], inner))
                continue
            tile = cast("Any", (op.operands[1] if op.name == "tile.store" else op.result if op.results else view).type)
            if op.name not in names or op.operands[0] is not seen or len(tile.shape) != len(axes):
                return None
            begin, sizes = list(keys), cast("list[Any]", [1] * rank)
            for axis, offset, size in zip(axes, offsets, tile.shape, strict=False):  # a mask follows the offsets
                begin[axis], sizes[axis] = _key(offset), size
            out.append(_Access(op, tuple(begin), tuple(sizes)))
    return out


def _key(v: Value) -> Any:
    """Equal for indices that are certainly equal: multiples of a program's coordinate, sizes, else the values."""
    op = v.op
    if op is None:
        return v
    if op.name == "tile.dim":
        return "dim", op.attrs["dim"]
    if op.name == "tile.program_id":
        return "program", op.attrs["axis"], 1
    if op.name == "tile.imul":
        a, b = map(_key, op.operands)
        if isinstance(a, tuple) and isinstance(b, tuple) and (a[0], b[0]) == ("program", "dim") and a[2] == 1:
            return "program", a[1], b[1]
    return v


def _are_disjoint(kernel: Op, access: _Access) -> bool:
    """Whether no two programs touch one element."""
    grid = cast("Sequence[Any]", kernel.attrs.get("grid", ()))
    steps: dict[int, tuple[Any, Any]] = {}
    for key, size in zip(access.keys, access.shape, strict=True):
        if isinstance(key, tuple) and key[0] == "program":
            steps[cast("int", key[1])] = key[2], size
    for axis, count in enumerate(grid):
        step, size = steps.get(axis, (0, 1))
        if count != 1 and not (isinstance(step, int) and isinstance(size, int) and step >= size):
            return False
    return True


def _keeps_places(kernel: Op, loads: Sequence[_Access], stores: Sequence[_Access]) -> bool:
    """Whether values that are computed from the loaded tiles keep their places until they are stored."""
    places: dict[Value, tuple[int, ...]] = {a.op.result: tuple(range(len(_shape(a.op.result)))) for a in loads}
    rank = max(map(len, places.values()))
    final = {a.op for a in stores}
    for op in kernel.region.block.ops:
        given = [places[v] for v in op.operands if v in places]
        if not given or op in final:
            if any(place != tuple(range(rank)) for place in given):
                return False
            continue
        if op.name == "tile.reduce":
            axes = cast("Sequence[int]", op.attrs["axes"])
            places[op.result] = tuple(p for i, p in enumerate(given[0]) if i not in axes)
        elif op.name == "tile.broadcast" and tuple(cast("Sequence[int]", op.attrs["axes"])) == given[0]:
            places[op.result] = tuple(range(len(_shape(op.result))))
        elif op.name in _ELEMENTWISE and len(set(given)) == 1:
            places[op.result] = given[0]
        else:
            return False
    return not any(v in places for op in kernel.walk() if op.block is not kernel.region.block for v in op.operands)


def _shape(v: Value) -> tuple[Any, ...]:
    return cast("Any", v.type).shape
