"""Writers of grid coordinates, index arithmetic, scalars and control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter, handles
from tessera.compiler.targets.cuda.layouts.groups import dtype_of, is_tile
from tessera.compiler.targets.cuda.write import cxx
from tessera.compiler.tile.pipelines import in_step
from tessera.language.dims import Dim, prod


@handles("program_id")
def _program_id(e: KernelEmitter, op: Op) -> None:
    grid = cast("tuple[Dim, ...]", e.kernel.attrs["grid"])
    axis = cast(int, op.attrs["axis"])
    if grid[axis] == 1:
        e.env[op.result] = "0"
        return
    inner = prod(grid[axis + 1 :])
    text = e.number if inner == 1 else f"{e.number} / {cxx.factor(inner)}"
    if axis > 0:
        text = f"{text} % {cxx.factor(grid[axis])}"
    e.let(op.result, text, f"program_{axis}" if len(grid) > 1 else "program", "ts::idx")


@handles("dim")
def _dim(e: KernelEmitter, op: Op) -> None:
    e.env[op.result] = cxx.size(op.attrs["dim"])  # type: ignore[arg-type]


@handles("iadd", "isub", "imul", "idiv", "imod", "imin", "imax")
def _index(e: KernelEmitter, op: Op) -> None:
    a, b = (e.expr(v) for v in op.operands)
    name = op.name.removeprefix("tile.")
    symbol = {"iadd": "+", "isub": "-", "imul": "*"}.get(name)
    text = f"{a} {symbol} {b}" if symbol else f"ts::{name}({a}, {b})"
    e.let(op.result, text, "i", "ts::idx")


@handles("to_scalar")
def _to_scalar(e: KernelEmitter, op: Op) -> None:
    e.env[op.result] = f"ts::cast<{cxx.type_name(dtype_of(op.result))}>((ts::idx)({e.expr(op.operands[0])}))"


@handles("to_index")
def _to_index(e: KernelEmitter, op: Op) -> None:
    e.let(op.result, f"(ts::idx){e.expr(op.operands[0])}", "i", "ts::idx")


@handles("constant")
def _constant(e: KernelEmitter, op: Op) -> None:
    e.env[op.result] = cxx.literal(op.attrs["value"], dtype_of(op.result))


# control flow
def carry(e: KernelEmitter, initial: Sequence[Value], args: Sequence[Value]) -> list[str]:
    """Variables for loop-carried values, set to the initial ones."""
    names: list[str] = []
    for v, arg in zip(initial, args, strict=True):
        name = e.declare(e.fresh(arg.hint or v.hint or "carried"), arg)
        value = e.tile(v) if is_tile(v) else e.expr(v)
        e.source.write(f"{e.type_of(arg)} {name} = {value};")
        names.append(name)
    for name, arg in zip(names, args, strict=True):
        e.env[arg] = name
    return names


def advance(e: KernelEmitter, names: Sequence[str], values: Sequence[Value]) -> None:
    """Parallel assignment of the next values."""
    texts = [e.tile(v) if is_tile(v) else e.expr(v) for v in values]
    moving = [i for i, (name, text) in enumerate(zip(names, texts, strict=True)) if name != text]
    if len(moving) > 1:
        for i in moving:
            if not texts[i].isidentifier() or texts[i] in names:
                held = e.declare(e.fresh(f"next_{names[i]}"), values[i])
                e.source.write(f"auto {held} = {texts[i]};")
                texts[i] = held
    for i in moving:
        e.source.write(f"{names[i]} = {texts[i]};")


def loop_bounds(e: KernelEmitter, op: Op) -> tuple[str, str, str]:
    """Where a counted loop starts and ends, and its step."""
    lower, upper, step = (e.expr(v) for v in op.operands[:3])
    if not e.bounds.positive(e.bounds.of(op.operands[2]).low):
        step = f"ts::imax({step}, 1)"  # one that is not positive would never end
    return lower, upper, step


@handles("for")
def _for(e: KernelEmitter, op: Op) -> None:
    lower, upper, step = loop_bounds(e, op)
    body = op.region.block
    names = carry(e, op.operands[3:], body.args[1:])
    counter = e.fresh(body.args[0].hint or "i")
    e.env[body.args[0]] = counter
    going = f" && {names[int(op.attrs['going'])]}" if "going" in op.attrs else ""  # type: ignore[call-overload]
    with e.source.block(f"for (ts::idx {counter} = {lower}; {counter} < {upper}{going}; {counter} += {step})"):
        e.emit_block(body)
        e.source.at(body.terminator.span)
        advance(e, names, body.terminator.operands)
    e.env.update(zip(op.results, names, strict=True))


@handles("while")
def _while(e: KernelEmitter, op: Op) -> None:
    test, body = op.regions[0].block, op.regions[1].block
    names = carry(e, op.operands, test.args)
    e.env.update(zip(body.args, names, strict=True))
    with e.source.block("while (true)"):
        e.emit_block(test)
        e.source.write(f"if (!({e.expr(test.terminator.operands[0])})) break;")
        e.emit_block(body)
        advance(e, names, body.terminator.operands)
    e.env.update(zip(op.results, names, strict=True))


@handles("if")
def _if(e: KernelEmitter, op: Op) -> None:
    names: list[str] = []
    for r in op.results:
        names.append(e.declare(e.fresh(r.hint or "chosen"), r))
        e.source.write(f"{e.type_of(r)} {names[-1]};")
    for head, region in zip((f"if ({e.expr(op.operands[0])})", "else"), op.regions, strict=True):
        block = region.block
        if head == "else" and len(block.ops) == 1 and not names:
            continue
        with e.source.block(head):
            e.emit_block(block)
            advance(e, names, block.terminator.operands)
    e.env.update(zip(op.results, names, strict=True))


@handles("yield", "return")
def _terminator(e: KernelEmitter, op: Op) -> None:
    """Loops and branches assign what is yielded; a kernel's outputs have been stored."""


@handles("barrier")
def _barrier(e: KernelEmitter, op: Op) -> None:
    e.headers.add("shared")
    if not in_step(op):
        e.marks.wait(op)
    e.source.write("ts::sync();" if in_step(op) else e.barrier())  # fetched copies need not land here
