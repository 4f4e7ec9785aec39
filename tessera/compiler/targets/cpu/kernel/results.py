"""Results of products that go from registers to where the program stores them, without scratch memory between.

Behind a product often comes nothing but the store of its result, perhaps rounded to a narrower float. The product then
stores each block itself, as soon as its last products are added: the time in which memory takes a block is the time in
which the next one is computed. It does so with vectors of 512 bits, whose masks end at the last column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cpu.elementary.convert import cast, memory_element, pack
from tessera.compiler.targets.cpu.elementary.vectormath import VectorMath
from tessera.compiler.targets.cpu.kernel.instructions import narrow
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I1, I32, Index, Val
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.tile.dialect import matrix_sizes
from tessera.compiler.tile.loops.axes import known_or_self, shape_of
from tessera.compiler.tile.loops.plan import Planner
from tessera.compiler.tile.loops.stages import LoopGroup, memory_of
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType

if TYPE_CHECKING:
    from tessera.compiler.targets.cpu.kernel.function import KernelFunction

NARROW = (dtypes.bf16, dtypes.f16)
"""floats that sums of f32 are rounded to on the way"""


@immutable
class Destination:
    """Where the first element of a program's block belongs in memory, how far rows are apart, and the dtype there."""

    ptr: Val
    pitch: Index
    dtype: DType


def store_behind(op: Op, plan: Planner) -> tuple[LoopGroup, Op] | None:
    """The stage of the plan behind a product, and its op, where that only stores the product's result."""
    at = next(i for i, stage in enumerate(plan.stages) if stage is op)
    group = plan.stages[at + 1] if at + 1 < len(plan.stages) else None
    if not isinstance(group, LoopGroup) or len(group.nests) != 1 or group.nests[0].also:
        return None
    store = group.nests[0].roots[0].op
    if len(group.nests[0].roots) != 1 or store is None or store.name != "tile.store" or store.attrs.get("masked"):
        return None
    value = store.operands[1]
    while len(list(value.uses)) == 1 and value is not op.result:
        if value.op is None or value.op.name not in ("tile.cast", "tile.reshape"):
            return None
        value = value.op.operands[0]
    return (group, store) if value is op.result and len(list(value.uses)) == 1 else None


def destination(k: KernelFunction, op: Op, plan: Planner) -> tuple[LoopGroup, Destination] | None:
    """Where the result of a product of known depth is stored, and the stage that would do that; None where something
    else happens to it, or where it is stored some other way than row by row."""
    found, acc = store_behind(op, plan), dtype_of(op.result)
    if found is None or not k.isa.masks or acc.is_complex or acc.kind == "bool":
        return None
    group, store = found
    view, d = store.operands[0], dtype_of(store.operands[1])
    if d != acc and not (acc == dtypes.f32 and d in NARROW):
        return None
    (height, depth), (_, width) = (matrix_sizes(op, i) for i in range(2))
    assert isinstance(view.type, ViewType)
    shape, at, strides = view.type.shape, store.operands[2:], k.ev.view_strides(view)
    around = len(shape) - 2  # axes of one element
    one_matrix = shape_of(store.operands[1]) == (1,) * around + shape_of(op.result)
    placed = shape[around:] == (height, width) and [*map(known_or_self, at[around:])] == [
        *map(known_or_self, op.operands[2:4])
    ]
    inside = all(all(k.ev.bounds.inside(o, 1, n)) for o, n in zip(at[:around], shape, strict=False))
    if not (one_matrix and placed and inside and isinstance(depth, int) and depth > 0 and isinstance(height, int)):
        return None
    others = [memory_of(v) for v in op.operands[:2]]
    if strides[-1] != 1 or k.ev.is_streamed(store) or memory_of(view) in others:
        return None
    place: Index = 0
    for o, stride in zip(at, strides, strict=True):
        place = k.fn.add(place, k.fn.mul(k.ev.index(o), stride))
    return group, Destination(k.fn.gep(k.ev.base(view), place, memory_element(d)), strides[-2], d)


@immutable
class ResultBlock:
    """Vectors of a block's results, row by row, with as many in each row."""

    isa: VectorISA
    acc: DType
    stored: DType
    values: list[Val]
    vectors: int
    of_pairs: bool = False
    """they are sums of `narrow.add_pairs`, whose subnormal numbers count as zero"""

    def store(self, fn: LLVMFunction, to: Val, pitch: Index, rows: Index, columns: Index) -> None:
        """Stores as many of its rows and columns as there are in the matrix from `to` on."""
        count, element = len(self.values) // self.vectors, memory_element(self.stored)
        rounded = [self._line(fn, self.values[i * self.vectors : (i + 1) * self.vectors]) for i in range(count)]
        width = rounded[0][0].ty.lanes
        starts = range(0, width * len(rounded[0]), width)

        def whole() -> None:
            for i, line in enumerate(rounded):
                for start, v in zip(starts, line, strict=True):
                    fn.store(v, fn.gep(fn.gep(to, fn.mul(pitch, i), element), start, element), self.stored.itemsize)

        def part() -> None:
            numbers = Val(f"<{', '.join(f'i32 {i}' for i in range(width))}>", I32.wide(width))
            left = [fn.convert("trunc", fn.index(fn.sub(columns, start)), I32) for start in starts]
            masks = [fn.compare("icmp slt", numbers, fn.splat(n, width)) for n in left]
            for i, line in enumerate(rounded):
                with fn.when(fn.icmp("slt", i, rows)):
                    for start, v, mask in zip(starts, line, masks, strict=True):
                        p = fn.gep(fn.gep(to, fn.mul(pitch, i), element), start, element)
                        store_lanes(fn, v, p, mask, self.stored.itemsize)

        full = fn.binary("and", fn.icmp("sge", rows, count), fn.icmp("sge", columns, width * len(starts)))
        fn.either(full, whole, part)

    def _line(self, fn: LLVMFunction, line: list[Val]) -> list[Val]:
        """A row of the block as it is stored."""
        if self.of_pairs and self.stored == dtypes.bf16:
            return [narrow.rounded(fn, *line)]
        vm = VectorMath(fn, self.isa)
        if self.stored.itemsize < self.acc.itemsize and self.vectors == 2:  # one register in memory
            line = [fn.shuffle(line[0], line[1], range(2 * line[0].ty.lanes))]
        return [pack(cast(v, self.acc, self.stored, vm), self.stored, vm) for v in line]


def store_lanes(fn: LLVMFunction, v: Val, p: Val, mask: Val, align: int) -> None:
    """Stores the lanes that the mask says."""
    m, name = I1.wide(v.ty.lanes), f"llvm.masked.store.{v.ty.suffix}.p0"
    fn.module.declare(f"declare void @{name}({v.ty.text}, ptr, {m.text})")
    fn.do(f"call void @{name}({v!r}, ptr align {align} {p.ref}, {mask!r})")
