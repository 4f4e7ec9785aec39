"""Vectors in registers, transposed by shuffles."""

from __future__ import annotations

from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import Val


def transpose(fn: LLVMFunction, rows: list[Val]) -> list[Val]:
    """As many vectors as lanes, transposed: pieces of 128 bits between vectors, then elements within pieces.

    Shuffles that keep to pieces need no register for their pattern and take the fewest cycles.
    """
    n = len(rows)
    size = max(1, min(128 // rows[0].ty.bits, n))
    if n // size not in (2, 4):
        return interleaved(fn, rows, n)
    moved = [_pieces(fn, rows[r::size], size) for r in range(size)]
    return [v for column in zip(*moved, strict=True) for v in interleaved(fn, list(column), size)]


def _pieces(fn: LLVMFunction, rows: list[Val], size: int) -> list[Val]:
    """2 or 4 vectors of as many pieces, transposed piece by piece."""

    def pick(a: Val, b: Val, *pieces: int) -> Val:
        """The first half of the pieces from `a`, the others from `b`."""
        half, lanes = len(pieces) // 2, size * len(pieces)
        return fn.shuffle(
            a, b, [(lanes if i >= half else 0) + p * size + j for i, p in enumerate(pieces) for j in range(size)]
        )

    if len(rows) == 2:
        return [pick(rows[0], rows[1], p, p) for p in range(2)]
    low, high = ([pick(rows[i], rows[i + 1], p, p + 1, p, p + 1) for i in (0, 2)] for p in (0, 2))
    return [pick(part[0], part[1], p, p + 2, p, p + 2) for part in (low, high) for p in range(2)]


def interleaved(fn: LLVMFunction, rows: list[Val], size: int) -> list[Val]:
    """Each piece of `size` vectors transposed by repeated perfect shuffles of vector i with vector i + half."""
    lanes, half = rows[0].ty.lanes, size // 2
    for _ in range(size.bit_length() - 1):
        mixed: list[Val] = []
        for i in range(half):
            for start in (0, half):
                mask = [p + start + j // 2 + j % 2 * lanes for p in range(0, lanes, size) for j in range(size)]
                mixed.append(fn.shuffle(rows[i], rows[i + half], mask))
        rows = mixed
    return rows


def woven(fn: LLVMFunction, rows: list[Val]) -> list[Val]:
    """The first lanes of all vectors, then the second ones, and so on, in as many vectors: a power of two of them."""
    if len(rows) == 1:
        return rows
    n, out = rows[0].ty.lanes, list[Val]()
    for even, odd in zip(woven(fn, rows[::2]), woven(fn, rows[1::2]), strict=True):
        for start in (0, n // 2):
            out.append(fn.shuffle(even, odd, [start + i // 2 + i % 2 * n for i in range(n)]))
    return out
