"""Parsing Python and the Tessera dialect (`dialect`) into one kind of tree, with places in the original text."""

from __future__ import annotations
import __future__

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType
from typing import Any, ClassVar, cast

from tessera.compiler.frontend.syntax.dialect import DialectForm, Form, rewrite
from tessera.errors import CompileError, Diagnostic, Span
from tessera.immutable import immutable

FunctionNode = ast.FunctionDef | ast.Lambda
_REJECTED = (SyntaxError, ValueError, RecursionError, MemoryError)  # MemoryError: brackets nested too deeply
_NEWLINE = re.compile(r"\r\n?|\n")
_SIGNS = re.compile(r"(?:[-+~][ \t]*|not[ \t]+){50,}")
_BRACKETS = re.compile(r"[()\[\]{}]")


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


@lru_cache(maxsize=16)  # each holds a whole text: an editor makes one per edit
def source_of(file: str, text: str) -> Source:
    return Source(file, text)


class TypeParameter(ast.AST):
    """One name of `def f[B, *Ts]`. Trees can be copied and moved with it, as with nodes of Python's own."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _attributes: ClassVar[tuple[str, ...]] = ("lineno", "col_offset", "end_lineno", "end_col_offset")

    def __init__(self, name: str, stars: int, *place: int) -> None:
        super().__init__(**dict(zip(self._attributes, place, strict=True)))
        self.name, self.stars = name, stars


class Sample(ast.Assign):
    """`W ~ D`: to Python an assignment, to the evaluator a sampling statement."""


@immutable
class Parsed:
    """`tree` is None where the text does not parse; then `diagnostics` say where and why (TS101)."""

    tree: ast.Module | None
    notes: tuple[DialectForm, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


def parse(text: str, file: str) -> Parsed:
    """Parses Python, or failing that the dialect. `notes` is empty for plain Python.

    In the tree, type parameters stand in `type_params` as newer Pythons have them, `~` is a `Sample`, and the name of
    a keyword between square brackets is a string constant. A text that does not parse gives no tree; an editor that
    wants the statements around the mistake parses these one by one.
    """
    found = _attempt(text, file)
    if isinstance(found, ast.Module):
        return Parsed(found)
    plain, notes = rewrite(text)
    if plain != text:
        found = _attempt(plain, file)
    if not isinstance(found, ast.Module):
        return Parsed(None, notes, (_diagnostic(found, plain, file, notes),))
    _mark(found, plain, notes)
    _realign(found, plain, text)
    return Parsed(found, notes)


def parse_module(text: str, file: str) -> tuple[ast.Module, tuple[object, ...]]:
    """Parses Python, or Tessera's dialect through its length-preserving rewrite. Raises CompileError (TS101)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # Python itself shows them when the file is run
        parsed = parse(text, file)
    if parsed.tree is None:
        raise CompileError(parsed.diagnostics)
    return parsed.tree, parsed.notes


def _attempt(text: str, file: str) -> ast.Module | Exception:
    try:
        return ast.parse(text, file)
    except _REJECTED as e:
        return e


