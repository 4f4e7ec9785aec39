"""Proves that shared tiles are synchronised and inserts the barriers that are missing. Notes report these to
authors, and those of their own that order nothing.

A shared tile needs a barrier between a write and the next read of it, between a read and the next write (the threads
that still read would see the new content) and between two writes. The last step of a loop is followed by its first
statement, which is where most hazards are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from tessera.compiler.ir.core import Block, Builder, Op, Value, clone
from tessera.compiler.ir.types import SharedType, ViewType
from tessera.errors import Diagnostic, Note, Span
from tessera.immutable import immutable, mutable

WRITES = frozenset({"tile.copy_async", "tile.store_shared"})
_STORES = frozenset({"tile.store", "tile.scatter"})


@mutable
class Open:
    """The accesses of each shared tile that no barrier has followed yet."""

    written: dict[Value, Op] = field(default_factory=dict[Value, Op])
    read: dict[Value, Op] = field(default_factory=dict[Value, Op])

    def copy(self) -> Open:
        return Open(dict(self.written), dict(self.read))

    def join(self, other: Open) -> bool:
        """Adds the accesses that are open on another path; whether any of them is new."""
        before = len(self.written) + len(self.read)
        self.written = {**other.written, **self.written}
        self.read = {**other.read, **self.read}
        return len(self.written) + len(self.read) > before

    def clear(self) -> None:
        self.written, self.read = {}, {}


@immutable
class Hazard:
    """`op` needs a barrier before it, because of what `earlier` did to the same memory."""

    kind: str
    memory: Value
    op: Op
    earlier: Op


KINDS = {
    "read after write": ("read before what was written to it has arrived", "written here"),
    "write after read": ("overwritten while it may still be read", "read here"),
    "write after write": ("written twice without a barrier in between", "written here"),
}


def place_barriers(kernel: Op) -> list[Hazard]:
    """Inserts a barrier before each access that needs one."""
    inserted: list[Hazard] = []

    def insert(h: Hazard) -> None:
        Builder.before(h.op).op("tile.barrier")
        inserted.append(h)

    if any(op.name == "tile.alloc_shared" for op in kernel.walk()):
        _Walk(insert).kernel(kernel)
    return inserted


def barrier_notes(kernel: Op) -> list[Diagnostic]:
    """Notes for the author of a kernel, which is not changed: one (TS408) where `place_barriers` inserts a barrier, and
    one (TS414) for each of the author's barriers that orders nothing."""
    if not any(op.name in ("tile.alloc_shared", "tile.barrier") for op in kernel.walk()):
        return []
    complete = clone(kernel, {})
    authors = [op for op in complete.walk() if op.name == "tile.barrier"]
    notes = [_inserted(h) for h in place_barriers(complete)]
    return notes + [_orders_nothing(span) for span in _idle(complete, authors)]


def _inserted(h: Hazard) -> Diagnostic:
    what, earlier = KINDS[h.kind]
    message = (
        f"{h.memory.hint or 'the shared tile'} would be {what} ({h.kind}); a barrier was inserted before this line.\n"
        "Write ts.tile.barrier() here to say it yourself."
    )
    return Diagnostic("TS408", message, h.op.span, "note", (Note(earlier, h.earlier.span),))


def _orders_nothing(span: Span) -> Diagnostic:
    message = (
        "this barrier orders nothing: without it too, another one stands between any two accesses that need one.\n"
        "Leave it out; every thread of the program waits for all others here."
    )
    return Diagnostic("TS414", message, span, "note")


def _idle(kernel: Op, authors: list[Op]) -> list[Span]:
    """The lines whose barriers can be removed, one after another, without a hazard. One line may have become several
    ops: in a function that is called twice, in a loop that is unrolled."""
    spans: list[Span] = []
    gone: frozenset[Op] = frozenset()
    known = _hazards(kernel, gone)
    for span in dict.fromkeys(op.span for op in authors):
        without = gone | {op for op in authors if op.span == span}
        if _hazards(kernel, without) == known:
            spans.append(span)
            gone = without
    return spans


def _hazards(kernel: Op, ignored: frozenset[Op]) -> set[tuple[Op, Value]]:
    """The accesses that are unordered when some barriers are ignored. Tensors count here: an author that stores to one
    and loads from it may have meant the barrier for that."""
    found: set[tuple[Op, Value]] = set()
    _Walk(lambda h: found.add((h.op, h.memory)), ignored, tensors=True).kernel(kernel)
    return found


@mutable
class _Walk:
    """Follows a program's accesses from barrier to barrier, and reports each that has no barrier between it and another
    that needs one.

    It either follows accesses to shared tiles alone, and the caller inserts a barrier at each report; or those to
    `tensors` as well, and no barrier is inserted.
    """

    found: Callable[[Hazard], None]
    ignored: frozenset[Op] = frozenset()
    tensors: bool = False

    def kernel(self, kernel: Op) -> None:
        for region in kernel.regions:
            self._block(region.block, Open())

    def _block(self, block: Block, state: Open) -> None:
        for op in list(block.ops):
            if op.name == "tile.barrier":
                if op not in self.ignored:
                    state.clear()
            elif op.name in ("tile.for", "tile.while"):
                self._loop(op, state)
            elif op.name == "tile.pipeline":  # each step starts with a barrier; there may be no step at all
                after = Open()
                self._block(op.regions[1].block, after)
                state.join(after)
            elif op.name == "tile.if":
                paths = [state.copy() for _ in op.regions]
                for region, path in zip(op.regions, paths, strict=True):
                    self._block(region.block, path)
                state.clear()
                for path in paths:
                    state.join(path)
            else:
                self._access(op, state)

    def _loop(self, op: Op, state: Open) -> None:
        """A step may follow the ops before the loop or another step."""
        entry = state.copy()
        while True:
            after = entry.copy()
            for region in op.regions:
                self._block(region.block, after)
            if not entry.join(after):
                break
        state.clear()
        state.join(entry)
        state.join(after)

    def _access(self, op: Op, state: Open) -> None:
        writes = [_memory(op.operands[0])] if op.name in WRITES or (self.tensors and op.name in _STORES) else []
        kinds = (SharedType, ViewType) if self.tensors else (SharedType,)
        reads = [m for v in op.operands if isinstance(v.type, kinds) and (m := _memory(v)) not in writes]
        if hazard := _hazard(op, reads, writes, state):
            self.found(hazard)
            if self.tensors:  # nothing is inserted
                state.written.pop(hazard.memory, None)
                state.read.pop(hazard.memory, None)
            else:
                state.clear()
        for s in reads:
            state.read[s] = op
        for s in writes:
            state.written[s] = op


def _hazard(op: Op, reads: list[Value], writes: list[Value], state: Open) -> Hazard | None:
    for s in writes:
        if s in state.read:
            return Hazard("write after read", s, op, state.read[s])
        if s in state.written:
            return Hazard("write after write", s, op, state.written[s])
    for s in reads:
        if s in state.written:
            return Hazard("read after write", s, op, state.written[s])
    return None


def _memory(v: Value) -> Value:
    """The tensor that a window is a window of; a shared tile is its own."""
    while v.op is not None and v.op.name == "tile.subview":
        v = v.op.operands[0]
    return v
