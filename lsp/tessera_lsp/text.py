"""A document's text, and positions in it: the protocol's (lines from 0, columns in code units of the negotiated
encoding), offsets into the text, and the compiler's spans (lines and columns from 1, columns in characters).

Lines end where the protocol and Python's parser end them: \\n, \\r\\n and \\r, and nowhere else.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, repeat

from lsprotocol import types as lsp

from tessera.errors import Span

_LINE_END = re.compile(r"\r\n?|\n")
_BYTES = {"utf-8": (1, "utf-8"), "utf-16": (2, "utf-16-le")}
"""how many bytes make a code unit, and the codec that gives them"""


class Text:
    """Immutable. What lies outside is moved to the nearest place inside: clients may be a version ahead."""

    __slots__ = ("bom", "encoding", "lines", "plain", "starts", "text")

    def __init__(self, text: str, encoding: str = "utf-16") -> None:
        self.text, self.encoding = text, encoding
        self.lines = _LINE_END.split(text) if "\r" in text else text.split("\n")
        widths = [len(end) for end in _LINE_END.findall(text)] if "\r" in text else repeat(1)
        self.starts = [0, *accumulate(len(line) + width for line, width in zip(self.lines[:-1], widths, strict=False))]
        self.bom = 1 if text.startswith("\ufeff") else 0
        self.plain = "\n".join(self.lines)[self.bom :]
        """what the compiler reads: without a byte order mark, lines ended by \\n"""

    def units(self, text: str) -> int:
        """The length of a piece of a line in the client's code units."""
        if text.isascii() or self.encoding == "utf-32":
            return len(text)
        size, codec = _BYTES[self.encoding]
        return len(text.encode(codec, "surrogatepass")) // size

    def characters(self, line: str, units: int) -> int:
        """How many characters the first `units` code units of a line are; a character cut in two counts."""
        if line.isascii() or self.encoding == "utf-32":
            return min(units, len(line))
        size, codec = _BYTES[self.encoding]
        data = line.encode(codec, "surrogatepass")[: units * size]
        whole = len(data.decode(codec, "ignore"))
        cut = whole < len(line) and self.units(line[:whole]) * size < len(data)
        return whole + cut

    # the protocol's positions
    def offset(self, position: lsp.Position) -> int:
        if position.line >= len(self.lines):
            return len(self.text)
        line = self.lines[position.line]
        return self.starts[position.line] + self.characters(line, max(position.character, 0))

    def position(self, offset: int) -> lsp.Position:
        row = bisect_right(self.starts, offset) - 1
        return lsp.Position(row, self.units(self.text[self.starts[row] : offset]))

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(start), self.position(end))

    # the compiler's places
    def place(self, position: lsp.Position) -> tuple[int, int]:
        """Line and column as in a Span."""
        row = min(position.line, len(self.lines) - 1)
        col = len(self.lines[row]) if position.line > row else self.characters(self.lines[row], position.character)
        return row + 1, max(col + 1 - (self.bom if row == 0 else 0), 1)

    def at(self, line: int, col: int) -> lsp.Position:
        """The protocol's position of a Span's line and column."""
        row = min(max(line - 1, 0), len(self.lines) - 1)
        if line - 1 > row:
            return lsp.Position(row, self.units(self.lines[row]))
        characters = max(col - 1, 0) + (self.bom if row == 0 else 0)
        return lsp.Position(row, self.units(self.lines[row][:characters]))

    def span_range(self, span: Span) -> lsp.Range:
        return lsp.Range(self.at(span.line, span.col), self.at(span.end_line, span.end_col))

    def segment(self, span: Span) -> str:
        """The text that a span covers."""
        r = self.span_range(span)
        return self.text[self.offset(r.start) : self.offset(r.end)]

    def changed(self, change: lsp.TextDocumentContentChangeEvent) -> Text:
        """The text after one change of a `didChange` notification."""
        if isinstance(change, lsp.TextDocumentContentChangeWholeDocument):
            return Text(change.text, self.encoding)
        start, end = sorted((self.offset(change.range.start), self.offset(change.range.end)))
        return Text(self.text[:start] + change.text + self.text[end:], self.encoding)
