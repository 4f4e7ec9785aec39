"""Quick fixes, and changes that people ask for. What is offered has been tried on the text.

Changes that are only asked about because the cursor moved are not looked for: each would have to be tried.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified

from tessera.compiler import tried_edits
from tessera.editor.functions import Known
from tessera.editor.kinds import TRIED
from tessera.editor.refactor import (
    Offer,
    Selection,
    annotate,
    assert_sizes,
    distribute,
    extract,
    fuse,
    ignore,
    precision,
    remat,
)
from tessera.errors import Diagnostic
from tessera_lsp.document import Document
from tessera_lsp.features import diagnostics
from tessera_lsp.server import TesseraServer
from tessera_lsp.settings import Settings

log = logging.getLogger(__name__)


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION)
    async def code_actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = await server.document(params.text_document)
        only = params.context.only
        found: list[lsp.CodeAction] = []
        if _is_wanted(lsp.CodeActionKind.QuickFix, only):
            found += _fixes(server, document, params.range)
        if _is_wanted(ignore.KIND, only):
            found += _ignoring(server, document, params.range)
        if params.context.trigger_kind != lsp.CodeActionTriggerKind.Automatic or only:
            if _is_wanted(TRIED, only):
                found += _measured(document, params.range)
            for kind, offers in _offers(server, document, params.range):
                if _is_wanted(kind, only):
                    found += await _tried(document, offers)
        return _with_distinct_titles(found)


async def _tried(document: Document, offers: Iterator[Offer]) -> list[lsp.CodeAction]:
    """A fault is logged and costs the person this entry, not the whole menu. Others are answered in between.

    Raises JsonRpcContentModified when somebody types meanwhile.
    """
    found, state = list[lsp.CodeAction](), document.state
    try:
        for offer in offers:
            action = _action(document, offer)
            found += [action] if action is not None else []
            await asyncio.sleep(0)
            if document.state != state:
                raise JsonRpcContentModified
    except JsonRpcContentModified:
        raise
    except Exception:
        log.exception("a change of %s could not be tried", document.uri)
    return found


def _findings(document: Document, area: lsp.Range) -> Iterator[Diagnostic]:
    return (d for d in document.diagnostics if _overlaps(document.text.span_range(d.span), area))


def _fixes(server: TesseraServer, document: Document, area: lsp.Range) -> Iterator[lsp.CodeAction]:
    for d in _findings(document, area):
        for fix in d.fixes:
            edit = document.workspace_edit(fix.edits)
            if edit is not None:
                yield lsp.CodeAction(
                    fix.message,
                    kind=lsp.CodeActionKind.QuickFix,
                    diagnostics=[diagnostics.one(server, document, d)],
                    is_preferred=len(d.fixes) == 1 and d.severity != "note",
                    edit=edit,
                )


def _ignoring(server: TesseraServer, document: Document, area: lsp.Range) -> Iterator[lsp.CodeAction]:
    """One for each code and line, though it may stand there several times."""
    found = {(d.code, d.span.line): d for d in _findings(document, area)}
    for d in found.values():
        offer = ignore.offer(document, d)
        action = _action(document, offer) if offer is not None else None
        if action is not None:
            action.diagnostics = [diagnostics.one(server, document, d)]
            yield action


def _measured(document: Document, area: lsp.Range) -> Iterator[lsp.CodeAction]:
    """Hints that were tried and made the function or the lines that are selected faster."""
    here = document.function_at(document.text.place(area.start)[0])
    for title, edits in tried_edits.of(document.file, document.text.plain):
        owners = [document.function_at(edit.span.line) for edit in edits]
        inside = here is not None and here in owners
        if inside or any(_overlaps(document.text.span_range(edit.span), area) for edit in edits):
            action = _action(document, Offer(title, TRIED, edits))
            if action is not None:
                yield action


def _offers(server: TesseraServer, document: Document, area: lsp.Range) -> Iterator[tuple[str, Iterator[Offer]]]:
    """By their kinds; what is not iterated is not tried."""
    from tessera.editor.refactor import extract_kernel, fuse_launches  # slow: 0.2 s for who asks for quick fixes only

    selection = Selection(document.text.place(area.start), document.text.place(area.end))
    known, settings = document.function_at(selection.start[0]), server.settings_for(document)
    if known is None:
        yield fuse.KIND, fuse.decorated(document, selection)
        yield fuse.KIND, fuse_launches.offers(document, selection, settings)
    elif document.parses:
        yield annotate.KIND, annotate.offers(document, known, selection)
        yield precision.KIND, precision.offers(document, known, selection)
        yield extract.KIND, extract.offers(document, known, selection)
        yield extract.KERNEL_KIND, extract_kernel.offers(document, known, selection, settings.dims)
        yield distribute.KIND, distribute.offers(document, known, selection, settings)
        yield remat.KIND, remat.offers(document, known, selection, settings)
        yield assert_sizes.KIND, assert_sizes.offers(document, known, selection, settings)
        yield fuse.KIND, _fusing(document, known, selection, settings)


def _fusing(document: Document, known: Known, selection: Selection, settings: Settings) -> Iterator[Offer]:
    from tessera.editor.refactor import fuse_kernel  # slow: as above

    into = list(fuse_kernel.offers(document, known, selection, settings))
    yield from into or fuse.explained(document, known, selection, settings)


def _with_distinct_titles(found: list[lsp.CodeAction]) -> list[lsp.CodeAction]:
    """Of entries that do the same one is left, for all their findings; others of one title say where they are."""
    single: list[lsp.CodeAction] = []
    for action in found:
        does = (action.title, action.edit, action.disabled)
        same = next((a for a in single if (a.title, a.edit, a.disabled) == does), None)
        if same is None:
            single.append(action)
        elif action.diagnostics:
            same.diagnostics = [*(same.diagnostics or ()), *action.diagnostics]
    for title, count in Counter(a.title for a in single if a.diagnostics).items():
        alike = [(a, a.diagnostics[0].range.start) for a in single if a.title == title and a.diagnostics]
        lines = {start.line for _, start in alike}
        for action, start in alike if count > 1 else ():
            column = f", column {start.character + 1}" if len(lines) < count else ""
            action.title += f" (line {start.line + 1}{column})"
    return single


def _action(document: Document, offer: Offer) -> lsp.CodeAction | None:
    if offer.disabled:
        return lsp.CodeAction(offer.title, kind=offer.kind, disabled=lsp.CodeActionDisabled(offer.disabled))
    edit = document.workspace_edit(offer.edits)
    return lsp.CodeAction(offer.title, kind=offer.kind, edit=edit) if edit is not None else None


def _is_wanted(kind: str, only: Sequence[str] | None) -> bool:
    """Kinds form a tree: "quickfix.ignore" is a "quickfix", and everything is within ""."""
    return only is None or any(not w or kind == w or kind.startswith(f"{w}.") for w in only)


def _overlaps(a: lsp.Range, b: lsp.Range) -> bool:
    return a.start <= b.end and b.start <= a.end
