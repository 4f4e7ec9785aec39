"""The part of a function that is selected, as something that can stand in a definition of its own."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from tessera.errors import Edit, Span
from tessera_lsp.actions import Selection, names_of
from tessera_lsp.known import Known


@dataclass(frozen=True, slots=True)
class Part:
    """Statements of one block, or one expression, that stand at `where`.

    `given`: the function's names that it reads. `dims`: those of the annotations. `results`: what it assigns and others
    read. `returns`: whether its value is that of an expression or of a `return`.
    """

    nodes: tuple[ast.stmt | ast.expr, ...]
    where: Span
    lines: str
    given: tuple[str, ...]
    dims: tuple[str, ...]
    results: tuple[str, ...]
    returns: bool

    @property
    def empty(self) -> bool:
        """Whether it has no value that could be returned."""
        return not self.returns and not self.results

    @property
    def body(self) -> str:
        """What a definition of its own says, indented."""
        if isinstance(self.nodes[0], ast.expr):
            inner = f"({self.lines})" if "\n" in self.lines else self.lines
            return f"    return {inner}"
        text = textwrap.indent(self.lines, "    ")
        return text if self.returns else f"{text}\n    return {', '.join(self.results)}"

    def replaced(self, call: str) -> Edit:
        """`call` instead of it."""
        if isinstance(self.nodes[0], ast.expr):
            return Edit(self.where, call)
        return Edit(self.where, f"return {call}" if self.returns else f"{', '.join(self.results)} = {call}")


def selected(known: Known, selection: Selection) -> Part | None:
    """Statements of one block, or one expression, that are selected whole; of a cursor, its statement."""
    if selection.start == selection.end:
        inside = [
            s for s in ast.walk(known.tree) if isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return))
        ]
        at = [s for s in inside if (span := known.span(s)) is not None and selection.touches(span)]
        return part_of(known, tuple(at[:1])) if at and at[0].value is not None else None
    chosen = _chosen(known, known.tree.body, selection)
    if chosen:
        return part_of(known, tuple(chosen))
    trimmed = _trimmed(known, selection)
    found = [n for s in known.tree.body for n in ast.walk(s) if isinstance(n, ast.expr) and known.span(n) == trimmed]
    if not found or isinstance(found[0], (ast.Name, ast.Constant)):
        return None
    return part_of(known, (found[0],))


def _chosen(known: Known, body: list[ast.stmt], selection: Selection) -> list[ast.stmt]:
    found = [s for s in body if selection.holds(known.span(s))]
    if found:
        return found
    blocks: Iterator[list[ast.stmt]] = (getattr(s, name, []) for s in body for name in ("body", "orelse"))
    for block in blocks:
        if inside := _chosen(known, block, selection):
            return inside
    return []


def _trimmed(known: Known, selection: Selection) -> Span | None:
    """The selection without spaces at its ends."""
    source = known.analysis.definition.text
    where = Span(known.analysis.definition.file, *selection.start, *selection.end)
    text = source.segment(where)
    lead, trail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
    if "\n" in text[:lead] or "\n" in text[len(text) - trail :]:
        return None
    return replace(where, col=where.col + lead, end_col=where.end_col - trail) if text.strip() else None


def part_of(known: Known, nodes: tuple[ast.stmt | ast.expr, ...]) -> Part | None:
    """None where they are not in the text as it is now."""
    first, last = known.span(nodes[0]), known.span(nodes[-1])
    if first is None or last is None:
        return None
    where = Span(first.file, first.line, first.col, last.end_line, last.end_col)
    source = known.analysis.definition.text
    text, line = source.segment(where), source.lines[first.line - 1]
    indent = line[: len(line) - len(line.lstrip())]
    lines = text if isinstance(nodes[0], ast.expr) else textwrap.dedent(indent + text)
    bound = {*names_of([known.tree], ast.Store), *(a.arg for a in ast.walk(known.tree.args) if isinstance(a, ast.arg))}
    read = in_order(nodes)
    given = tuple(n for n in read if n in bound and not assigned_first(nodes, n))
    dims = tuple(n for n in read if n in known.analysis.dims and n not in bound)
    after = [s for s in known.tree.body if _ends_behind(known, s, last)]
    readers = names_of(_readers(after, nodes), ast.Load)
    results = tuple(n for n in dict.fromkeys(_stores(nodes)) if n in readers)
    return Part(nodes, where, lines, given, dims, results, isinstance(nodes[-1], (ast.Return, ast.expr)))


def in_order(nodes: Sequence[ast.AST]) -> list[str]:
    """The names that are read, each once."""
    names = sorted(
        (n for s in nodes for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)),
        key=lambda n: (n.lineno, n.col_offset),
    )
    augmented = (s.target.id for s in nodes if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name))
    return list(dict.fromkeys([*augmented, *(n.id for n in names)]))


def assigned_first(nodes: Sequence[ast.AST], name: str) -> bool:
    """Whether the part itself gives the name its value before it reads it."""
    for s in _sequence(nodes):
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name) and s.target.id == name:
            return False
        value = getattr(s, "value", None)
        reads = names_of([value] if isinstance(s, (ast.Assign, ast.AnnAssign)) and value else [s], ast.Load)
        if name in reads:
            return False
        if isinstance(s, (ast.Assign, ast.AnnAssign, ast.Name)) and name in names_of([s], ast.Store):
            return True
    return False


def _sequence(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """In the order in which they run first; a loop's body follows what it counts over and its counter."""
    for s in nodes:
        if isinstance(s, ast.For):
            yield from (s.iter, s.target)
            yield from _sequence([*s.body, *s.orelse])
        else:
            yield s


def _stores(nodes: tuple[ast.AST, ...]) -> list[str]:
    return [n.id for s in nodes for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _ends_behind(known: Known, statement: ast.stmt, last: Span) -> bool:
    span = known.span(statement)
    return span is not None and (span.end_line, span.end_col) > (last.end_line, last.end_col)


def _readers(after: list[ast.stmt], nodes: tuple[ast.AST, ...]) -> list[ast.AST]:
    """What may read the results: all behind the part, also the rest of a loop around it."""
    inside = {id(n) for s in nodes for n in ast.walk(s)}
    return [n for s in after for n in ast.walk(s) if id(n) not in inside and isinstance(n, ast.Name)]


def impossible(known: Known, part: Part) -> str:
    """Why the part cannot leave its function; "" where nothing holds it."""
    if known.tree.col_offset:
        return "only functions at the top of a file are taken apart"
    inside = [n for s in part.nodes for n in ast.walk(s)]
    if any(isinstance(n, (ast.Break, ast.Continue, ast.FunctionDef)) for n in inside):
        return "a loop is left, or a function defined, inside the selection"
    if any(isinstance(n, ast.Return) and n is not part.nodes[-1] for n in inside):
        return "the function returns from inside the selection"
    return ""


def free_name(known: Known, wanted: str, taken: set[str]) -> str:
    """`wanted`, or `wanted_2` and so on where the file or the function has that already."""
    used = {*taken, *names_of([known.tree], ast.Store)}
    return next(n for n in _numbered(wanted) if n not in used)


def _numbered(wanted: str) -> Iterator[str]:
    yield wanted
    yield from (f"{wanted}_{n}" for n in count(2))
