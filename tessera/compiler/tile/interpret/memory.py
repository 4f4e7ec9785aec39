"""The memory that the Tile IR interpreter sees: views that watch reads and writes, shared tiles, asynchronous copies.

Every fault is a DebugCheckError (TS506) at the op's source line: an element read before anything was written to it,
an element touched by two programs of one launch, an access outside a view, a shared tile used without a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from tessera.compiler.ir.core import Op
from tessera.errors import DebugCheckError, Diagnostic, Note
from tessera.immutable import mutable
from tessera.language.dtypes import DType
from tessera.language.lazy import np

NOBODY = -1
SEVERAL = -2


def fault(op: Op, message: str, *notes: Note) -> NoReturn:
    """Raises the debug check's finding at the op's source line."""
    raise DebugCheckError(Diagnostic("TS506", message, op.span, notes=notes))


def outside_text(index: object, axis: int, name: str, extent: object) -> str:
    """The message for an index out of range."""
    return f"The index {index} leaves axis {axis} of {name}, which has {extent} elements."


def user_axis(op: Op, axis: int) -> int:
    """The user's number for an axis of the view that `op` accesses: windows may have taken axes out, and a `take` sees
    the indexed axis (attr `along`) between others that it has joined."""
    if "along" in op.attrs:
        return int(op.attrs["along"])  # type: ignore[call-overload]
    view = op.operands[0].op
    if view is not None and view.name == "tile.subview":
        drop: Sequence[int] = view.attrs.get("drop", ())  # type: ignore[assignment]
        kept = [a for a in range(len(view.operands) - 1) if a not in drop]
        return user_axis(view, kept[axis])
    return axis


def poison(shape: Sequence[int], dtype: DType) -> Any:
    """Memory that was never written: NaN where there is one, else the type's largest value."""
    if dtype.kind == "bool":
        return np.ones(shape, dtype.numpy)
    if not (dtype.is_float or dtype.is_complex):
        return np.full(shape, np.iinfo(dtype.numpy).max, dtype.numpy)
    try:
        return np.full(shape, float("nan"), dtype.numpy)
    except (ValueError, OverflowError):  # a small float without NaN
        return np.full(shape, dtype.maximum, dtype.numpy)


@mutable
class WatchedView:
    """A window onto a buffer. `written` is None where all of it holds data; `writer` and `reader` hold, per element,
    the program of this launch that wrote or read it (None where nothing is ever stored, so no race is possible)."""

    name: str
    data: Any
    written: Any = None
    writer: Any = None
    reader: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def window(self, index: tuple[Any, ...]) -> WatchedView:
        index = (*index, ...)  # an array even where all axes are taken out
        parts = [None if a is None else a[index] for a in (self.written, self.writer, self.reader)]
        return WatchedView(self.name, self.data[index], *parts)

    def subview(self, op: Op, offsets: Sequence[int], sizes: Sequence[int], drop: Sequence[int]) -> WatchedView:
        for axis, (o, n, extent) in enumerate(zip(offsets, sizes, self.shape, strict=True)):
            if axis in drop and not 0 <= o < extent:
                fault(op, outside_text(o, user_axis(op, axis), self.name, extent))
            if o < 0 or o + n > extent:
                fault(op, f"the window {o}:{o + n} leaves {self.name}, whose axis {axis} has {extent} elements")
        index = tuple(o if a in drop else slice(o, o + n) for a, (o, n) in enumerate(zip(offsets, sizes, strict=True)))
        return self.window(index)

    def read(self, op: Op, index: tuple[Any, ...], program: int, used: Any = None) -> Any:
        """Elements at a NumPy index; `used` marks those that matter. Notes the reader and checks what it reads."""
        values = self.data[index]
        if self.written is not None:
            self._demand(op, ~self.written[index], used, "reads {} element(s) of {} before anything was written there")
        if self.writer is not None:
            other = (self.writer[index] != NOBODY) & (self.writer[index] != program)
            self._demand(op, other, used, "reads {} element(s) of {} that another program of this launch writes")
            old = self.reader[index]
            new = np.where((old == NOBODY) | (old == program), program, SEVERAL)
            self.reader[index] = new if used is None else np.where(used, new, old)
        return values

    def write(self, op: Op, index: tuple[Any, ...], values: Any, program: int, used: Any = None) -> None:
        """Stores elements (those marked by `used`) and notes the writer."""
        if self.writer is not None:
            for users, verb in ((self.writer, "writes"), (self.reader, "reads")):
                other = (users[index] != NOBODY) & (users[index] != program)
                self._demand(
                    op, other, used, f"writes {{}} element(s) of {{}} that another program of this launch {verb}"
                )
        for target, value in ((self.data, values), (self.written, True), (self.writer, program)):
            if target is not None:
                target[index] = value if used is None else np.where(used, value, target[index])

    def _demand(self, op: Op, bad: Any, used: Any, message: str) -> None:
        bad = bad if used is None else bad & used
        if np.any(bad):
            fault(op, f"A program {message.format(int(np.count_nonzero(bad)), self.name)}.")


class SharedTile:
    """A shared tile of one program: poisoned at first; async copies arrive at the next barrier; hazards are faults."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: DType) -> None:
        self.name = name
        self.data = poison(shape, dtype)
        self.written = np.zeros(shape, bool)
        self.pending: Any = None
        self.unsynchronised: Op | None = None
        """the last write that no barrier has followed"""
        self.readers: Op | None = None
        """the last read that no barrier has followed"""

    def read(self, op: Op) -> Any:
        if self.unsynchronised is not None:
            what = "async copy" if self.pending is not None else "store"
            fault(op, f"Reads the shared tile {self.name} before a barrier: its {what} need not have arrived.",
                  Note("written here", self.unsynchronised.span))  # fmt: skip
        if not self.written.all():
            fault(op, f"Reads the shared tile {self.name}, to which nothing was written.")
        self.readers = op
        return self.data

    def write(self, op: Op, values: Any, asynchronous: bool) -> None:
        if self.readers is not None:
            fault(op, f"Overwrites the shared tile {self.name} without a barrier after it was read.",
                  Note("read here", self.readers.span))  # fmt: skip
        if self.unsynchronised is not None:
            fault(op, f"Overwrites the shared tile {self.name} without a barrier after it was written.",
                  Note("written here", self.unsynchronised.span))  # fmt: skip
        if asynchronous:
            self.pending = values
        else:
            self.data, self.written[...] = values, True
        self.unsynchronised = op

    def barrier(self) -> None:
        if self.pending is not None:
            self.data, self.pending = self.pending, None
            self.written[...] = True
        self.unsynchronised = self.readers = None
