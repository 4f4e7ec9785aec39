"""Where a function's text is, and how AST nodes become spans in it."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal

from tessera.compiler.frontend.syntax.parse import parse
from tessera.errors import CompileError, Diagnostic, Span

if TYPE_CHECKING:
    from tessera.compiler.frontend.names.live import Scope

Kind = Literal["function", "kernel"]
FunctionNode = ast.FunctionDef | ast.Lambda
_DEF = re.compile(r"\s*(?:async\s+)?def\s+")


class Source:
    """The text of a module or notebook cell. `span` turns AST positions (UTF-8 bytes) into columns of characters."""

    __slots__ = ("_ascii", "_lines", "file", "text")

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text = file, text
        self._ascii = text.isascii()
        self._lines: list[str] | None = None

    @property
    def lines(self) -> list[str]:
        if self._lines is None:  # not splitlines(): that also splits at form feeds, which Python's parser does not
            self._lines = self.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return self._lines

    def span(self, node: ast.AST) -> Span:
        at: Any = node  # only expressions, statements and the like have a place, and only these come here
        line, end_line, col, end_col = at.lineno, at.end_lineno or at.lineno, at.col_offset, at.end_col_offset or 0
        if self._ascii:
            return Span(self.file, line, col + 1, end_line, end_col + 1)
        return Span(self.file, line, self._column(line, col), end_line, self._column(end_line, end_col))

    def _column(self, line: int, offset: int) -> int:
        if line > len(self.lines):
            return offset + 1
        return len(self.lines[line - 1].encode("utf-8", "surrogatepass")[:offset].decode(errors="replace")) + 1

    def segment(self, span: Span) -> str:
        """The text that `span` covers."""
        lines = self.lines[span.line - 1 : span.end_line]
        if not lines:
            return ""
        lines[-1] = lines[-1][: span.end_col - 1]
        lines[0] = lines[0][span.col - 1 :]
        return "\n".join(lines)


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


@lru_cache(maxsize=16)  # each holds a whole text: an editor makes one per edit
def source_of(file: str, text: str) -> Source:
    return Source(file, text)


def unavailable(name: str, why: str) -> CompileError:
    return CompileError(Diagnostic("TS109", f"{name} cannot be compiled: {why}", function=name))


def live_definition(
    function: Callable[..., Any], kind: Kind = "function", options: Mapping[str, Any] | None = None
) -> Definition:
    """The definition behind a live Python function. Raises CompileError (TS109) when its text is not to be had."""
    from tessera.compiler.frontend.names.live import LiveScope

    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    if code is None:
        raise unavailable(name, "it is not a Python function")
    lines = linecache.getlines(code.co_filename, getattr(function, "__globals__", None))
    if not lines:
        raise unavailable(name, f"its source text ({code.co_filename}) cannot be read")
    text = "".join(lines)
    tree, notes = live_module(text, code.co_filename)
    is_lambda = code.co_name == "<lambda>"
    node = _lambda(tree, code, name) if is_lambda else find_function(tree, code.co_firstlineno, code.co_name)
    if node is None or not _same_parameters(node, code):
        raise unavailable(name, f"{code.co_filename} has changed since it was imported")
    return Definition(
        kind, name, code.co_filename, code.co_firstlineno, node, text, LiveScope(function), notes, options or {}
    )


@lru_cache(maxsize=64)
def live_module(text: str, file: str) -> tuple[ast.Module, tuple[object, ...]]:
    """The tree of a module whose functions are live; shared, and never changed."""
    return parse_module(text, file)


def parse_module(text: str, file: str) -> tuple[ast.Module, tuple[object, ...]]:
    """Parses Python, or Tessera's dialect through its length-preserving rewrite. Raises CompileError (TS101)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # Python itself shows them when the file is run
        parsed = parse(text, file)
    if parsed.tree is None:
        raise CompileError(parsed.diagnostics)
    return parsed.tree, parsed.notes


def _lambda(tree: ast.AST, code: CodeType, name: str) -> ast.Lambda | None:
    """The lambda that `code` was compiled from: of several on one line, the innermost whose body holds all of the code.

    Raises CompileError TS109 where that cannot be told (python -X no_debug_ranges).
    """
    on_line = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda) and n.lineno == code.co_firstlineno]
    if len(on_line) < 2:
        return on_line[0] if on_line else None
    # Instructions that belong to no expression have no columns, or empty ones.
    places = [(line, a, end, b) for line, end, a, b in code.co_positions() if line and end and a is not None and a != b]
    found = [n for n in on_line if all(_holds(n.body, *place) for place in places)] if places else []
    if not found:
        raise unavailable(name, "several lambdas stand on its line; give it a name with def, or a line of its own")
    return found[-1]  # ast.walk comes to the outer ones first


def _holds(node: ast.expr, line: int, column: int, end_line: int, end_column: int | None) -> bool:
    start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return start <= (line, column) and (end_line, end_column or 0) <= end


def _same_parameters(node: FunctionNode, code: CodeType) -> bool:
    """A cheap sign that the text is still the one that was compiled."""
    a = node.args
    names = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return tuple(names) == code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def find_function(tree: ast.AST, line: int, name: str) -> FunctionNode | None:
    for node in _functions(tree):
        if isinstance(node, ast.Lambda):
            if name in ("", "<lambda>") and node.lineno == line:
                return node
        elif node.name == name and line in (node.lineno, *(d.lineno for d in node.decorator_list)):
            return node
    return None


def _functions(tree: ast.AST) -> Iterator[FunctionNode]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            yield node
