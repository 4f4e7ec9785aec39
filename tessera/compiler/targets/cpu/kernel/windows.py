"""Products whose right operand is windows of an array, such as those of a convolution, read where they are.

The columns are runs of neighbours, such as the rows of an image. For each run the direct way of small_matmul.py reads
the line of each k at the place that a table says. Windows overlap, so a core's own caches have most of what is read.
"""

from __future__ import annotations

from tessera.compiler.ir.core import Value
from tessera.compiler.targets.cpu.kernel.operands import MatrixOperand
from tessera.compiler.targets.cpu.llvm.isa import VectorISA
from tessera.compiler.targets.cpu.llvm.values import Index
from tessera.compiler.tile.loops.axes import known_index
from tessera.compiler.tile.loops.sizes import SPREAD
from tessera.language.dtypes import DType
from tessera.language.order import SPAN

PACKING = 8
"""rows that take about as long to multiply as the right operand takes to be packed; what fills up halves of vectors
takes time for each row"""


def run_of(
    isa: VectorISA, a: MatrixOperand, b: MatrixOperand, acc: DType, sizes: tuple[int, int, Index], start: Value
) -> int:
    """How many columns of a program's block are side by side, where the windows are read in place; else 0.

    `start`: the column at which the block begins.
    """
    rows, columns, depth = sizes
    if not isa.masks or b.walks is None or not (a.dtype == b.dtype == acc and acc.is_float):
        return 0
    own, step, lanes = b.walks[1], a.strides[1], isa.lanes(acc.bits)
    if own[-1][1] != 1 or rows < 2 or not isinstance(depth, int) or not 0 < depth <= SPAN:
        return 0
    near = isinstance(step, int) and depth * step * acc.itemsize <= SPREAD
    if not (near if a.walks is None else len(a.walks[0]) == 1):
        return 0
    run = columns if len(own) == 1 else own[-1][0]
    if not isinstance(run, int) or run < lanes or columns % run or not (len(own) == 1 or _is_multiple(start, run)):
        return 0
    half = lanes // 2
    return run if -(-run // half) * half * rows <= run * (rows + PACKING) else 0


def _is_multiple(v: Value, of: int) -> bool:
    """Whether an index is known to be a multiple: a program's number times one, or a number."""
    numbers = [known_index(v)]
    if v.op is not None and v.op.name == "tile.imul":
        numbers = [known_index(x) for x in v.op.operands]
    return any(n is not None and n % of == 0 for n in numbers)
