"""What rules emit, written once for operators that are alike.

The derivative rule of an operator, and its decomposition, depend on its attributes and on the types of what they are
given, not on where that comes from. A model repeats few operators many times: the first time a rule runs, then what it
has emitted is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from tessera.compiler.autodiff.cotangents import Cotangent
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.ir.core import Block, Op, Value, clone
from tessera.immutable import immutable

T = TypeVar("T")


@immutable
class _Written:
    """`given`: the values that the rule was given, each once; `ops`: what it has emitted; `found`: what it gave."""

    given: tuple[Value, ...]
    ops: tuple[Op, ...]
    found: Any


class WrittenRules:
    """The rules that have run in one walk, under facts that stay the same."""

    def __init__(self, g: GraphBuilder) -> None:
        self.g = g
        self.known: dict[Hashable, _Written] = {}

    def emitted(self, rule: str, op: Op, more: Sequence[Value | None], run: Callable[[], T]) -> tuple[T, list[Op]]:
        """What `run` gives, the `rule` of an op and `more` values, and the ops that it emits at the place of the op."""
        given: dict[Value, int] = {}
        what = [None if v is None else (given.setdefault(v, len(given)), v.type)
                for v in (*op.operands, *op.results, *more)]  # fmt: skip
        key = (rule, op.name, repr(op.attrs) if op.attrs else "", len(op.operands), len(op.results), (*what,))
        known = self.known.get(key)
        if known is None:
            return self._first(key, op, [*given], run)
        builder = self.g.builder
        mapping = dict(zip(known.given, given, strict=True))
        ops: list[Op] = []
        for inner in known.ops:
            copy = clone(inner, mapping)
            copy.span, copy.origin = op.span, builder.origin
            ops.append(builder.insert(copy))
        return _renewed(known.found, mapping), ops

    def _first(self, key: Hashable, op: Op, given: Sequence[Value], run: Callable[[], T]) -> tuple[T, list[Op]]:
        builder, block, checks = self.g.builder, Block(), len(self.g.checks)
        with builder.inside(block):
            found = run()
        ops = list(block.ops)
        for inner in ops:
            builder.insert(inner)
        plain = all(not o.regions and o.span is op.span and o.origin is builder.origin for o in ops)
        if plain and len(self.g.checks) == checks:
            self.known[key] = _Written((*given,), (*ops,), found)
        return found, ops


def _renewed(found: Any, mapping: dict[Value, Value]) -> Any:
    """What a rule gave, a list or tuple, of other values."""
    if isinstance(found, Value):
        return mapping.get(found, found)
    if isinstance(found, Cotangent):
        return Cotangent(_renewed(found.value, mapping), _renewed(found.mask, mapping))
    if found is None:
        return None
    return found.__class__(_renewed(v, mapping) for v in found)
