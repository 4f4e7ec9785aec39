"""Trees of texts that do not parse: every statement that can be read is, down to those of nested functions.

A text is cut into statements by indentation. Each is first taken as Python's tokenizer would, over the lines that its
brackets and strings span; if it does not parse so, it ends where the indentation says, whatever is left open. Of a
compound statement that does not parse, the head and the statements inside are then read one by one. What remains is
`Broken`, with one finding at its place, and remembers what stood there when it could be read last.
"""

from __future__ import annotations

import ast
from typing import Any

from tessera.compiler.frontend.before import Before
from tessera.compiler.frontend.broken import Broken, Gap
from tessera.compiler.frontend.fragments import Fragments
from tessera.compiler.frontend.heads import read_head
from tessera.compiler.frontend.lines import CLAUSES, Lines
from tessera.compiler.frontend.trees import suites
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
        """The statement of the module at line `i`, and the line after it; what was said of another is forgotten."""
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
                body.append(self.fragments.place(Broken("", []), i, i + 1))
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
                out.append(fragments.place(Broken(text, [s for s in was if not suites(s)]), start, head))
            inline: list[ast.stmt] = made.body if made is not None else []
            body = [*inline, *self._block(head, stop, depth + 1, indent, quiet=len(fragments.problems) > said)]
            if not body:
                blank = self.lines.code(head, len(self.lines))
                body = [fragments.place(Broken("", fragments.was(head, blank) if blank > head else []), head - 1, head)]
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
