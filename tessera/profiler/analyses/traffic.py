"""Bytes by array: what the programs of a launch read of each operand together, against each element read once.

An operand that programs share is read again by each of them, from a cache or from memory. The sum over programs is
modelled: it follows from the parts that programs read (`tile/reads.py`), which enclose what a loop reads. No hardware
counter tells the bytes of one array, so that these are not measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.language.lazy import np
from tessera.profiler.kernel_stats import KernelStats, kernel_stats
from tessera.profiler.quantity import Quantity, format_bytes
from tessera.profiler.recording import Recording
from tessera.profiler.views.markup import hinted, origin, table, table_alone, text
from tessera.profiler.views.parts import Tree, trees, values
from tessera.runtime.events import LaunchEvent

SHOWN = 8
"""rows in the text, those with most bytes read again first"""
IN_SIGHT = 24
"""rows of the table before the others are folded, those that are read once among them"""
ONCE = 1.05
WORTH = 2.0
"""times that an array is read, from which on a text says so"""
_PROGRAMS = 1 << 18
"""of which the sum is computed: their number along the axes that an operand depends on"""
_NO_COUNTER = "no hardware counter tells the bytes of one array"


@dataclass(frozen=True, slots=True)
class ArrayTraffic:
    """What the launches of a kernel read of one operand, in bytes."""

    kernel: str
    """as its reader knows it"""
    operand: str
    launches: int
    ideal: Quantity
    """each element that is read, once a launch"""
    modelled: Quantity
    """what the programs read, summed; None where an index is computed from data"""
    measured: Quantity
    file: str = ""
    line: int = 0

    @property
    def times(self) -> float | None:
        """How often an element is read on average; None where that is not known."""
        return self.modelled.value / self.ideal.value if self.modelled.value is not None and self.ideal.value else None

    @property
    def again(self) -> float:
        """Bytes that are read again."""
        return max(0.0, (self.modelled.value or 0.0) - (self.ideal.value or 0.0))

    def __str__(self) -> str:
        if self.modelled.value is None or self.ideal.value is None:
            return f"{self.kernel}: {self.operand} is not known ({self.modelled.reason or self.ideal.reason})"
        read = f"{format_bytes(self.modelled.value)} read, {format_bytes(self.ideal.value)} ideal"
        return f"{self.kernel}: {self.operand} {read}: {_times(self.times)}"


class Traffic:
    """`arrays`: one entry for each operand of each kernel, those with most bytes read again first."""

    def __init__(self, recording: Recording) -> None:
        self.arrays: list[ArrayTraffic] = []
        for kernel in kernel_stats(recording):
            self.arrays += arrays_of(kernel)
        self.arrays.sort(key=lambda entry: -entry.again)

    def __str__(self) -> str:
        lines = ["Bytes read by array (modelled):", *(f"  {entry}" for entry in self.arrays[:SHOWN])]
        if not self.arrays:
            lines.append("  nothing is known: tiles were not recorded")
        if len(self.arrays) > SHOWN:
            lines.append(f"  and {len(self.arrays) - SHOWN} more: all are in `traffic().arrays`")
        return "\n".join(lines)

    __repr__ = __str__

    def table(self) -> str:
        """As markup, without a look of its own; "" where nothing is known."""
        again = [e for e in self.arrays if e.times is None or e.times >= ONCE][:IN_SIGHT]
        first = again if len(self.arrays) > IN_SIGHT else self.arrays
        rest = self.arrays[len(first) :]
        if not rest:
            return _table(first) if first else ""
        folded = (
            f"<summary>{len(rest):,} more, {sum((e.times or 0) < ONCE for e in rest):,} of them read once</summary>"
        )
        return f'{_table(first)}<details class="ts-plain">{folded}{_table(rest)}</details>'

    def _repr_html_(self) -> str:
        return table_alone("ts-traffic", self.table() or f"<p>{text(self)}</p>")


def _table(arrays: Sequence[ArrayTraffic]) -> str:
    rows = [
        (
            text(entry.kernel),
            text(entry.operand),
            _cell(entry.ideal),
            _cell(entry.modelled),
            _times(entry.times).replace(" times", "&nbsp;×"),
            f"{entry.launches:,}",
        )
        for entry in arrays
    ]
    heads = ("array", "each element once", "read by tiles", "times", "launches")
    marked = ("array", f"each element once {origin('static')}", f"read by tiles {origin('modelled')}", *heads[3:])
    return table(("kernel", *marked), rows, heads) if arrays else ""


def _cell(found: Quantity) -> str:
    return hinted("-", found.reason) if found.value is None else format_bytes(found.value)


def _times(times: float | None) -> str:
    return "-" if times is None else "once" if times < ONCE else f"{times:,.1f} times"


def arrays_of(kernel: KernelStats) -> list[ArrayTraffic]:
    """One entry for each of its operands."""
    found: dict[str, list[tuple[Quantity, Quantity]]] = {}
    known: dict[object, list[tuple[str, Quantity, Quantity]]] = {}
    for launch in kernel.launches:
        about = (launch.grid, *launch.attributes.get("sizes", {}).items())
        if about not in known:
            known[about] = _of_launch(launch)
        for operand, ideal, modelled in known[about]:
            found.setdefault(operand, []).append((ideal, modelled))
    measured = Quantity(None, "B", reason=_NO_COUNTER)
    return [
        ArrayTraffic(
            kernel.title, operand, len(each), _total([i for i, _ in each]), _total([m for _, m in each]), measured,
            kernel.file, kernel.line,
        )
        for operand, each in found.items()
    ]  # fmt: skip


def _total(each: Sequence[Quantity]) -> Quantity:
    missing = next((q for q in each if q.value is None), None)
    return missing if missing is not None else Quantity(sum(q.value or 0.0 for q in each), "B", each[0].source)


def _of_launch(launch: LaunchEvent) -> list[tuple[str, Quantity, Quantity]]:
    sizes = [int(entry[2]) if len(entry) > 2 else 0 for entry in launch.attributes.get("parts", ())]
    out: list[tuple[str, Quantity, Quantity]] = []
    for (operand, axes), size in zip(trees(launch), sizes, strict=True):
        if not size:
            continue  # from a profile of an older version
        if None in axes:
            why = Quantity(None, "B", reason="an index is computed from data")
            out.append((operand, why, why))
            continue
        out.append((operand, *_summed(launch.grid, [axis for axis in axes if axis is not None], size)))
    return out


def _summed(grid: Sequence[int], axes: Sequence[Sequence[Tree]], size: int) -> tuple[Quantity, Quantity]:
    """Bytes of the box that encloses what all programs read, and the sum of what each reads."""
    used = sorted({a for axis in axes for tree in axis for a in _programs(tree)})
    count = math.prod(grid[a] for a in used)
    if count > _PROGRAMS:
        why = Quantity(None, "B", reason=f"there are {count:,} different programs")
        return why, why
    places = np.indices([grid[a] for a in used]).reshape(len(used), -1) if used else np.zeros((0, 1), np.int64)
    place = dict(zip(used, places, strict=True))
    whole, each = float(size), np.full(count, float(size))
    for axis in axes:
        low, high, extent = (np.broadcast_to(values(tree, place), count) for tree in axis)
        low, high = np.maximum(low, 0), np.minimum(high, extent)
        each = each * np.maximum(high - low, 0)
        read = high > low
        whole *= float(high[read].max() - low[read].min()) if read.any() else 0.0
    others = math.prod(n for a, n in enumerate(grid) if a not in used)
    return Quantity(whole, "B", "static"), Quantity(float(each.sum()) * others, "B", "modelled")


def _programs(tree: Tree) -> set[int]:
    if isinstance(tree, int):
        return set()
    if tree[0] == "p":
        return {int(tree[1])}
    parts = [atom for _, *atoms in tree[1:] for atom in atoms] if tree[0] == "+" else tree[1:]
    return {a for part in parts for a in _programs(part)}
