"""One activation of a function: its names, where it was called from, and how a block of statements ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tessera.compiler.frontend.names.definition import Source
from tessera.compiler.frontend.names.live import Scope
from tessera.compiler.frontend.names.values import MISSING
from tessera.errors import Note, Span


class Flow(Enum):
    """How a block of statements ends."""

    NEXT = "next"
    BREAK = "break"
    CONTINUE = "continue"
    RETURN = "return"


@dataclass(frozen=True, slots=True)
class Loop:
    """Marks the body of an open loop in `Frame.rests`. `going`: the name of the flag that says whether it goes on,
    where it can be left at run time; `serial`: whether a return in it also skips other steps."""

    going: str = ""
    serial: bool = True


@dataclass(slots=True, eq=False)
class Frame:
    """`outer` is the lexically enclosing frame, `caller` the dynamically enclosing one with the place of the call."""

    name: str
    source: Source
    scope: Scope
    names: dict[str, Any] = field(default_factory=dict[str, Any])
    outer: Frame | None = None
    caller: Frame | None = None
    call_span: Span | None = None
    key: object = None
    """identity of the function that runs, to find recursion"""
    returned: Any = None
    return_span: Span | None = None
    maybe: set[str] = field(default_factory=set[str])
    """names that are assigned on some paths only"""
    locals: frozenset[str] = frozenset()
    """names the function assigns anywhere, as Python's compiler sees them"""
    depth: int = 0
    dims: dict[str, Any] = field(default_factory=dict[str, Any])
    """named sizes of its annotations: a symbol, a number, or what the caller's sizes make of it"""
    possible: list[Any] = field(default_factory=list[Any])
    """values returned on paths that may or may not be taken"""
    rests: list[Any] = field(default_factory=list[Any])
    """for each open block, its statements and the place of the one that runs; a `Loop` at each open loop"""
    records: bool = True
    """whether the types of its expressions are kept: the analysed function itself and functions nested in it"""

    def lookup(self, name: str) -> Any:
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names:
                return frame.names[name]
            frame = frame.outer
        return MISSING

    def continuation(self) -> list[Any] | None:
        """All statements that would run from here to the end of the function; None inside a loop."""
        out: list[Any] = []
        for rest in reversed(self.rests):
            if isinstance(rest, Loop):
                if rest.serial:
                    return None
                continue
            statements, i = rest
            out += statements[i + 1 :]
        return out

    def visible(self) -> Iterator[str]:
        """Every local name that can be seen from here."""
        frame: Frame | None = self
        while frame is not None:
            yield from frame.names
            frame = frame.outer

    def chain(self) -> tuple[Note, ...]:
        """Who called whom, innermost call first."""
        notes: list[Note] = []
        frame: Frame = self
        while frame.caller is not None:
            notes.append(Note(f"{frame.name} was called from {frame.caller.name}", frame.call_span))
            frame = frame.caller
        return tuple(notes)
