"""One activation of a function: its names, where it was called from, and how a block of statements ended.

A closure is a function together with the activation that it was made in.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import Enum
from typing import Any

import tessera
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.values import MISSING, Described, Record
from tessera.compiler.frontend.syntax.parse import FunctionNode, Source
from tessera.compiler.ir.core import Block
from tessera.errors import Note, Span
from tessera.immutable import immutable, mutable
from tessera.language.annotations import dotted_name
from tessera.tracebacks import OWN


class Flow(Enum):
    """How a block of statements ends."""

    NEXT = "next"
    BREAK = "break"
    CONTINUE = "continue"
    RETURN = "return"


@immutable
class LoopMark:
    """Marks the body of an open loop in `Frame.rests`. `going`: the name of the flag that says whether it goes on,
    where it can be left at run time; `serial`: whether a return in it also skips other steps; `lanes`: the name of the
    lanes that go on, where they leave one by one, and `tested`: whether its condition says which do."""

    going: str = ""
    serial: bool = True
    lanes: str = ""
    tested: bool = False


@mutable
class Path:
    """One region of a branch: its ops, its names at the end, and how it ended."""

    block: Block
    names: dict[str, Any]
    flow: Flow
    returned: Any
    return_span: Span | None
    maybe: set[str] = field(default_factory=set[str])
    """names that may be unbound at the end"""


@mutable(eq=False)
class Frame:
    """`definition`: the function of a module whose text holds this one's. `outer` is the lexically enclosing frame,
    `caller` the dynamically enclosing one with the place of the call."""

    name: str
    definition: Definition
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
    """for each open block, its statements and the place of the one that runs; a `LoopMark` at each open loop"""
    parted: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])
    """for each name of a tensor to which parts were stored, what it was after the last store, and the store"""
    views: dict[tuple[Any, str], tuple[str, Any, int]] = field(
        default_factory=dict[tuple[Any, str], tuple[str, Any, int]]
    )
    """for each such store and each other name of the same elements, the name that was stored to, what the other one is,
    and how many ops read that before"""
    effect: str = ""
    """what a method does to the state that it is a method of: "append" """
    kept: dict[tuple[int, int, int, int, str], Any] | None = None
    """where the types of its expressions are kept, by place and kind, and those of functions nested in it"""
    source: Source = field(init=False)
    scope: Scope = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.scope = self.definition.text, self.definition.scope

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
            if isinstance(rest, LoopMark):
                if rest.serial:
                    return None
                continue
            statements, i = rest
            out += statements[i + 1 :]
        return out

    def rest_of_round(self) -> tuple[list[Any], int] | None:
        """The statements from here to the end of the innermost loop's body, and where its mark lies; None outside
        loops."""
        out: list[Any] = []
        for depth in reversed(range(len(self.rests))):
            if isinstance(self.rests[depth], LoopMark):
                return out, depth
            statements, i = self.rests[depth]
            out += statements[i + 1 :]
        return None

    def visible(self) -> Iterator[str]:
        """Every local name that can be seen from here."""
        frame: Frame | None = self
        while frame is not None:
            yield from frame.names
            frame = frame.outer

    def chain(self) -> tuple[Note, ...]:
        """Who called whom, innermost call first. The call of a module by `Module.__call__` is that of its `forward`."""
        notes: list[Note] = []
        frame: Frame = self
        while (caller := frame.caller) is not None:
            name, place = method_name(frame.name, frame.names), frame.call_span
            while caller.definition.file in _HANDING_ON and caller.caller is not None:
                place, caller = caller.call_span, caller.caller
            notes.append(Note(f"{name} was called from {method_name(caller.name, caller.names)}", place))
            frame = caller
        return tuple(notes)


_HANDING_ON = tuple(os.path.join(tessera.__path__[0], "nn", file) for file in ("module.py", "mixed.py"))
"""where a call only hands on to the `forward` of a module"""


def method_name(name: str, names: Mapping[str, Any]) -> str:
    """What messages call a function: a method by its class too, a module that is called by its class alone. `names`:
    what its parameters are bound to."""
    owner = names.get("self")
    if not isinstance(owner, Record):
        return name
    return owner.type_name if name == "__call__" else f"{owner.type_name}.{name}"


@immutable(eq=False)
class Closure(Described):
    """A function given by its text: nested def, lambda, another function of the file, or a live function's source.

    `frame` holds the enclosing function's names (None at module level), and `definition` is then the one of the
    outermost of these; `defaults` are evaluated where it was made.
    """

    node: FunctionNode
    definition: Definition
    frame: Frame | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    live: Any = None
    """the live function object, which may be called when all arguments are ordinary values"""

    @property
    def described(self) -> str:
        return f"the function {self.name}"

    @property
    def name(self) -> str:
        return self.node.name if isinstance(self.node, ast.FunctionDef) else "lambda"

    @property
    def decorated(self) -> bool:
        """Whether it is a function or kernel of its own, and no plain function; `ts.tile.helper` makes none of one, and
        Tessera's `fitted` neither."""
        decorators = self.node.decorator_list if isinstance(self.node, ast.FunctionDef) else []
        plain = ("helper", "fitted") if self.definition.file.startswith(OWN) else ("helper",)
        return self.frame is None and any(dotted_name(d).rpartition(".")[2] not in plain for d in decorators)
