"""Parts of a text that are parsed one by one: what they are, what is wrong with the others, and what stood there."""

from __future__ import annotations

import ast
import re
from dataclasses import field, replace
from keyword import kwlist
from typing import Any

from tessera.compiler.frontend.syntax.dialect import tokens
from tessera.compiler.frontend.syntax.lines import Lines
from tessera.compiler.frontend.syntax.parse import parse
from tessera.compiler.frontend.syntax.trees import Broken, clone, first_line, shift, suites
from tessera.errors import Diagnostic, Span
from tessera.immutable import mutable

_ON_LINE = re.compile(r"\bon line (\d+)")
_AT_LINE = re.compile(r" \(detected at line \d+\)")


def moved_finding(d: Diagnostic, by: int) -> Diagnostic:
    """The same finding some lines further down, where its message says a line."""
    span = replace(d.span, line=max(d.span.line + by, 1), end_line=max(d.span.end_line + by, 1))
    return replace(d, span=span, message=_ON_LINE.sub(lambda m: f"on line {int(m[1]) + by}", d.message))


@mutable
class Fragments:
    """Parses lines of one text. Lines are given from 0, as in `Lines`; places in what is made count from 1."""

    file: str
    lines: Lines
    before: Before | None = None
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """first and last lines, from 1, of what is missing from the tree"""

    def parsed(self, i: int, lines: list[str], extra: int = 0) -> tuple[list[ast.stmt] | None, Diagnostic | None]:
        """The statements of some lines, the first of them (but for `extra`) at line `i`; or why there are none."""
        indented = lines[0][:1] in (" ", "\t", "\f")
        marked = i > 0 and lines[0][:1] == "\ufeff"  # only the first line may begin with a byte order mark
        by = i - indented - marked - extra
        found = parse("if 1:\n" * indented + "\n" * marked + "\n".join(lines) + "\n", self.file)
        if found.tree is None:
            return None, self._within(moved_finding(found.diagnostics[0], by))
        body: Any = found.tree.body
        if indented:
            if len(body) != 1 or body[0].orelse:
                return None, Diagnostic("TS101", "invalid syntax", Span(self.file, i + 1, 1, i + 1, 2))
            body = body[0].body
        for s in body:
            shift(s, by)
        return body, None

    def _within(self, d: Diagnostic) -> Diagnostic:
        """Python may speak of lines that were only added to make a statement whole."""
        last = len(self.lines)
        span = replace(d.span, line=min(d.span.line, last), end_line=min(d.span.end_line, last))
        return replace(d, span=span, message=_AT_LINE.sub("", d.message))

    def was(self, start: int, end: int) -> list[ast.stmt]:
        """What stood in these lines when it could be read last."""
        if self.before is None:
            return []
        indent = len(self.lines.space(start))
        was = self.before.statements(*self.before.range(start, end, len(self.lines)))
        if len(was) > 1:  # of all that stood where much has changed
            rows = {s.lineno for s in was if s.col_offset == indent}
            was = [s for s in was if s.lineno in rows]
        return [self._moved(s, start + 1 - first_line(s)) for s in was]

    @staticmethod
    def _moved(s: ast.stmt, by: int) -> ast.stmt:
        if not by:
            return s
        s = clone(s)  # the tree before is still needed where this reading is given up for a newer text
        shift(s, by)
        return s

    def place(self, node: Any, start: int, end: int) -> Any:
        """Gives a node the place of whole lines."""
        node.lineno, node.end_lineno = start + 1, end
        node.col_offset = len(self.lines.space(start))
        node.end_col_offset = len(self.lines[end - 1].encode("utf-8", "surrogatepass"))
        return node

    def broken(self, start: int, end: int, problem: Diagnostic | None) -> Broken:
        while end > start + 1 and self.lines.is_blank(end - 1):
            end -= 1
        self.gap(start, end, problem)
        text = "\n".join(self.lines.between(start, end))
        return self.place(broken(text, self.was(start, end)), start, end)

    def gap(self, start: int, end: int, problem: Diagnostic | None) -> None:
        self.gaps.append((start + 1, end))
        if problem is not None:
            self.problems.append(problem)

    def report(self, i: int) -> None:
        """Says that a line is astray."""
        message = "this line is not indented like the lines around it"
        line = self.lines[i]
        start = len(self.lines.space(i)) + 1
        self.problems.append(Diagnostic("TS101", message, Span(self.file, i + 1, start, i + 1, len(line.rstrip()) + 1)))


