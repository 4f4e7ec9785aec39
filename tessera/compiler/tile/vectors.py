"""Which accesses of a kernel move whole vectors of 16 bytes, why others do not, and which assert on sizes would help.

GPU targets write their accesses by what is found here, and say in their notes what is missing; the front end says it
while a kernel is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.tile.offsets import Bounds, strides_of
from tessera.compiler.tile.ranges import Interval
from tessera.immutable import immutable
from tessera.language.dims import Dim, symbol, symbols

BYTES = 16
ACCESSES = {"tile.load": (0, 1), "tile.copy_async": (1, 2), "tile.store": (0, 2)}
"""which operand is the view, and where its offsets start"""


@immutable
class Narrow:
    """An access that may not move whole vectors; a vector has `elements` elements. Where all of `sizes` are multiples
    of this number, it does; `sizes` is empty where no multiple helps."""

    view: Value
    elements: int
    why: str
    sizes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.view.hint or 'the array'} is not moved {self.elements} elements at a time: {self.why}"


def narrow(op: Op, bounds: Bounds) -> Narrow | None:
    """None for an access of whole vectors, an access of single elements, and an op that is not an access."""
    if op.name not in ACCESSES:
        return None
    at, first = ACCESSES[op.name]
    view = op.operands[at]
    t = view.type
    if not isinstance(t, ViewType) or not t.rank or _one_element(op):
        return None
    vector, places = max(1, BYTES // t.dtype.itemsize), op.operands[first : first + t.rank]
    offsets = [bounds.of(o) for o in places]
    if vector == 1 or bounds.vectors(view, offsets, vector):
        return None

    def works(b: Bounds) -> bool:
        return b.vectors(view, [b.of(o) for o in places], vector)

    return Narrow(view, vector, _why(bounds, view, offsets[-1], vector), multiples(bounds, [view], vector, works))


def narrow_operands(op: Op, bounds: Bounds) -> Narrow | None:
    """The same for a product, whose blocks the target chooses: the lines of its operands are checked."""
    if op.name != "tile.contract":
        return None
    views = op.operands[:2]

    def fits(b: Bounds, view: Value) -> bool:
        t = view.type
        assert isinstance(t, ViewType)
        vector = max(1, BYTES // t.dtype.itemsize)
        return b.start(view) % vector == 0 and all(b.divisor(s) % vector == 0 for s in strides_of(view) if s != 1)

    short = [v for v in views if not fits(bounds, v)]
    if not short:
        return None
    t = short[0].type
    assert isinstance(t, ViewType)
    vector = BYTES // t.dtype.itemsize
    sizes = multiples(bounds, views, vector, lambda b: all(fits(b, v) for v in views))
    return Narrow(short[0], vector, "its lines may start between 16-byte boundaries", sizes)


def _one_element(op: Op) -> bool:
    tile = op.result if op.results else op.operands[0 if op.name == "tile.copy_async" else 1]
    assert isinstance(tile.type, (TileType, SharedType))
    shape = tile.type.shape
    return not shape or shape[-1] == 1


def _why(bounds: Bounds, view: Value, last: Interval, vector: int) -> str:
    steps: Sequence[Dim] = strides_of(view)
    if steps[-1] != 1:
        return "neighbours along its last axis are not neighbours in memory"
    for step in steps[:-1]:
        if bounds.divisor(step) % vector:
            known = "is not" if isinstance(step, int) else "is not known to be"
            return f"its rows start every {step} elements, and that {known} a multiple of {vector}"
    if last.multiple % vector:
        return f"the offset along its last axis is not known to be a multiple of {vector}"
    return "its memory may start between 16-byte boundaries"


def multiples(bounds: Bounds, views: Iterable[Value], by: int, works: Callable[[Bounds], bool]) -> tuple[str, ...]:
    """The sizes that have to be multiples of `by`, for the steps of these views, so that something `works`; empty where
    that does not suffice."""
    facts = bounds.facts.copy()
    found: list[str] = []
    for step in (s for view in views for s in strides_of(view) if s != 1):
        trial = Bounds(bounds.kernel, facts, aligned=bounds.aligned)
        if trial.divisor(step) % by and (name := _enough(trial, step, by)):
            facts.assume_divisible(symbol(name), by)
            found.append(name)
    return tuple(found) if found and works(Bounds(bounds.kernel, facts, aligned=bounds.aligned)) else ()


def _enough(bounds: Bounds, step: Dim, by: int) -> str:
    """The symbol whose divisibility makes the step divisible."""
    for name in sorted(symbols(step), reverse=True):
        facts = bounds.facts.copy()
        facts.assume_divisible(symbol(name), by)
        if Bounds(bounds.kernel, facts, aligned=bounds.aligned).divisor(step) % by == 0:
            return name
    return ""


def assertion(sizes: Mapping[str, int]) -> str:
    """`assert M % 8 == 0 and N % 4 == 0`"""
    return f"assert {' and '.join(f'{name} % {by} == 0' for name, by in sizes.items())}"
