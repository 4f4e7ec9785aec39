"""What need not be compiled or cannot be run: too much for the machine, or not with random data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tessera.compiler.frontend.analysis import analyse
from tessera.compiler.ir.core import Op
from tessera.compiler.targets.base import Target
from tessera.compiler.tile.program import Program
from tessera.language.dims import prod
from tessera.runtime.arguments import Bound


class Pruned(Exception):
    """A configuration that is left out, and why."""


def screen_for(target: Target) -> Callable[[Program], None] | None:
    """What looks at a lowered program before its code is generated; raises Pruned. Shared memory, registers
    and threads of CUDA are refused by the code generator itself (TS405, TS411, TS602)."""
    caches = getattr(getattr(target, "isa", None), "cached_bytes", None)
    return None if caches is None else lambda program: _fits_caches(program, caches)


def _fits_caches(program: Program, caches: int) -> None:
    """One program's tiles are read over and over: beyond the caches every use goes to memory."""
    for kernel in dict.fromkeys(launch.kernel for launch in program.launches):
        shared, largest = _tiles(kernel)
        if shared + largest > caches:
            raise Pruned(f"its tiles take {(shared + largest) / 2**20:.1f} MiB, the caches hold {caches / 2**20:.1f}")


def _tiles(kernel: Any) -> tuple[int, int]:
    """Bytes of the shared tiles together, and of the largest other tile."""
    shared = largest = 0
    for op in kernel.walk():
        sizes = [_bytes(value.type) for value in op.results]
        if op.name == "tile.alloc_shared":
            shared += sum(sizes)
        else:
            largest = max([largest, *sizes])
    return shared, largest


def _bytes(kind: Any) -> int:
    """0 for what is no tile, and for one whose size is only known at launch."""
    dtype, shape = getattr(kind, "dtype", None), getattr(kind, "shape", None)
    if dtype is None or shape is None or type(kind).__name__ == "ViewType":
        return 0
    count = prod(shape)
    return math.ceil(count * dtype.itemsize) if isinstance(count, int) else 0


def unlaunchable(resources: Mapping[str, Any]) -> str | None:
    """Why code that was compiled cannot be launched, from the compiler's own figures."""
    for kernel, figures in resources.items():
        if isinstance(figures, dict) and figures.get("blocks_per_sm") == 0:  # type: ignore[union-attr]
            return f"{kernel} needs more {figures.get('occupancy_limiter', 'resources')} than a multiprocessor has"  # type: ignore[union-attr]
    return None


def takes_any_data(fn: Any, bound: Bound) -> bool:
    """Whether a program may be run on random numbers: no loop goes on until its data are such and such, and no integer,
    which may be a position in memory or a number of turns, is made from them."""
    op = analyse(fn.definition(), bound.arguments).op
    return op is not None and not any(map(_depends_on_data, op.walk()))


def _depends_on_data(op: Op) -> bool:
    if op.name in ("tile.while", "graph.while"):
        return True
    taken, given = (
        [d for v in values if (d := getattr(v.type, "dtype", None))] for values in (op.operands, op.results)
    )
    return not op.regions and any(d.is_float for d in taken) and any(d.is_integer for d in given)