class _Positions:
    """Lines (from 1) and columns of offsets in a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(m.end() for m in _NEWLINE.finditer(text))]

    def of(self, offset: int) -> tuple[int, int]:
        """Line, and column in UTF-8 bytes from 0: how `ast` counts."""
        line = bisect_right(self.starts, offset)
        return line, len(self.text[self.starts[line - 1] : offset].encode("utf-8", "surrogatepass"))


def _mark(tree: ast.Module, text: str, notes: tuple[DialectForm, ...]) -> None:
    """Writes into the tree what the rewrite has taken out of the text."""
    positions = _Positions(text)
    owners: dict[tuple[str, int, int], DialectForm] = {(n.form, *positions.of(n.owner)): n for n in notes}

    def note_of(form: Form, node: ast.stmt | ast.expr) -> DialectForm | None:
        return owners.get((form, node.lineno, node.col_offset))

    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            note = note_of("type_parameters", node)
            if note and not getattr(node, "type_params", None):
                node.type_params = [_type_parameter(p, positions) for p in note.names]  # type: ignore[attr-defined]
        elif isinstance(node, ast.Slice) and isinstance(node.lower, ast.Name) and note_of("keyword", node.lower):
            node.lower = ast.copy_location(ast.Constant(node.lower.id), node.lower)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for i, s in enumerate(cast("list[ast.AST]", block)):
                    if isinstance(s, ast.Assign) and note_of("sample", s):
                        block[i] = ast.copy_location(Sample(s.targets, s.value), s)


def _realign(tree: ast.Module, plain: str, text: str) -> None:
    """Columns count bytes: where the rewrite has put narrow characters for wide ones, they are counted in the text."""
    if plain.isascii() == text.isascii() and len(plain.encode()) == len(text.encode("utf-8", "surrogatepass")):
        return
    mine, written = (re.split(_NEWLINE, t) for t in (plain, text))
    for node in ast.walk(tree):
        ours = (p for p in getattr(node, "type_params", ()) if isinstance(p, TypeParameter))
        for position in (node, *ours):
            for line_name, name in (("lineno", "col_offset"), ("end_lineno", "end_col_offset")):
                line = getattr(position, line_name, None)
                if line is not None and mine[line - 1] != written[line - 1]:
                    characters = len(mine[line - 1].encode()[: getattr(position, name)].decode(errors="replace"))
                    bytes_ = len(written[line - 1][:characters].encode("utf-8", "surrogatepass"))
                    setattr(position, name, bytes_)


def _type_parameter(parameter: tuple[int, int, str], positions: _Positions) -> TypeParameter:
    offset, stars, name = parameter
    return TypeParameter(name, stars, *positions.of(offset), *positions.of(offset + len(name)))


def _deepest(text: str) -> int:
    """Where the longest row of signs starts, or of brackets that are open."""
    signs = max(_SIGNS.finditer(text), key=lambda m: m.end() - m.start(), default=None)
    if signs is not None:
        return signs.start()
    depth = most = at = 0
    for m in _BRACKETS.finditer(text):
        depth += 1 if m[0] in "([{" else -1
        if depth > most:
            most, at = depth, m.start()
    return at


def _diagnostic(error: BaseException, text: str, file: str, notes: tuple[DialectForm, ...]) -> Diagnostic:
    positions = _Positions(text)
    if "\0" in text:
        line, col = positions.of(text.index("\0"))
        return Diagnostic("TS101", "the text contains a null character", Span(file, line, col + 1, line, col + 2))
    if not isinstance(error, SyntaxError):
        line, col = positions.of(_deepest(text))
        return Diagnostic("TS101", "the text is nested too deeply", Span(file, line, col + 1, line, col + 2))
    line, col = error.lineno or 1, max(error.offset or 1, 1)
    end_line, end = error.end_lineno or line, error.end_offset or 0
    if (end_line, end) <= (line, col):
        end_line, end = line, col + 1
    message = error.msg or "invalid syntax"
    sampled = any(n.form == "sample" and positions.of(n.start)[0] == line for n in notes)
    if sampled and message.startswith(("cannot assign", "illegal target")):
        message = "the left side of ~ must be a name"
    return Diagnostic("TS101", message, Span(file, line, col, end_line, end))


def compile_text(text: str, file: str) -> CodeType:
    """Bytecode of a cell or `.tess` file. Its annotations stay unevaluated (PEP 563): many of their names are dims.

    Raises CompileError (TS101), and TS102 for `~` at module level, where there is no program to sample in.
    """
    parsed = parse(text, file)
    if parsed.tree is None:
        raise CompileError(parsed.diagnostics)
    for node in parsed.tree.body:
        if isinstance(node, Sample):
            span = Span(file, node.lineno, node.col_offset + 1, node.end_lineno or 0, (node.end_col_offset or 0) + 1)
            raise CompileError(Diagnostic("TS102", "`~` has a meaning inside a function only", span))
    try:
        return compile(parsed.tree, file, "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    except SyntaxError as e:  # a `return` outside of functions, say, which Python's parser lets pass
        node = ast.Pass(lineno=e.lineno or 1, col_offset=max(e.offset or 1, 1) - 1)
        node.end_lineno, node.end_col_offset = e.end_lineno, (e.end_offset or 1) - 1
        span = source_of(file, text).span(node)
        raise CompileError(Diagnostic("TS101", e.msg or "invalid syntax", span)) from None


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
