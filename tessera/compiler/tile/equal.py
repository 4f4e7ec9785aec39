"""Compares kernels: their code alone, or all but what a copy has of its own."""

from __future__ import annotations

from typing import Any

from tessera.compiler.ir.core import Op, Value

_NAMES = frozenset({"sym_name", "arg_names"})
_TELLS = frozenset({"tile.assert", "tile.print"})
"""ops that report their place in the source at run time"""


def shape_of_code(kernel: Op) -> tuple[Any, ...]:
    """Equal for kernels that are the same code; hashable."""
    out: list[Any] = []
    _add(kernel, {}, out)
    return tuple(out)


def all_but_names(kernel: Op) -> tuple[Any, ...]:
    """Equal for kernels that differ in their own name and those of their arguments alone; hashable."""
    out: list[Any] = [kernel.span]
    _add(kernel, {}, out)
    for op in (inner for outer in kernel.region.block.ops for inner in outer.walk()):
        out += op.span, tuple([r.hint for r in op.results])
        out += [a.hint for region in op.regions for block in region.blocks for a in block.args]
    return tuple(out)


def _add(op: Op, numbers: dict[Value, int], out: list[Any]) -> None:
    attrs = repr(sorted([a for a in op.attrs.items() if a[0] not in _NAMES])) if op.attrs else ""
    out += op.name, tuple([numbers[v] for v in op.operands]), tuple([r.type for r in op.results]), attrs
    if op.name in _TELLS:
        out.append(op.span)
    for region in op.regions:
        for block in region.blocks:
            out.append(tuple([a.type for a in block.args]))
            for a in block.args:
                numbers[a] = len(numbers)
            for inner in block.ops:
                _add(inner, numbers, out)
            out.append("end")
    for r in op.results:
        numbers[r] = len(numbers)
