"""Vectors in registers, transposed by shuffles."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.targets.cpu.llvm.emit import LLVMFunction
from tessera.compiler.targets.cpu.llvm.values import Val

FEW = 8
"""vectors of which any power of two and any odd number is woven in registers"""


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
    """The first lanes of all vectors, then the second ones, and so on, in as many vectors (see `weavable`)."""
    n, count, out = rows[0].ty.lanes, len(rows), list[Val]()
    if count == 1:
        return rows
    if count % 2:
        order = [[pow(count, -1, n) * (p - k) % n for p in range(n)] for k in range(count)]
        moved = [fn.shuffle(row, None, order[k]) for k, row in enumerate(rows)]
        return [picked(fn, moved, [((j * n + p) % count, p) for p in range(n)]) for j in range(count)]
    for even, odd in zip(woven(fn, rows[::2]), woven(fn, rows[1::2]), strict=True):
        for start in (0, n // 2):
            out.append(fn.shuffle(even, odd, [start + i // 2 + i % 2 * n for i in range(n)]))
    return out


def apart(fn: LLVMFunction, rows: list[Val]) -> list[Val]:
    """The other way round, for as many vectors as `weavable` takes: of what lies one behind the other, the first of
    each group of `len(rows)` neighbours, then the second ones, and so on."""
    n, count = rows[0].ty.lanes, len(rows)
    if count == 1:
        return rows
    if count % 2 == 0:
        pairs = list(zip(rows[::2], rows[1::2], strict=True))
        even, odd = ([fn.shuffle(a, b, range(k, 2 * n, 2)) for a, b in pairs] for k in (0, 1))
        return [v for both in zip(apart(fn, even), apart(fn, odd), strict=True) for v in both]
    return [picked(fn, rows, [divmod(i * count + k, n) for i in range(n)]) for k in range(count)]


def picked(fn: LLVMFunction, rows: Sequence[Val], places: Sequence[tuple[int, int]]) -> Val:
    """A vector of the lanes that `places` name by vector and lane. Where no two are at one place of their vectors,
    they stay there until all are in one vector, which takes the least; else they move one vector after the other."""
    n, found = len(places), rows[0]
    stay = len({lane for _, lane in places}) == n
    for j, row in enumerate(rows[1:], 1):
        if stay:
            mine = {lane for owner, lane in places if owner == j}
            found = fn.shuffle(found, row, [n + i if i in mine else i for i in range(n)])
        else:
            before = [i if j > 1 else lane for i, (_, lane) in enumerate(places)]
            found = fn.shuffle(
                found, row, [n + lane if owner == j else before[i] if owner < j else -1
                             for i, (owner, lane) in enumerate(places)],
            )  # fmt: skip
    return fn.shuffle(found, None, [lane for _, lane in places]) if stay else found


def weavable(count: int, lanes: int) -> bool:
    """Whether so many vectors are woven, and taken apart, in registers: a power of two of them, or a small odd number,
    of which each leaves the others' places free, or such a number times such a power."""
    if lanes < 2 or lanes & (lanes - 1) or count < 2:
        return False
    return count <= max(lanes, FEW) and count // (count & -count) < FEW
