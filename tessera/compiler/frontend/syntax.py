"""The Tessera dialect: Python plus three forms, rewritten to Python of the same length.

    W ~ Normal(0, 1)                                     a sampling statement
    Tensor["B", "S", dtype=bf16, @accum(f32)]            keywords and policies between square brackets
    def f[B, S](x: Tensor[B, S]): ...                    type parameters, also before Python 3.12

Every character keeps its line and column, so that positions in the tree are positions in the text. The rewrite looks
at tokens only and never raises; what it cannot make sense of stays as it is, for Python's parser to reject. Text that
is plain Python is not touched at all.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from keyword import iskeyword
from types import CodeType
from typing import Literal, cast

from tessera.errors import CompileError, Diagnostic, Span

Form = Literal["sample", "keyword", "policy", "type_parameters"]
NATIVE_TYPE_PARAMETERS = sys.version_info >= (3, 12)


@dataclass(frozen=True, slots=True)
class TypeParameter:
    """One name of `def f[B, *Ts]`. The positions are those of an `ast` node: columns count UTF-8 bytes from 0."""

    name: str
    stars: int
    lineno: int
    col_offset: int
    end_lineno: int
    end_col_offset: int


@dataclass(frozen=True, slots=True)
class Note:
    """Where a form stood: offsets in characters. `names` are the type parameters, (offset, stars, name) each."""

    form: Form
    start: int
    end: int
    names: tuple[tuple[int, int, str], ...] = ()


class Sample(ast.Assign):
    """`W ~ D`: to Python an assignment, to the evaluator a sampling statement."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """`tree` is None where the text does not parse; then `diagnostics` say where and why (TS101)."""

    tree: ast.Module | None
    notes: tuple[Note, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()


_TOKEN = re.compile(
    r"""(?P<string>(?P<prefix>\b(?:[rbuft]|[rR][bft]|[bft][rR]))?
          (?:\"{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:\"{3}|\Z) | '{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:'{3}|\Z)
          | "[^"\\\r\n]*(?:\\(?:\r\n|.)[^"\\\r\n]*)*"? | '[^'\\\r\n]*(?:\\(?:\r\n|.)[^'\\\r\n]*)*'?))
      | (?P<comment>\#[^\r\n]*) | (?P<joined>\\(?:\r\n?|\n)) | (?P<newline>\r\n?|\n)
      | (?P<open>[(\[{]) | (?P<close>[)\]}]) | (?P<mark>:=|[=!<>+\-*/%&|^@]=|[~@=,:;]) | (?P<lambda>\blambda\b)""",
    re.X | re.S | re.I,
)
_HEAD = re.compile(r"[ \t\f]*(?:async[ \t]+)?(def|class|type)[ \t]+[^\W\d]\w*[ \t]*([\[(:]?)")
_KEYWORD = re.compile(r"\s*[^\W\d]\w*\s*")
_PARAMETER = re.compile(r"\s*(\*{0,2})\s*([^\W\d]\w*)")
_COMMENT = re.compile(r"#[^\r\n]*")
_LAST_WORD = re.compile(r"[^\W\d]\w*$")
_COMPOUND = frozenset("if elif else while for with def class async try except finally match case".split())
_NOT_ENDED = re.compile(r"[^\s]")


@dataclass(slots=True)
class _Bracket:
    """An open bracket: "[" subscript, "T" type parameters of def or class, "(" any other, "L" a lambda's head."""

    kind: str
    start: int
    separator: int
    names: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])


class _Rewriter:
    def __init__(self, text: str, native: bool) -> None:
        self.text, self.native = text, native
        self.edits: list[tuple[int, str]] = []
        self.notes: list[Note] = []
        self.stack: list[_Bracket] = []
        self.parameters = -1  # where the type parameters of this line's def or class open
        self.statement = 0  # where this statement starts
        self.target = True  # whether what stands in this statement so far may be the left side of `~`

    def run(self) -> str:
        position: int | None = 0
        self.new_line(0)
        while position is not None:
            position = self.tokens(position)
        if not self.edits:
            return self.text
        out = list(self.text)
        for at, replacement in self.edits:
            out[at : at + len(replacement)] = replacement
        return "".join(out)

    def tokens(self, position: int) -> int | None:
        """Reads tokens from `position`; a position to go on from where the tokenizer must jump, else None."""
        for m in _TOKEN.finditer(self.text, position):
            kind, i = m.lastgroup, m.start()
            if kind == "mark":
                self.mark(m.group(), i)
            elif kind == "newline":
                if not self.stack or (self.stack[-1].kind != "T" and self.resynchronise(m.end())):
                    self.new_line(m.end())
            elif kind == "open":
                self.stack.append(_Bracket(self.bracket_kind(m.group(), i), i, i + 1))
            elif kind == "close":
                self.close(i)
            elif kind == "lambda":
                self.stack.append(_Bracket("L", i, m.end()))
            elif kind == "string" and "f" in (m["prefix"] or "").lower() + (m["prefix"] or "").lower().replace("t", "f"):
                end = _f_string_end(self.text, m)
                if end != m.end():
                    return end
        return None

    def new_line(self, at: int) -> None:
        self.statement, self.target, self.parameters = at, True, -1
        head = _HEAD.match(self.text, at)
        if head is not None and head[2] == "[":
            self.parameters = head.start(2)

    def resynchronise(self, at: int) -> bool:
        """A `def` or `class` at the start of a line ends whatever bracket was left open above it."""
        head = _HEAD.match(self.text, at)
        if head is None or head[1] == "type" or not head[2]:
            return False
        self.stack.clear()
        return True

    def bracket_kind(self, bracket: str, at: int) -> str:
        if bracket != "[":
            return "("
        if at == self.parameters:
            return "(" if _HEAD.match(self.text, self.statement)[1] == "type" else "T"  # type: ignore[index]
        before = self.text[max(0, at - 200) : at].rstrip()
        word = _LAST_WORD.search(before)
        return "[" if (word and not iskeyword(word[0])) or before[-1:] in tuple(")]}\"'") else "("

    def between(self, at: int) -> str:
        """What stands between the last separator of this bracket and `at`, without comments."""
        part = self.text[self.stack[-1].separator : at]
        return _COMMENT.sub("", part) if "#" in part else part

    def mark(self, mark: str, at: int) -> None:
        top = self.stack[-1] if self.stack else None
        if top is None:
            self.statement_mark(mark, at)
        elif mark == ",":
            if top.kind == "T":
                self.type_parameter(top, at)
            top.separator = at + 1
        elif top.kind == "[":
            if mark == "=" and _KEYWORD.fullmatch(self.between(at)):
                self.edit("keyword", at, ":")
            elif mark == "@" and not self.between(at).strip():
                self.edit("policy", at, " ")
        elif mark == ":" and top.kind == "L":
            self.stack.pop()

    def statement_mark(self, mark: str, at: int) -> None:
        if mark == "~":
            left = self.text[self.statement : at].strip()
            word = _LAST_WORD.search(left)
            first = re.match(r"\w*", left)
            ends = (word and not iskeyword(word[0]) and word[0] != "match") or left[-1:] in (")", "]")
            if self.target and ends and not iskeyword(first[0] if first else ""):
                self.edit("sample", at, "=")
            self.target = False
        elif mark == ";":
            self.statement, self.target = at + 1, True
        elif mark == ":":
            first = re.match(r"\s*(\w*)", self.text[self.statement : at])
            self.statement, self.target = at + 1, first is not None and first[1] in _COMPOUND
        elif mark != ",":
            self.target = False

    def close(self, at: int) -> None:
        while self.stack and self.stack[-1].kind == "L":
            self.stack.pop()
        if not self.stack:
            return
        top = self.stack.pop()
        if top.kind != "T" or self.text[at] != "]":
            return
        self.type_parameter(top, at)
        self.notes.append(Note("type_parameters", top.start, at + 1, tuple(top.names)))
        if not self.native:
            self.blank(top.start, at)

    def blank(self, start: int, end: int) -> None:
        """`def f[B](x)` becomes `def f(   x)`: the bracket opens the parentheses, so that line breaks stay legal."""
        inside = re.sub(r"[^\r\n]", " ", self.text[start + 1 : end])
        following = re.compile(r"[ \t]*(?:\\\r?\n[ \t]*)?\(").match(self.text, end + 1)
        self.edits.append((start, f"({inside})" if following is None else f"({inside} "))
        if following is not None:
            self.edits.append((following.end() - 1, " "))

    def type_parameter(self, top: _Bracket, end: int) -> None:
        found = _PARAMETER.match(self.text, top.separator, end)
        gap = self.between_comments(top.separator, end)
        found = _PARAMETER.match(self.text, gap, end)
        if found is not None:
            top.names.append((found.start(2), len(found[1]), found[2]))

    def between_comments(self, start: int, end: int) -> int:
        """The first offset from `start` that is neither blank nor in a comment."""
        skipped = re.compile(r"(?:\s|#[^\r\n]*)*").match(self.text, start, end)
        return skipped.end() if skipped else start

    def edit(self, form: Form, at: int, replacement: str) -> None:
        self.edits.append((at, replacement))
        self.notes.append(Note(form, at, at + 1))
