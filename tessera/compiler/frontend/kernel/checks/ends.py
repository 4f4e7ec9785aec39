"""Stores of the last step of a range that reach past the range's end, into elements that the tensor has."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.compiler.frontend.kernel.checks.races import conditional, up_to_the_end
from tessera.compiler.frontend.kernel.coordinates import linear
from tessera.compiler.frontend.kernel.names import namespace
from tessera.compiler.frontend.kernel.state import KernelState
from tessera.compiler.frontend.kernel.values import Coordinate, marks, size_text
from tessera.errors import Diagnostic, Span
from tessera.language.dims import Dim, Expr, at_most


def past_the_range(k: KernelState) -> Iterator[Diagnostic]:
    """A warning for each such store: `out[i : i + 8]` in `range(1, H - 1, 8)`, where H - 2 is not a multiple of 8.

    Only the end of a tensor cuts a slice. A store under a condition or mask of its own is not looked at.
    """
    said: set[tuple[Span, str]] = set()
    for stored in k.memory.stores:
        w = stored.window
        if w is None or conditional(stored.op) or not up_to_the_end(w.mask):
            continue
        for offset, width, size in zip(w.offsets, w.sizes, w.view.shape, strict=True):
            for mark in marks(offset):
                c = k.coordinates.at(mark)
                if c is None or not isinstance(offset, Expr) or (end := _end(k, c, offset, mark, width, size)) is None:
                    continue
                if (stored.span, c.name) not in said:
                    said.add((stored.span, c.name))
                    yield _warning(k, stored.view.name, c, k.tiles.known(width), end, stored.span)


def _end(k: KernelState, c: Coordinate, offset: Expr, mark: str, width: Dim, size: Dim) -> Dim | None:
    """Where the range ends, as it is written, if its last block reaches past that, into the tensor; None otherwise."""
    known = k.tiles.known
    stride, rest = linear(offset, mark)
    if c.kind not in ("grid", "loop") or c.extent is None or stride != 1 or marks(rest) or marks(c.extent):
        return None
    end, step, block = known(c.extent), known(c.step), known(width)
    if not isinstance(step, int) or not isinstance(block, int) or step < 2 or block < 2:
        return None
    if at_most(known(size), end + rest, k.ev.facts):
        return None
    length = end - known(c.start)
    if block <= step and (length % step == 0 or (isinstance(length, int) and -length % step <= step - block)):
        return None
    return c.extent


def _warning(k: KernelState, name: str, c: Coordinate, width: Dim, end: Dim, span: Span) -> Diagnostic:
    tile = namespace(k.ev)
    message = (
        f"the last step of {c.name} may store to {name} past the range's end, {size_text(end)}: only the end of the "
        f"tensor cuts a slice.\nWrite `if {c.name} + {tile}.arange({width}) < {size_text(end)}:` around it"
    )
    return Diagnostic("TS421", message, span, "warning")
