"""The right texts, and the mistakes that are made in them."""

from __future__ import annotations

import ast
import io
import json
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, islice, pairwise

from tessera_lsp.notebook import CellSource
from tessera_lsp.text import Text

from benchmarks.record import ROOT
from tessera.compiler.frontend.syntax.dialect import tokens
from tessera.compiler.frontend.syntax.parse import parse
from tessera.compiler.frontend.syntax.trees import first_line

MARKERS = sorted((ROOT / "tests" / "lsp" / "markers").glob("*.py"))
OTHERS = (ROOT / "examples" / "tour.tess", ROOT / "examples" / "01_kernels.ipynb")
NAMES = tuple(p.name for p in (*MARKERS, *OTHERS))
INSERTED = "()[]{}\"'"
HALF_TYPED = (
    "ts.softmax(", "fresh =", "fresh = ts.softmax(", "fresh = ts.", "fresh.", "def fresh(", "def fresh",
    "def fresh(x", 'def fresh(x: Tensor["B", ', 'fresh = f"{', 'fresh = f"{ts.', '"""', "'''", 'fresh = """',
    'fresh = "', "@ts.", "@", "for fresh in", "for fresh", "for fresh in ts.arange(3):", "while ", "while fresh:",
    "if", "if fresh", "if fresh:", "else:", "else", "elif fresh:", "try:", "except", "finally:", "with ",
    "with fresh as", "match fresh:", "match fresh:\n    case", "match fresh:\n    case [a, *", "fresh: Tensor[",
    'fresh: Tensor["B", ', "if (fresh := ", "(fresh := ", "fresh = lambda x:", "fresh = lambda",
    "[fresh for fresh in", "fresh = [a for a in", "fresh = [", "fresh = {", 'fresh = {"a": ', "assert ", "import ",
    "from ", "from tessera import", "from tessera import (", "class Fresh", "class Fresh:", "class Fresh(",
    "fresh = 1 +", "fresh +=", "fresh ~", "global ", "raise ts.", "del ", "async def", "await", "yield from",
    "\tfresh = (", "      fresh = 1", "def fresh(a):\nfresh = a", "for other in fresh:\nfresh = other",
    "if a:\n    fresh = (",
    "fresh = 1 if", "fresh = not", "fresh = x @", "fresh = x[", "fresh = x[0, ", "fresh = x[:, None",
    "fresh = (x +\n    1", "fresh = \\", "fresh = x if a else\n", "print(", "lambda", "(", "[", "{", ")", "]", "}",
    "'", '"', "?", "$", "fresh = 08",
)  # fmt: skip
"""what stands in a line while it is being typed, and some that a paste may bring"""
PARAMETERS = (
    "fresh",
    "fresh: ",
    "fresh: Tensor[",
    'fresh: Tensor["B',
    'fresh: Tensor["B", ',
    "fresh: Tensor[]",
    "fresh: int = ",
)
DECORATORS = ("@", "@ts", "@ts.", "@ts.numerics(", "@ts.numerics(fast=", "# fresh", "")
EACH = 8
"""of these for each line, others for the next"""
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_NOT_BEFORE = (tokenize.NL, tokenize.COMMENT, tokenize.ENDMARKER, tokenize.INDENT, tokenize.DEDENT)


@dataclass(frozen=True, slots=True)
class Right:
    """A model, kernels, a `.tess` file, or all cells of a notebook as the server puts them together."""

    text: str
    ours: frozenset[int]
    """the lines in which mistakes are made: of a notebook those of the `%%tessera` cells"""


@cache
def right(name: str) -> Right:
    path = next(p for p in (*MARKERS, *OTHERS) if p.name == name)
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return Right(text, frozenset(range(text.count("\n") + 2)))
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    lines: list[str] = []
    ours: set[int] = set()
    for i, cell in enumerate(cells):
        source = CellSource(f"{i}", 1, Text("".join(cell["source"]), "utf-16"), code=True)
        first = len(lines) + 1
        lines += source.lines()
        ours |= set(range(first, len(lines) + 1)) if source.magic is not None else set()
    return Right("\n".join([*lines, ""]), frozenset(ours))


