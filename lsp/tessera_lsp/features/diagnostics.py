"""Findings: pushed after every analysis, or pulled by clients that ask for them."""

from __future__ import annotations

from os.path import isabs

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tessera.codes import CODES
from tessera.errors import Diagnostic
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer

_SEVERITY = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "note": lsp.DiagnosticSeverity.Information,
}


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DIAGNOSTIC)
    async def pull(params: lsp.DocumentDiagnosticParams) -> lsp.DocumentDiagnosticReport:
        if not server.is_open(params.text_document.uri):  # closed meanwhile: nothing is wrong, and nothing to log
            closed = lsp.DiagnosticServerCancellationData(retrigger_request=False)
            raise JsonRpcException("closed", lsp.LSPErrorCodes.ServerCancelled, closed)
        document = await server.document(params.text_document)
        result = document.state
        if params.previous_result_id == result:
            return lsp.RelatedUnchangedDocumentDiagnosticReport(result_id=result)
        return lsp.RelatedFullDocumentDiagnosticReport(items=to_protocol(server, document), result_id=result)


def to_protocol(server: TesseraServer, document: Document) -> list[lsp.Diagnostic]:
    return [one(server, document, d) for d in document.diagnostics]


def one(server: TesseraServer, document: Document, d: Diagnostic) -> lsp.Diagnostic:
    """Notes with a place in a file become related information, others a line of the message."""
    related: list[lsp.DiagnosticRelatedInformation] = []
    lines = [d.message]
    for note in d.notes:
        if note.span is not None and note.span.line and (note.span.file == document.file or isabs(note.span.file)):
            related.append(lsp.DiagnosticRelatedInformation(document.location(note.span), note.message))
        else:
            lines.append(f"note: {note.message}")
    return lsp.Diagnostic(
        range=document.text.span_range(d.span),
        message="\n".join(lines),
        severity=_SEVERITY.get(d.severity, lsp.DiagnosticSeverity.Error),
        code=d.code,
        code_description=lsp.CodeDescription(f"{server.errors_page}#{d.code.lower()}") if server.errors_page else None,
        source="tessera",
        related_information=related or None,
        data={"kind": CODES[d.code].kind, "function": d.function, "fixes": [fix.message for fix in d.fixes]},
    )
