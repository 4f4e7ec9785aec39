"""Constant right operands of products, packed before the first call.

A product that packs its right operand does so in every program of every call. Where that operand is a parameter whose
elements never change (`Param.constant`), the Program gets a buffer for its packed form, which whoever runs the code
fills once by a function of the module. The kernel has the buffer as one more argument: a block of few rows may still
read the operand where it is.
"""

from __future__ import annotations

from dataclasses import field, replace

from tessera.compiler.ir.core import Op, clone
from tessera.compiler.ir.types import ViewType
from tessera.compiler.targets.cpu.kernel.function import PITCH
from tessera.compiler.targets.cpu.kernel.packed_matmul import PackedMatmul, pack_ahead
from tessera.compiler.targets.cpu.kernel.small_matmul import Shape, direct_kind
from tessera.compiler.targets.cpu.llvm.emit import LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.tile.dialect import matrix_sizes
from tessera.compiler.tile.loops.axes import shape_of
from tessera.compiler.tile.offsets import strides_of
from tessera.compiler.tile.program import Branch, Buffer, BufferArg, Launch, Loop, Program, Step
from tessera.immutable import immutable, mutable
from tessera.language import dtypes


@immutable
class PackedConstant:
    """A buffer of the Program, packed from another one by the function `name`. Equal layouts mean equal content."""

    buffer: int
    source: int
    kind: PackedMatmul
    sizes: tuple[int, int]
    """of k and n; and the strides of the source"""
    strides: tuple[int, int]

    @property
    def layout(self) -> str:
        k, n = self.sizes
        return f"{self.kind.panel(True).name}_{k}x{n}_{self.strides[0]}_{self.strides[1]}"

    @property
    def name(self) -> str:
        return f"ready_{self.layout}"

    @property
    def bytes(self) -> int:
        return self.kind.ready_bytes(self.sizes[0])

    def write(self, module: LLVMModule) -> None:
        if not any(f.name == self.name for f in module.functions):
            pack_ahead(module, self.kind, self.name, self.sizes, self.strides)


def pack_constants(program: Program, isa: VectorISA) -> tuple[Program, tuple[PackedConstant, ...]]:
    """The Program whose products read packed forms of constant operands, and what these are."""
    fixed = {b.id for b in program.buffers if b.role == "input" and b.param is not None}
    fixed = {b.id for b in program.buffers if b.id in fixed and _is_constant(program, b)}
    if not fixed:
        return program, ()
    change = _Change(isa, fixed, max(b.id for b in program.buffers) + 1)
    steps = tuple(map(change.step, program.steps))
    made = tuple(change.made.values())
    new = (Buffer(c.buffer, f"packed{i}", (c.bytes,), dtypes.uint8, "packed") for i, c in enumerate(made))
    return replace(program, steps=steps, buffers=(*program.buffers, *new)), made


def _is_constant(program: Program, b: Buffer) -> bool:
    assert b.param is not None
    p = program.params[b.param]
    return p.constant and not p.writes and b.id not in program.outputs


@mutable
class _Change:
    isa: VectorISA
    constant: set[int]
    next: int
    """the number of the next buffer"""
    made: dict[tuple[int, str], PackedConstant] = field(default_factory=dict[tuple[int, str], PackedConstant])
    """by source and layout"""

    def step(self, step: Step) -> Step:
        match step:
            case Launch():
                return self.launch(step)
            case Branch():
                return replace(step, then=tuple(map(self.step, step.then)), orelse=tuple(map(self.step, step.orelse)))
            case Loop():
                return replace(step, head=tuple(map(self.step, step.head)), body=tuple(map(self.step, step.body)))

    def launch(self, launch: Launch) -> Launch:
        args = launch.kernel.region.block.args
        given = {v: a for v, a in zip(args, launch.args, strict=True) if isinstance(a, BufferArg)}
        places = {v: i for i, v in enumerate(args)}
        found = [
            (i, places[op.operands[1]], kind)
            for i, op in enumerate(_contractions(launch.kernel))
            if self._is_fixed(given.get(op.operands[1])) and (kind := packed_kind(self.isa, op)) is not None
        ]
        if not found:
            return launch
        kernel, more = clone(launch.kernel, {}), list[BufferArg]()
        products = _contractions(kernel)
        block = kernel.region.block
        for i, place, (kind, sizes, strides) in found:
            source = launch.args[place]
            assert isinstance(source, BufferArg)
            constant = PackedConstant(self.next, source.buffer, kind, sizes, strides)
            constant = self.made.setdefault((source.buffer, constant.layout), constant)
            self.next += constant.buffer == self.next
            products[i].attrs["packed"] = (len(block.args), kind.ready)
            block.add_arg(ViewType((constant.bytes,), dtypes.uint8), "packed")
            more.append(BufferArg(constant.buffer))
        kernel.attrs["arg_names"] = (*kernel.attrs["arg_names"], *("packed" for _ in more))  # type: ignore[misc]
        return replace(launch, kernel=kernel, args=(*launch.args, *more))

    def _is_fixed(self, arg: BufferArg | None) -> bool:
        return arg is not None and arg.offset == 0 and arg.buffer in self.constant


def _contractions(kernel: Op) -> list[Op]:
    return [op for op in kernel.walk() if op.name == "tile.contract"]


Kind = tuple[PackedMatmul, tuple[int, int], tuple[int, int]]


def packed_kind(isa: VectorISA, op: Op) -> Kind | None:
    """How the right operand of a product is packed, as far as the panels go, and its sizes and strides. None where it
    is read in place, or has several axes of rows or columns."""
    left, right = op.operands[:2]
    rows, columns = shape_of(op.result)
    acc = dtype_of(op.result)
    if op.attrs.get("diagonal") or acc.is_complex or not isinstance(columns, int) or not _are_plain(op):
        return None
    (k, n), (sbk, sbn) = matrix_sizes(op, 1), strides_of(right)
    if not (isinstance(k, int) and isinstance(n, int) and isinstance(sbk, int) and isinstance(sbn, int)):
        return None
    width = 2 * isa.lanes(acc.bits)
    if columns <= width // 2 or (columns < n and columns % width) or k < 1 or 1 not in (sbk, sbn):
        return None
    if dtype_of(left) == dtype_of(right) == acc and isinstance(rows, int) and isinstance(matrix_sizes(op, 0)[0], int):
        known = tuple(s if isinstance(s, int) else None for s in (*strides_of(left), sbk, sbn, PITCH))
        if direct_kind(Shape(isa, acc, rows, columns, k, known, False), packed=True):
            return None
    along = "n" if sbn == 1 else "k"
    kind = PackedMatmul(isa, dtype_of(left), dtype_of(right), acc, "k", along, columns=width, ready=-(-n // width))
    return kind, (k, n), (sbk, sbn)


def _are_plain(op: Op) -> bool:
    """Whether both operands have one axis of rows and one of columns."""
    types = [v.type for v in op.operands[:2]]
    return all(isinstance(t, ViewType) and t.rank == 2 for t in types) and op.attrs.get("lead", (1, 1)) == (1, 1)
