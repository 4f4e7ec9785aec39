"""Proves that shared tiles are synchronised, or inserts the barriers that are missing and says so.

A shared tile must see a barrier between a write and the next read of it, between a read and the next write (the threads
that still read would see the new content) and between two writes. The last step of a loop is followed by its first
statement, which is where most hazards are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.compiler.ir.core import Block, Builder, Op, Value
from tessera.compiler.ir.types import SharedType
from tessera.errors import Diagnostic, Note

WRITES = frozenset({"tile.copy_async", "tile.store_shared"})


@dataclass(slots=True)
class Open:
    """The accesses of each shared tile that no barrier has followed yet."""

    written: dict[Value, Op] = field(default_factory=dict[Value, Op])
    read: dict[Value, Op] = field(default_factory=dict[Value, Op])

    def copy(self) -> Open:
        return Open(dict(self.written), dict(self.read))

    def join(self, other: Open) -> bool:
        """Adds what is open on another path; whether that was anything new."""
        before = len(self.written) + len(self.read)
        self.written = {**other.written, **self.written}
        self.read = {**other.read, **self.read}
        return len(self.written) + len(self.read) > before


def place_barriers(kernel: Op) -> list[Diagnostic]:
    """Inserts what is missing. Returns a note (TS408) at each place."""
    notes: list[Diagnostic] = []
    for region in kernel.regions:
        _block(region.block, Open(), notes)
    return notes


def _block(block: Block, state: Open, notes: list[Diagnostic]) -> None:
    for op in list(block.ops):
        if op.name == "tile.barrier":
            state.written, state.read = {}, {}
        elif op.name in ("tile.for", "tile.while"):
            _loop(op, state, notes)
        elif op.name == "tile.pipeline":  # each step starts with a barrier; there may be no step at all
            after = Open()
            _block(op.regions[1].block, after, notes)
            state.join(after)
        elif op.name == "tile.if":
            paths = [state.copy() for _ in op.regions]
            for region, path in zip(op.regions, paths, strict=True):
                _block(region.block, path, notes)
            state.written, state.read = {}, {}
            for path in paths:
                state.join(path)
        else:
            _access(op, state, notes)


def _loop(op: Op, state: Open, notes: list[Diagnostic]) -> None:
    """A step may follow what stands before the loop or another step."""
    entry = state.copy()
    while True:
        after = entry.copy()
        for region in op.regions:
            _block(region.block, after, notes)
        if not entry.join(after):
            break
    state.written, state.read = {}, {}
    state.join(entry)
    state.join(after)


def _access(op: Op, state: Open, notes: list[Diagnostic]) -> None:
    writes = [op.operands[0]] if op.name in WRITES else []
    reads = [v for v in op.operands if isinstance(v.type, SharedType) and v not in writes]
    found: tuple[str, Value, Op] | None = None
    for s in reads:
        if s in state.written:
            found = ("read before what was written to it has arrived", s, state.written[s])
    for s in writes:
        if s in state.read:
            found = ("overwritten while it may still be read", s, state.read[s])
        elif s in state.written:
            found = ("written twice without a barrier in between", s, state.written[s])
    if found is not None:
        what, shared, earlier = found
        Builder.before(op).op("tile.barrier")
        state.written, state.read = {}, {}
        name = shared.hint or "the shared tile"
        advice = "a barrier was inserted before this line. Write ts.tile.barrier() here to say it yourself."
        message = f"{name} would be {what}; {advice}"
        notes.append(Diagnostic("TS408", message, op.span, "note", (Note("the earlier access", earlier.span),)))
    for s in reads:
        state.read[s] = op
    for s in writes:
        state.written[s] = op
