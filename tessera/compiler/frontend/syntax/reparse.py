"""The tree of an edited text from that of the text before: only the top-level statements that changed are parsed.

Parsing is most of what an editor waits for after a keystroke. A text is kept in pieces, one for each top-level
statement. A piece that stands in unchanged lines, before and after which the lines are unchanged too, is the same
piece; the others are read anew, and where they do not parse, as far as they can be (`recovery`). What a text is made
of depends on the text alone; only what a broken statement was before (`Broken.was`) is taken from the past.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tessera.compiler.frontend.syntax.fragments import Before, moved_finding
from tessera.compiler.frontend.syntax.parse import parse, parse_module
from tessera.compiler.frontend.syntax.recovery import Reader
from tessera.compiler.frontend.syntax.trees import first_line, move, placed, shift
from tessera.errors import Diagnostic
from tessera.immutable import mutable

_LINE_END = re.compile(r"\r\n?")
NEIGHBOURS = 3
"""pieces before a changed line that are read anew: the change may belong to them (an `else`, an indented line), or tell
that a line between does"""


@mutable
class Piece:
    """A top-level statement, or several on one line. Lines `start` to `end`, counted from 0."""

    start: int
    end: int
    body: list[ast.stmt]
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    gaps: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    open_ended: bool = False
    _placed: list[Any] = field(default_factory=list[Any])

    def prepare(self) -> None:
        """Finds what `move` changes, which takes longer than changing it."""
        if not self._placed:
            self._placed = [n for s in self.body for n in placed(s)]

    def move(self, by: int) -> None:
        if not by:
            return
        self.prepare()
        move(self._placed, by)
        self.start, self.end = self.start + by, self.end + by
        self.gaps = [(a + by, b + by) for a, b in self.gaps]
        self.problems = [moved_finding(d, by) for d in self.problems]


@dataclass
class ParsedStatements:
    """A text as statements. `problems`: where it does not parse, one finding for each place."""

    lines: list[str]
    pieces: list[Piece]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.Module([s for p in self.pieces for s in p.body], [])

    @cached_property
    def problems(self) -> list[Diagnostic]:
        return [d for p in self.pieces for d in p.problems]

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last lines, from 1, of what could not be read."""
        return [g for p in self.pieces for g in p.gaps]


def parsed(text: str, file: str, old: ParsedStatements | None = None) -> ParsedStatements:
    """`text` in pieces. It takes over pieces of `old`, whose tree must not be used afterwards. Never raises."""
    steps = parsing(text, file, old)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value


def parsing(text: str, file: str, old: ParsedStatements | None = None) -> Generator[None, None, ParsedStatements]:
    """`parsed`, with a pause after each piece. Closed before its end, it leaves `old` as it was."""
    lines = (_LINE_END.sub("\n", text) if "\r" in text else text).split("\n")
    if old is None or any(p.start == p.end for p in old.pieces):  # of an odd text nothing is kept
        whole = parse(text, file)
        if whole.tree is not None:
            return ParsedStatements(lines, _pieces(whole.tree.body))
        found = ParsedStatements(lines, (yield from _read(lines, file, {}, None)))
        if not found.problems:  # its parts parse, but the whole does not: Python finds the error
            found.pieces.append(Piece(len(lines), len(lines), [], list(whole.diagnostics)))
            del found.problems
        return found
    return (yield from _edited(lines, file, old))


def _edited(lines: list[str], file: str, old: ParsedStatements) -> Generator[None, None, ParsedStatements]:
    head = common_length(lines, old.lines)
    tail = min(common_length(lines[::-1], old.lines[::-1]), min(len(lines), len(old.lines)) - head)
    by = len(lines) - len(old.lines)
    above = [p for p in old.pieces if p.end <= head]
    kept = {p.start: (p, 0) for p in above[: max(len(above) - NEIGHBOURS, 0)] if not p.open_ended}
    below = (p for p in old.pieces if p.start >= len(old.lines) - tail and p.start >= head)
    kept |= {p.start + by: (p, by) for p in below if not p.open_ended}
    before = Before([s for p in old.pieces for s in p.body], len(old.lines), head, tail)
    pieces = yield from _read(lines, file, kept, before)
    neighbours = {(p.start, p.end): p for p in above if p.start not in kept}
    return ParsedStatements(lines, [_as_before(p, neighbours.get((p.start, p.end))) for p in pieces])


def _as_before(piece: Piece, before: Piece | None) -> Piece:
    """The same lines as they were, where nothing is wrong with them: what is known of their nodes holds."""
    both = (piece, before) if before is not None else ()
    whole = both and not any(p.problems or p.gaps or p.open_ended for p in both)
    return before if before is not None and whole else piece


def _read(
    lines: list[str], file: str, kept: dict[int, tuple[Piece, int]], before: Before | None
) -> Generator[None, None, list[Piece]]:
    """All pieces in order: those that stay where they are, or move by some lines, and those between."""
    pieces: list[Piece] = []
    moving: list[tuple[Piece, int]] = []  # only when all is read: what was there before is looked up by its old place
    reader: Reader | None = None
    i = 0
    while True:
        found = kept.get(i)
        if found is None:
            if reader is None:
                reader = Reader(file, lines, before)
            i = reader.lines.code(i, len(lines))
            if i == len(lines):
                break
            found = kept.get(i)
        if found is not None:
            moving.append(found)
            pieces.append(found[0])
            i = found[0].end + found[1]
            continue
        assert reader is not None
        end, body = reader.top_level(i)
        found_here = reader.fragments
        pieces.append(Piece(i, end, body, found_here.problems, found_here.gaps, reader.open_ended))
        i = end
        yield
    for piece, by in moving:
        if by:
            piece.prepare()
            yield
    for piece, by in moving:  # all at once: from here on the old text is no more
        piece.move(by)
    return pieces


def _pieces(body: list[ast.stmt]) -> list[Piece]:
    out: list[Piece] = []
    for s in body:
        start, end = first_line(s) - 1, s.end_lineno or s.lineno
        if out and start < out[-1].end:  # `a = 1; b = 2`
            out[-1].body.append(s)
            out[-1].end = max(end, out[-1].end)
        else:
            out.append(Piece(start, end, [s]))
    return out


def reread(tree: ast.Module, old: str, new: str, file: str) -> tuple[ast.Module, tuple[object, ...]] | None:
    """The tree and notes of an edited text as long as the old one; only the edited statements are parsed.

    None where that cannot tell. The trees share the other statements. Raises CompileError (TS101).
    """
    before, after = old.split("\n"), new.split("\n")
    changed = [i for i, (a, b) in enumerate(zip(before, after, strict=False), 1) if a != b]
    if len(before) != len(after) or not changed:
        return None
    places = [(first_line(s), s.end_lineno or s.lineno) for s in tree.body]
    edited = [i for i, (a, b) in enumerate(places) if a <= changed[-1] and changed[0] <= b]
    if not edited or places[edited[0]][0] > changed[0] or changed[-1] > places[edited[-1]][1]:
        return None
    first, last = edited[0], edited[-1]
    start = places[first][0] - 1
    found, notes = parse_module("\n".join([*after[start : places[last][1]], ""]), file)
    if notes:
        return None  # which have places of their own
    for s in found.body:
        shift(s, start)
    return ast.Module([*tree.body[:first], *found.body, *tree.body[last + 1 :]], []), ()


def common_length(a: list[str], b: list[str]) -> int:
    """How many items two lists have in common from their start."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
