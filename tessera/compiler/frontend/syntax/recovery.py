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
from typing import Any

from tessera.compiler.frontend.syntax.fragments import Before, Fragments, broken
from tessera.compiler.frontend.syntax.lines import CLAUSES, Lines
from tessera.compiler.frontend.syntax.trees import Broken, Gap, clone, placed, suites
from tessera.errors import Diagnostic

DEPTH = 60
"""blocks nested deeper than this are not looked into"""


class Reader:
    """Reads statements of one text. `open_ended`: whether the last one would end elsewhere if later lines differed."""

    def __init__(self, file: str, lines: list[str], before: Before | None = None) -> None:
        self.lines = Lines(lines)
        self.fragments = Fragments(file, self.lines, before)
        self.open_ended = False

    def top_level(self, i: int) -> tuple[int, list[ast.stmt]]:
        """The statement of the module at line `i`, and the line after it; the notes on other statements are dropped."""
        self.open_ended, fragments = False, self.fragments
        fragments.problems, fragments.gaps = [], []
        width = self.lines.width(i)
        end, body = self._statement(i, len(self.lines), width)
        if width and not fragments.problems:
            fragments.report(i)
        return end, body

    def _statement(self, i: int, last: int, indent: int, depth: int = 0) -> tuple[int, list[ast.stmt]]:
        """The statement at line `i`, and the line after it."""
        lines, fragments = self.lines, self.fragments
        end = lines.extent(i, last, indent, strict=True)
        found, problem = fragments.parsed(i, lines.between(i, end))
        if found is not None:
            return end, found
        short = lines.extent(i, end, indent, strict=False)
        if short != end or not lines.logical(i, last)[1]:
            self.open_ended = True
            _, again = fragments.parsed(i, lines.between(i, short))
            problem = again or problem
        said = len(fragments.problems)
        body = self._inside(i, short, indent, problem, depth)
        if len(fragments.problems) == said and problem is not None:  # each part parses: Python says what is wrong
            fragments.problems.append(problem)
        return short, body

    def _block(self, i: int, last: int, depth: int, outer: int, quiet: bool = False) -> list[ast.stmt]:
        """The statements of a suite of a statement indented by `outer`, or of whatever stands where one should be.
        `quiet`: what they belong to is broken, which may be why they are not indented alike."""
        body: list[ast.stmt] = []
        i = self.lines.code(i, last)
        indent = self.lines.common_width(i, last, outer)
        while i < last:
            width, before = self.lines.width(i), len(self.fragments.problems)
            end, found = self._statement(i, last, indent, depth)
            if width != indent and not quiet and len(self.fragments.problems) == before:
                self.fragments.report(i)
            body += found
            if len(self.fragments.problems) > before:  # also where each part can be read: together they may not mean it
                body.append(self.fragments.place(broken("", []), i, i + 1))
            i = self.lines.code(end, last)
        return body

    def _inside(self, i: int, end: int, indent: int, problem: Diagnostic | None, depth: int) -> list[ast.stmt]:
        """What can be read of a statement that does not parse as a whole."""
        lines, fragments = self.lines, self.fragments
        if depth > DEPTH or (not depth and lines.too_deep(i, end)):
            return [fragments.broken(i, end, problem)]
        if lines.word(i):
            return self._compound(i, end, indent, depth)
        first, closed = lines.logical(i, end)
        following = lines.code(first, end)
        if closed and following < end and not (lines.matches(i) and lines.opens(first - 1)):
            if lines.opens(first - 1):
                return self._compound(i, end, indent, depth)
            found, _ = fragments.parsed(i, lines.between(i, first))
            if found is not None:  # what follows is indented for no reason
                said = len(fragments.problems)
                rest = self._block(following, end, depth + 1, indent)
                if len(fragments.problems) == said:
                    fragments.report(following)
                return [*found, *rest]
        return [fragments.broken(i, end, problem)]

    def _compound(self, i: int, end: int, indent: int, depth: int) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        tip: Any = None  # the statement that an `else` belongs to
        lost: list[ast.stmt] = []
        opening = ""
        fragments = self.fragments
        for start, head, stop in self.lines.clauses(i, end, indent):
            word = self.lines.word(start) or ""
            opening = opening or word
            if tip is not None and opening and word not in CLAUSES.get(opening, ()):
                fragments.gap(start, head, fragments.parsed(start, self.lines.between(start, head))[1])
                tip.body += self._block(head, stop, depth + 1, indent, quiet=True)
                continue
            said = len(fragments.problems)
            made = read_head(fragments, start, head, stop, word, first=tip is None)
            if isinstance(made, Broken):  # what is in it is still looked through for mistakes
                lost.append(made)
                made = fragments.place(ast.If(Gap(), [], []), start, stop)
            elif made is not None and not word:  # behind another statement, which is as broken
                text, was = "\n".join(self.lines.between(start, head)), fragments.was(start, head)
                out.append(fragments.place(broken(text, [s for s in was if not suites(s)]), start, head))
            inline: list[ast.stmt] = made.body if made is not None else []
            body = [*inline, *self._block(head, stop, depth + 1, indent, quiet=len(fragments.problems) > said)]
            if not body:
                blank = self.lines.code(head, len(self.lines))
                body = [fragments.place(broken("", fragments.was(head, blank) if blank > head else []), head - 1, head)]
            if word not in ("if", "elif", "else"):
                _go_on(body)
            tip = self._joined(tip, made, word, body, out)
            for s in (made, *out):
                if s is not None:
                    s.end_lineno = stop
                    s.end_col_offset = len(self.lines[stop - 1].encode("utf-8", "surrogatepass"))
        return lost or out

    @staticmethod
    def _joined(tip: Any, made: Any, word: str, body: list[ast.stmt], out: list[ast.stmt]) -> Any:
        """Puts a clause's suite where it belongs; gives the statement that the next clause belongs to."""
        if made is not None:
            made.body = body
        if isinstance(made, ast.ExceptHandler):
            getattr(tip, "handlers", []).append(made)
        elif made is not None and word == "elif" and isinstance(tip, ast.If):
            tip.orelse = [made]
            return made
        elif made is not None:
            out.append(made)
            return made
        elif word == "finally" and isinstance(tip, ast.Try):
            tip.finalbody = body
        elif tip is not None:
            tip.orelse = body
        return tip


