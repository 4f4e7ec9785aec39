"""Chooses which values the forward pass saves, so that the program fits into its memory limit.

The choices are listed in `TRADES`, from the quickest to the smallest. The list does not depend on the limit, and the
first choice that fits is taken. So a larger limit never gives a slower program, or a smaller limit a larger one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from tessera.compiler.graph.passes.rematerialize import TRADES, rematerialize
from tessera.compiler.ir.core import Op, clone
from tessera.compiler.ir.types import TensorType
from tessera.compiler.lower.schedule_to_tile import schedule_to_tile
from tessera.compiler.machines import HOST
from tessera.compiler.tile.lifetimes import held, peak
from tessera.compiler.tile.program import Program
from tessera.compiler.unit import Param
from tessera.errors import CompileError, Diagnostic, Span
from tessera.language.dims import symbols

MODEL = HOST
"""the target whose kernels are counted: every target gets the same graph, and the same bits"""


def fit(func: Op, schedule: Callable[[Op, str], Op]) -> None:
    """Chooses the values to keep, in place; `schedule(func, target)` gives the kernels of a choice.

    Raises CompileError TS358 where no choice fits into `memory` of `func`, or none can be made because sizes are not
    known.
    """
    most = func.attrs.get("memory")
    if not isinstance(most, int):
        rematerialize(func)
        return
    span = Span(*cast("tuple[Any, ...]", func.attrs["memory_at"]))
    if free := _free(func):
        message = (
            f"whether this fits into {shown(most)} depends on the sizes of {', '.join(free)}: call it, or give sizes"
        )
        raise CompileError(Diagnostic("TS358", message, span))
    seen: set[tuple[int, ...]] = set()
    least, smallest = 0, None
    for trade in TRADES:
        trial = clone(func, {})
        choice = rematerialize(trial, trade)
        if choice in seen:
            continue
        seen.add(choice)
        program = _program(trial, schedule(trial, MODEL))
        taken = peak(program)
        if taken <= most:
            rematerialize(func, trade)
            return
        if smallest is None or taken < least:
            least, smallest = taken, program
    assert smallest is not None
    given = sum(held(smallest).values())
    message = (
        f"{func.attrs['sym_name']} does not fit into {shown(most)}: it holds {shown(least)} at least, of which"
        f" {shown(given)} are its arguments and results"
    )
    raise CompileError(Diagnostic("TS358", message, span))


def _free(func: Op) -> list[str]:
    values = [
        v for op in func.walk() for r in op.regions for b in r.blocks for o in b.ops for v in (*b.args, *o.results)
    ]
    return sorted({s for v in values if isinstance(v.type, TensorType) for d in v.type.shape for s in symbols(d)})


def _program(func: Op, schedule: Op) -> Program:
    names = cast("tuple[str, ...]", func.attrs["arg_names"])
    types = [cast("TensorType", v.type) for v in func.region.block.args]
    params = [Param(name, t.shape, t.dtype) for name, t in zip(names, types, strict=True)]
    return schedule_to_tile(schedule, params, (), MODEL, None)


def shown(size: int) -> str:
    """`1.50 GiB`: bytes for people, rounded so that nothing fits by rounding."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"
