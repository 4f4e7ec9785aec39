"""Functions of kernels with an op of their own (`TilePrimitive`): loops over the result, an element at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.targets.cpu.elementary import elementwise
from tessera.compiler.targets.cpu.elementary.convert import Pair, cast, constant, memory_element, round_to
from tessera.compiler.targets.cpu.kernel.function import KernelFunction, writes
from tessera.compiler.targets.cpu.llvm.values import Index, Val
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.targets.cpu.loops.memory import Cell, fill_value, held
from tessera.compiler.targets.cpu.loops.nests import NestWriter
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.primitive import PRIMITIVES, At, Element, ElementWriter, Operand
from tessera.language import dtypes
from tessera.language.dims import prod
from tessera.language.dtypes import DType


class LoopElements(ElementWriter):
    """LLVM instructions: values are registers (two for a complex number), indices i64."""

    def __init__(self, k: KernelFunction) -> None:
        self.fn, self.vm, self.mem = k.fn, k.ev.vm, k.ev.mem

    def fold(self, n: int, start: Element, step: Callable[[At, Element], Element]) -> Element:
        pair = isinstance(start.value, Pair)
        parts = [start.value.re, start.value.im] if isinstance(start.value, Pair) else [start.value]
        with self.fn.loop(0, n, carried=parts) as loop:
            before = Pair(*loop.carried) if pair else loop.carried[0]
            after = step(At(self, loop.index), Element(before, start.dtype)).value
            loop.next = [after.re, after.im] if isinstance(after, Pair) else [after]
        return Element(Pair(*loop.results) if pair else loop.results[0], start.dtype)

    def scalar(self, name: str, operands: Sequence[Element], dtype: DType, result: DType) -> Element:
        return Element(elementwise.apply(name, [x.value for x in operands], dtype, result, self.vm), result)

    def number(self, value: bool | int | float, dtype: DType) -> Element:
        return Element(constant(value, dtype, self.vm), dtype)

    def cast(self, x: Element, dtype: DType) -> Element:
        return Element(cast(x.value, x.dtype, dtype, self.vm), dtype)

    def index(self, name: str, a: Index, b: Index) -> Index:
        fn = self.fn
        ways = {"iadd": fn.add, "isub": fn.sub, "imul": fn.mul, "idiv": fn.div, "imod": fn.mod,
                "imin": fn.smin, "imax": fn.smax}  # fmt: skip
        return ways[name](a, b)

    def compare(self, name: str, a: Index, b: Index) -> Element:
        return Element(self.fn.icmp({"lt": "slt", "le": "sle", "eq": "eq"}[name], a, b), dtypes.bool_)

    def place(self, x: Element) -> At:
        return At(self, cast(x.value, x.dtype, dtypes.int64, self.vm))

    def counted(self, at: At, dtype: DType) -> Element:
        return Element(cast(self.fn.index(at.value), dtypes.int64, dtype, self.vm), dtype)

    def address(self, cell: Cell, at: Sequence[Index]) -> Val:
        offset: Index = 0
        for i, stride in zip(at, cell.strides, strict=True):
            offset = self.fn.add(offset, self.fn.mul(i, stride))
        return self.fn.gep(cell.ptr, offset, memory_element(cell.dtype))

    def read(self, cell: Cell, at: Sequence[Index]) -> Element:
        zero = fill_value(0, cell.dtype, self.vm)
        value = self.mem.load(self.address(cell, at), cell.dtype, 0, 1, None, zero, pure=False)
        return Element(value, cell.dtype)

    def write(self, cell: Cell, at: Sequence[Index], x: Element) -> None:
        self.mem.store(x.value, self.address(cell, at), cell.dtype, 0, 1, None)


@writes("primitive")
def write_primitive(k: KernelFunction, op: Op, plan: Planner, writer: NestWriter) -> None:
    c = LoopElements(k)
    code = PRIMITIVES[op.name].code("cpu", op)
    operands = [_operand(k, c, v, plan, writer) for v in op.operands]
    floor, k.ev.mem.floor = k.ev.mem.floor, k.fn.depth  # what has just been copied may be read from here on, not before
    try:
        _write_elements(k, op, c, code, operands)
    finally:
        k.ev.mem.floor = floor


def _write_elements(
    k: KernelFunction, op: Op, c: LoopElements, code: Callable[..., Element], operands: list[Operand]
) -> None:
    result = dtype_of(op.result)

    def element(at: list[Index]) -> Element:
        x = code(c, [At(c, i) for i in at], *operands, **op.attrs)
        wanted = x if x.dtype == result.compute else c.cast(x, result.compute)
        if result.is_low_precision and isinstance(wanted.value, Val):
            return Element(round_to(wanted.value, result, k.ev.vm), result)
        return wanted

    shape = shape_of(op.result)
    if not shape:
        value = element([]).value
        k.set_registers(op.result, [value.re, value.im] if isinstance(value, Pair) else [value])
        return
    target = k.ev.cells.setdefault(op.result, k.scratch(op.result))

    def across(at: list[Index]) -> None:
        if len(at) == len(shape):
            c.write(target, at, element(at))
            return
        with k.fn.loop(0, k.ev.dim(shape[len(at)])) as loop:
            across([*at, loop.index])

    across([])


def _operand(k: KernelFunction, c: LoopElements, v: Value, plan: Planner, writer: NestWriter) -> Operand:
    """An operand in memory, where elements at any places can be read; a scalar in registers."""
    shape, dtype = tuple(int(n) for n in shape_of(v)), dtype_of(v)  # type: ignore[arg-type]
    if not shape:
        value = Element(k.ev.element(v, ()), dtype)
        return Operand(shape, dtype, lambda at: value)
    kept = held(dtype)
    cell = Cell(k.raw(prod(shape) * kept.itemsize), k.ev.packed_strides(shape), kept)
    writer.write(plan.copy(v, cell))
    return Operand(shape, dtype, lambda at: c.read(cell, at))