def _go_on(body: list[ast.stmt]) -> None:
    """Who types `return` between other statements does not mean that those below it are never reached."""
    for s in body:
        if isinstance(s, Broken):
            s.leaves = False


# Heads of compound statements whose suites do not parse, and what is known of a head that does not parse
# itself.

_TARGET = re.compile(r"\s*(?:async\s+)?for\s+(.+?)\s+in\b")
_CLASS = re.compile(r"\s*class\s+([^\W\d]\w*)")
_STRAY = re.compile(r"^([ \t\f]*)[\"'(\[{)\]}]")
_KINDS = {"if": ast.If, "elif": ast.If, "for": ast.For, "while": ast.While, "with": ast.With}


def read_head(f: Fragments, start: int, end: int, stop: int, word: str, first: bool) -> Any:
    """The statement that the head in lines `start` to `end` begins, without its suite, which ends at `stop`.

    None for `else` and `finally`; Broken if nothing can be made of it. `first`: it begins a statement.
    """
    lines = f.lines.between(start, end)
    space = f.lines.space(end - 1)
    inner = f"{space}        pass"
    if word in ("else", "finally", "except") and not first:
        opened = "if 1: pass" if word == "else" else "try: pass"
        found, problem = f.parsed(start, [space + opened, *lines, inner], 1)
        made: Any = found[0] if found is not None else None
        if made is None:
            f.gap(start, end, problem)
        if word != "except":
            return None
        handler = made.handlers[0] if made is not None else ast.ExceptHandler(None, None, [])
        handler.body = []
        return handler if made is not None else f.place(handler, start, end)
    if word == "elif" and not first:
        lines = [space + lines[0].lstrip().replace("elif", "  if", 1), *lines[1:]]
    tail = [f"{space}finally: pass"] if word == "try" else []
    found, problem = f.parsed(start, [*lines, inner, *tail])
    if found is None or len(found) != 1 or not hasattr(found[0], "body"):
        return _with_suite(f, start, end, stop) or _lost(f, start, end, stop, word, problem)
    made = found[0]
    made.body = []
    if f.lines.code(end, stop) == stop:  # a head without a body
        f.problems += [d for d in (f.parsed(start, lines)[1],) if d is not None]
    if word == "try":
        made.finalbody = []
    return made


