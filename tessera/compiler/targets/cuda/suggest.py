"""Which assert on sizes would allow what is not proved: tried on the kernel before it is suggested."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cuda.bounds import Bounds, strides_of
from tessera.compiler.targets.cuda.emit import KernelEmitter
from tessera.compiler.targets.cuda.warpgroups import Products, plan_contraction
from tessera.language.dims import Dim, symbol, symbols


def for_vectors(e: KernelEmitter, view: Value, offsets: Iterable[Value], vector: int) -> str:
    """The assert that makes an access one of whole vectors; empty where there is none."""
    places = list(offsets)
    return _assert(e, [view], vector, lambda b: b.vectors(view, [b.of(o) for o in places], vector))


def for_tensor_copies(e: KernelEmitter, product: Op) -> str:
    """The assert that lets tensor copies fetch the operands of a product; empty where there is none."""
    supported, views = e.settings.warpgroup_dtypes, product.operands[:2]
    left = views[0].type
    assert isinstance(left, ViewType)
    vector = 16 // left.dtype.itemsize

    def fetched(b: Bounds) -> bool:
        return isinstance(plan_contraction(e.kernel, b, supported, None)[product], Products)

    return _assert(e, views, vector, fetched)


def _assert(e: KernelEmitter, views: Iterable[Value], by: int, works: Callable[[Bounds], bool]) -> str:
    """`assert N % 8 == 0` and the like, for the steps of these views that are not known to be multiples."""
    facts = e.bounds.facts.copy()
    said: list[str] = []
    for step in (s for view in views for s in strides_of(view) if s != 1):
        trial = Bounds(e.kernel, e.bounds.aligned, facts)
        if trial.divisor(step) % by and (name := _enough(trial, step, by)):
            facts.assume_divisible(symbol(name), by)
            said.append(f"{name} % {by} == 0")
    return f"assert {' and '.join(said)}" if said and works(Bounds(e.kernel, e.bounds.aligned, facts)) else ""


def _enough(bounds: Bounds, step: Dim, by: int) -> str:
    """The symbol whose divisibility is the step's."""
    for name in sorted(symbols(step), reverse=True):
        facts = bounds.facts.copy()
        facts.assume_divisible(symbol(name), by)
        if Bounds(bounds.kernel, bounds.aligned, facts).divisor(step) % by == 0:
            return name
    return ""
