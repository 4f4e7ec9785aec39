"""Trees of texts that do not parse: every statement that can be read is, down to those of nested functions.

A text is cut into statements by indentation. Each is first taken as Python's tokenizer would, over the lines that its
brackets and strings span; if it does not parse so, it ends where the indentation says, whatever is left open. Of a
compound statement that does not parse, the head and the statements inside are then read one by one. What remains is
`Broken`, with one finding at its place, and remembers what stood there when it could be read last.
"""

from __future__ import annotations

import ast
import copy
import re
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from tessera.compiler.frontend.broken import Broken, Gap
from tessera.compiler.frontend.dialect import tokens
from tessera.compiler.frontend.syntax import parse
from tessera.compiler.frontend.trees import first_line, placed, shift, suites
from tessera.errors import Diagnostic, Span

DEPTH = 60
"""blocks nested deeper than this are not looked into"""
_SPACE = re.compile(r"[ \t\f]*")
_CLAUSE = re.compile(r"[ \t\f]*(?:elif|else|except|finally)\b")
_CLOSER = re.compile(r"[ \t\f]*[)\]}]")
_COMPOUND = re.compile(
    r"[ \t\f]*(?:@|(?:async[ \t]+)?(?P<word>def|class|if|elif|else|for|while|with|try|except|finally)\b)"
)
_NEVER_INSIDE = re.compile(r"[ \t\f]*(?:def|class|import|return|assert|while|with|try|raise|pass|break|continue)\b")
_DECORATED = re.compile(r"[ \t\f]*(?:@|(?:async[ \t]+)?(?:def|class)\b|\w+[ \t]+\w+[ \t]*\()")
_INNER = re.compile(r"[ \t\f]*(?:if|for|while|with|else|elif|try|except|finally)\b")
_UNSOUND = re.compile(r"^(?:@\w|def |class |async def )", re.M)
"""what no string holds at the start of a line, as far as can be told"""
_CLAUSES = {"if": ("elif", "else"), "for": ("else",), "while": ("else",), "try": ("except", "else", "finally")}
_TARGET = re.compile(r"\s*(?:async\s+)?for\s+(.+?)\s+in\b")
_CLASS = re.compile(r"\s*class\s+([^\W\d]\w*)")


@dataclass(slots=True)
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


