"""Structured control flow over tensors: `graph.if`, `graph.while`, `graph.for`, all ended by `graph.yield`.

They carry regions and so are not operators. The builders here create them from Python functions that fill the regions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.compiler.ir.spec import BRANCH, FOR, WHILE, demand, spec
from tessera.compiler.ir.types import TensorType, Type
from tessera.language import dtypes

COUNTER = TensorType((), dtypes.int64)
CONDITION = TensorType((), dtypes.bool_)
LOOPS = ("graph.if", "graph.while", "graph.for")


def _yields(op: Op, region: int, types: Sequence[Type]) -> None:
    block = op.regions[region].block
    demand(bool(block.ops) and block.terminator.name == "graph.yield", op, f"region {region} ends with graph.yield")
    demand(
        [v.type for v in block.terminator.operands] == list(types),
        op,
        f"region {region} yields {list(map(str, types))}",
    )


@spec(
    "graph.if",
    "Runs one of two regions. Operand: a rank-0 bool. Both regions yield the results' types.",
    reading=BRANCH,
)
def _if(op: Op) -> None:
    demand([v.type for v in op.operands] == [CONDITION], op, "the condition is a bool scalar")
    demand(len(op.regions) == 2, op, "has two regions")
    for i in (0, 1):
        demand(not op.regions[i].block.args, op, "its regions take no arguments")
        _yields(op, i, [r.type for r in op.results])


@spec("graph.while", "Operands: initial values. Both regions take the carried values; region 0 yields whether to go "
      "on, region 1 the next values; results are the last ones.", effects=True, reading=WHILE)  # fmt: skip
def _while(op: Op) -> None:
    carried = [v.type for v in op.operands]
    demand(len(op.regions) == 2, op, "has two regions")
    demand([r.type for r in op.results] == carried, op, "results have the carried types")
    for r in op.regions:
        demand([a.type for a in r.block.args] == carried, op, "its regions take the carried values")
    _yields(op, 0, [CONDITION])
    _yields(op, 1, carried)


@spec("graph.for", "Operands: lower, upper, step (rank-0 int64, step not 0) and initial values. The region takes the "
      "counter and the carried values and yields the next ones; results are the last ones.", reading=FOR)  # fmt: skip
def _for(op: Op) -> None:
    demand([v.type for v in op.operands[:3]] == [COUNTER] * 3, op, "bounds and step are int64 scalars")
    carried = [v.type for v in op.operands[3:]]
    demand([r.type for r in op.results] == carried, op, "results have the carried types")
    demand(
        [a.type for a in op.region.block.args] == [COUNTER, *carried],
        op,
        "its region takes the counter and the carried values",
    )
    _yields(op, 0, carried)


@spec(
    "graph.yield", "Ends a region of graph.if, graph.while, graph.for or graph.launch.", terminator=True, effects=True
)
def _yield(op: Op) -> None:
    parents = (*LOOPS, "graph.launch")
    demand(op.parent is not None and op.parent.name in parents, op, "is not inside a loop, branch or launch")


Body = Callable[..., Sequence[Value]]


def _region(g: GraphBuilder, types: Sequence[Type], body: Body) -> Region:
    block = Block(types)
    region = Region([block])
    with g.builder.inside(block):
        g.builder.op("graph.yield", list(body(*block.args)))
    return region


def if_(g: GraphBuilder, condition: Value, then: Body, otherwise: Body) -> list[Value]:
    """`graph.if`: the values that `then()` or `otherwise()` returns; their types agree."""
    regions = [_region(g, (), then), _region(g, (), otherwise)]
    types = [v.type for v in regions[0].block.terminator.operands]
    return g.builder.op("graph.if", (condition,), types, regions=regions).results


def while_(g: GraphBuilder, initial: Sequence[Value], condition: Callable[..., Value], body: Body) -> list[Value]:
    """`graph.while`: the carried values once `condition(*carried)` is false; `body(*carried)` gives the next ones."""
    types = [v.type for v in initial]
    regions = [_region(g, types, lambda *c: (condition(*c),)), _region(g, types, body)]
    return g.builder.op("graph.while", initial, types, regions=regions).results


def for_(g: GraphBuilder, lower: Value, upper: Value, step: Value, initial: Sequence[Value], body: Body) -> list[Value]:
    """`graph.for`: `body(counter, *carried)` gives the next carried values; counts as Python's range does."""
    types = [v.type for v in initial]
    regions = [_region(g, [COUNTER, *types], body)]
    return g.builder.op("graph.for", [lower, upper, step, *initial], types, regions=regions).results
