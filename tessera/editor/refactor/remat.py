"""A call of which less is kept for the backward pass: `ts.remat` around what is called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tessera.compiler.frontend.called.inside import CalledProgram
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import Builtin
from tessera.compiler.lower.memory_limit import shown
from tessera.editor.annotations import own_name
from tessera.editor.functions import Known, is_tensor, takes_gradients
from tessera.editor.kept import KeptValues
from tessera.editor.kinds import REMAT as KIND
from tessera.editor.names import is_local
from tessera.editor.open_file import OpenFile, Preferences
from tessera.editor.refactor import Offer, Selection, insertion, tried
from tessera.editor.signatures import resolve
from tessera.errors import Edit
from tessera.language.dims import Dim


def offers(document: OpenFile, known: Known, selection: Selection, settings: Preferences) -> Iterator[Offer]:
    """On a call of a function or module, in a file where gradients are taken."""
    if known.analysis.definition.kind != "function" or not any(takes_gradients(k.analysis) for k in document.known):
        return
    name = own_name(document.scope, "remat", Builtin("tessera.remat"))
    call = _call(document, known, selection)
    if name is None or call is None or (span := known.span(call.func)) is None:
        return
    edits = insertion(span, False, f"{name}("), insertion(span, True, ")")
    after = tried(known, edits)
    if after is not None and not after.errors:
        yield Offer(
            f"Compute {ast.unparse(call.func)} again in the backward pass{_less(known, edits, settings)}", KIND, edits
        )


def _call(document: OpenFile, known: Known, selection: Selection) -> ast.Call | None:
    """The innermost call under the cursor of a function of the file, or of a variable that holds a function."""
    calls = [n for n in ast.walk(known.tree) if isinstance(n, ast.Call) and selection.touches(known.span(n.func))]
    for call in sorted(calls, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        head = ast.unparse(call.func).partition(".")[0]
        if not isinstance(call.func, (ast.Name, ast.Attribute)) or not head.isidentifier():
            continue
        if not is_local(known, head):
            if isinstance(resolve(document.scope, ast.unparse(call.func)), Closure):
                return call
        elif not is_tensor(known.type_of(head, call.lineno, call.col_offset + 1)):
            return call
    return None


def _less(known: Known, edits: tuple[Edit, ...], settings: Preferences) -> str:
    """How much less is kept, where that is known."""
    after = tried(known, edits)
    if after is None or not takes_gradients(known.analysis):
        return ""
    values = [
        KeptValues().of([CalledProgram(a)], settings.dims, settings.target) for a in (known.analysis, after.analysis)
    ]
    sizes: list[Dim] = []
    for found in values:
        total: Dim = 0
        for v in found:
            total = total + v.bytes
        sizes.append(total)
    before, now = sizes
    if not isinstance(before, int) or not isinstance(now, int) or now >= before:
        return ""
    return f": {shown(before - now)} less kept"
