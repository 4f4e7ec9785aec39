"""The lines of a text that may not parse: how far they are indented, and where statements, heads and suites end.

Nothing is parsed here. Brackets and strings are believed at first, and given up for indentation where that does not
lead to a statement that parses.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from dataclasses import field
from itertools import accumulate

from tessera.compiler.frontend.syntax.dialect import tokens
from tessera.immutable import mutable

_CLAUSE = re.compile(r"[\"'(\[{)\]}]?(elif|else|except|finally)\b")
_CLOSER = re.compile(r"(?:[\"'(\[{]?[)\]}]|->)")
_COMPOUND = re.compile(
    r"""(?:
        ["'(\[{)\]}]?(?: @ | (?:async[ \t]+)? (?P<definition> def|class) [ \t]+ \w+ [ \t]*[(\[:] )
      | [(\[{)\]}]?(?:async[ \t]+)? (?P<word> def|class|if|for|while|with|try)\b )""",
    re.X,
)
"""the head of a compound statement (not of a clause), also with a bracket or quote too many before it"""
_NEVER_INSIDE = re.compile(
    r"(?=([ \t\f]*))\1(?:def|class|import|return|assert|while|with|try|raise|pass|break|continue)\b"
)
_LEAVES = re.compile(r"(?:return|raise|break|continue)\b")
_DECORATOR = re.compile(r"[\"'(\[{)\]}]?@")
_DECORATED = re.compile(r"[\"'(\[{)\]}]?(?:@|(?:async[ \t]+)?(?:def|class)\b|\w+[ \t]+\w+[ \t]*\()")
_MATCH = re.compile(r"match\b(?![ \t]*[=.,:)\]])")
_INNER = re.compile(r"(?:if|for|while|with|else|elif|try|except|finally)\b")
_UNSOUND = re.compile(r"^(?:@\w|def |class |async def )", re.M)
"""what no string holds at the start of a line, as far as can be told"""
CLAUSES = {
    "if": ("elif", "else"), "elif": ("elif", "else"), "for": ("else",), "while": ("else",),
    "try": ("except", "else", "finally"), "except": ("except", "else", "finally"),
}  # fmt: skip
"""what may follow the suite of each"""
LEVELS = 100
"""of indentation; Python reads no more"""


@mutable
class Lines:
    """Lines are counted from 0. `last`, in what follows, is the line behind the last one to be looked at."""

    lines: list[str]
    text: str = field(init=False)
    starts: list[int] = field(init=False)
    _spaces: dict[int, str] = field(default_factory=dict[int, str])
    _widths: dict[int, int] = field(default_factory=dict[int, int])

    def __post_init__(self) -> None:
        self.text = "\n".join(self.lines)
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines)]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, i: int) -> str:
        return self.lines[i]

    def between(self, start: int, end: int) -> list[str]:
        return self.lines[start:end]

    # one line
    def is_blank(self, i: int) -> bool:
        """Whether a line has nothing but space and a comment."""
        start = len(self.space(i))
        return self.lines[i][start : start + 1] in ("", "#")

    def code(self, i: int, last: int) -> int:
        """The next line, from `i` on, with more than a comment."""
        while i < last and self.is_blank(i):
            i += 1
        return min(i, last)

    def space(self, i: int) -> str:
        """What a line is indented by."""
        if i not in self._spaces:
            line = self.lines[i]
            self._spaces[i] = line[: len(line) - len(line.lstrip(" \t\f"))]
        return self._spaces[i]

    def width(self, i: int) -> int:
        """How far a line is indented; a decorator that stands right above a `def` indented less, as far as that."""
        if i not in self._widths:
            own = len(self.space(i).rpartition("\f")[2].expandtabs(8))
            further = self.decorates(i) and self._defines(i + 1)
            self._widths[i] = min(own, self.width(i + 1)) if further else own
        return self._widths[i]

    def _defines(self, i: int) -> bool:
        return i < len(self) and (self.decorates(i) or self.word(i) in ("def", "class"))

    def too_deep(self, i: int, last: int) -> bool:
        """Whether blocks from line `i` on are nested deeper than Python can read."""
        levels: list[int] = []
        for k in (k for k in range(i, last) if not self.is_blank(k)):
            while levels and levels[-1] >= self.width(k):
                levels.pop()
            levels.append(self.width(k))
            if len(levels) > LEVELS:
                return True
        return False

    def _begins(self, pattern: re.Pattern[str], i: int) -> re.Match[str] | None:
        return pattern.match(self.lines[i], len(self.space(i)))

    def opens(self, i: int) -> bool:
        return self.lines[i].partition("#")[0].rstrip().endswith(":")

    def matches(self, i: int) -> bool:
        """Whether a `match` may begin here, which is read as a whole or not at all."""
        return self._begins(_MATCH, i) is not None

    def decorates(self, i: int) -> bool:
        return self._begins(_DECORATOR, i) is not None

    def word(self, i: int) -> str | None:
        """Which compound statement or clause begins here, a decorator being that of a `def`; None if none does."""
        if (clause := self._begins(_CLAUSE, i)) is not None:
            return clause[1]
        found = self._begins(_COMPOUND, i)
        return (found["word"] or found["definition"] or "def") if found is not None else None

    # logical lines
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
                whole = self._closed(start, end) and (self._is_long(start) or "\\\n" in self.text[start:end])
                if not whole or _UNSOUND.search(self.text, start, end):
                    break
                i = bisect_right(self.starts, end) - 1
        return min(i + 1, last)

    def _is_long(self, start: int) -> bool:
        return self.text[start : start + 3] in ('"""', "'''")

    def _closed(self, start: int, end: int) -> bool:
        quote = self.text[start : start + 3]
        return not self._is_long(start) or (end - start >= 6 and self.text.endswith(quote, start, end))

    # statements
    def extent(self, i: int, last: int, indent: int, strict: bool) -> int:
        """Where the statement at line `i` ends: before the next line that is indented as far and goes nothing on."""
        at, suite, inner = i, 0, set[int]()
        while True:
            end = self.logical(at, last)[0] if strict else self.physical(at, last)
            following = self.code(end, last)
            if following == last:
                return end
            width = self.width(following)
            if not suite and self.opens(end - 1) and width > indent:
                suite = self.common_width(following, last, indent)
            near = suite and width - indent < suite - width  # nearer to the statement than to its suite
            continued = (width > indent and not near) or (
                self.decorates(at) and width >= self.width(at) and self._decorated(following, last)
            )
            closing = self._begins(_CLOSER, following) and not self.word(following)
            opened = self.opens(end - 1)
            belongs = continued or self._begins(_CLAUSE, following) or closing or (opened and self._guarded(following))
            belongs = belongs or (suite and self._interposed(i, following, last))
            if not belongs and not (
                (suite or opened) and self._astray(following, last, indent, suite, set() if opened else inner)
            ):
                return end
            if suite and width > indent:
                inner.add(width)
            at = following

    def _astray(self, i: int, last: int, indent: int, suite: int, inner: set[int]) -> bool:
        """Whether line `i` has lost its indentation: the line after it is indented again as one of those before
        (`inner`), which this one does not open, or as the suite of a statement in a suite indented by `suite` is. Where
        that line leaves a bracket open, opens a suite that is not there, or stands alone below a branch, it rather is
        the one that is astray."""
        end, closed = self.logical(i, last)
        following = self.code(end, last)
        if not closed or following == last:
            return False
        if self.opens(end - 1):
            deep = self.width(following)
            ends = (w for k in range(following, last) if not self.is_blank(k) and (w := self.width(k)) < deep)
            return indent < (suite or next(ends, 0)) < deep and self.word(i) not in (None, "def", "class")
        again = self.width(following) in inner if inner else self.width(following) > indent
        branch = inner and self.word(self._opener(i, self.width(following))) in ("if", "elif", "else")
        outer = self.width(i) if branch and not self._begins(_LEAVES, i) else None
        return end == i + 1 and not self.word(i) and again and self._sound(following, outer)

    def _opener(self, i: int, width: int) -> int:
        """The last line before line `i` that is indented by less than `width`."""
        return next((k for k in range(i - 1, 0, -1) if not self.is_blank(k) and self.width(k) < width), 0)

    def _guarded(self, i: int) -> bool:
        """Whether line `i`, below a head without a suite, ends what it stands in, and is not the end of that."""
        following = self.code(self.logical(i, len(self))[0], len(self))
        same = following < len(self) and self.width(following) == self.width(i)
        return same and self._begins(_LEAVES, i) is not None and not self._begins(_CLAUSE, following)

    def _interposed(self, i: int, at: int, last: int) -> bool:
        """Whether what begins at line `at` stands between a suite of the statement at line `i` and a clause of it
        that has one."""
        width, word = self.width(i), self.word(at)
        clause = self.code(at + 1, last)
        while clause < last and self.width(clause) > width and word not in CLAUSES:
            clause = self.code(clause + 1, last)
        suite = self.code(clause + 1, last)
        if suite == last or self.word(i) not in CLAUSES or not self._begins(_CLAUSE, clause):
            return False
        return self.width(suite) > self.width(clause) == width == self.width(at)

    def _sound(self, i: int, outer: int | None) -> bool:
        """Whether line `i` closes its brackets, has a suite if it opens one, and is not followed by one that is
        indented by `outer`, unless it ends what it stands in."""
        end, closed = self.logical(i, len(self))
        following = self.code(end, len(self))
        width = self.width(following) if following < len(self) else None
        if self.opens(end - 1):
            return closed and width is not None and width > self.width(i)
        return closed and (outer is None or width != outer or self._begins(_LEAVES, i) is not None)

    def common_width(self, i: int, last: int, outer: int) -> int:
        """How far a suite is indented: as its first line, unless the others tell that this one is astray."""
        if i == last:
            return 0
        after, closed = self.logical(i, last)
        first, second = self.width(i), self.code(after if closed else i + 1, last)
        if first <= outer:
            return self._least_width(second, last, outer) or first
        if second == last or not outer < self.width(second) <= first:
            return first
        if not self.opens(after - 1):
            return self.width(second)
        return self._least_width(second, self._dedented(second, last, outer), outer)

    def _dedented(self, i: int, last: int, outer: int) -> int:
        """The next line, from `i` on, that is indented no further than `outer`."""
        return next((k for k in range(i, last) if not self.is_blank(k) and self.width(k) <= outer), last)

    def _least_width(self, i: int, last: int, outer: int) -> int:
        """The least by which a line is indented further than `outer`; 0 if none is."""
        return min((w for k in range(i, last) if not self.is_blank(k) and (w := self.width(k)) > outer), default=0)

    # compound statements
    def clauses(self, i: int, last: int, indent: int) -> list[tuple[int, int, int]]:
        """Of each clause of a compound statement: where it begins, where its suite begins, where it ends."""
        out: list[tuple[int, int, int]] = []
        while i < last:
            head = at = self._head_end(i, last)
            inner = set[int]()  # how far statements of the suite are indented that may have clauses of their own
            while (at := self.code(at, last)) < last:
                if self._begins(_CLAUSE, at) and (self.width(at) <= indent or self._drifted(i, at, last, inner)):
                    break
                if self.word(at):
                    inner.add(self.width(at))
                at = max(self.physical(at, last), at + 1)
            stop = at
            while stop > head and self.is_blank(stop - 1):
                stop -= 1
            out.append((i, head, max(stop, head)))
            i = at
        return out

    def _drifted(self, i: int, at: int, last: int, inner: set[int]) -> bool:
        """Whether a clause that is indented as the suite of line `i` is the one which that line lacks."""
        lacks = not any(self.width(k) <= self.width(i) and self._begins(_CLAUSE, k) for k in range(at + 1, last))
        fits = self.word(at) in CLAUSES.get(self.word(i) or "", ()) and self.word(i) not in ("for", "while")
        return lacks and fits and self.opens(at) and self.width(at) not in inner

    def _head_end(self, i: int, last: int) -> int:
        while self.decorates(i):
            after, closed = self.logical(i, last)
            following = self.code(after if closed else i + 1, last)
            if following == last or not self._decorated(following, last):
                return i + 1
            i = following
        after, closed = self.logical(i, last)
        if closed and self.opens(after - 1):
            return after
        return self._parameters_end(i, last)

    def _parameters_end(self, i: int, last: int) -> int:
        """Where a head ends whose brackets are of no help: at the line that closes them at its own indentation, else
        at the first one that ends with a colon and stands behind nothing but parameters, else before its suite."""
        listed = True  # whether each line so far ends as one of several parameters does
        for k in range(i, last):
            if k > i and (self._begins(_NEVER_INSIDE, k) or self._begins(_INNER, k)):
                break
            if k > i and self._begins(_CLOSER, k) and self.width(k) <= self.width(i) + 1:
                return k + 1
            if self.opens(k) and listed:
                return k + 1
            listed = listed and self.lines[k].partition("#")[0].rstrip().endswith((",", "(", "["))
        suite = self._least_width(i + 1, last, self.width(i))
        k = i + 1
        while k < last and self.width(k) > (suite or sys.maxsize):  # parameters that stand below each other
            k += 1
        return k

    def _decorated(self, i: int, last: int) -> bool:
        """Whether a line may be what a decorator stands above."""
        if self._begins(_DECORATED, i):
            return True
        return not self._begins(_INNER, i) and self.opens(self.logical(i, last)[0] - 1)
