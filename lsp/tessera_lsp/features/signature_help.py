"""The signature of the call that is being written, and which of its parameters the cursor is at."""

from __future__ import annotations

from lsprotocol import types as lsp

from tessera.compiler.graph.operator import ALIASES
from tessera.compiler.tile import builtin
from tessera.editor import signatures
from tessera.editor.calls import Bracket, context_at
from tessera.editor.functions import Known
from tessera.editor.names import is_local
from tessera.editor.signatures import CallSignature
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP)
    async def signature_help(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        document = await server.document(params.text_document, at_once=True)
        context = context_at(document.text.text, document.text.offset(params.position))
        call = context.call
        if call is None or context.comment:
            return None
        known, *_ = document.recent(*document.text.place(params.position))
        signature = _signature(document, known, call)
        return _help(document, signature, call) if signature is not None else None


def _signature(document: Document, known: Known | None, call: Bracket) -> CallSignature | None:
    owner, _, name = call.head.rpartition(".")
    local = known is not None and is_local(known, call.head.partition(".")[0])
    found = None if local else signatures.of_value(signatures.resolve(document.scope, call.head))
    return found or (signatures.of_method(name) if owner and known is not None else None)


def _help(document: Document, signature: CallSignature, call: Bracket) -> lsp.SignatureHelp:
    """Parameters are given by their place in the label, in the client's code units."""
    at = len(signature.name) + 1
    places: list[tuple[int, int]] = []
    units = document.text.units
    for p in signature.parameters:
        start = units(signature.text[:at])
        places.append((start, start + units(p)))
        at += len(p) + 2
    plain = [n.lstrip("*") for n in signature.names]
    active = min(call.commas, len(plain) - 1) if plain else None
    for keyword in (call.keyword, ALIASES.get(call.keyword), builtin.ALIASES.get(call.keyword)):
        if keyword in plain:
            active = plain.index(keyword)
            break
    kind = lsp.MarkupKind.PlainText if signature.written else lsp.MarkupKind.Markdown
    information = lsp.SignatureInformation(
        signature.text,
        documentation=lsp.MarkupContent(kind, signature.doc),
        parameters=[lsp.ParameterInformation(p) for p in places],
        active_parameter=active,
    )
    return lsp.SignatureHelp([information], active_signature=0, active_parameter=active)
