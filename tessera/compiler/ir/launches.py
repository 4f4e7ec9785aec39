"""What `graph.launch` and `schedule.launch` are: a kernel, in a region, over whole tensors.

The kernel's first arguments are the operands; those behind them it makes itself. Every argument that it stores to
(attr `writes`) is a result, in order: tensors are values, so a kernel that changes an operand gives the changed one.
With `steps` the kernel is launched so often, on the same memory; its last argument is the number of the step.
"""

from __future__ import annotations

from typing import cast

from tessera.compiler.ir.core import Block, Op, Region
from tessera.compiler.ir.spec import demand
from tessera.compiler.ir.types import TensorType, TileType, Type, ViewType
from tessera.errors import Span

LAUNCHES = ("graph.launch", "schedule.launch")
DOC = (
    "Launches the kernel in its region. Operands are the kernel's first arguments: a tensor of the view's shape, or a "
    "rank-0 tensor for a scalar. Results are the arguments that it stores to, as they are afterwards, in order: an "
    "operand that it changes is not changed itself. `steps`: how often it is launched; its last argument is a number."
)


def kernel_of(op: Op) -> Op:
    """The `tile.func` that a launch runs."""
    return op.region.block.ops[0]


def stored(op: Op) -> tuple[int, ...]:
    """For each result of a launch the kernel's argument that it is; beyond the operands, one that the kernel makes."""
    return cast("tuple[int, ...]", kernel_of(op).attrs.get("writes", ()))


def steps_of(op: Op) -> int:
    """How often the kernel is launched, one launch after the other."""
    return cast("int", op.attrs.get("steps", 1))


def shows(op: Op) -> bool:
    """Whether a launch has an effect even if its results are unused: it prints. (It stores to its results alone.)"""
    return any(inner.name == "tile.print" for inner in op.walk())


def launching(kernel: Op, dialect: str, span: Span) -> Region:
    """The region of a launch of `kernel`."""
    block = Block()
    block.append(kernel)
    block.append(Op(f"{dialect}.yield", (), (), span))
    return Region([block])


def outside_kernels(*blocks: Block) -> list[Op]:
    """The ops of blocks and all ops inside these, but for those of kernels that are launched."""
    found: list[Op] = []
    for block in blocks:
        for op in block.ops:
            found.append(op)
            if op.regions and op.name not in LAUNCHES:
                found += outside_kernels(*(block for region in op.regions for block in region.blocks))
    return found


def verify_launch(op: Op) -> None:
    demand(len(op.regions) == 1 and not op.region.block.args, op, "has one region without arguments")
    names = [o.name for o in op.region.block.ops]
    demand(names == ["tile.func", f"{op.dialect}.yield"], op, "its region holds one tile.func, and yields nothing")
    args, writes = kernel_of(op).region.block.args, stored(op)
    demand(not op.region.block.terminator.operands, op, "its region holds one tile.func, and yields nothing")
    demand(list(writes) == sorted(set(writes)) and all(0 <= i < len(args) for i in writes), op, "writes ascend")
    made = range(len(op.operands), len(args) - (steps_of(op) > 1))
    demand(set(made) <= set(writes), op, "stores to every argument that is not an operand")
    demand(len(op.operands) <= len(args), op, "has no more operands than its kernel has arguments")
    demand(len(op.results) == len(writes), op, "has a result for each argument that is stored to")
    for v, a in zip(op.operands, args, strict=False):
        demand(_same(v.type, a.type), op, f"{a.hint} is {a.type}, not {v.type}")
    for r, i in zip(op.results, writes, strict=True):
        demand(_same(r.type, args[i].type), op, f"result {args[i].hint} is {args[i].type}, not {r.type}")


def _same(tensor: Type, argument: Type) -> bool:
    return (
        isinstance(tensor, TensorType)
        and isinstance(argument, (ViewType, TileType))
        and (tensor.shape, tensor.dtype) == (argument.shape, argument.dtype)
        and getattr(argument, "strides", None) is None
    )
