"""How many parameters an object has, a model or a layer, and how large they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tessera.compiler.frontend.function.trees import children
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.lower.memory_limit import shown
from tessera.editor.members import described
from tessera.language import dims

SAMPLE = 16
"""members that a table names"""


def table(held: Any) -> str:
    """Markdown: the sum, the bytes, and the part of each member. "" for what has no parameters."""
    types = [*_parameters(held)]
    if not types:
        return ""
    size = sum((dims.prod(t.shape) * t.dtype.itemsize for t in types), 0)
    parts = [(name, v, [*_parameters(v)]) for name, v, state in children(held) if not state]
    rows = [(name, described(v), _count(own)) for name, v, own in parts if own]
    out = f"{_count(types)} parameters{f', {shown(size)}' if isinstance(size, int) else ''}\n\n"
    if len(rows) > 1:
        left = len(rows) - SAMPLE
        out += "| | | parameters |\n|---|---|---:|\n"
        out += "".join(f"| `{name}` | {kind} | {number} |\n" for name, kind, number in rows[:SAMPLE])
        out += f"| and {left} more | | |\n" * (left > 0) + "\n"
    return out


def _parameters(held: Any) -> Iterator[TensorType]:
    """The types of arrays of floats that no one has declared to be a buffer."""
    type = held.type if isinstance(held, Value) else held
    if isinstance(type, TensorType) and type.dtype.is_float:
        yield type
    for _, value, state in children(held):
        yield from _parameters(value) if not state else ()


def _count(types: Iterable[TensorType]) -> str:
    found = sum((dims.prod(t.shape) for t in types), 0)
    return f"{found:,}" if isinstance(found, int) else str(found)