# The tree before an edit: what stood where a text does not parse.


@mutable
class Before:
    """The tree before an edit, and how its lines were: `head` and `tail` of them, at both ends, are still the same."""

    body: list[ast.stmt]
    lines: int
    head: int
    tail: int

    def range(self, start: int, end: int, lines: int) -> tuple[int, int]:
        """Where the lines from `start` to `end` (from 0) of a text of so many lines were before."""
        by = self.lines - lines
        if not by:  # line for line, also where it is changed
            return start, end
        first = start if start < self.head else start + by if start >= lines - self.tail else self.head
        last = end if end <= self.head else end + by if end > lines - self.tail else self.lines - self.tail
        return first, last

    def statements(self, start: int, end: int) -> list[ast.stmt]:
        """The statements that began between these lines, each as it could be read last."""
        out: list[ast.stmt] = []
        pending = list(reversed(self.body))
        while pending:
            s = pending.pop()
            first, last = first_line(s) - 1, s.end_lineno or s.lineno
            if start <= first < end:
                out += s.was if isinstance(s, Broken) else [s]
            elif first < end and last > start:
                pending += [inner for block in reversed(suites(s)) for inner in reversed(block)]
        return out


# What the text of a broken statement tells.

_WORD = re.compile(r"[^\W\d]\w*")
_LEADING = re.compile(r"\s*(?:for\s+)?([^\W\d]\w*(?:\s*,\s*[^\W\d]\w*)*)(?!\w|\s*[.(\[])")
_ASSIGNED = re.compile(r"([^\W\d]\w*)\s*[\"'(\[{)\]}]?\s*(?::=|(?:[-+*/@%&|^]|//|\*\*|<<|>>)?=(?!=)|~)")
_NAMED = re.compile(r"\s*(?:async\s+)?(?:def|class)\s+([^\W\d]\w*)|.*\bas\s+([^\W\d]\w*)", re.S)
_IMPORT = re.compile(r"\s*(?:(from\s+[.\w]+\s+import)\b|import\b)(.*)", re.S)
_IMPORTED = re.compile(r"[^\W\d][\w.]*(?:\s+as\s+[^\W\d]\w*)?")
_KEYWORDS = frozenset(kwlist)


def broken(text: str, was: list[ast.stmt]) -> Broken:
    """A statement that does not parse, with what its text tells."""
    mentions = frozenset(_WORD.findall(text)) - _KEYWORDS
    return Broken(was or salvaged(text), bound_names(text), mentions, text.lstrip().startswith(("return", "raise")))


def bound_names(text: str) -> frozenset[str]:
    """Names that a broken statement may assign, as far as its text tells."""
    found: set[str] = set()
    if leading := _LEADING.match(text):
        found |= set(_WORD.findall(leading[1]))
    if named := _NAMED.match(text):
        found.add(named[1] or named[2])
    outside = _outside_brackets(text)
    found |= set(_ASSIGNED.findall(outside) or _ASSIGNED.findall(text))
    if imported := _IMPORT.match(text):
        found |= set(_WORD.findall(imported[2]))
    return frozenset(found - _KEYWORDS)


def _outside_brackets(text: str) -> str:
    out, depth, since = "", 0, 0
    for kind, start, end in tokens(text, 0):
        if kind == "open":
            out += text[since:start] if not depth else ""
            depth += 1
        elif kind == "close" and depth:
            depth, since = depth - 1, end
    return out + (text[since:] if not depth else "")


def salvaged(text: str) -> list[ast.stmt]:
    """The imports that can still be made out in a broken import."""
    found = _IMPORT.match(text)
    out: list[ast.stmt] = []
    if found is None:
        return out
    for name in _IMPORTED.findall(found[2]):
        try:
            out += ast.parse(f"{found[1] or 'import'} {name}").body
        except SyntaxError:
            continue
    return out