@dataclass(slots=True)
class Reader:
    """Reads statements of one text. `open_ended`: whether the last one would end elsewhere if later lines differed."""

    file: str
    lines: list[str]
    before: Before | None = None
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """first and last lines, from 1, of what is missing from the tree"""
    open_ended: bool = False
    text: str = field(init=False)
    starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.text = "\n".join(self.lines)
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines)]

    # lines
    def code(self, i: int, last: int) -> int:
        """The next line, from `i` on, with more than a comment."""
        while i < last and self.lines[i].lstrip(" \t\f")[:1] in ("", "#"):
            i += 1
        return min(i, last)

    def width(self, i: int) -> int:
        """How far a line is indented."""
        space = _SPACE.match(self.lines[i])
        assert space is not None
        return len(space.group().rpartition("\f")[2].expandtabs(8))

    def logical(self, i: int, last: int) -> tuple[int, bool]:
        """The line after the logical one that begins at line `i`, and whether its brackets and strings are closed."""
        depth, limit = 0, self.starts[last] - 1
        for kind, start, end in tokens(self.text, self.starts[i]):
            if start >= limit:
                break
            if kind == "open":
                depth += 1
            elif kind == "close":
                depth -= depth > 0
            elif kind == "newline":
                if not depth:
                    return bisect_right(self.starts, start), True
                if _NEVER_INSIDE.match(self.text, end):
                    break
            elif kind == "string" and not self._closed(start, end):
                return last, False
        return last, not depth

    def physical(self, i: int, last: int) -> int:
        """The line after line `i`, or after the last line of the strings in it that look whole."""
        position = self.starts[i]
        for kind, start, end in tokens(self.text, position):
            if start >= self.starts[i + 1] - 1:
                break
            if kind == "string" and end >= self.starts[i + 1]:
                if not self._closed(start, end) or _UNSOUND.search(self.text, start, end):
                    break
                i = bisect_right(self.starts, end) - 1
        return min(i + 1, last)

    def _closed(self, start: int, end: int) -> bool:
        quote = self.text[start : start + 3]
        return quote not in ('"""', "'''") or (end - start >= 6 and self.text.endswith(quote, start, end))

    # statements
    def extent(self, i: int, last: int, indent: int, strict: bool) -> int:
        """Where the statement at line `i` ends: before the next line that is indented as far and goes nothing on."""
        at = i
        while True:
            end = self.logical(at, last)[0] if strict else self.physical(at, last)
            following = self.code(end, last)
            if following == last:
                return end
            line = self.lines[following]
            continued = self.width(following) > indent or self.lines[at].lstrip().startswith("@")
            suite = self.width(at) > indent or self._opens(end - 1)
            if not (continued or _CLAUSE.match(line) or _CLOSER.match(line)) and not (
                suite and self._astray(following, last, indent)
            ):
                return end
            at = following

    def _astray(self, i: int, last: int, indent: int) -> bool:
        """Whether line `i` has lost its indentation: it opens nothing, and the line after it is indented again."""
        end, closed = self.logical(i, last)
        following = self.code(end, last)
        if not closed or end > i + 1 or following == last or _COMPOUND.match(self.lines[i]):
            return False
        return self.width(following) > indent and not self._opens(i)

    def _opens(self, i: int) -> bool:
        return self.lines[i].partition("#")[0].rstrip().endswith(":")

    def statement(self, i: int, last: int, indent: int, depth: int = 0) -> tuple[int, list[ast.stmt]]:
        """The statement at line `i`, and the line after it."""
        end = self.extent(i, last, indent, strict=True)
        found, problem = self.parsed(i, self.lines[i:end])
        if found is not None:
            return end, found
        short = self.extent(i, end, indent, strict=False)
        if short != end or not self.logical(i, last)[1]:
            self.open_ended = True
            _, again = self.parsed(i, self.lines[i:short])
            problem = again or problem
        said = len(self.problems)
        body = self.inside(i, short, indent, problem, depth)
        if len(self.problems) == said and problem is not None:  # every part parses: Python says what is wrong with it
            self.problems.append(problem)
        return short, body

    def block(self, i: int, last: int, depth: int, outer: int, quiet: bool = False) -> list[ast.stmt]:
        """The statements of a suite of a statement indented by `outer`, or of whatever stands where one should be.
        `quiet`: what they belong to is broken, which may be why they are not indented alike."""
        body: list[ast.stmt] = []
        i = self.code(i, last)
        indent = self._common_width(i, last, outer)
        while i < last:
            width, before = self.width(i), len(self.problems)
            end, found = self.statement(i, last, indent, depth)
            if width != indent and not quiet and len(self.problems) == before:
                self.report(i)
            body += found
            i = self.code(end, last)
        return body

    def _common_width(self, i: int, last: int, outer: int) -> int:
        """How far a suite is indented: as its first line, unless the second tells that this one is astray."""
        if i == last:
            return 0
        first, second = self.width(i), self.code(self.logical(i, last)[0], last)
        if second < last and (first <= outer or outer < self.width(second) < first):
            return self.width(second)
        return first

    def inside(self, i: int, end: int, indent: int, problem: Diagnostic | None, depth: int) -> list[ast.stmt]:
        """What can be read of a statement that does not parse as a whole."""
        if depth > DEPTH:
            return [self.broken(i, end, problem)]
        if _COMPOUND.match(self.lines[i]):
            return self.compound(i, end, indent, depth)
        first, closed = self.logical(i, end)
        following = self.code(first, end)
        if closed and following < end:
            if self._opens(first - 1):
                return self.compound(i, end, indent, depth)
            found, _ = self.parsed(i, self.lines[i:first])
            if found is not None:  # what follows is indented for no reason
                said = len(self.problems)
                rest = self.block(following, end, depth + 1, indent)
                if len(self.problems) == said:
                    self.report(following)
                return [*found, *rest]
        return [self.broken(i, end, problem)]

    def compound(self, i: int, end: int, indent: int, depth: int) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        tip: Any = None  # the statement that an `else` belongs to
        lost: list[ast.stmt] = []
        opening = ""
        for start, head, stop in self.clauses(i, end, indent):
            clause = _COMPOUND.match(self.lines[start])
            word = (clause["word"] or "def") if clause is not None else ""
            opening = opening or word
            if tip is not None and opening and word not in _CLAUSES.get(opening, ()):
                self.gap(start, head, self.parsed(start, self.lines[start:head])[1])
                tip.body += self.block(head, stop, depth + 1, indent, quiet=True)
                continue
            said = len(self.problems)
            made = self.head(start, head, stop, word, first=tip is None)
            if isinstance(made, Broken):  # what is in it is still looked through for mistakes
                lost.append(made)
                made = self._placed(ast.If(Gap(), [], []), start, stop)
            inline: list[ast.stmt] = made.body if made is not None else []
            body = [*inline, *self.block(head, stop, depth + 1, indent, quiet=len(self.problems) > said)]
            if not body:
                body = [self._placed(Broken("", []), head - 1, head)]
            if isinstance(made, ast.ExceptHandler):
                made.body = body
                getattr(tip, "handlers", []).append(made)
            elif made is not None and word == "elif" and isinstance(tip, ast.If):
                made.body, tip.orelse, tip = body, [made], made
            elif made is not None:
                made.body = body
                out.append(made)
                tip = made
            elif word == "finally" and isinstance(tip, ast.Try):
                tip.finalbody = body
            elif tip is not None:
                tip.orelse = body
            for s in (made, *out):
                if s is not None:
                    s.end_lineno, s.end_col_offset = stop, len(self.lines[stop - 1].encode("utf-8", "surrogatepass"))
        return lost or out

    def clauses(self, i: int, end: int, indent: int) -> list[tuple[int, int, int]]:
        """Of each clause of a compound statement: where it begins, where its suite begins, where it ends."""
        out: list[tuple[int, int, int]] = []
        while i < end:
            head = at = self._head_end(i, end, indent)
            while (at := self.code(at, end)) < end:
                if self.width(at) <= indent and _CLAUSE.match(self.lines[at]):
                    break
                at = max(self.physical(at, end), at + 1)
            stop = at
            while stop > head and self.lines[stop - 1].lstrip(" \t\f")[:1] in ("", "#"):
                stop -= 1
            out.append((i, head, max(stop, head)))
            i = at
        return out

    def _head_end(self, i: int, end: int, indent: int) -> int:
        while self.lines[i].lstrip().startswith("@"):
            after, closed = self.logical(i, end)
            following = self.code(after if closed else i + 1, end)
            if following == end or not self._decorated(following, end):
                return i + 1
            i = following
        after, closed = self.logical(i, end)
        if closed and self._opens(after - 1):
            return after
        for k in range(i, end):  # brackets are of no help: the parameters go on to the line that ends with a colon
            if self._opens(k) and (k == i or not _INNER.match(self.lines[k])):
                return k + 1
            if k > i and (_NEVER_INSIDE.match(self.lines[k]) or _INNER.match(self.lines[k])):
                break
            if not self.lines[k].partition("#")[0].rstrip().endswith((",", "(", "[")):
                break
        return i + 1

    def _decorated(self, i: int, end: int) -> bool:
        """Whether a line may be what a decorator stands above."""
        if _DECORATED.match(self.lines[i]):
            return True
        return not _INNER.match(self.lines[i]) and self._opens(self.logical(i, end)[0] - 1)

    def head(self, start: int, end: int, stop: int, word: str, first: bool) -> Any:
        """The statement that a head begins, without its body; None for `else` and `finally`; Broken if it is lost."""
        lines = self.lines[start:end]
        space = lines[-1][: len(lines[-1]) - len(lines[-1].lstrip())]
        inner = f"{space}        pass"
        if word in ("else", "finally", "except") and not first:
            opened = "if 1: pass" if word == "else" else "try: pass"
            found, problem = self.parsed(start, [space + opened, *lines, inner], 1)
            made: Any = found[0] if found is not None else None
            if made is None:
                self.gap(start, end, problem)
            if word != "except":
                return None
            handler = made.handlers[0] if made is not None else ast.ExceptHandler(None, None, [])
            handler.body = []
            return handler if made is not None else self._placed(handler, start, end)
        if word == "elif" and not first:
            lines = [space + lines[0].lstrip().replace("elif", "  if", 1), *lines[1:]]
        tail = [f"{space}finally: pass"] if word == "try" else []
        found, problem = self.parsed(start, [*lines, inner, *tail])
        if found is None or len(found) != 1 or not hasattr(found[0], "body"):
            return self._with_suite(start, end, stop) or self.lost_head(start, end, stop, word, problem)
        made = found[0]
        made.body = []
        if self.code(end, stop) == stop:  # a head without a body
            self.problems += [d for d in (self.parsed(start, lines)[1],) if d is not None]
        if word == "try":
            made.finalbody = []
        return made

    def _with_suite(self, start: int, end: int, stop: int) -> Any:
        """`if x: y = 1` with more lines below it, that are indented as if they were its suite."""
        found, _ = self.parsed(start, self.lines[start:end])
        if found is None or len(found) != 1 or not suites(found[0]):
            return None
        following = self.code(end, stop)
        if following < stop:
            self.report(following)
        return found[0]

    def lost_head(self, start: int, end: int, stop: int, word: str, problem: Diagnostic | None) -> Any:
        """A head that does not parse: as it was, else as little as can be said about it."""
        was = next((s for s in self._was(start, end) if suites(s)), None)
        kind = {"if": ast.If, "elif": ast.If, "for": ast.For, "while": ast.While, "with": ast.With}.get(word)
        target = _TARGET.match(self.lines[start])
        made: Any
        decorated = self._undecorated(start, end) if isinstance(was, (ast.FunctionDef, ast.ClassDef)) else None
        if decorated is not None:
            made, end = decorated
            made.decorator_list = copy.copy(getattr(was, "decorator_list", []))
        elif was is not None and (kind is None or isinstance(was, kind)):
            made = copy.copy(was)
            _blank(made)
            for node in placed(made):
                if node.end_lineno > end:  # it would seem to stand in lines that are still there
                    node.lineno = node.end_lineno = end
        elif kind is ast.For and target is not None:
            made = ast.For(self._expression(target[1], start), Gap(), [], [], None)
        elif kind is ast.With:
            made = ast.With([ast.withitem(Gap(), None)], [], None)
        elif kind is not None or (word == "try" and start):
            made = ast.If(Gap(), [], [])
        elif (named := _CLASS.match(self.lines[start])) is not None:
            made = ast.ClassDef(named[1], [Gap()], [], [], [])
        else:
            return self.broken(start, stop, problem)
        self.gap(start, end, problem)
        for node in ast.walk(made):
            if not hasattr(node, "lineno") and isinstance(node, (ast.expr, ast.stmt)):
                self._placed(node, start, end)
        return self._placed(made, start, stop)

    def _undecorated(self, start: int, end: int) -> tuple[Any, int] | None:
        """The definition below broken decorators, if that is not broken as well, and where it begins."""
        at = next((k for k in range(start, end) if not self.lines[k].lstrip().startswith("@")), end)
        if at in (start, end):
            return None
        space = self.lines[at][: len(self.lines[at]) - len(self.lines[at].lstrip())]
        found, _ = self.parsed(at, [*self.lines[at:end], f"{space}        pass"])
        made: Any = found[0] if found else None
        if not isinstance(made, (ast.FunctionDef, ast.ClassDef)):
            return None
        made.body = []
        return made, at

    def _expression(self, text: str, line: int) -> ast.expr:
        found, _ = self.parsed(line, [f"({text}) = 0"])
        made: Any = found[0] if found else None
        return made.targets[0] if isinstance(made, ast.Assign) else ast.Name("_", ast.Store())

    # what is missing
    def broken(self, start: int, end: int, problem: Diagnostic | None) -> Broken:
        while end > start + 1 and self.lines[end - 1].lstrip(" \t\f")[:1] in ("", "#"):
            end -= 1
        self.gap(start, end, problem)
        return self._placed(Broken("\n".join(self.lines[start:end]), self._was(start, end)), start, end)

    def gap(self, start: int, end: int, problem: Diagnostic | None) -> None:
        self.gaps.append((start + 1, end))
        if problem is not None:
            self.problems.append(problem)

    def report(self, i: int) -> None:
        message = "this line is not indented like the lines around it"
        line = self.lines[i]
        start = len(line) - len(line.lstrip()) + 1
        self.problems.append(Diagnostic("TS101", message, Span(self.file, i + 1, start, i + 1, len(line.rstrip()) + 1)))

    def _was(self, start: int, end: int) -> list[ast.stmt]:
        if self.before is None:
            return []
        indent = len(self.lines[start]) - len(self.lines[start].lstrip())
        was = self.before.statements(*self.before.range(start, end, len(self.lines)))
        if len(was) > 1:  # of all that stood where much has changed
            rows = {s.lineno for s in was if s.col_offset == indent}
            was = [s for s in was if s.lineno in rows]
        for s in was:
            shift(s, start + 1 - first_line(s))
        return was

    def _placed(self, node: Any, start: int, end: int) -> Any:
        line, last = self.lines[start], self.lines[end - 1]
        node.lineno, node.end_lineno = start + 1, end
        node.col_offset = len(line) - len(line.lstrip())
        node.end_col_offset = len(last.encode("utf-8", "surrogatepass"))
        return node

    def parsed(self, i: int, lines: list[str], extra: int = 0) -> tuple[list[ast.stmt] | None, Diagnostic | None]:
        """The statements of some lines, the first of them (but for `extra`) at line `i`; or why there are none."""
        indented = lines[0][:1] in (" ", "\t", "\f")
        by = i - indented - extra
        found = parse("if 1:\n" * indented + "\n".join(lines) + "\n", self.file)
        if found.tree is None:
            return None, self._placed_finding(moved_finding(found.diagnostics[0], by))
        body: Any = found.tree.body
        if indented:
            if len(body) != 1 or body[0].orelse:
                return None, Diagnostic("TS101", "invalid syntax", Span(self.file, i + 1, 1, i + 1, 2))
            body = body[0].body
        for s in body:
            shift(s, by)
        return body, None

    def _placed_finding(self, d: Diagnostic) -> Diagnostic:
        """Python may speak of lines that were only added to make a statement whole."""
        last = len(self.lines)
        span = replace(d.span, line=min(d.span.line, last), end_line=min(d.span.end_line, last))
        return replace(d, span=span, message=_AT_LINE.sub("", d.message))


def _blank(made: Any) -> None:
    """Of a head that is no longer there, what it computes is known only to who asks how it was."""
    for name in ("test", "iter"):
        inner = getattr(made, name, None)
        if inner is not None:
            setattr(made, name, inner if isinstance(inner, Gap) else ast.copy_location(Gap(inner), inner))
    if isinstance(made, ast.With):
        made.items = [
            ast.withitem(ast.copy_location(Gap(w.context_expr), w.context_expr), w.optional_vars) for w in made.items
        ]
    for name in ("body", "orelse", "finalbody", "handlers"):
        if hasattr(made, name):
            setattr(made, name, [])


_ON_LINE = re.compile(r"\bon line (\d+)")
_AT_LINE = re.compile(r" \(detected at line \d+\)")


def moved_finding(d: Diagnostic, by: int) -> Diagnostic:
    """The same finding some lines further down, where its message says a line."""
    span = replace(d.span, line=max(d.span.line + by, 1), end_line=max(d.span.end_line + by, 1))
    return replace(d, span=span, message=_ON_LINE.sub(lambda m: f"on line {int(m[1]) + by}", d.message))
