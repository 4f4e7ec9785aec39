"""Tiles of bf16 as matrices of words, each with two neighbours in k: what a product reads that needs no panels.

The layout is [k][rows or columns], or [rows][k] for a left operand whose rows lie along k: a product reads its left
operand word by word, so it need not be transposed.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Op
from tessera.compiler.targets.cpu.kernel.packing.panels import PackedPanel, pack_function, packer_of
from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction, LLVMModule
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import I64, PTR
from tessera.compiler.targets.cpu.loops.index import dtype_of
from tessera.compiler.tile.loops.axes import shape_of
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.language.order import CHAIN

FEW_PAIRS = 1 << 15
"""multiplications of tiles in scratch memory that are not worth packing two by two"""
MANY_PAIRS = 1 << 21
"""multiplications from which on panels are worth packing"""


def multiplies_words(isa: VectorISA, op: Op) -> bool:
    """Whether a product of tiles takes its operands as words: it is one chain of pairs, and fills a vector."""
    a, b, acc = op.operands
    sizes = [*shape_of(a), *shape_of(b)]
    if len(sizes) != 4 or not (dtype_of(a) == dtype_of(b) == dtypes.bf16 and dtype_of(acc) == dtypes.f32):
        return False
    m, depth, _, n = sizes
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(depth, int)) or op.attrs.get("subnormals"):
        return False
    fits = m > 1 and n >= isa.lanes(32) and depth % 2 == 0 and depth <= CHAIN
    return isa.bf16_products and not isa.bf16_tiles and fits and FEW_PAIRS < m * n * depth <= MANY_PAIRS


def words_function(
    module: LLVMModule, isa: VectorISA, storage: DType, sizes: tuple[int, int], along: str, right: bool
) -> tuple[str, tuple[int, int]]:
    """The name of a function `void(source, stride, k's stride, size, k, target)`, and the strides of its result.

    `sizes` and strides are those of the operand's own axis and of k, `along` ("p" or "k") says which has neighbours.
    `storage`: bf16, or f32 whose upper halves they are."""
    width, depth = sizes
    panel = PackedPanel(isa, storage, dtypes.f32, width, along, right, depth // 2, 2)
    if right or along == "p":
        return pack_function(module, panel), (1, width)
    return _lines(module, panel), (depth // 2, 1)


def _lines(module: LLVMModule, panel: PackedPanel) -> str:
    """Writes lines of neighbours in k one behind the other."""
    name = f"{panel.name}_lines{panel.steps}"
    if not any(f.name == name for f in module.functions):
        params = [("source", PTR), ("sp", I64), ("sk", I64), ("valid", I64), ("kc", I64), ("target", PTR)]
        fn = LLVMFunction(module, name, params)
        packer = packer_of(fn, panel)
        with fn.loop(0, panel.width) as line:
            row = packer.at(fn.param(0), fn.mul(line.index, fn.param(1)))
            to = fn.gep(fn.param(5), fn.mul(line.index, panel.steps), panel.element.elem)
            packer.pieces(lambda place, lanes: packer.read(packer.at(row, 2 * place), lanes), to, panel.steps)
    return name
