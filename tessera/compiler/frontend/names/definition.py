"""One function or kernel by its text, and where its free names come from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

from tessera.compiler.frontend.syntax.parse import FunctionNode, Source, source_of
from tessera.errors import Diagnostic, Span

Kind = Literal["function", "kernel"]
_DEF = re.compile(r"\s*(?:async\s+)?def\s+")


class Scope(Protocol):
    """Free names of a function. `live`: values are real objects, and functions among them may be called."""

    live: bool

    @property
    def signatures(self) -> dict[Any, Any] | None:
        """What has been read of its functions' annotations, by node, to be read once; None where names may be bound to
        other things the next time."""
        ...

    def lookup(self, name: str) -> Any:
        """The value of `name`, or MISSING. Never raises, and in text scope never executes anything."""
        ...

    def names(self) -> Iterable[str]:
        """Every name that `lookup` knows, for "did you mean" and completion."""
        ...

    def edited(self, definition: Definition, text: str) -> Definition | None:
        """`definition` as it would be if its module had this text; None where that cannot be said."""
        ...


class FileScope(Scope, Protocol):
    """The names of an imported file: of a package, its `__init__`."""

    @property
    def file(self) -> str: ...

    @property
    def imports(self) -> dict[str, FileScope]:
        """The files that were looked into, by path."""
        ...

    def member(self, name: str) -> Any:
        """What other files see by this name, or MISSING."""
        ...


@dataclass(frozen=True)
class Definition:
    """One `@ts.function` or `@ts.kernel`: its text, its tree and the scope its free names are looked up in.

    `line` is the first line including decorators; `source` the text of the whole module or cell; `notes` what the
    dialect rewrite said about it; `options` the decorator's keywords.
    """

    kind: Kind
    name: str
    file: str
    line: int
    tree: FunctionNode
    source: str
    scope: Scope
    notes: tuple[object, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problems: tuple[Diagnostic, ...] = ()
    """what is wrong with the decorators"""
    owner: Any = None
    """the class of a text whose method it is; methods are looked at for editors, and no program by themselves"""
    recalled: bool = False
    """whether statements that do not parse count as what they were when they last did"""

    @cached_property
    def text(self) -> Source:
        return source_of(self.file, self.source)

    @property
    def span(self) -> Span:
        """The `def` line's name, which is what findings about the whole function underline."""
        node = self.tree
        if isinstance(node, ast.Lambda):
            return self.text.span(node)
        line = self.text.lines[node.lineno - 1] if node.lineno <= len(self.text.lines) else ""
        head = _DEF.match(line)
        start = head.end() + 1 if head is not None else 1
        return Span(self.file, node.lineno, start, node.lineno, start + len(node.name))
