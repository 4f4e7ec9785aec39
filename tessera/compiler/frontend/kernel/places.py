"""Finds the axis of each index in a subscript. The rule is on one screen of docs/kernels.md.

Nothing but the text of the kernel decides: no size, and nothing that was indexed before.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tessera.compiler.frontend.kernel.coordinates import Coordinates
from tessera.compiler.frontend.kernel.tiles import KernelFault
from tessera.compiler.frontend.kernel.values import EachIndex, Lanes, View, marks, size_text, sizes_text
from tessera.compiler.frontend.names.values import is_slice
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape
from tessera.immutable import immutable
from tessera.language.dims import Dim, Expr, symbols


@immutable
class IndexedAxis:
    """One index of a subscript, as people are told of it: which axis it stands at, and what moves it."""

    axis: int
    tensor: str
    shape: Shape
    coordinates: tuple[str, ...]
    """the coordinates that move it; none where it is fixed"""
    before: tuple[Dim, ...] = ()
    """leading dims that no index mentions: one program each"""
    complete: bool = True
    """whether as many indices are written as there are axes"""

    @property
    def label(self) -> str:
        """`S by q_block`; `S` where nothing moves it."""
        dim = size_text(self.shape[self.axis])
        return f"{dim} by {', '.join(self.coordinates)}" if self.coordinates else dim

    def pretty(self) -> str:
        text = f"axis {self.axis} of {self.tensor} {sizes_text(self.shape)}: {self.label}"
        each = ", ".join(map(size_text, self.before))
        return f"{text}; one program for each of {each}" if each else text


def first_axis(coordinates: Coordinates, view: View, items: Sequence[Any]) -> int:
    """The axis of the first index; the others follow it in order. Raises KernelFault TS419 where that is not said."""
    spare = len(view.shape) - len(items)
    if not spare or len(items) == len(view.shape) - view.leading:
        return spare
    named = [_named(coordinates, view, item) for item in items]
    for i, axes in enumerate(named):
        if not axes:
            continue
        dims = {view.shape[a] for a in axes}
        start = axes[0] - i
        if len(dims) > 1:
            both = " and ".join(size_text(view.shape[a]) for a in axes)
            raise _ambiguous(view, items, f"index {i} moves with {both}, which are both axes")
        if not 0 <= start <= spare:
            raise _ambiguous(
                view,
                items,
                f"index {i} walks {size_text(view.shape[axes[0]])}, which leaves too few axes for the other indices",
            )
        for j, others in enumerate(named):
            if others and start + j not in others:
                here, there = size_text(view.shape[start + j]), size_text(view.shape[others[0]])
                raise _ambiguous(
                    view, items, f"index {j} would stand at {here}, behind its neighbour, but walks {there}"
                )
        return start
    if any(isinstance(i, Lanes) and i.launch is not None for i in items):
        return spare
    raise _ambiguous(view, items, "no index says which axis it means")


def _named(coordinates: Coordinates, view: View, item: Any) -> list[int]:
    """The axes whose dims the coordinates in an index walk, or that stand in the end of a slice with a fixed start."""
    start: Any = item.base if isinstance(item, Lanes) else item.start if is_slice(item) else item
    if isinstance(start, Expr) and marks(start):
        walked = coordinates.walked(start)
    elif is_slice(item) and isinstance(item.stop, Expr):
        walked = symbols(item.stop)
    else:
        return []
    return [a for a, d in enumerate(view.shape) if (own := symbols(d)) and own <= walked]


def _ambiguous(view: View, items: Sequence[Any], why: str) -> KernelFault:
    """Every reading, written out."""
    spare, count = len(view.shape) - len(items), len(items)
    names = [size_text(d) for d in view.shape]
    readings: list[str] = []
    ways: list[tuple[str, str, str]] = []
    for start in range(spare + 1):
        stands = ", ".join(names[start : start + count])
        before, behind = "ts.tile.each(), " * start, ", :" * (spare - start)
        parts = [f"a program for each of {', '.join(names[:start])}"] if start else []
        parts += [f"all of {', '.join(names[start + count :])}"] if start < spare else []
        own = ", ".join("ijkl"[:count])
        readings.append(f"  {view.name}[{before}{own}{behind}] means {stands}, with {' and '.join(parts)}")
        ways.append((f"Let it mean {stands}", before, behind))
    message = (
        f"{count} {'index' if count == 1 else 'indices'} for the {len(names)} axes [{', '.join(names)}] of "
        f"{view.name}: {why}. Say which is meant:\n" + "\n".join(readings)
    )
    return KernelFault("TS419", message, indices=ways)


def zip_indices(written: Sequence[ast.expr], found: Sequence[IndexedAxis]) -> list[tuple[ast.expr, IndexedAxis]]:
    """The indices of a subscript as they are written, but a `...`, each with where it stands."""
    dots = [n for n, part in enumerate(written) if isinstance(part, ast.Constant) and part.value is ...]
    if not dots or any(isinstance(part, ast.Starred) for part in written):  # one name may be a tuple of several
        return list(zip(written, found, strict=True)) if len(written) == len(found) else []
    behind = written[dots[0] + 1 :]
    ends = [*found[: dots[0]], *found[len(found) - len(behind) :]]
    return list(zip([*written[: dots[0]], *behind], ends, strict=True))


def described(
    coordinates: Coordinates, view: View, items: Sequence[Any], first: int, complete: bool
) -> list[IndexedAxis]:
    """For each index, in order, where it stands. `complete`: as many are written as there are axes."""
    before = view.shape[:first]
    return [
        IndexedAxis(first + i, view.name, view.shape, _moving(coordinates, item), before, complete)
        for i, item in enumerate(items)
    ]


def _moving(coordinates: Coordinates, item: Any) -> tuple[str, ...]:
    if isinstance(item, EachIndex):
        return ("one program each",)
    if isinstance(item, Value):
        return ("computed",)
    start: Any = item.base if isinstance(item, Lanes) else item.start if is_slice(item) else item
    if not isinstance(start, Expr):
        return ()
    return tuple(dict.fromkeys(coordinates.name_of(m) or "computed" for m in sorted(marks(start))))
