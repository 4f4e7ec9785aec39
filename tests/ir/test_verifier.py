"""Each way in which IR can be broken is found, and says which op is at fault."""

from __future__ import annotations

import pytest

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.ir.core import Block, Op, Region, Value, clone
from tessera.compiler.ir.spec import InvalidIR
from tessera.compiler.ir.types import INDEX, TensorType, TileType, ViewType
from tessera.compiler.ir.verifier import verify
from tessera.compiler.tile.builder import TileBuilder
from tessera.errors import Span
from tessera.language import dims, dtypes

HERE = Span("model.py", 3, 5, 3, 9)
N = dims.symbol("n")


def kernel() -> Op:
    """y[i:i+8] = sum over a loop of exp(x[i:i+8])."""
    block = Block([ViewType((N,), dtypes.f32)] * 2, ["x", "y"])
    b = TileBuilder(block, span=HERE)
    i = b.iop("imul", b.program_id(0), b.index(8))
    x = b.load(block.args[0], [i], (8,))
    total = b.full((8,), 0.0, dtypes.f32)
    body = Block([INDEX, total.type], ["k", "acc"])
    loop = b.op("tile.for", [b.index(0), b.index(4), b.index(1), total], [total.type], regions=[Region([body])])
    with b.inside(body):
        b.op("tile.yield", [b.map("add", body.args[1], b.map("exp", x))])
    b.store(block.args[1], loop.result, [i])
    b.op("tile.return")
    attrs = {"sym_name": "k", "grid": (dims.ceildiv(N, 8),), "arg_names": ("x", "y"), "writes": (1,), "num_warps": 4}
    return Op("tile.func", (), (), HERE, attrs, [Region([block])])


def find(func: Op, name: str) -> Op:
    return next(op for op in func.walk() if op.name == f"tile.{name}")


def test_sound_ir_passes():
    verify(kernel())
    verify(clone(kernel(), {}))


def use_before_definition(f: Op) -> None:
    ops = f.region.block.ops
    ops.remove(load := find(f, "load"))
    ops.insert(0, load)


def use_of_an_inner_value(f: Op) -> None:
    find(f, "store").set_operand(1, find(f, "exp").result)


def use_of_a_foreign_value(f: Op) -> None:
    find(f, "exp").set_operand(0, find(kernel(), "load").result)


def use_of_a_loop_argument_outside(f: Op) -> None:
    find(f, "store").set_operand(2, find(f, "for").region.block.args[0])


def unlisted_use(f: Op) -> None:
    find(f, "load").result.uses.clear()


def listed_use_that_is_none(f: Op) -> None:
    find(f, "load").result.uses.append((find(f, "store"), 1))


def listed_use_beyond_the_operands(f: Op) -> None:
    f.region.block.args[0].uses.append((find(f, "return"), 7))


def use_listed_twice(f: Op) -> None:
    uses = find(f, "load").result.uses
    uses.append(uses[0])


def result_of_another_op(f: Op) -> None:
    find(f, "exp").results[0].owner = find(f, "load")


def result_at_another_place(f: Op) -> None:
    find(f, "exp").results[0].index = 1


def argument_of_another_block(f: Op) -> None:
    f.region.block.args[0].owner = find(f, "for").region.block


def region_of_another_op(f: Op) -> None:
    find(f, "for").region.op = f


def block_of_another_region(f: Op) -> None:
    find(f, "for").region.block.region = f.region


def op_in_another_block(f: Op) -> None:
    find(f, "exp").block = f.region.block


def empty_block(f: Op) -> None:
    for op in reversed(list(find(f, "for").region.block.ops)):
        op.erase()


def missing_terminator(f: Op) -> None:
    find(f, "return").erase()


def early_terminator(f: Op) -> None:
    f.region.block.insert(0, Op("tile.return", (), (), HERE))


def unknown_op(f: Op) -> None:
    find(f, "exp").name = "tile.expo"


def unknown_dialect(f: Op) -> None:
    find(f, "exp").name = "brick.exp"


def wrong_result_type(f: Op) -> None:
    find(f, "load").result.type = TileType((8,), dtypes.f16)


def missing_operand(f: Op) -> None:
    find(f, "exp").set_operands(())


def missing_attribute(f: Op) -> None:
    del find(f, "broadcast").attrs["axes"]


def missing_region(f: Op) -> None:
    find(f, "for").regions = ()


def yield_of_the_wrong_type(f: Op) -> None:
    find(f, "yield").set_operand(0, find(f, "for").region.block.args[0])


BROKEN = [
    (use_before_definition, "tile.load", "operand 1 .* not defined before"),
    (use_of_an_inner_value, "tile.store", "operand 1 .* not defined before"),
    (use_of_a_foreign_value, "tile.exp", "operand 0 .* not defined before"),
    (use_of_a_loop_argument_outside, "tile.store", r"operand 2 \(k\) is not defined before"),
    (unlisted_use, "tile.exp", "does not know of this use"),
    (listed_use_that_is_none, "tile.load", "lists a use that is none"),
    (listed_use_beyond_the_operands, "tile.func", "x lists a use that is none"),
    (use_listed_twice, "tile.load", "lists a use twice"),
    (result_of_another_op, "tile.exp", "result 0 belongs to another"),
    (result_at_another_place, "tile.exp", "result 0 belongs to another"),
    (argument_of_another_block, "tile.func", "block argument 0 belongs to another"),
    (region_of_another_op, "tile.for", "a region belongs to another op"),
    (block_of_another_region, "tile.for", "a block belongs to another region"),
    (op_in_another_block, "tile.exp", "a block that does not list it"),
    (empty_block, "tile.for", "a block is empty"),
    (missing_terminator, "tile.store", "ends no block"),
    (early_terminator, "tile.return", "too early"),
    (unknown_op, "tile.expo", "no dialect defines it"),
    (unknown_dialect, "brick.exp", "no dialect defines it"),
    (wrong_result_type, "tile.load", "dtype"),
    (missing_operand, "tile.exp", "takes 1 operands"),
    (missing_attribute, "tile.broadcast", "axis"),
    (missing_region, "tile.for", "malformed"),
    (yield_of_the_wrong_type, "tile.for", "yields the carried types"),
]


@pytest.mark.parametrize(("damage", "at", "reason"), BROKEN, ids=[b[0].__name__ for b in BROKEN])
def test_broken_ir_is_rejected(damage, at, reason):
    func = kernel()
    damage(func)
    with pytest.raises(InvalidIR, match=reason) as e:
        verify(func)
    assert e.value.op.name == at
    assert str(HERE) in str(e.value)


def graph_function() -> Op:
    t = TensorType((dims.symbol("B"), 4), dtypes.f32)
    block = Block([t, t], ["x", "y"])
    g = GraphBuilder(TileBuilder(block, span=HERE))
    g.builder.op("graph.return", [g.sum(g.add(*block.args), axis=(1,))])
    return Op("graph.func", (), (), HERE, {"sym_name": "f", "arg_names": ("x", "y")}, [Region([block])])


def test_graph_ops_are_checked_by_their_shape_rule():
    verify(graph_function())
    broken = graph_function()
    broken.region.block.ops[1].result.type = TensorType((4,), dtypes.f32)
    with pytest.raises(InvalidIR, match=r"graph\.sum"):
        verify(broken)


def test_values_are_told_apart_by_identity():
    """Two values of one type and hint are two values."""
    t = TileType((8,), dtypes.f32)
    func = kernel()
    find(func, "exp").set_operand(0, Value(t, find(func, "load"), 0, "x"))
    with pytest.raises(InvalidIR, match="not defined before"):
        verify(func)
