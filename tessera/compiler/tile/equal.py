"""Compares the code of two kernels, without users' names and source lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tessera.compiler.ir.core import Block, Op, Value

_NAMES = frozenset({"sym_name", "arg_names"})
_TELLS = frozenset({"tile.assert", "tile.print"})
"""ops that report their place in the source at run time"""


def shape_of_code(kernel: Op) -> tuple[Any, ...]:
    """Equal for kernels that are the same code; hashable."""
    return tuple(_of(kernel, {}))


def _of(op: Op, numbers: dict[Value, int]) -> Iterator[Any]:
    yield op.name
    yield tuple(numbers[v] for v in op.operands)
    yield tuple(r.type for r in op.results)
    yield repr(sorted((name, value) for name, value in op.attrs.items() if name not in _NAMES))
    if op.name in _TELLS:
        yield op.span
    for region in op.regions:
        for block in region.blocks:
            yield from _block(block, numbers)
    for r in op.results:
        numbers[r] = len(numbers)


def _block(block: Block, numbers: dict[Value, int]) -> Iterator[Any]:
    yield tuple(a.type for a in block.args)
    for a in block.args:
        numbers[a] = len(numbers)
    for op in block.ops:
        yield from _of(op, numbers)
    yield "end"
