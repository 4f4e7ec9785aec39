"""Transposes chains of products, for targets whose lanes run along the columns of a product: (a b)^T = b^T a^T.

    for j: s = mma(q, k[j].T, 0); p = exp(s - max(s, axis=1)); o = mma(p, v[j], o)

has a left operand that stays the same, and right operands that are transposed in every step. In the transposed chain
`q` is transposed once, `k` and `v` are read in place, and rows are reduced lane by lane, without a step across lanes:

    for j: t = mma(k[j], q.T, 0); p = exp(t - max(t, axis=0)); u = mma(v[j].T, p, u)

Values that are computed from the products element by element, that are reduced, and that loops carry, are transposed
with them. Each sum keeps its order, so that no bit changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TileType
from tessera.compiler.tile.builder import TileBuilder
from tessera.compiler.tile.dialect import has_scales
from tessera.compiler.tile.passes.remove_dead import remove_dead
from tessera.language.scalars import TABLE

FEW = 16
"""at most this many rows of a product leave lanes empty where lanes run along rows"""


ELEMENTWISE = frozenset((*(f"tile.{name}" for name in TABLE), "tile.cast", "tile.bitcast"))
ANEW = ELEMENTWISE | {"tile.mma", "tile.iota", "tile.broadcast"}
"""ops that are rebuilt with transposed operands; results of other ops are transposed behind them"""


def turns_products(kernel: Op) -> bool:
    return any(_starts(op) for op in kernel.walk())


def turn_products(kernel: Op) -> None:
    sides = _Sides(kernel)
    turned = _Turned(sides.chosen())
    if turned.values:
        turned.carried(kernel)
        turned.uses(kernel)
        remove_dead(kernel)


def _matrix(v: Value) -> bool:
    return isinstance(v.type, TileType) and v.type.rank == 2


def _is_product(op: Op) -> bool:
    if op.name != "tile.mma" or has_scales(op) or not _matrix(op.result):
        return False
    t = cast(TileType, op.result.type)
    return all(_matrix(v) for v in op.operands) and not t.dtype.is_complex


def _starts(op: Op) -> bool:
    """A product in a loop whose left operand has rows for all lanes and stays the same, and whose right one is
    transposed in each step."""
    loop = op.parent
    if loop is None or loop.name != "tile.for" or not _is_product(op):
        return False
    left, right = op.operands[:2]
    rows = cast(TileType, left.type).shape[0]
    if not isinstance(rows, int) or rows < FEW:
        return False
    return _is_turned(right) and changes(right, loop) and not changes(left, loop)


def _is_turned(v: Value) -> bool:
    return v.op is not None and v.op.name == "tile.transpose"


def changes(v: Value, loop: Op) -> bool:
    """Whether `v` is made inside of the loop."""
    block = v.owner if isinstance(v.owner, Block) else v.owner.block
    while block is not None and block.region is not None and block.region.op is not None:
        if block.region.op is loop:
            return True
        block = block.region.op.block
    return False


def _carried(op: Op) -> Iterator[tuple[Value, ...]]:
    """For each matrix that a loop carries: its initial value, its block argument, its next value, its result."""
    body = op.region.block
    for group in zip(op.operands[3:], body.args[1:], body.terminator.operands, op.results, strict=True):
        if _matrix(group[1]):
            yield group


class _Sides:
    """Which matrices are transposed together (union-find)."""

    def __init__(self, kernel: Op) -> None:
        self.parent: dict[Value, Value] = {}
        self.fixed: set[Value] = set()
        """matrices that branches or loops without a counter give: they are not transposed"""
        self.products = [op for op in kernel.walk() if _is_product(op)]
        for op in kernel.walk():
            if op.name == "tile.for":
                for start, *others in _carried(op):
                    self._same(start, *others)
            elif _is_product(op):
                self._same(op.operands[2], op.result)
            elif op.name in ELEMENTWISE and _matrix(op.result):
                self._same(*op.operands, op.result)
            elif op.regions and op.name != "tile.func":
                inside = [v for r in op.regions for b in r.blocks for v in (*b.args, *b.terminator.operands)]
                self.fixed.update(v for v in (*op.operands, *op.results, *inside) if _matrix(v))

    def _find(self, v: Value) -> Value:
        while (up := self.parent.get(v, v)) is not v:
            self.parent[v] = self.parent.get(up, up)
            v = up
        return v

    def _same(self, first: Value, *others: Value) -> None:
        for v in others:
            self.parent[self._find(v)] = self._find(first)
        self.parent.setdefault(first, self._find(first))

    def chosen(self) -> set[Value]:
        """The matrices of products that start a chain, and of the products whose left operand is such a matrix."""
        fixed = {self._find(v) for v in self.fixed}
        lefts = {self._find(op.operands[0]) for op in self.products}
        found = {r for op in self.products if _starts(op) and (r := self._find(op.result)) in lefts - fixed}
        while more := {
            r
            for op in self.products
            if self._find(op.operands[0]) in found and (r := self._find(op.result)) not in found | fixed
        }:
            found |= more
        return {v for v in self.parent if self._find(v) in found}


class _Turned:
    """Rebuilds each of `values` as its transpose, and passes it to the ops that used the value."""

    def __init__(self, values: set[Value]) -> None:
        self.values = values
        self.arguments: set[Value] = set()
        self.made: dict[Value, Value] = {}

    def carried(self, kernel: Op) -> None:
        """Changes the type of values that loops carry; ops that used them read them transposed back."""
        for op in [op for op in kernel.walk() if op.name == "tile.for"]:
            body = op.region.block
            for i, (inside, out) in enumerate(zip(body.args[1:], op.results, strict=True)):
                if inside not in self.values:
                    continue
                self.arguments.add(inside)
                for v, b in ((inside, TileBuilder(body, 0, op.span)), (out, _behind(op))):
                    self._retype(v, b)
                op.set_operand(3 + i, self.of(op.operands[3 + i]))

    def _retype(self, v: Value, b: TileBuilder) -> None:
        users = list(v.uses)
        v.type = _type(v)
        back = b.transpose(v, (1, 0))
        for user, i in users:
            user.set_operand(i, back)
        self.values.remove(v)
        self.values.add(back)
        self.made[back] = v

    def uses(self, kernel: Op) -> None:
        """The ops that are not rebuilt: reductions run along the other axis, all others read the matrix transposed
        back."""
        for op in list(kernel.walk()):
            if op.name == "tile.yield" and op.parent is not None and op.parent.name == "tile.for":
                for i, arg in enumerate(op.parent.region.block.args[1:]):
                    if arg in self.arguments:
                        op.set_operand(i, self.of(op.operands[i]))
            elif op.name == "tile.reduce" and op.operands[0] in self.values and len(_axes(op)) == 1:
                op.set_operand(0, self.of(op.operands[0]))
                op.attrs["axes"] = (1 - _axes(op)[0],)
            elif op.name != "tile.for" and not (op.name in ANEW and op.result in self.values):
                for i, v in enumerate(op.operands):
                    if v in self.values:
                        anew = self.of(v)
                        op.set_operand(i, _before(op).transpose(anew, (1, 0)))

    def of(self, v: Value) -> Value:
        """The transpose of a matrix."""
        if v not in self.made:
            self.made[v] = self._make(v)
        return self.made[v]

    def _make(self, v: Value) -> Value:
        op = v.op
        assert op is not None, "what is carried was turned before"
        if _is_turned(v):
            return op.operands[0]
        if v not in self.values:
            return _behind(op).transpose(v, (1, 0))
        if _is_product(op):
            left, right, acc = op.operands
            parts = self.of(right), self.of(left), self.of(acc)
            return _before(op).value("tile.mma", parts, _type(v), dict(op.attrs), v.hint)
        if op.name in ELEMENTWISE:
            given = [self.of(x) for x in op.operands]
            return _before(op).value(op.name, given, _type(v), dict(op.attrs), v.hint)
        if op.name == "tile.iota":
            return _before(op).value(op.name, (), _type(v), {"axis": 1 - cast(int, op.attrs["axis"])})
        if op.name == "tile.broadcast":
            return self._broadcast(op)
        return _behind(op).transpose(v, (1, 0))

    def _broadcast(self, op: Op) -> Value:
        x, axes = op.operands[0], _axes(op)
        if len(axes) == 2:
            x = self.of(x)
        return _before(op).broadcast(x, _type(op.result).shape, tuple(sorted(1 - a for a in axes)))


def _type(v: Value) -> TileType:
    t = cast(TileType, v.type)
    return TileType(t.shape[::-1], t.dtype)


def _axes(op: Op) -> tuple[int, ...]:
    return cast("tuple[int, ...]", op.attrs["axes"])


def _before(op: Op) -> TileBuilder:
    assert op.block is not None
    return TileBuilder(op.block, op.block.index(op), op.span, op.origin)


def _behind(op: Op) -> TileBuilder:
    assert op.block is not None
    return TileBuilder(op.block, op.block.index(op) + 1, op.span, op.origin)
