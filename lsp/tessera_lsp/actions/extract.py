"""Selected statements, or an expression, as a function of their own that is called where they stood."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tessera.compiler.frontend.analysis import Analysis, analyse
from tessera.compiler.frontend.files import definitions
from tessera.compiler.frontend.text_scope import TextScope
from tessera.compiler.ir.types import TensorType
from tessera.errors import Edit, Span
from tessera.language.dtypes import f32
from tessera_lsp.actions import Offer, Selection, edited, names_of, spread, statements, tried
from tessera_lsp.actions.part import Part, free_name, impossible, selected
from tessera_lsp.annotations import annotation, dtype_name
from tessera_lsp.announced import EXTRACT, EXTRACT_KERNEL
from tessera_lsp.known import Known
from tessera_lsp.names import parameters

if TYPE_CHECKING:
    from tessera_lsp.document import Document

KIND, KERNEL_KIND = EXTRACT, EXTRACT_KERNEL
TITLE = "Extract function"


def offers(document: Document, known: Known, selection: Selection) -> Iterator[Offer]:
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


def _ways(document: Document, known: Known, part: Part, name: str) -> Iterator[tuple[Edit, ...]]:
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


def as_function(document: Document, known: Known, part: Part, name: str) -> str:
    """A definition with the function's own decorator, and annotations of what it is given."""
    source = known.analysis.definition.text
    decorator = source.segment(source.span(known.tree.decorator_list[0]))
    annotated = [(n, _annotation(document, known, n, part.where)) for n in part.given]
    parameters = ", ".join(f"{n}: {a}" if a else n for n, a in annotated)
    return f"@{decorator}\ndef {name}({parameters}):\n{part.body}"


def analysed_alone(document: Document, known: Known, part: Part, name: str) -> Analysis | None:
    """The analysis of the part as a function of its own; None where its text is no program."""
    lines = known.analysis.definition.source.split("\n")
    end = Span(part.where.file, len(lines), len(lines[-1]) + 1, len(lines), len(lines[-1]) + 1)
    changed = edited(known, (Edit(end, f"\n\n\n{as_function(document, known, part, name)}\n"),))
    if changed is None or not isinstance(changed.scope, TextScope):
        return None
    return analyse(next(d for d in definitions(changed.scope) if d.name == name))


def _annotation(document: Document, known: Known, name: str, at: Span) -> str | None:
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
