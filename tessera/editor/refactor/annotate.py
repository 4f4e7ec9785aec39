"""Writing an inferred shape down: on an assignment, or as what a function returns."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tessera.editor.annotations import annotation
from tessera.editor.functions import Known
from tessera.editor.kinds import ANNOTATE as KIND
from tessera.editor.open_file import OpenFile
from tessera.editor.refactor import Offer, Selection, header_end, insertion, statements, tried
from tessera.errors import Edit

FEW = 3
"""variables; of more a title gives the number"""


def offers(document: OpenFile, known: Known, selection: Selection) -> Iterator[Offer]:
    if known.analysis.definition.kind != "function":
        return
    yield from _assignments(document, known, selection)
    end = header_end(known)
    if known.tree.returns is None and end is not None and selection.start[0] <= end.line >= selection.end[0]:
        edit = _of_return(document, known)
        if edit is not None:
            yield Offer(f"Annotate what {known.analysis.name} returns", KIND, (edit,))


def _assignments(document: OpenFile, known: Known, selection: Selection) -> Iterator[Offer]:
    """One for all that are selected."""
    found: list[tuple[str, Edit]] = []
    for statement in statements(known):
        target = _target(statement)
        if target is not None and selection.touches(known.span(statement)):
            edit = of_assignment(document, known, target)
            found += [(target.id, edit)] if edit is not None else []
    edits = tuple(edit for _, edit in found)
    if not found:
        return
    *names, last = [name for name, _ in found]
    if not names:
        yield Offer(f"Annotate {last} with its shape", KIND, edits)
        return
    after = tried(known, edits)
    text = f"{', '.join(names)} and {last}" if len(found) <= FEW else f"{len(found)} variables"
    if after is not None and not after.found:
        yield Offer(f"Annotate {text} with their shapes", KIND, edits)


def _target(statement: ast.stmt) -> ast.Name | None:
    match statement:
        case ast.Assign(targets=[ast.Name() as target]):
            return target
        case _:
            return None


def of_assignment(document: OpenFile, known: Known, target: ast.Name) -> Edit | None:
    """The annotation behind a name that a statement of its own assigns; None where it would not stand the test."""
    span = known.span(target)
    types = [e.type for e in known.expressions if e.kind == "assign" and e.span == span]
    text = annotation(document.scope, types[-1]) if types else None
    return _if_valid(known, insertion(span, True, f": {text}")) if span is not None and text is not None else None


def at(document: OpenFile, known: Known, line: int, col: int) -> Edit | None:
    """The same for the assigned name that ends at a place."""
    for statement in statements(known):
        target = _target(statement)
        span = known.span(target) if target is not None else None
        if target is not None and span is not None and (span.end_line, span.end_col) == (line, col):
            return of_assignment(document, known, target)
    return None


def _of_return(document: OpenFile, known: Known) -> Edit | None:
    types: list[Any] = [e.type for e in known.expressions if e.kind == "return"]
    texts = {annotation(document.scope, t) for t in types}
    end = header_end(known)
    if len(texts) != 1 or None in texts or end is None:
        return None
    return _if_valid(known, insertion(end, False, f" -> {texts.pop()}"))


def _if_valid(known: Known, edit: Edit) -> Edit | None:
    after = tried(known, [edit])
    return edit if after is not None and not after.found else None
