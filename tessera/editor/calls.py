"""Where in unfinished text a position is: in which brackets, which argument, in a string or a comment.

Read from the text alone, since the text around a cursor seldom parses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\#[^\n]*
      | "{3}[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*(?:"{3}|\Z) | '{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*(?:'{3}|\Z)
      | "[^"\\\n]*(?:\\.[^"\\\n]*)*"? | '[^'\\\n]*(?:\\.[^'\\\n]*)*'? | [()\[\]{},]""",
    re.X | re.S,
)
_TOP = re.compile(r"[^\s#)\]}]")
_HEAD = re.compile(r"[^\W\d][\w.]*$|[)\]]\.[^\W\d]\w*$")
_KEYWORD = re.compile(r"\s*([^\W\d]\w*)\s*=(?!=)")
FAR = 100_000
"""characters before a position that are looked at, in data as long as a book"""
NAME = 200
"""characters of a name, with its dots, that are looked at"""


@dataclass(slots=True)
class Bracket:
    """`head`: what stands before it, `ts.softmax`, or `).sum` after another call; `since`: its current element."""

    kind: str
    head: str
    since: int
    commas: int = 0
    keyword: str = ""


@dataclass(slots=True)
class CallContext:
    """The open brackets from the outermost in, and whether the position is inside a string or comment."""

    brackets: list[Bracket] = field(default_factory=list[Bracket])
    string: bool = False
    comment: bool = False

    @property
    def call(self) -> Bracket | None:
        """The innermost call."""
        return next((b for b in reversed(self.brackets) if b.kind == "(" and b.head), None)

    @property
    def subscript(self) -> str:
        """The last name before the innermost bracket, if that is a square one: Tensor."""
        inner = self.brackets[-1] if self.brackets else None
        return inner.head.rpartition(".")[2] if inner is not None and inner.kind == "[" else ""


def _start(text: str, offset: int) -> int:
    """Where the top-level statement before a position starts."""
    least = max(0, offset - FAR)
    start = offset
    while start > least:
        start = text.rfind("\n", least, start) + 1 or least
        if _TOP.match(text, start, offset):
            break
        start -= 1
    return max(start, least)


def context_at(text: str, offset: int) -> CallContext:
    """The context at `offset`, read from where its top-level statement starts, or from as far as that may count."""
    start = _start(text, offset)
    context = CallContext()
    for m in _TOKEN.finditer(text, start):
        token = m.group()
        if m.start() >= offset:
            break
        if token[0] == "#":
            context.comment = m.end() >= offset
        elif token[0] in "\"'":
            quote = token[0] * (3 if token.startswith(token[0] * 3) else 1)
            closed = len(token) >= 2 * len(quote) and token.endswith(quote)
            context.string = m.end() > offset or (m.end() == offset and not closed)
        elif token in "([{":
            head = _HEAD.search(text, max(start, m.start() - NAME), m.start())
            context.brackets.append(Bracket(token, head.group() if head else "", m.end()))
        elif token == ",":
            if context.brackets:
                context.brackets[-1].commas += 1
                context.brackets[-1].since = m.end()
        elif context.brackets:
            context.brackets.pop()
    for bracket in context.brackets:
        keyword = _KEYWORD.match(text, bracket.since, offset)
        bracket.keyword = keyword[1] if keyword else ""
    return context
