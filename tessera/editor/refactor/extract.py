"""Selected statements, or an expression, as a function of their own that is called where they stood."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.definitions import definitions
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.types import TensorType
from tessera.editor.annotations import annotation, dtype_name
from tessera.editor.functions import Known
from tessera.editor.kinds import EXTRACT, EXTRACT_KERNEL
from tessera.editor.names import parameters
from tessera.editor.open_file import OpenFile
from tessera.editor.refactor import Offer, Selection, edited, names_of, spread, statements, tried
from tessera.errors import Edit, Span
from tessera.language.dtypes import f32

KIND, KERNEL_KIND = EXTRACT, EXTRACT_KERNEL
TITLE = "Extract function"


def offers(document: OpenFile, known: Known, selection: Selection) -> Iterator[Offer]:
    part = selected(known, selection) if selection.start != selection.end else None
    if part is None or part.empty:
        return
    why = impossible(known, part)
    if why:
        yield Offer(TITLE, KIND, disabled=why)
        return
    name = free_name(known, "extracted", set(document.scope.names()))
    for edits in _ways(document, known, part, name):
        after = tried(known, edits)
        wrong = after.errors or spread(document, known, edits, name) if after is not None else []
        if after is not None and not wrong:
            yield Offer(TITLE, KIND, edits)
            return
        why = wrong[0].message.partition("\n")[0] if wrong else "less would be known of the function than before"
    yield Offer(TITLE, KIND, disabled=why)


def _ways(document: OpenFile, known: Known, part: ExtractedPart, name: str) -> Iterator[tuple[Edit, ...]]:
    """As a function with annotated parameters; else as a plain helper that is also given the dims it names."""
    plain = (*part.given, *part.dims)
    end = known.tree.end_lineno or 0
    width = len(known.analysis.definition.text.lines[end - 1]) + 1
    place = Span(part.where.file, end, width, end, width)
    if known.analysis.definition.kind == "function":
        text = as_function(document, known, part, name)
        yield part.replaced(f"{name}({', '.join(part.given)})"), Edit(place, f"\n\n\n{text}")
    text = f"def {name}({', '.join(plain)}):\n{part.body}"
    yield part.replaced(f"{name}({', '.join(plain)})"), Edit(place, f"\n\n\n{text}")


def as_function(document: OpenFile, known: Known, part: ExtractedPart, name: str) -> str:
    """A definition with the function's own decorator, and annotations of what it is given."""
    source = known.analysis.definition.text
    decorator = source.segment(source.span(known.tree.decorator_list[0]))
    annotated = [(n, _annotation(document, known, n, part.where)) for n in part.given]
    parameters = ", ".join(f"{n}: {a}" if a else n for n, a in annotated)
    return f"@{decorator}\ndef {name}({parameters}):\n{part.body}"


def analysed_alone(document: OpenFile, known: Known, part: ExtractedPart, name: str) -> Analysis | None:
    """The analysis of the part as a function of its own; None where its text is not a program."""
    lines = known.analysis.definition.source.split("\n")
    end = Span(part.where.file, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 1)
    changed = edited(known, (Edit(end, f"\n\n\n{as_function(document, known, part, name)}\n"),))
    if changed is None or not isinstance(changed.scope, TextScope):
        return None
    return analyse(next(d for d in definitions(changed.scope) if d.name == name))


def _annotation(document: OpenFile, known: Known, name: str, at: Span) -> str | None:
    """How the type that a variable has at a place is written; None where that is not known."""
    type = known.type_of(name, at.line, at.col)
    if isinstance(type, TensorType) and not type.shape:
        return dtype_name(document.scope, type.dtype)
    if type is None and _is_float(known, name):
        return dtype_name(document.scope, f32)
    return annotation(document.scope, type) if type is not None else None


def _is_float(known: Known, name: str) -> bool:
    """Whether it is a parameter that is annotated `float`, or a name for a number with a point."""
    for p in parameters(known.tree):
        if p.arg == name:
            return isinstance(p.annotation, ast.Name) and p.annotation.id == "float"
    assigned = [s.value for s in statements(known) if isinstance(s, ast.Assign) and name in names_of([s], ast.Store)]
    return bool(assigned) and all(isinstance(v, ast.Constant) and isinstance(v.value, float) for v in assigned)


# The part of a function that is selected, as something that can stand in a definition of its own.


@dataclass(frozen=True, slots=True)
class ExtractedPart:
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


def selected(known: Known, selection: Selection) -> ExtractedPart | None:
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


def part_of(known: Known, nodes: tuple[ast.stmt | ast.expr, ...]) -> ExtractedPart | None:
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
    return ExtractedPart(nodes, where, lines, given, dims, results, isinstance(nodes[-1], (ast.Return, ast.expr)))


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


def impossible(known: Known, part: ExtractedPart) -> str:
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
