"""Diagnostics of a text that does not parse, from that text alone."""

from __future__ import annotations

from tessera.compiler.frontend.syntax.parse import parse
from tessera.compiler.frontend.syntax.recovery import Reader
from tessera.compiler.frontend.syntax.reparse import parsed
from tessera.errors import Diagnostic


class Scratch:
    """Says what `parsed` says from scratch, in less time: whether lines parse depends on them alone, so that those of
    the statements that a right text is made of need no parsing again. Where they end is still asked of each text."""

    def __init__(self, right: str, file: str) -> None:
        self.file = file
        found = parsed(right, file)
        self._whole = {tuple(found.lines[p.start : p.end]) for p in found.pieces}

    def problems(self, text: str) -> tuple[list[Diagnostic], bool]:
        """The findings of TS101, and whether Python's parser takes the text as a whole."""
        found = parse(text, self.file)
        if found.tree is not None:
            return [], True
        lines = text.split("\n")
        reader = Reader(self.file, lines)
        said: list[Diagnostic] = []
        i = reader.lines.code(0, len(lines))
        while i < len(lines):
            end = reader.lines.extent(i, len(lines), 0, strict=True)
            if tuple(lines[i:end]) not in self._whole or reader.lines.width(i):
                end, _ = reader.top_level(i)
                said += reader.fragments.problems
            i = reader.lines.code(end, len(lines))
        return said or list(found.diagnostics), False
