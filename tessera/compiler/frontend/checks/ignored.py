"""`# tessera: ignore[TS314]` at the end of a line: hides warnings and notes of that code on the line.

Without codes it is about all of them. Errors cannot be ignored: a program that has one has no meaning.
"""

from __future__ import annotations

import re

from tessera.compiler.frontend.fixes import Pending, renumbered
from tessera.compiler.frontend.names.definition import Definition
from tessera.errors import Diagnostic, source_line

_COMMENT = re.compile(r"#\s*tessera:\s*ignore(?![\w-])\s*(?:\[([^\]]*)\]|(?!\[))")


def without_ignored(
    definition: Definition, found: tuple[Diagnostic, ...], pending: Pending
) -> tuple[list[Diagnostic], Pending]:
    """The findings that are to be shown, and what may mend them, under their new numbers."""
    kept = [i for i, d in enumerate(found) if d.severity == "error" or not _is_ignored(definition, d)]
    return [found[i] for i in kept], renumbered(pending, kept)


def _is_ignored(definition: Definition, d: Diagnostic) -> bool:
    own = d.span.file == definition.file
    for line in range(d.span.line, d.span.end_line + 1):
        text = definition.text.lines[line - 1 : line] if own else [source_line(d.span.file, line) or ""]
        comment = _COMMENT.search(text[0]) if text else None
        if comment is not None and (comment[1] is None or d.code in re.split(r"[\s,]+", comment[1].strip())):
            return True
    return False