def _with_suite(f: Fragments, start: int, end: int, stop: int) -> Any:
    """`if x: y = 1` with more lines below it, that are indented as if they were its suite."""
    found, _ = f.parsed(start, f.lines.between(start, end))
    if found is None or len(found) != 1 or not suites(found[0]):
        return None
    following = f.lines.code(end, stop)
    if following < stop:
        f.report(following)
    return found[0]


def _lost(f: Fragments, start: int, end: int, stop: int, word: str, problem: Diagnostic | None) -> Any:
    """A head that does not parse: as it was, else as little as can be said about it."""
    was = next((s for s in f.was(start, end) if suites(s)), None)
    kind = _KINDS.get(word)
    target = _TARGET.match(f.lines[start])
    made: Any
    decorated = _undecorated(f, start, end) if isinstance(was, (ast.FunctionDef, ast.ClassDef)) else None
    plain = _without_stray(f, start, end)
    if plain is not None:
        made, end, astray = plain
        if astray is not None:
            f.report(astray)
            problem = None
    elif decorated is not None:
        made, end = decorated
        made.decorator_list = copy.copy(getattr(was, "decorator_list", []))
    elif was is not None and (kind is None or isinstance(was, kind)):
        made = copy.copy(was)
        _blank(made)
        made = clone(made)
        for node in placed(made):
            if node.end_lineno > end:  # it would seem to stand in lines that are still there
                node.lineno = node.end_lineno = end
    elif kind is ast.For and target is not None:
        made = ast.For(_expression(f, target[1], start), Gap(), [], [], None)
    elif kind is ast.With:
        made = ast.With([ast.withitem(Gap(), None)], [], None)
    elif kind is not None or (word == "try" and start):
        made = ast.If(Gap(), [], [])
    elif (named := _CLASS.match(f.lines[start])) is not None:
        made = ast.ClassDef(named[1], [Gap()], [], [], [])
    else:
        return f.broken(start, stop, problem)
    f.gap(start, end, problem)
    for node in ast.walk(made):
        if not hasattr(node, "lineno") and isinstance(node, (ast.expr, ast.stmt)):
            f.place(node, start, end)
    return f.place(made, start, stop)


def _undecorated(f: Fragments, start: int, end: int) -> tuple[Any, int] | None:
    """The definition below broken decorators, if that is not broken as well, and where it begins."""
    at = next((k for k in range(start, end) if not f.lines.decorates(k)), end)
    if at in (start, end):
        return None
    found, _ = f.parsed(at, [*f.lines.between(at, end), f"{f.lines.space(at)}        pass"])
    made: Any = found[0] if found else None
    if not isinstance(made, (ast.FunctionDef, ast.ClassDef)):
        return None
    made.body = []
    return made, at


def _without_stray(f: Fragments, start: int, end: int) -> tuple[Any, int, int | None] | None:
    """The head without brackets or quotes that stand before its first word, or that of a decorator or `def`, and with
    decorators indented like it; the line after the last of those; and the first line with no other mistake than that
    it is indented too far."""
    space = next((f.lines.space(k) for k in range(start, end) if not f.lines.decorates(k)), "")
    stray = [k for k in range(start, end) if f.lines.word(k) and _STRAY.match(f.lines[k])]
    further = [k for k in range(start, end) if f.lines.decorates(k) and len(f.lines.space(k)) > len(space)]
    plain = [_STRAY.sub(r"\1", f.lines[k]) if k in stray else f.lines[k] for k in range(start, end)]
    for k in further:
        plain[k - start] = space + plain[k - start].lstrip()
    moved = sorted({*stray, *further})
    found = f.parsed(start, [*plain, f"{f.lines.space(end - 1)}        pass"])[0] if moved else None
    if found is None or len(found) != 1 or not suites(found[0]):
        return None
    made: Any = found[0]
    made.body = []
    return made, moved[-1] + 1, None if stray else further[0]


def _expression(f: Fragments, text: str, line: int) -> ast.expr:
    found, _ = f.parsed(line, [f"({text}) = 0"])
    made: Any = found[0] if found else None
    return made.targets[0] if isinstance(made, ast.Assign) else ast.Name("_", ast.Store())


def _blank(made: Any) -> None:
    """The values of a head that is no longer there are known only from its earlier form."""
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
