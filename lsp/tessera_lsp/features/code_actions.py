"""Quick fixes, and changes that people ask for. What is offered has been tried on the text.

Changes that are only asked about because the cursor moved are not looked for: each would have to be tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera.errors import Diagnostic
from tessera_lsp.actions import Offer, Selection, annotate, distribute, extract, fuse, ignore, precision
from tessera_lsp.features import diagnostics

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer

_KINDS = [
    lsp.CodeActionKind.QuickFix, ignore.KIND, annotate.KIND, precision.KIND, distribute.KIND, extract.KIND,
    extract.KERNEL_KIND, fuse.KIND,
]  # fmt: skip


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=_KINDS))
    async def code_actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = await server.document(params.text_document)
        only = params.context.only
        found: list[lsp.CodeAction] = []
        if _wanted(lsp.CodeActionKind.QuickFix, only):
            found += _fixes(server, document, params.range)
        if _wanted(ignore.KIND, only):
            found += _ignoring(server, document, params.range)
        if params.context.trigger_kind != lsp.CodeActionTriggerKind.Automatic or only:
            offers = (o for o in _offers(server, document, params.range) if _wanted(o.kind, only))
            found += (a for o in offers if (a := _action(document, o)) is not None)
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
                    is_preferred=len(d.fixes) == 1,
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


def _offers(server: TesseraServer, document: Document, area: lsp.Range) -> Iterator[Offer]:
    from tessera_lsp.actions import extract_kernel, fuse_kernel, fuse_launches  # a good part of the start-up otherwise

    selection = Selection(document.text.place(area.start), document.text.place(area.end))
    known = document.function_at(selection.start[0])
    if known is None:
        yield from fuse.decorated(document, selection)
        yield from fuse_launches.offers(document, selection, server.settings_for(document))
    elif document.parses:
        for offers in (annotate.offers, precision.offers, extract.offers, extract_kernel.offers):
            yield from offers(document, known, selection)
        settings = server.settings_for(document)
        yield from distribute.offers(document, known, selection, settings)
        into = list(fuse_kernel.offers(document, known, selection, settings))
        yield from into or fuse.explained(document, known, selection, settings)


def _action(document: Document, offer: Offer) -> lsp.CodeAction | None:
    if offer.disabled:
        return lsp.CodeAction(offer.title, kind=offer.kind, disabled=lsp.CodeActionDisabled(offer.disabled))
    edit = document.workspace_edit(offer.edits)
    return lsp.CodeAction(offer.title, kind=offer.kind, edit=edit) if edit is not None else None


def _wanted(kind: str, only: Sequence[str] | None) -> bool:
    """Kinds form a tree: "quickfix.ignore" is a "quickfix", and everything is within ""."""
    return only is None or any(not w or kind == w or kind.startswith(f"{w}.") for w in only)


def _overlaps(a: lsp.Range, b: lsp.Range) -> bool:
    return a.start <= b.end and b.start <= a.end
