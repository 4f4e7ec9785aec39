"""The shared memory of a kernel, tile by tile, and what to shrink where it is too much."""

from __future__ import annotations

import math

from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import SharedType, TileType, ViewType
from tessera.compiler.targets.cuda.emit.emitter import KernelEmitter
from tessera.errors import NOWHERE, Diagnostic, Note, Span
from tessera.immutable import immutable


@immutable
class SharedTilePart:
    """The memory of one tile: `bytes` of shared memory, for `stages` copies of it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stages: int
    bytes: int
    span: Span

    def __str__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        stages = f", {self.stages} stages" if self.stages > 1 else ""
        return f"{self.name}: {shape} {self.dtype}{stages}, {self.bytes} bytes"


def shared_parts(e: KernelEmitter) -> list[SharedTilePart]:
    """The tiles in shared memory, the largest first."""
    return sorted((part(key, size) for key, size in e.reserved.items()), key=lambda p: -p.bytes)


def part(key: Value | tuple[Op, int], size: int) -> SharedTilePart:
    """What takes `size` bytes: a shared tile, or an operand of a product."""
    op, number = key if isinstance(key, tuple) else (key.op, 0)
    assert op is not None
    v = op.operands[number] if isinstance(key, tuple) and number < 2 else op.results[0]
    t = v.type
    assert isinstance(t, (SharedType, TileType, ViewType))
    shape = tuple(d for d in t.shape if isinstance(d, int)) if not isinstance(t, ViewType) else ()
    stages = max(1, size // (math.prod(shape) * t.dtype.itemsize)) if shape else 1
    return SharedTilePart(v.hint or "ab"[number % 2], shape, t.dtype.name, stages, size, op.span)


def too_large(e: KernelEmitter) -> Diagnostic:
    """TS405: what takes the shared memory, tile by tile, and by how much the largest one must shrink."""
    limit, total = e.settings.shared_limit, e.scratch + e.shared_bytes
    parts = shared_parts(e)
    message = f"This kernel needs {total} bytes of shared memory per block; sm_{e.settings.arch} has {limit}."
    if e.scratch:
        message += f"\n{e.scratch} of them exchange elements between threads."
    notes = tuple(Note(str(p), p.span) for p in parts[:6])
    advice = _advice(e, parts, total - limit)
    most = parts[0].span if parts and parts[0].bytes >= e.scratch else e.exchange
    return Diagnostic("TS405", f"{message}\n{advice}", most if most is not NOWHERE else e.kernel.span, notes=notes)


def _advice(e: KernelEmitter, parts: list[SharedTilePart], excess: int) -> str:
    """The least division of one axis that makes room: every tile with an axis of that size shrinks with it."""
    sizes = sorted({d for p in parts for d in p.shape}, reverse=True)
    for by, size in ((by, size) for by in (2, 4, 8) for size in sizes if size // by >= 16):
        saved = sum(p.bytes - p.bytes // by ** p.shape.count(size) for p in parts)
        if saved >= excess:
            names = ", ".join(p.name for p in parts if size in p.shape)
            return f"Tiles of {size // by} instead of {size} along that axis ({names}) fit."
    return "Use smaller tiles, or elements of fewer bits."
