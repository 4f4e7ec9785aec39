"""Whole Jacobians: one linear map, applied to every unit vector, as `ts.vmap` applies a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.compiler.autodiff.batching import batch
from tessera.compiler.autodiff.control import typed
from tessera.compiler.autodiff.forward import push_forward
from tessera.compiler.autodiff.reverse import pull_back
from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.control import for_
from tessera.compiler.graph.operator import tensor
from tessera.compiler.ir.core import Block, Op, Value
from tessera.language import dims, dtypes

Linear = Callable[[Value], "list[Value | None]"]


def rows(g: GraphBuilder, ops: Sequence[Op], wanted: Sequence[Value], outs: Sequence[Value]) -> list[list[Value]]:
    """For each of `outs` its Jacobian by each of `wanted`, [*out, *wanted]: one pass backwards for each element of
    the results."""
    found: list[list[Value]] = []
    for out in outs:
        stacks = _stacked(g, out, wanted, lambda e, out=out: pull_back(g, ops, wanted, [(out, e)]))
        shape = tensor(out).shape
        found.append([g.reshape(m, (*shape, *tensor(x).shape)) for m, x in zip(stacks, wanted, strict=True)])
    return found


def columns(g: GraphBuilder, ops: Sequence[Op], wanted: Sequence[Value], outs: Sequence[Value]) -> list[list[Value]]:
    """The same: one pass forwards for each element of `wanted`."""
    found: list[list[Value]] = [[] for _ in outs]
    for x in wanted:
        stacks = _stacked(g, x, outs, lambda e, x=x: push_forward(g, ops, {x: e}, outs))
        for into, m, out in zip(found, stacks, outs, strict=True):
            flat = g.reshape(m, (dims.prod(tensor(x).shape), dims.prod(tensor(out).shape)))
            into.append(g.reshape(g.permute(flat, (1, 0)), (*tensor(out).shape, *tensor(x).shape)))
    return found


def _stacked(g: GraphBuilder, of: Value, like: Sequence[Value], linear: Linear) -> list[Value]:
    """The results of `linear` for each unit vector of the type of `of`, stacked: [size of `of`, *like]. All of them are
    computed at once, or one after the other where an operator or kernel requires it."""
    count = dims.prod(tensor(of).shape)
    block = Block()
    unit = block.add_arg(of.type)
    with g.builder.inside(block):
        found = [typed(g, v, x) for v, x in zip(linear(unit), like, strict=True)]
    start = len(g.builder.block.ops)
    units = g.reshape(g.eye(count, dtype=tensor(of).dtype), (count, *tensor(of).shape))
    stacks, differ, looped = batch(g, count, block, {unit: units}, found)
    if looped:
        for op in reversed(g.builder.block.ops[start:]):
            op.erase()
        return _one_by_one(g, of, like, linear)
    return [v if d else g.broadcast_to(v, (count, *tensor(v).shape)) for v, d in zip(stacks, differ, strict=True)]


def _one_by_one(g: GraphBuilder, of: Value, like: Sequence[Value], linear: Linear) -> list[Value]:
    """The same in a loop."""
    count = dims.prod(tensor(of).shape)
    zero, one = g.constant(0, dtypes.int64), g.constant(1, dtypes.int64)
    starts = [g.zeros((count, *tensor(v).shape), dtype=tensor(v).dtype) for v in like]

    def body(i: Value, *stacks: Value) -> list[Value]:
        unit = typed(g, g.reshape(g.to(g.eq(g.arange(count), i), tensor(of).dtype), tensor(of).shape), of)
        return [
            stack if found is None else typed(g, g.put(stack, i, found, axis=0), stack)
            for stack, found in zip(stacks, linear(unit), strict=True)
        ]

    return for_(g, zero, g.size(count, dtypes.int64), one, starts, body)
