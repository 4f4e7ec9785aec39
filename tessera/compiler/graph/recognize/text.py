"""A function's ops as primitive operators, so that one spelling is looked for where people have many.

Ops are expanded one by one, where they are asked for, in blocks of their own: the function stays as it is.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.operator import BY_OP, attributes_of, split_operands, tensor
from tessera.compiler.ir.core import Block, Builder, Op, Value, clone
from tessera.compiler.ir.spec import SPECS
from tessera.language.dims import Facts


class Unlike(Exception):
    """The text is not what it was compared with."""


def demand(condition: bool) -> None:
    if not condition:
        raise Unlike


class WrittenText:
    """`path`: the function's own ops that were taken for parts of what is looked for."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.path: set[Op] = set()
        self.expanded: dict[Op, tuple[Value, ...] | None] = {}
        self.blocks: list[Block] = []

    def value(self, v: Value, take: bool = False) -> Value:
        """The result of a primitive op, or an argument, that `v` is. `take`: it is a part of what is looked for."""
        while (op := v.op) is not None:
            if take and op.block not in self.blocks:
                self.path.add(op)
            found = self._expansion(op)
            if found is None:
                return v
            v = found[v.index]
        return v

    def peek(self, v: Value) -> Op | None:
        """The primitive op that gives `v`."""
        return self.value(v).op

    def take(self, v: Value, *names: str) -> Op:
        """The primitive op of one of these names that gives `v`, as a part. Raises Unlike."""
        op = self.value(v, take=True).op
        if op is None or op.name.removeprefix("graph.") not in names:
            raise Unlike
        return op

    def number(self, v: Value) -> bool | int | float | None:
        """The number that all elements of `v` are; None where they are computed or differ."""
        while (op := self.peek(v)) is not None:
            if op.name in ("graph.full", "graph.constant"):
                value = op.attrs["value"]
                return value if isinstance(value, (bool, int, float)) else None
            if op.name not in ("graph.broadcast_to", "graph.reshape"):
                return None
            v = op.operands[0]
        return None

    def _expansion(self, op: Op) -> tuple[Value, ...] | None:
        if op not in self.expanded:
            self.expanded[op] = self._expand(op)
        return self.expanded[op]

    def _expand(self, op: Op) -> tuple[Value, ...] | None:
        operator = BY_OP.get(op.name)
        if operator is None or operator.decompose is None or any(0 in tensor(r).shape for r in op.results):
            return None
        block = Block()
        self.blocks.append(block)
        g = GraphBuilder(Builder(block, span=op.span, origin=op.origin), self.facts)
        found = operator.decompose(g, *split_operands(op), **attributes_of(op))
        return cast("tuple[Value, ...] | None", found if found is None or isinstance(found, tuple) else (found,))

    def own(self, g: GraphBuilder, v: Value) -> Value:
        """`v` as a value of the function: what only an expansion computes is emitted."""
        op = v.op
        if op is None or op.block not in self.blocks:
            return v
        operands = {x: self.own(g, x) for x in op.operands}
        return g.builder.insert(clone(op, dict(operands))).results[v.index]

    def kept_inside(self, last: Op) -> bool:
        """Whether nothing but the parts, which stand in one block, reads what the parts before `last` compute."""
        return all(
            op.block is last.block
            and (op is last or all(u in self.path or self._unread(u) for r in op.results for u in r.users))
            for op in self.path
        )

    def _unread(self, op: Op) -> bool:
        """Whether an op is one of an expansion, or dead."""
        dead = bool(op.results) and not any(r.uses for r in op.results)
        return op.block in self.blocks or (dead and not op.regions and not SPECS[op.name].effects)

    @contextmanager
    def trial(self) -> Generator[None]:
        """What is taken inside is taken back if it raises Unlike."""
        before = set(self.path)
        try:
            yield
        except Unlike:
            self.path = before
            raise

    def close(self) -> None:
        """Removes the expansions."""
        for block in reversed(self.blocks):
            for op in reversed(list(block.ops)):
                op.erase()
