"""How much of each axis one program takes. Block sizes never change results: reduction orders do not depend on them."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.compiler.ir.types import Shape
from tessera.language.dims import Dim, ceildiv


@dataclass(frozen=True, slots=True)
class Sizes:
    """Elements per program of elementwise and row kernels, and the block of a contraction."""

    elements: int
    row_elements: int
    rows: int
    columns: int
    contract_rows: int
    contract_columns: int
    contract_programs: int
    """programs that a contraction is split into where it is large enough, rows first"""


SIZES: dict[str, Sizes] = {
    # One program should run for microseconds (a worker's hand-over costs one) and stay in the first-level cache.
    "cpu": Sizes(
        elements=16384,
        row_elements=8192,
        rows=64,
        columns=256,
        contract_rows=504,
        contract_columns=512,
        contract_programs=4,
    ),
    # 128 threads with eight elements each; a row is spread over the block's threads.
    "cuda": Sizes(
        elements=1024,
        row_elements=4096,
        rows=16,
        columns=64,
        contract_rows=64,
        contract_columns=64,
        contract_programs=1,
    ),
}


def sizes_for(device: str) -> Sizes:
    return SIZES.get(device, SIZES["cpu"])


def map_block(dims: Shape, device: str) -> tuple[int, ...]:
    """Whole trailing axes as far as they fit, then a part of the next, then one."""
    left = sizes_for(device).elements
    out: list[int] = []
    for d in reversed(dims):
        take = _clip(d, left)
        out.append(take)
        left = max(1, left // take) if isinstance(d, int) and take >= d else 1
    return tuple(reversed(out))


def row_block(dims: Shape, inner: tuple[bool, ...], device: str) -> tuple[Dim, ...]:
    """Inner axes whole; of the outer ones a few rows, or columns where the innermost axis is not reduced."""
    s = sizes_for(device)
    row: Dim = 1
    for d, is_inner in zip(dims, inner, strict=True):
        if is_inner:
            row = row * d
    rows = max(1, min(s.rows, s.row_elements // row)) if isinstance(row, int) and row else 1
    out: list[Dim] = []
    last = len(dims) - 1
    for i in range(last, -1, -1):
        if inner[i]:
            out.append(dims[i])
        elif i == last:
            out.append(_clip(dims[i], s.columns))
            rows = 1
        else:
            out.append(_clip(dims[i], rows))
            rows = 1
    return tuple(reversed(out))


def contract_block(m: Dim, n: Dim, device: str) -> tuple[int, int]:
    """Rows and columns of a product that one program computes.

    Sharing out rows repeats the packing of the right operand, which is a copy; sharing out columns repeats that of
    the left one, which is a transposition. So rows are shared first, in multiples of the 14 that a register block has.
    """
    s = sizes_for(device)
    rows, columns = _clip(m, s.contract_rows), _clip(n, s.contract_columns)
    if not isinstance(m, int) or not isinstance(n, int) or s.contract_programs == 1:
        return rows, columns
    if m >= 8 * _ROWS:
        rows = min(rows, _up(-(-m // s.contract_programs), _ROWS))
    elif m * n >= 64 * 64:
        columns = min(columns, max(64, _up(-(-n // s.contract_programs), 32)))
    return max(1, min(rows, m)), max(1, min(columns, n))


_ROWS = 14


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


def _clip(d: Dim, limit: int) -> int:
    return max(1, min(d, limit)) if isinstance(d, int) else limit


def grid(dims: Shape, block: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Programs per axis."""
    return tuple(ceildiv(d, b) if b != d else 1 for d, b in zip(dims, block, strict=True))
