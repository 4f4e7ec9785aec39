"""Loops and branches of a kernel. Carried scalars are registers; carried tiles are two buffers that swap roles."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.kernel.products import lay_out, scaling_of
from tessera.compiler.targets.cpu.llvm.values import Index, Val
from tessera.compiler.targets.cpu.loops.memory import Cell
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.stages import made_here


class CarriedCells:
    """The values carried by a loop: initial values, values inside, results.

    A tile has two buffers. An iteration reads the current one and writes the next state into the other; then the two
    pointers change places. A product that only adds to the tile stays in the current one.
    """

    def __init__(self, k: KernelFunction, initial: Sequence[Value], plan: Planner, writer: NestWriter) -> None:
        self.k, self.initial = k, initial
        self.start: list[Val] = []
        self.cells: list[Cell | None] = []
        for v in initial:
            if not shape_of(v):
                self.cells.append(None)
                self.start += [k.fn.here(x) for x in k.registers(v)]
                continue
            first, second = k.scratch(v), k.scratch(v)
            writer.write(plan.copy(v, first))
            self.cells.append(first)
            self.start += [k.fn.here(first.ptr), k.fn.here(second.ptr)]

    def offset(self, number: int) -> int:
        """Where the registers of carried value `number` start in the state."""
        before = zip(self.cells[:number], self.initial, strict=False)
        return sum(self.k.width(v) if cell is None else 2 for cell, v in before)

    def bind(self, values: Sequence[Value], state: Sequence[Val]) -> None:
        """Binds `values` (block arguments or results) to the carried state."""
        rest = iter(state)
        for v, cell in zip(values, self.cells, strict=True):
            if cell is None:
                self.k.set_registers(v, [next(rest) for _ in range(self.k.width(v))])
            else:
                self.k.ev.cells[v] = Cell(next(rest), cell.strides, cell.dtype)
                next(rest)

    def run(self, body: Block, state: Sequence[Val]) -> list[Val]:
        """Writes an iteration of `body`, whose carried arguments are bound to `state`; gives the next state."""
        k, ev = self.k, self.k.ev
        yields = list(body.terminator.operands)
        arguments = body.args[len(body.args) - len(self.cells) :]
        spare: dict[int, Cell] = {}
        stays: set[int] = set()
        rest = iter(state)
        for i, cell in enumerate(self.cells):
            if cell is None:
                for _ in range(k.width(yields[i])):
                    next(rest)
                continue
            next(rest)
            spare[i] = Cell(next(rest), cell.strides, cell.dtype)
        ready: dict[Value, int] = {}
        for i, cell in spare.items():
            v = yields[i]
            if v not in ready and made_here(v, body):
                ready[v] = i
                if adds_to(v, arguments[i]):
                    stays.add(i)
                    cell = ev.cells[arguments[i]]
                ev.cells[v] = cell
        plan = k.block(body, ready)
        writer = k.writer(plan)
        out: list[Val] = []
        for i, v in enumerate(yields):
            if self.cells[i] is None:
                out += k.registers(v)
            elif i in stays or v is arguments[i]:
                out += [ev.cells[v].ptr, spare[i].ptr]
            else:
                if ready.get(v) != i:
                    writer.write(plan.copy(v, spare[i]))
                out += [spare[i].ptr, ev.cells[arguments[i]].ptr]
        ev.memo = {}
        return out


def adds_to(v: Value, tile: Value) -> bool:
    """Whether `v` is a product that is added to `tile`, or to it scaled, and nobody else reads the tile."""
    if v.op is None or v.op.name != "tile.mma":
        return False
    acc = v.op.operands[2]
    scaled = scaling_of(acc)
    return (acc if scaled is None else scaled[0]) is tile and len(acc.users) == len(tile.users) == 1


@writes("for")
def write_for(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    fn, ev = k.fn, k.ev
    body = op.region.block
    lay_out(k, op)
    carried = CarriedCells(k, op.operands[3:], plan, writer)
    lower, upper = ev.index(op.operands[0]), ev.index(op.operands[1])
    step = fn.smax(ev.index(op.operands[2]), 1)  # a step that is not positive would never end
    if "going" in op.attrs:
        results = _while_going(k, op, carried, lower, upper, step)
    else:
        with fn.loop(lower, upper, step, carried.start) as loop:
            k.looks.in_loop()
            ev.memo = {}
            ev.indices[body.args[0]] = loop.index
            carried.bind(body.args[1:], loop.carried)
            loop.next = carried.run(body, loop.carried)
        results = loop.results
    ev.memo = {}
    carried.bind(op.results, results)


def _while_going(
    k: KernelFunction, op: Op, carried: CarriedCells, lower: Index, upper: Index, step: Index
) -> list[Val]:
    """A counted loop that is left where its flag says so; gives the carried state behind it."""
    fn, ev, body = k.fn, k.ev, op.region.block
    at = carried.offset(int(op.attrs["going"]))  # type: ignore[call-overload]

    def test(state: list[Val]) -> Val:
        return fn.binary("and", fn.icmp("slt", state[0], upper), state[1 + at])

    def run(state: list[Val]) -> list[Val]:
        k.looks.in_loop()
        ev.memo = {}
        ev.indices[body.args[0]] = state[0]
        carried.bind(body.args[1:], state[1:])
        return [fn.index(fn.add(state[0], step)), *carried.run(body, state[1:])]

    return fn.while_loop([fn.here(fn.index(lower)), *carried.start], test, run)[1:]


@writes("while")
def write_while(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    head, body = (r.block for r in op.regions)
    lay_out(k, op)
    carried = CarriedCells(k, op.operands, plan, writer)

    def test(state: list[Val]) -> Val:
        k.ev.memo = {}
        carried.bind(head.args, state)
        carried.bind(body.args, state)
        k.block(head)
        (go,) = k.registers(head.terminator.operands[0])
        k.ev.memo = {}
        return go

    def run(state: list[Val]) -> list[Val]:
        k.looks.in_loop()
        return carried.run(body, state)

    results = k.fn.while_loop(carried.start, test, run)
    k.ev.memo = {}
    carried.bind(op.results, results)


@writes("if")
def write_if(k: KernelFunction, op: Op, _plan: Planner, _writer: NestWriter) -> None:
    """Each branch leaves its tiles in the results' memory and its scalars in registers."""
    fn, ev = k.fn, k.ev
    (condition,) = k.registers(op.operands[0])
    cells = [k.scratch(r) if shape_of(r) else None for r in op.results]

    def branch(block: Block) -> list[Val]:
        ev.memo = {}
        yields = list(block.terminator.operands)
        ready: dict[Value, int] = {}
        for i, (v, cell) in enumerate(zip(yields, cells, strict=True)):
            if cell is not None and v not in ready and made_here(v, block):
                ready[v] = i
                ev.cells[v] = cell
        plan = k.block(block, ready)
        writer = k.writer(plan)
        out: list[Val] = []
        for i, (v, cell) in enumerate(zip(yields, cells, strict=True)):
            if cell is None:
                out += k.registers(v)
            elif ready.get(v) != i:
                writer.write(plan.copy(v, cell))
        ev.memo = {}
        return out

    values = iter(fn.choose(condition, lambda: branch(op.regions[0].block), lambda: branch(op.regions[1].block)))
    for r, cell in zip(op.results, cells, strict=True):
        if cell is None:
            k.set_registers(r, [next(values) for _ in range(k.width(r))])
        else:
            ev.cells[r] = cell
