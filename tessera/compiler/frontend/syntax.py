"""Tessera's dialect: Python plus three forms, rewritten to Python without moving a character.

    W ~ Normal(0, 1)                              a statement `target ~ expression`     becomes `W = Normal(0, 1)`
    Tensor["B", dtype=bf16, @accum(f32)]          keywords and policies in subscripts   become `dtype:bf16`, ` accum(f32)`
    def f[B, S](x): ...                           type parameters, on every Python      become blanks

Because the rewrite keeps the length of every line, positions in its result are positions in the source. `rewrite` never
raises, whatever the text; `parse` gives a tree or a diagnostic, and marks what was rewritten on the nodes it
concerns: `Assign.type_comment == SAMPLED`, and `type_params` as Python 3.12's parser sets it.
"""

from __future__ import annotations

import __future__
import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, SimpleNamespace
from typing import Any, Literal

from tessera.errors import CompileError, Diagnostic, Span

SAMPLED = "~"
Form = Literal["sample", "keyword", "policy", "parameters"]


@dataclass(frozen=True, slots=True)
class Note:
    """One rewritten form: where it starts and ends (offsets in characters) and what stood there."""

    form: Form
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    text: str
    notes: tuple[Note, ...]


_TOKEN = re.compile(
    r"""(?P<skip>[ \t\f]+|\\\r?\n|\#[^\r\n]*)
    |(?P<line>\r?\n|\r)
    |(?P<string>[rRbBuUfFtT]{0,2}(?:\"{3}(?:\\.|[^\\])*?(?:\"{3}|\Z)|'{3}(?:\\.|[^\\])*?(?:'{3}|\Z)
        |"(?:\\.|[^"\\\r\n])*"?|'(?:\\.|[^'\\\r\n])*'?))
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\.?\d[\w.]*)
    |(?P<operator>:=|==|!=|<=|>=|->|\*\*=?|//=?|<<=?|>>=?|[-+*/%@&|^]=|.)""",
    re.X | re.S,
)
_OPEN, _CLOSE = "([{", ")]}"
_KEYWORDS = frozenset("and as assert await del elif else except from global if import in is lambda nonlocal not or raise return while with yield print".split())  # fmt: skip


def rewrite(text: str) -> Rewritten:
    """The same text with the three forms turned into Python of the same length. Never raises."""
    if "~" not in text and "[" not in text:
        return Rewritten(text, ())
    return _Rewriter(text).run()


