"""What is asked of a document that has been closed in the meantime."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_pull_that_comes_too_late_is_cancelled(start):
    """As the protocol has it: editors neither log that nor ask again."""
    editor = await start()
    doc = editor.open("import tessera as ts\n")
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(doc))
    with pytest.raises(JsonRpcException) as refused:
        await editor.client.text_document_diagnostic_async(lsp.DocumentDiagnosticParams(doc))
    assert refused.value.code == lsp.LSPErrorCodes.ServerCancelled
    assert refused.value.data in ({"retriggerRequest": False}, lsp.DiagnosticServerCancellationData(False))
