"""Quick fixes: the changes that the front end has tried before offering them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera_lsp.features import diagnostics

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    options = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])

    @server.feature(lsp.TEXT_DOCUMENT_CODE_ACTION, options)
    async def code_actions(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = await server.document(params.text_document)
        only = params.context.only
        if only is not None and not any(_within(lsp.CodeActionKind.QuickFix, kind) for kind in only):
            return []
        return [
            lsp.CodeAction(
                fix.message,
                kind=lsp.CodeActionKind.QuickFix,
                diagnostics=[diagnostics.one(server, document, d)],
                is_preferred=len(d.fixes) == 1,
                edit=edit,
            )
            for d in document.diagnostics
            if d.fixes and _overlaps(document.text.span_range(d.span), params.range)
            for fix in d.fixes
            if (edit := document.workspace_edit(fix.edits)) is not None
        ]


def _within(kind: str, wanted: str) -> bool:
    """Kinds form a tree: "quickfix.tessera" is a "quickfix", and everything is within ""."""
    return not wanted or kind == wanted or kind.startswith(f"{wanted}.")


def _overlaps(a: lsp.Range, b: lsp.Range) -> bool:
    return a.start <= b.end and b.start <= a.end