class _Rewriter:
    """One pass over the tokens. `stack` holds the open brackets, `P` for the bracket of type parameters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.out = list(text)
        self.notes: list[Note] = []
        self.stack: list[tuple[str, int]] = []
        self.words: list[str] = []
        """tokens of the current statement, outside brackets, as far as they matter"""
        self.before = ("line", "")
        self.earlier = ""
        """the token before the one before"""

    def run(self) -> Rewritten:
        for m in _TOKEN.finditer(self.text):
            kind, token = m.lastgroup, m.group()
            if kind == "skip":
                continue
            if kind == "line":
                if not self.stack:
                    self.words, self.before = [], ("line", "")
                continue
            assert kind is not None
            if kind == "operator":
                self.operator(token, m.start())
            if not self.stack:
                if token in (";", ":") and kind == "operator":
                    self.words = []  # what follows is a statement of its own: `if x: W ~ Normal(0, 1)`
                else:
                    self.words.append(token)
            self.earlier, self.before = self.before[1], (kind, token)
        return Rewritten("".join(self.out), tuple(self.notes))

    def operator(self, token: str, at: int) -> None:
        if token in _OPEN:
            self.stack.append(("P" if token == "[" and self.declares() else token, at))
        elif token in _CLOSE:
            if self.stack:
                opened, start = self.stack.pop()
                if opened == "P":
                    self.blank(start, at + 1)
        elif not self.stack:
            if token == "~" and self.is_target():
                self.put("sample", at, "=")
        elif self.stack[-1][0] == "[":
            if token == "=" and self.before[0] == "name" and self.earlier in ("[", ","):
                self.put("keyword", at, ":")
            elif token == "@" and self.before[1] in ("[", ","):
                self.put("policy", at, " ")

    def declares(self) -> bool:
        """Whether a `[` here opens type parameters: it follows `def name`, `class name` or `type name`."""
        words = self.words[1:] if self.words[:1] == ["async"] else self.words
        return not self.stack and len(words) == 2 and words[0] in ("def", "class", "type") and self.before[0] == "name"

    def is_target(self) -> bool:
        """Whether the statement so far can be assigned to: `W`, `W[i]`, `self.w`, not `x +` or `y =`."""
        plain = all(w not in _KEYWORDS and (w.isidentifier() or w in (".", ",", *_OPEN, *_CLOSE)) for w in self.words)
        return bool(self.words) and plain and self.words[0].isidentifier() and self.before[1] not in (".", ",", *_OPEN)

    def put(self, form: Form, at: int, new: str) -> None:
        self.notes.append(Note(form, at, at + 1, self.text[at]))
        self.out[at] = new

    def blank(self, start: int, end: int) -> None:
        self.notes.append(Note("parameters", start, end, self.text[start:end]))
        for i in range(start, end):
            if self.out[i] not in "\r\n":
                self.out[i] = " "
            elif i > start and self.text[i - 1] not in "\r\n":
                self.out[i - 1] = "\\"  # outside brackets a line goes on only behind a backslash
        # Inside them, keywords and policies were rewritten too; the blanks have the last word.
        self.notes = [n for n in self.notes if n.form == "parameters" or not start <= n.start < end]


_PARAMETER = re.compile(r"(?:^|,)\s*(\*{0,2})\s*([^\W\d]\w*)")


def parse(text: str, file: str) -> tuple[ast.Module, tuple[Note, ...]]:
    """The tree of a module or cell in the dialect. Raises CompileError (TS101) with the place and the reason."""
    rewritten = rewrite(text)
    try:
        tree = ast.parse(rewritten.text, file)
    except SyntaxError as e:
        raise CompileError(syntax_error(e, file, text)) from None
    except (ValueError, RecursionError, MemoryError) as e:
        why = "it is nested too deeply" if not isinstance(e, ValueError) else str(e)
        raise CompileError(Diagnostic("TS101", f"The text cannot be parsed: {why}.", Span(file, 1, 1, 1, 2))) from None
    if rewritten.notes:
        _mark(tree, rewritten, text)
    return tree, rewritten.notes


def compile_module(text: str, file: str, mode: Literal["exec", "single"] = "exec") -> CodeType:
    """Python code for a module or cell in the dialect. Annotations stay text: their dims are no Python names.

    Raises CompileError (TS101).
    """
    tree, _ = parse(text, file)
    try:
        return compile(tree, file, mode, flags=__future__.annotations.compiler_flag, dont_inherit=True)
    except (SyntaxError, ValueError) as e:  # what only the compiler sees: `return` outside a function, null bytes
        error = e if isinstance(e, SyntaxError) else SyntaxError(str(e))
        raise CompileError(syntax_error(error, file, text)) from None


def syntax_error(e: SyntaxError, file: str, text: str) -> Diagnostic:
    """Python's own finding as a diagnostic with an end."""
    line = max(e.lineno or 1, 1)
    lines = text.splitlines()
    width = len(lines[line - 1]) if line <= len(lines) else 0
    col = min(max(e.offset or 1, 1), width + 1)
    end_line, end_col = e.end_lineno or line, e.end_offset or 0
    if end_line < line or (end_line == line and end_col <= col):
        end_line, end_col = line, col + 1
    message = (e.msg or "invalid syntax").replace("f-string: ", "in an f-string: ")
    return Diagnostic("TS101", message[:1].upper() + message[1:] + ".", Span(file, line, col, end_line, end_col))


class _Places:
    """Offsets in characters to the parser's line and UTF-8 column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(m.end() for m in re.finditer(r"\r\n|\r|\n", text))]

    def of(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self.starts, offset)
        before = self.text[self.starts[line - 1] : offset]
        return line, len(before.encode("utf-8", "surrogatepass"))


def _mark(tree: ast.Module, rewritten: Rewritten, text: str) -> None:
    places = _Places(text)
    sampled = {places.of(n.start) for n in rewritten.notes if n.form == "sample"}
    parameters = {places.of(n.start): n for n in rewritten.notes if n.form == "parameters"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and sampled:
            target, value = node.targets[-1], node.value
            after = (target.end_lineno or 0, target.end_col_offset or 0)
            if any(after <= at < (value.lineno, value.col_offset) for at in sampled):
                node.type_comment = SAMPLED
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and parameters:
            inside = [at for at in parameters if (node.lineno, node.col_offset) <= at < _body_start(node)]
            if inside:
                note = parameters.pop(min(inside))
                setattr(node, "type_params", list(_type_parameters(note, places)))  # noqa: B010 - a field from 3.12 on


def _body_start(node: Any) -> tuple[int, int]:
    first = node.body[0]
    return first.lineno, first.col_offset


def _type_parameters(note: Note, places: _Places) -> Iterator[SimpleNamespace]:
    """Names between the brackets with their places, shaped as the nodes of Python 3.12."""
    inner = note.text[1:-1]
    for m in _PARAMETER.finditer(inner):
        line, col = places.of(note.start + 1 + m.start(2))
        end_line, end_col = places.of(note.start + 1 + m.end(2))
        yield SimpleNamespace(name=m[2], lineno=line, col_offset=col, end_lineno=end_line, end_col_offset=end_col)
