"""The Tessera dialect: Python plus three forms, rewritten to Python of the same length.

    W ~ Normal(0, 1)                                     a sampling statement
    Tensor["B", "S", dtype=bf16, @accum(f32)]            keywords and policies between square brackets
    def f[B, S](x: Tensor[B, S]): ...                    type parameters, also before Python 3.12

Every character keeps its line and column, so that positions in the tree are positions in the text. The rewrite looks
at tokens only and never raises; what it cannot make sense of stays as it is, for Python's parser to reject.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import field
from keyword import iskeyword, kwlist
from typing import Literal

from tessera.immutable import immutable, mutable

Form = Literal["sample", "keyword", "policy", "type_parameters"]
NATIVE_TYPE_PARAMETERS = sys.version_info >= (3, 12)


@immutable
class DialectForm:
    """Where a form stood, in characters from the start of the text.

    `owner` is where the statement (of a sample or of type parameters) or the keyword itself starts; `names` are the
    type parameters: offset, number of stars, name.
    """

    form: Form
    start: int
    end: int
    owner: int
    names: tuple[tuple[int, int, str], ...] = ()


# One leading class of characters, so that the search skips all others at C speed; then what follows each of them.
_TOKEN = re.compile(
    r"""["'#\\\r\n()\[\]{}~@=,:;!<>+\-*/%&|^l](?:
        (?P<mark>(?<=[~@=,:;])(?!=) | (?<=[@=:!<>+\-*/%&|^])=)
      | (?P<open>(?<=[(\[{])) | (?P<close>(?<=[)\]}]))
      | (?P<newline>(?<=\n) | (?<=\r)\n?) | (?P<joined>(?<=\\)(?:\r\n?|\n)) | (?P<comment>(?<=\#)[^\r\n]*)
      | (?P<string>
          (?<=")(?:""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:\"{3}|\Z) | [^"\\\r\n]*(?:\\(?:\r\n|.)[^"\\\r\n]*)*"?)
        | (?<=')(?:''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:'{3}|\Z) | [^'\\\r\n]*(?:\\(?:\r\n|.)[^'\\\r\n]*)*'?))
      | (?P<lambda>(?<=l)(?<!\w.)ambda\b)
    )""",
    re.X | re.S,
)
_FORMATTED = re.compile(r"\b(?:[rR]?[fFtT]|[fFtT][rR])$")
# spaces as an atomic group: what is nested a thousand levels deep must not be tried space by space
_HEAD = re.compile(
    r"(?=(?P<space>[ \t\f]*))(?P=space)"
    r"(?P<owner>(?:async[ \t]+)?(?P<what>def|class|type)[ \t]+[^\W\d]\w*[ \t]*(?P<mark>[\[(:]))"
)
_KEYWORD = re.compile(r"\s*[^\W\d]\w*\s*")
_PARAMETER = re.compile(r"(?:\s|#[^\r\n]*)*(\*{0,2})\s*([^\W\d]\w*)")
_PARENTHESIS = re.compile(r"[ \t]*(?:\\(?:\r\n?|\n)[ \t]*)?\(")
_COMMENT = re.compile(r"#[^\r\n]*")
_LAST_WORD = re.compile(r"[^\W\d]\w*$")
_JOINED = re.compile(r"\\(?:\r\n?|\n)")
_COMPOUND = re.compile(r"\s*(?:if|elif|else|while|for|with|def|class|async|try|except|finally|match|case)\b")


@mutable
class _Bracket:
    """An open bracket: "[" subscript, "T" type parameters of def or class, "(" any other, "L" the head of a lambda."""

    kind: str
    start: int
    separator: int
    """where its current element starts"""
    names: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])


class _Rewriter:
    def __init__(self, text: str, native: bool) -> None:
        self.text, self.native = text, native
        self.edits: list[tuple[int, str]] = []
        self.notes: list[DialectForm] = []
        self.stack: list[_Bracket] = []
        self.head: re.Match[str] | None = None  # of the def, class or type statement on this line
        self.statement = 0  # where this statement starts
        self.target = True  # whether what stands in this statement so far may be the left side of `~`

    def run(self) -> str:
        self.new_line(1 if self.text.startswith("\ufeff") else 0)
        for kind, start, end in tokens(self.text, 0):
            if kind == "mark":
                self.mark(self.text[start:end], start)
            elif kind == "newline":
                if not self.stack or self.resynchronise(end):
                    self.new_line(end)
            elif kind == "open":
                self.stack.append(_Bracket(self.bracket_kind(self.text[start], start), start, end))
            elif kind == "close":
                self.close(start)
            elif kind == "lambda":
                self.stack.append(_Bracket("L", start, end))
        out = list(self.text)
        for at, replacement in self.edits:
            out[at : at + len(replacement)] = replacement
        return "".join(out) if self.edits else self.text

    def new_line(self, at: int) -> None:
        self.statement, self.target, self.head = at, True, _HEAD.match(self.text, at)

    def resynchronise(self, at: int) -> bool:
        """A `def` or `class` at the start of a line ends whatever bracket was left open above it."""
        head = _HEAD.match(self.text, at)
        if head is None or head["what"] == "type":
            return False
        self.stack.clear()
        return True

    def bracket_kind(self, bracket: str, at: int) -> str:
        if bracket != "[":
            return "("
        if self.head and at == self.head.start("mark"):
            return "T" if self.head["what"] != "type" else "("
        before = self.text[max(0, at - 100) : at].rstrip()
        word = _LAST_WORD.search(before)
        return "[" if (word and not iskeyword(word[0])) or before.endswith((")", "]", "}", '"', "'")) else "("

    def element(self, at: int) -> str:
        """What stands between the last separator in this bracket and `at`, without comments."""
        return _COMMENT.sub("", self.text[self.stack[-1].separator : at])

    def mark(self, mark: str, at: int) -> None:
        if not self.stack:
            return self.statement_mark(mark, at)
        top = self.stack[-1]
        if mark == ",":
            self.type_parameter(top, at)
            top.separator = at + 1
        elif mark == ":" and top.kind == "L":
            self.stack.pop()
        elif top.kind == "[" and mark == "=" and _KEYWORD.fullmatch(element := self.element(at)):
            self.edit("keyword", at, ":", self.text.rindex(element.strip(), 0, at))
        elif top.kind == "[" and mark == "@" and not self.element(at).strip():
            self.edit("policy", at, " ", at)

    def statement_mark(self, mark: str, at: int) -> None:
        if mark == "~" and self.target:
            left = self.text[self.statement : at]
            target = _JOINED.sub("", left).strip()
            word = _LAST_WORD.search(target)
            ends = word[0] not in _NO_TARGET if word else target.endswith((")", "]"))
            if ends and not iskeyword(target.split(maxsplit=1)[0]):
                self.edit("sample", at, "=", self.statement + len(left) - len(left.lstrip()))
            self.target = False
        elif mark == ";":
            self.statement, self.target = at + 1, True
        elif mark == ":":
            self.target = _COMPOUND.match(self.text, self.statement, at) is not None
            self.statement = at + 1
        elif mark != ",":
            self.target = False

    def close(self, at: int) -> None:
        while self.stack and self.stack[-1].kind == "L":
            self.stack.pop()
        top = self.stack.pop() if self.stack else None
        if top and top.kind == "T" and self.text[at] == "]" and self.head:
            self.type_parameter(top, at)
            self.notes.append(
                DialectForm("type_parameters", top.start, at + 1, self.head.start("owner"), tuple(top.names))
            )
            if not self.native:
                self.blank(top.start, at)

    def type_parameter(self, top: _Bracket, end: int) -> None:
        if top.kind == "T" and (found := _PARAMETER.match(self.text, top.separator, end)):
            top.names.append((found.start(2), len(found[1]), found[2]))

    def blank(self, start: int, end: int) -> None:
        """`def f[B](x)` becomes `def f(   x)`: the bracket opens the parentheses, so that lines may break inside it."""
        inside = re.sub(r"[^\r\n]", " ", self.text[start + 1 : end])
        parenthesis = _PARENTHESIS.match(self.text, end + 1)
        self.edits.append((start, f"({inside} " if parenthesis else f"({inside})"))
        if parenthesis:
            self.edits.append((parenthesis.end() - 1, " "))

    def edit(self, form: Form, at: int, replacement: str, owner: int) -> None:
        self.edits.append((at, replacement))
        self.notes.append(DialectForm(form, at, at + 1, owner))


_NO_TARGET = frozenset(kwlist) | {"match"}  # after these, `~` is Python's own


def tokens(text: str, position: int) -> Iterator[tuple[str, int, int]]:
    """The kind, start and end of what matters to the structure of a text: brackets, strings, comments, ends of lines,
    and the marks that the dialect's forms are told by."""
    restart: int | None = position
    while restart is not None:
        position, restart = restart, None
        for m in _TOKEN.finditer(text, position):
            kind, end = m.lastgroup or "", m.end()
            if kind == "string" and "{" in m.group() and (real := _string_end(text, m)) != end:
                yield kind, m.start(), real
                restart = real  # the search goes on behind what the pattern took for the end
                break
            yield kind, m.start(), end


def _string_end(text: str, m: re.Match[str], nesting: int = 0) -> int:
    """Where a string token really ends: since Python 3.12 an f-string's fields may hold the quotes that delimit it."""
    if nesting > 20 or not _FORMATTED.search(text[max(0, m.start() - 3) : m.start()]) or _open_fields(m.group()) <= 0:
        return m.end()
    quote = text[m.start()]
    delimiter = quote * 3 if text.startswith(quote * 3, m.start()) else quote
    i, depth = m.start() + len(delimiter), 0
    while i < len(text):
        c = text[i]
        if depth and c in "\"'" and (inner := _TOKEN.match(text, i)):
            i = _string_end(text, inner, nesting + 1)
            continue
        if not depth and text.startswith(delimiter, i):
            return i + len(delimiter)
        if c in "\r\n" and len(delimiter) == 1 and not (depth and NATIVE_TYPE_PARAMETERS):
            return i  # a field goes on in further lines since Python 3.12
        if c == "\\" or (not depth and text[i : i + 2] in ("{{", "}}")):
            i += 1
        elif c in "{[(":
            depth += c == "{" or depth > 0
        elif c in "}])":
            depth -= depth > 0
        i += 1
    return i


def _open_fields(body: str) -> int:
    plain = body.replace("{{", "").replace("}}", "")
    return plain.count("{") - plain.count("}")


def rewrite(text: str, native_type_parameters: bool = NATIVE_TYPE_PARAMETERS) -> tuple[str, tuple[DialectForm, ...]]:
    """The text as Python, character for character in place, and where the dialect's forms stood. Never raises."""
    rewriter = _Rewriter(text, native_type_parameters)
    plain = rewriter.run()
    if plain.startswith("\ufeff"):  # a form feed: the one character before a statement that is no indentation
        plain = "\f" + plain[1:]
    return re.sub("[\ud800-\udfff]", "\ufffd", plain), tuple(rewriter.notes)
