"""Ignoring a warning or note: a comment at the end of its line, or one more code in the comment that is there."""

from __future__ import annotations

import ast
import re

from tessera.editor.functions import Known
from tessera.editor.kinds import IGNORE as KIND
from tessera.editor.open_file import OpenFile
from tessera.editor.refactor import Offer, tried
from tessera.errors import Diagnostic, Edit, Span

_CODES = re.compile(r"#\s*tessera:\s*ignore\s*\[[^\]]*(?=\])")


def offer(document: OpenFile, d: Diagnostic) -> Offer | None:
    """None where no line of the finding has room for a comment, as between backslashes or in a string."""
    known = next((k for k in document.known if d in k.diagnostics), None)
    if known is None or d.severity == "error" or not document.parses:
        return None
    for line in range(d.span.line, d.span.end_line + 1):
        edit = _comment(known, line, d.code)
        after = tried(known, [edit])
        if after is None or ast.dump(after.analysis.definition.tree) != ast.dump(known.tree):
            continue
        if not any((left.code, left.span) == (d.code, d.span) for left in after.analysis.diagnostics):
            return Offer(f"Ignore {d.code} on this line", KIND, (edit,))
    return None


def _comment(known: Known, line: int, code: str) -> Edit:
    text = known.analysis.definition.text.lines[line - 1]
    codes, end = _CODES.search(text), len(text.rstrip())
    at = codes.end() if codes is not None else end
    comment = f", {code}" if codes is not None else f"  # tessera: ignore[{code}]"
    return Edit(Span(known.analysis.definition.file, line, at + 1, line, at + 1), comment)