@dataclass(frozen=True, slots=True)
class Mutation:
    """A mistake: `new` in place of the characters from `start` to `end` of the right text. `first` to `last`: the lines
    of that text which it touches; between them, if `last` is less."""

    kind: str
    start: int
    end: int
    new: str
    first: int
    last: int

    def of(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


@cache
def mutations(name: str) -> list[Mutation]:
    """Every mutation of a text, in the order of the text for each kind."""
    text = right(name).text
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    every = [*_deleted(text, found, starts), *_inserted(found, starts), *_cut_off(text, found, starts),
             *_indented(lines, starts), *_half_typed(lines, found, starts)]  # fmt: skip
    return [m for m in every if m.first in right(name).ours]


def _deleted(text: str, found: list[tokenize.TokenInfo], starts: list[int]) -> Iterator[Mutation]:
    for t in found:
        start, end = starts[t.start[0] - 1] + t.start[1], starts[t.end[0] - 1] + t.end[1]
        if end > start and t.type != tokenize.COMMENT:
            line_end = t.type in (tokenize.NEWLINE, tokenize.NL)
            yield Mutation("delete a token", start, end, "", t.start[0], min(t.end[0] + line_end, len(starts) - 1))


def _inserted(found: list[tokenize.TokenInfo], starts: list[int]) -> Iterator[Mutation]:
    for t in found:
        at = starts[t.start[0] - 1] + t.start[1]
        if t.type not in _NOT_BEFORE:
            for added in INSERTED:
                yield Mutation(f"insert {added}", at, at, added, t.start[0], t.start[0])


def _cut_off(text: str, found: list[tokenize.TokenInfo], starts: list[int]) -> Iterator[Mutation]:
    for before, t in pairwise(found):
        at = starts[t.start[0] - 1] + t.start[1]
        if before.end[0] == t.start[0] and t.type not in (*_NOT_BEFORE, tokenize.NEWLINE):
            yield Mutation("truncate", at, text.index("\n", at), "", t.start[0], t.end[0])


def _half_typed(lines: list[str], found: list[tokenize.TokenInfo], starts: list[int]) -> Iterator[Mutation]:
    """New lines, indented as an editor does it; within brackets, only where these are parameters."""
    numbers, indent, inside = count(), "", _rows_within(found)
    for i, line in enumerate(lines):
        if line.strip() and line.lstrip()[0] not in ")]}":
            indent = line[: len(line) - len(line.lstrip())]
        those = {"": HALF_TYPED, "def": PARAMETERS, "@": DECORATORS}.get(inside.get(i + 1, ""), ())
        for typed in (those[n % len(those)] for n in islice(numbers, EACH if those else 0)):
            new = indent + typed.replace("\n", "\n" + indent) + "\n"
            yield Mutation("half typed", starts[i], starts[i], new, i + 1, i)


def _rows_within(found: list[tokenize.TokenInfo]) -> dict[int, str]:
    """The lines that do not begin a statement of their own, and the first word of theirs."""
    out: dict[int, str] = {}
    first: tokenize.TokenInfo | None = None
    for t in found:
        if t.type == tokenize.NEWLINE and first is not None:
            below = 1 if first.string == "@" else 0
            out |= dict.fromkeys(range(first.start[0] + 1, t.start[0] + 1 + below), first.string)
            first = None
        elif first is None and t.type not in _NOT_BEFORE:
            first = t
    return out


def _indented(lines: list[str], starts: list[int]) -> Iterator[Mutation]:
    for i, line in enumerate(lines):
        if not line.partition("#")[0].strip():
            continue
        indent = len(line) - len(line.lstrip())
        yield Mutation("indent more", starts[i], starts[i], "    ", i + 1, i + 1)
        if indent:
            yield Mutation("indent less", starts[i], starts[i] + min(indent, 4), "", i + 1, i + 1)
        below = lines[i + 1] if i + 1 < len(lines) else ""
        further = len(below) - len(below.lstrip())
        if below.strip() and further != indent:
            pair = " " * further + line.lstrip() + " " * indent + below.lstrip()
            yield Mutation("swap indents", starts[i], starts[i + 2], pair, i + 1, i + 2)


@dataclass(frozen=True, slots=True)
class Typing:
    """A function that is typed at its place in a text: it stands in lines `first` to `last`, from 1."""

    name: str
    first: int
    definition: int
    """the line of its `def`, below its decorators"""
    last: int

    def of(self, text: str) -> str:
        return "".join(text.splitlines(keepends=True)[self.first - 1 : self.last])

    def texts(self, text: str, kind: str) -> Iterator[tuple[str, int]]:
        """The texts that there are one after the other, and the line that is being typed in each."""
        lines = text.splitlines(keepends=True)
        above, own, below = "".join(lines[: self.first - 1]), self.of(text), "".join(lines[self.last :])
        lengths = range(len(own))
        for n in reversed(lengths) if kind == "erase" else lengths:
            typed = own[:n]
            closing = closers(typed) if kind == "type in pairs" else ""
            yield above + typed + closing + "\n" + below, self.first + typed.count("\n")


TYPINGS = ("type", "type in pairs", "erase")


@cache
def typings(name: str) -> list[Typing]:
    """The functions of a text that can be typed."""
    tree = parse(right(name).text, name).tree
    assert tree is not None
    found = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.lineno in right(name).ours]
    return [Typing(s.name, first_line(s), s.lineno, s.end_lineno or s.lineno) for s in found]


def closers(typed: str) -> str:
    """What an editor has put behind the cursor: the other half of each open bracket and quote."""
    open_ones: list[str] = []
    for kind, start, end in tokens(typed, 0):
        if kind == "open":
            open_ones.append(_CLOSERS[typed[start]])
        elif kind == "close" and open_ones:
            open_ones.pop()
        elif kind == "string" and end == len(typed):
            quote = typed[start] * (3 if typed.startswith(typed[start] * 3, start) else 1)
            if end - start < 2 * len(quote) or not typed.endswith(quote):
                open_ones.append(quote)
    return "".join(reversed(open_ones))
