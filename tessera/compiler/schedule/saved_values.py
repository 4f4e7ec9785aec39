"""The values that a program saves for its backward pass: forward kernels write them, backward kernels read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from tessera.compiler.graph.operator import BY_OP, attributes_of, operator_of, split_operands, types_of
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.schedule.views import is_view, kind_of
from tessera.errors import Span
from tessera.immutable import immutable, mutable
from tessera.language.dims import Dim, prod


@immutable
class KeptValue:
    """One value. `operator` computes it at `at`, "" for an argument; `readers` are operators of the derivative, each at
    the forward line that it belongs to. `flops` and `moved` are what it costs to compute it again from arguments and
    what else is kept: operations, and bytes read and written."""

    name: str
    operator: str
    at: Span
    type: TensorType
    readers: tuple[tuple[str, Span], ...] = ()
    flops: Dim = 0
    moved: Dim = 0

    @property
    def bytes(self) -> Dim:
        return size_of(self.type)


def size_of(type: TensorType) -> Dim:
    return prod(type.shape) * type.dtype.itemsize


def order_of(op: Op) -> int:
    """The order of the derivative that an op of a scheduled function belongs to; that of a kernel is the least order of
    its operators."""
    if op.name != "schedule.group":
        return op.origin.order
    return min(
        (o.origin.order for o in op.region.block.ops[:-1] if not is_view(o) and kind_of(o) != "generate"), default=0
    )


def kept(schedule: Op) -> list[KeptValue]:
    """The values that a `schedule.func` holds for its derivatives, in the order in which they are computed; arguments
    first."""
    block = schedule.region.block
    found = _Walk(block)
    values = [*block.args, *(r for op in block.ops[:-1] if not is_view(op) for r in op.results)]
    return [found.described(v) for v in values if found.readers(v)]


def places(schedule: Op) -> Iterator[tuple[Value, str, Span]]:
    """The values that are kept for derivatives: the value, its name for people, and where it is computed."""
    block = schedule.region.block
    found = _Walk(block)
    if any(found.order(op) for op in block.ops):
        for v in (r for op in block.ops[:-1] if not is_view(op) for r in op.results):
            if found.readers(v):
                op = _computing(v)
                yield v, v.hint or op.results[0].hint or _named(op), op.span


@mutable
class _Walk:
    block: Block
    costs: dict[Op, tuple[Dim, Dim]] = field(default_factory=dict[Op, "tuple[Dim, Dim]"])
    orders: dict[Op, int] = field(default_factory=dict[Op, int])

    def order(self, op: Op) -> int:
        """`order_of`, found once for each op."""
        found = self.orders.get(op)
        if found is None:
            found = self.orders[op] = order_of(op)
        return found

    def readers(self, v: Value) -> list[tuple[str, Span]]:
        """The operators of derivatives that read an early value."""
        if v.op is not None and (self.order(v.op) > 0 or kind_of(v.op) == "generate"):
            return []
        late = ((user, seen) for user, seen in _users(v) if self.order(user) > 0)
        return list(dict.fromkeys(reader for user, seen in late for reader in _inside(user, seen)))

    def described(self, v: Value) -> KeptValue:
        assert isinstance(v.type, TensorType)
        readers = tuple(self.readers(v))
        if v.op is None:
            return KeptValue(v.hint, "", readers[0][1], v.type, readers)
        op = _computing(v)
        flops, moved = self.again(v.op)
        return KeptValue(v.hint or op.results[0].hint, _named(op), op.span, v.type, readers, flops, moved)

    def again(self, op: Op) -> tuple[Dim, Dim]:
        """The cost of running a kernel again, together with the kernels that it needs whose results are not kept."""
        if op not in self.costs:
            flops, moved = work(op)
            for v in dict.fromkeys(map(_owner, op.operands)):
                if v.op is not None and not self.readers(v) and kind_of(v.op) != "generate":
                    more = self.again(v.op)
                    flops, moved = flops + more[0], moved + more[1]
            self.costs[op] = flops, moved
        return self.costs[op]


def work(op: Op) -> tuple[Dim, Dim]:
    """Operations of one run of a kernel, and bytes that it moves; of a loop those of one round."""
    flops: Dim = 0
    for inner in op.walk():
        if inner.name in BY_OP:
            results = [r.type for r in inner.results if isinstance(r.type, TensorType)]
            flops = flops + operator_of(inner).flops(types_of(split_operands(inner)), results, **attributes_of(inner))
    moved: Dim = 0
    for v in (*op.operands, *op.results):
        moved = moved + (size_of(v.type) if isinstance(v.type, TensorType) else 0)
    return flops, moved


def _owner(v: Value) -> Value:
    while v.op is not None and is_view(v.op):
        v = v.op.operands[0]
    return v


def _users(v: Value) -> Iterator[tuple[Op, Value]]:
    """The kernels, loops and branches that read a value or a view of it, and what of it they read."""
    for user in v.users:
        if is_view(user):
            yield from _users(user.result)
        elif not user.name.endswith(".return"):
            yield _top(user, v), v


def _top(op: Op, v: Value) -> Op:
    """The op of the block of `v` that `op` is, or is part of."""
    block = v.op.block if v.op is not None else v.owner
    while op.block is not block and op.parent is not None:
        op = op.parent
    return op


def _inside(user: Op, v: Value) -> Iterator[tuple[str, Span]]:
    """The operators in a kernel that read a value, perhaps through views."""
    if user.name != "schedule.group":
        yield user.name.partition(".")[2], user.span
        return
    args: Mapping[Value, Value] = dict(zip(user.operands, user.region.block.args, strict=True))
    waiting = [args[v]] if v in args else []
    for value in waiting:  # grows
        for op in value.users:
            if is_view(op):
                waiting += op.results
            elif op.dialect == "graph":
                yield op.name.partition(".")[2], op.span


def _named(op: Op) -> str:
    """What people call the operator; what is computed for its derivative ahead of it is its slope."""
    forward = [o for o in (op.block.ops if op.block is not None else ()) if o.span == op.span and not o.origin.order]
    named = forward[0] if op.origin.order and forward else op
    return ("slope of " if named is not op else "") + named.name.partition(".")[2]


def _computing(v: Value) -> Op:
    """The operator that gives a result of a kernel."""
    op = v.op
    assert op is not None
    if op.name != "schedule.group":
        return op
    inner = _owner(op.region.block.terminator.operands[v.index])
    return inner.op or op
