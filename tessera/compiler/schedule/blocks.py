"""How much of each axis one program takes. Block sizes never change results: reduction orders do not depend on them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from tessera.compiler.ir.types import Shape
from tessera.compiler.machines import Sizes, sizes_of
from tessera.language import dtypes
from tessera.language.dims import Dim, ceildiv, prod
from tessera.language.dtypes import DType

TENSOR_DTYPES = frozenset((dtypes.f16, dtypes.bf16, dtypes.tf32))


def sizes_for(target: str | Sizes, block: tuple[int, ...] = ()) -> Sizes:
    """The sizes of programs on a target; `block`: rows and columns that a `Schedule` sets instead."""
    found = target if isinstance(target, Sizes) else sizes_of(target)
    if not block:
        return found
    rows, columns = block[0], block[-1]
    return replace(found, elements=rows * columns, rows=rows, columns=columns, most_columns=columns,
                   contract_rows=rows, contract_columns=columns, programs=1, products=())  # fmt: skip


def map_block(dims: Shape, target: str | Sizes, units: Collection[int] = ()) -> tuple[int, ...]:
    """Whole trailing axes as far as they fit, then a part of the next, then one.

    `units` are the axes along which memory is contiguous for some access. Where there are several, as in a
    transposition, they share the block evenly: a line of memory that one step has fetched is used up by the next ones.
    """
    s = sizes_for(target)
    left = s.elements
    taken: dict[int, int] = {}
    several = sorted(units, key=lambda a: _clip(dims[a], s.elements)) if len(units) > 1 else []
    for n, a in enumerate(several):
        taken[a] = _clip(dims[a], int(left ** (1 / (len(several) - n))))
        left = max(1, left / taken[a])
    for a in reversed(range(len(dims))):
        if a not in taken:
            taken[a] = _clip(dims[a], _even(left) if s.band else int(left))
            left = max(1, left / taken[a]) if taken[a] == dims[a] else 1
    return tuple(taken[a] for a in range(len(dims)))


def part_block(
    block: tuple[int, ...], dims: Shape, strides: Collection[Dim | None], target: str | Sizes
) -> tuple[int, ...]:
    """The block of a part of a larger result, no longer along its first axis than that of the whole would be: launches
    that compute parts then advance side by side in bands. `strides`: of that axis, in all results."""
    s, longest = sizes_for(target), max((n for n in strides if isinstance(n, int)), default=0)
    inside = prod(dims[1:])
    if not s.band or not isinstance(inside, int) or longest <= inside:
        return block
    return min(block[0], _even(max(1, s.elements / longest))), *block[1:]


def row_block(dims: Shape, inner: tuple[bool, ...], target: str | Sizes) -> tuple[Dim, ...]:
    """Inner axes whole; of the outer ones a few rows, or columns where the innermost axis is not reduced.

    Columns are read a piece at a time in every row of the block: the longer the pieces the better, as long as there
    are programs enough to share.
    """
    s = sizes_for(target)
    row = prod(d for d, is_inner in zip(dims, inner, strict=True) if is_inner)
    others = prod(d for d, is_inner in zip(dims[:-1], inner, strict=False) if not is_inner)
    left = max(1, s.row_elements // row) if isinstance(row, int) and row else 1
    out: list[Dim] = []
    for a in reversed(range(len(dims))):
        if inner[a]:
            out.append(dims[a])
            continue
        limit = min(left, s.rows) if inner[-1] or a != len(dims) - 1 else _columns(dims[a], others, s)
        take = _clip(dims[a], limit)
        out.append(take)
        left = max(1, left // take) if take == dims[a] else 1
    return tuple(reversed(out))


def _columns(columns: Dim, others: Dim, s: Sizes) -> int:
    """The most that leaves a few programs, of `others` along the axes before and of the columns together."""
    if not isinstance(columns, int) or not isinstance(others, int):
        return s.columns
    shares = max(1, s.programs // max(1, others))
    block = min(s.most_columns, max(s.columns, _up(-(-columns // shares), 16)))
    pieces = -(-columns // block)
    return _up(-(-columns // (pieces + pieces % 2)), 16) if pieces > 1 else block  # as much for either of two threads


def contract_block(
    m: Dim, n: Dim, target: str | Sizes, dtype: DType | None = None, batch: Dim = 1, k: Dim = 1
) -> tuple[int, int]:
    """Rows and columns of a product that one program computes; `dtype` is its operands', `batch` how many there are,
    `k` how many products each element sums.

    A vector times a matrix packs nothing, and reads long pieces of the matrix' rows: short ones cost a page each. For a
    matrix times a few columns, the lanes of a vector hold rows. Two programs share a small product of long operands.
    Where few products are summed, memory takes the results: blocks of them leave one after the other, in whole lines.
    """
    s = sizes_for(target)
    if s.products and dtype in TENSOR_DTYPES:
        return _tensor_block(m, n, batch, s)
    rows, columns = _clip(m, s.contract_rows), _clip(n, s.contract_columns)
    if not isinstance(m, int) or not isinstance(n, int) or s.programs == 1:
        return rows, columns
    if m == 1 and n >= s.programs * s.contract_columns:
        columns = min(4 * s.contract_columns, max(2 * s.contract_columns, _up(-(-n // s.programs), 32)))
    elif m >= 8 * _ROWS and n > _FEW and batch == 1 and isinstance(k, int) and 1 < k <= _SHORT:
        columns = min(n, s.most_columns)
        rows = min(rows, max(1, 2 * s.elements // columns // _ROWS) * _ROWS)
    elif m >= 8 * _ROWS:
        shares = s.programs
        if isinstance(batch, int) and batch > 1:  # one of many products is shared no further than keeps threads busy
            shares = min(shares, -(-2 * s.programs // batch))
        if n > _FEW:
            return _least_work(m, n, s, batch if isinstance(batch, int) else 1, shares, dtype in _NARROW)
        rows = min(rows, _up(-(-m // shares), _LANES), _PART)
    elif m * n >= 64 * 64:
        columns = min(columns, max(64, _up(-(-n // s.programs), 32)))
    if rows >= m and columns >= max(n, 2 * _LANES) and batch == 1 and isinstance(k, int) and m * n * k >= _LONG:
        columns = _up(-(-n // 2), _LANES)
    return max(1, min(rows, m)), max(1, min(columns, n))


def whole_runs(columns: int, n: int, run: int, s: Sizes) -> int:
    """About as many of `n` columns, in even blocks of whole runs of neighbours, where a block has room for one: the
    windows of a convolution are then read where they are."""
    room = columns // run
    if s.programs == 1 or not room or n % run:
        return columns
    return run * -(-(n // run) // -(-(n // run) // room))


def common_block(other: int, count: int, own: int, limits: tuple[int, int], s: Sizes) -> tuple[int, int]:
    """What a program computes of `count` products that have an operand in common: how much of its axis of `other`
    elements, and how many products, which have `own` elements along theirs. `limits` of a block, along either axis.
    Whole products rather than parts of them: each packs its own elements one by one."""
    down = -(-other // limits[0])
    several = max(1, min(limits[1] // own, -(-count // -(-s.programs // down))))
    pieces = max(down, -(-s.programs // -(-count // several)))
    return min(other, limits[0], _up(-(-other // pieces), _LANES)), several


def _least_work(m: int, n: int, s: Sizes, batch: int, shares: int, narrow: bool) -> tuple[int, int]:
    """Even blocks, for as many programs as threads share, that have the least to do: sharing out rows repeats the
    packing of the right operand, sharing out columns that of the left one, and register blocks of up to 14 by 32,
    either way round, are filled up. The busiest of so many threads counts. Of blocks that have as much to do, those
    whose last one is least shorter than the others keep threads equally busy. `shares`: how far one product is cut.
    `narrow`: products are fast, and may be those of tile registers, in blocks of up to 32 by 32.

    A right operand that is much larger than the left one comes from further away, so its packing takes longer than is
    counted here: rows are shared out no further than they must be."""
    found: dict[tuple[int, int], float] = {}
    least, fewest, wide = -(-n // s.contract_columns), -(-m // s.contract_rows), n >= _WIDER * m
    for c in range(least, least + (s.programs if wide else shares)):
        first = max(fewest, -(-shares // c))
        columns = min(n, _up(-(-n // c), _LANES))
        across = -(-n // columns)
        for r in (fewest,) if wide else range(first, first + shares):
            for unit in (_LANES,) if narrow else (_ROWS, _LANES):
                rows = min(m, _up(-(-m // r), unit))
                down = -(-m // rows)
                programs = down * across * batch
                filled = min(_panels(rows) * _up(columns, _LANES), _up(rows, _LANES) * _panels(columns))
                packed = _PACKED * (_FASTER if narrow else 1) * (across * m + down * n)
                work = down * across * filled + packed
                if programs >= s.programs:
                    found.setdefault((rows, columns), work * _up(programs, s.programs) / programs)
    return min(found, key=lambda block: (found[block], -m % block[0]))


def _panels(n: int) -> int:
    """As many rows, in equal panels of up to 14."""
    panels = -(-n // _ROWS)
    return panels * -(-n // panels)


def diagonal_block(n: Dim, s: Sizes) -> int:
    """How many dot products of a batch one program takes: whole vectors of them."""
    most = _clip(n, s.contract_rows // _LANES * _LANES)
    return min(most, max(1, _up(-(-n // s.programs), _LANES))) if isinstance(n, int) and s.programs > 1 else most


def _tensor_block(m: Dim, n: Dim, batch: Dim, s: Sizes) -> tuple[int, int]:
    """Sizes that are known at launch only count as large."""
    for rows, columns in s.products:
        programs = ceildiv(m, rows) * ceildiv(n, columns) * batch
        if not isinstance(programs, int) or programs >= s.multiprocessors:
            return _clip(m, rows), _clip(n, columns)
    return _clip(m, s.products[-1][0]), _clip(n, s.products[-1][1])


_ROWS = 14
_LONG = 1 << 23
"""multiplications that repay packing the left operand twice"""
_FEW, _LANES = 8, 32
_PART = 256
"""rows of a program for few columns: short enough that the other threads are soon done where one loses its processor"""
_PACKED = 32
"""multiplications that take as long as packing an element, roughly: it comes from another cache or from memory"""
_WIDER = 4
"""how many times as many columns as rows a product has whose right operand is much larger than its left one"""
_NARROW, _FASTER = frozenset((dtypes.bf16, dtypes.int8, dtypes.uint8)), 4
"""dtypes whose products are about so many times as fast, and more in tile registers"""
_SHORT = 64
"""products up to which to store the sum takes longer than to add them"""


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def _even(count: float) -> int:
    """The power of two that is nearest: bands hold whole programs of each launch, of rows that are not equally long."""
    return 1 << round(math.log2(count))


def _clip(d: Dim, limit: int) -> int:
    return max(1, min(d, limit)) if isinstance(d, int) else limit


def grid(dims: Shape, block: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Programs per axis."""
    return tuple(ceildiv(d, b) if b != d else 1 for d, b in zip(dims, block, strict=True))
