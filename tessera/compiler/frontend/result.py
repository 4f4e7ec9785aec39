"""What the front end says about one function: its IR, findings, and the type of every expression.

Editors, the notebook's Shapes tab, `tessera check` and the code generator all read this one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.frontend.names.live import read
from tessera.compiler.frontend.names.values import Record, Static, is_dict, is_tuple
from tessera.compiler.ir.core import Block, Op, Value
from tessera.compiler.ir.types import TensorType, Type
from tessera.compiler.structure import Structure
from tessera.compiler.unit import LaunchCheck, Param, Unit
from tessera.errors import CompileError, Diagnostic, Span
from tessera.immutable import immutable
from tessera.language.dims import Expr, text_of

ArgType: TypeAlias = "TensorType | Static | Record | None"
"""What an argument is to the compiler: a tensor of a type, an ordinary value, an object of a text's class that holds
these, or an absent optional."""

Kind = Literal["assign", "param", "expr", "return", "index", "state"]


@immutable
class ExprInfo:
    """The type of the expression at `span`; `name` is the assigned variable, parameter, or ''.

    `type` is an IR type, a symbolic size (`dims.Expr`), or a tuple of these for an unpacked or returned tuple,
    or a dict of them by key for a dict. Of an index of a kernel's tensor (kind "index") it says which axis it stands
    at; of a parameter that brings state (kind "state") what the function does with it.
    """

    span: Span
    type: Any
    name: str
    kind: Kind

    @property
    def text(self) -> str:
        """As people write it: `[B, S] f32`."""
        return type_text(self.type)


@immutable
class InnerCall:
    """A call that was evaluated in place, of a function of a user's text: the types of its expressions there, and the
    objects that it was given."""

    definition: Definition
    types: Collection[ExprInfo]
    given: Mapping[str, Record]


@immutable
class Pulled:
    """A gradient that was taken: of `ops` by the values `wanted`. `cotangents`: what came back to the values on the
    way. `places`: where values stand in texts, with the kind of the expression."""

    ops: Sequence[Op]
    wanted: Sequence[Value]
    cotangents: Mapping[Value, Value]
    places: Sequence[tuple[Span, Kind, Value]]


def type_text(type: Any) -> str:
    if is_tuple(type):
        return f"({', '.join(map(type_text, type))})"
    if is_dict(type):
        return f"{{{', '.join(f'{name}: {type_text(t)}' for name, t in type.items())}}}"
    return type.pretty() if hasattr(type, "pretty") else text_of(type) if isinstance(type, Expr) else str(type)


_UNEXPECTED = frozenset({"TS102", "TS112", "TS354", "TS374", "TS415", "TS420", "TS421"})
"""warnings that a call passes on as well; the others are about style and speed"""


@immutable
class Analysis:
    """`op` is the `graph.func` or `tile.func`, None where there are errors or where something is `undecided`.

    `captures` are live arrays read from closures and globals, passed after the parameters. `undecided` says what must
    be known (an argument's type, a dim's size) before the function can be compiled; it is not an error by itself.
    """

    definition: Definition
    op: Op | None = None
    params: tuple[Param, ...] = ()
    captures: tuple[Any, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    expressions: Sequence[ExprInfo] = field(default_factory=list[ExprInfo])
    checks: tuple[LaunchCheck, ...] = ()
    dims: Mapping[str, Span] = field(default_factory=dict[str, Span])
    dependencies: tuple[tuple[str, str], ...] = ()
    undecided: tuple[Diagnostic, ...] = ()
    structure: Structure = None
    capture_names: tuple[str, ...] = ()
    """for each capture, the dotted name it was read from ("" where it has none), by which a later call reads it anew"""
    readers: Mapping[str, Scope | None] = field(default_factory=dict[str, "Scope | None"], repr=False, compare=False)
    """where each dependency that can be read again was found; None: the definition's own scope"""
    launches: tuple[Op, ...] = ()
    """the `graph.launch` of every kernel that it calls"""
    arguments: Mapping[str, ArgType] | None = field(default=None, repr=False, compare=False)
    """what it was analysed for; None: by its annotations"""
    evaluated: tuple[Block, ...] = field(default=(), repr=False, compare=False)
    """all operators, those of branches and loops that cannot be decided yet in blocks of their own"""
    inner: tuple[InnerCall, ...] = field(default=(), repr=False, compare=False)
    """the calls of functions of users' texts that were evaluated in place, in texts"""

    pulled: tuple[Pulled, ...] = field(default=(), repr=False, compare=False)
    """the gradients that it takes, in texts"""

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def ok(self) -> bool:
        return not any(d.severity == "error" for d in self.diagnostics)

    def unit(self) -> Unit:
        """What can be compiled. Raises CompileError with the errors, or with what is undecided."""
        errors = [d for d in self.diagnostics if d.severity == "error"]
        if errors or self.op is None:
            message = f"{self.name} computes with something that is not known when it is compiled"
            unknown = Diagnostic("TS102", message, self.definition.span, function=self.name)
            raise CompileError(errors or list(self.undecided) or unknown)
        unexpected = tuple(d for d in self.diagnostics if d.code in _UNEXPECTED and d.severity == "warning")
        return Unit(self.op, self.params, self.checks, self.captures, self.structure, unexpected)

    def type_at(self, line: int, col: int) -> ExprInfo | None:
        """The innermost expression that covers a position."""
        found = [e for e in self.expressions if e.kind not in ("index", "state") and e.span.contains(line, col)]
        return min(found, key=lambda e: (e.span.end_line - e.span.line, e.span.end_col - e.span.col), default=None)


def changed(
    analysis: Analysis, scope: Scope | None = None, same: Callable[[str], bool] | None = None
) -> list[tuple[str, str, str]]:
    """What the function read from outside and is different now: (name, content then, content now).

    `scope` stands for the definition's own where its file has been read anew. `same` says which of its names need not
    be read, for they surely are as they were.
    """
    out: list[tuple[str, str, str]] = []
    for name, was in analysis.dependencies:
        if name in analysis.readers:
            place = analysis.readers[name]
            if place is None and same is not None and same(name.partition(".")[0]):
                continue
            place = place or scope or analysis.definition.scope
            now = fingerprint(read(place, name.rpartition(":")[2]))
            if now != was:
                out.append((name, was, now))
    return out


def each_once(found: Iterable[tuple[str, Diagnostic]]) -> list[Diagnostic]:
    """Findings, with the name of the function in whose analysis each was made: a mistake is said once, though everyone
    who calls the function that it stands in finds it too, for sizes of their own."""
    found = list(found)
    own = {(d.code, d.span) for name, d in found if d.function == name}
    kept: dict[tuple[object, ...], Diagnostic] = {}
    for name, d in found:
        place = (d.code, d.span)
        if d.function == name:
            kept.setdefault((*place, d.message), d)
        elif place not in own:
            kept.setdefault(place, d)
    return list(kept.values())


__all__ = ["Analysis", "ArgType", "ExprInfo", "Static", "Type", "changed", "each_once", "type_text"]
