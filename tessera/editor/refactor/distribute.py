"""A function for several devices: over which of its dims it can be cut and what is sent then, or what is against it."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.compiler.frontend.distribution import axes_of, unsuitable
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.names.values import Builtin
from tessera.compiler.graph.sharding import partition
from tessera.editor.annotations import own_name
from tessera.editor.functions import Known
from tessera.editor.kinds import DISTRIBUTE as KIND
from tessera.editor.open_file import OpenFile, Preferences
from tessera.editor.refactor import Offer, Selection, header_end, tried
from tessera.errors import Edit, Span


def offers(document: OpenFile, known: Known, selection: Selection, settings: Preferences) -> Iterator[Offer]:
    """One for each dim that is an axis of a parameter, within the lines of `def`."""
    analysis, end = known.analysis, header_end(known)
    if end is None or not known.first_line <= selection.start[0] <= end.line:
        return
    name = own_name(document.scope, "distributed", Builtin("tessera.distributed"))
    definition = analysis.definition
    if name is None or analysis.op is None or definition.kind != "function" or "distributed" in definition.options:
        return
    parameters = definition_signature(definition).parameters
    for dim in (d for d in analysis.dims if any(axes_of(p, d) for p in parameters)):
        title = f"Distribute {analysis.name} over {dim}"
        wrong = next((d.message for d in unsuitable(definition, dim)), "")
        found = partition(analysis.op, dim, analysis.checks)
        if wrong or not found.ok:
            yield Offer(title, KIND, disabled=wrong or found.problems[0].explanation(dim))
            continue
        edit = _decorator(known, name, dim)
        after = tried(known, (edit,))
        if after is not None and not after.errors:
            yield Offer(f"{title}: {found.sent(settings.dims)}", KIND, (edit,))


def _decorator(known: Known, name: str, dim: str) -> Edit:
    """A line above the function's other decorators, indented as they are."""
    text = known.analysis.definition.text.lines[known.first_line - 1]
    indent = text[: len(text) - len(text.lstrip())]
    place = Span(known.analysis.definition.file, known.first_line, 1, known.first_line, 1)
    return Edit(place, f'{indent}@{name}(over="{dim}")\n')
