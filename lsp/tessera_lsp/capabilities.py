"""The capabilities of the server for `initialize`, known before any feature is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException

from tessera.editor.kinds import ANNOTATE, ASSERT, DISTRIBUTE, EXTRACT, EXTRACT_KERNEL, FUSE, IGNORE, PRECISION, TRIED
from tessera_lsp.messages import IR, LEVELS, SIZES

# semantic tokens
TOKENS = ("typeParameter", "parameter", "variable", "function", "method", "type", "namespace")
MODIFIERS = ("declaration", "readonly", "defaultLibrary")

_ACTIONS = lsp.CodeActionOptions(
    [lsp.CodeActionKind.QuickFix, IGNORE, ANNOTATE, PRECISION, DISTRIBUTE, EXTRACT, EXTRACT_KERNEL, FUSE, ASSERT, TRIED]
)
_DIAGNOSTICS = lsp.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=True, identifier="tessera")
_LEGEND = lsp.SemanticTokensLegend(list(TOKENS), list(MODIFIERS))

FEATURES: Mapping[str, Mapping[str, Any]] = {
    "diagnostics": {lsp.TEXT_DOCUMENT_DIAGNOSTIC: _DIAGNOSTICS},
    "workspace_diagnostics": {lsp.WORKSPACE_DIAGNOSTIC: None},
    "inlay_hints": {
        lsp.TEXT_DOCUMENT_INLAY_HINT: lsp.InlayHintOptions(resolve_provider=True),
        lsp.INLAY_HINT_RESOLVE: None,
    },
    "hover": {lsp.TEXT_DOCUMENT_HOVER: None},
    "code_actions": {lsp.TEXT_DOCUMENT_CODE_ACTION: _ACTIONS},
    "completion": {lsp.TEXT_DOCUMENT_COMPLETION: lsp.CompletionOptions(trigger_characters=[".", '"', "'"])},
    "signature_help": {
        lsp.TEXT_DOCUMENT_SIGNATURE_HELP: lsp.SignatureHelpOptions(trigger_characters=["(", ","]),
    },
    "definition": {lsp.TEXT_DOCUMENT_DEFINITION: None},
    "references": {lsp.TEXT_DOCUMENT_REFERENCES: None, lsp.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT: None},
    "rename": {
        lsp.TEXT_DOCUMENT_PREPARE_RENAME: None,
        lsp.TEXT_DOCUMENT_RENAME: lsp.RenameOptions(prepare_provider=True),
    },
    "symbols": {lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL: None},
    "workspace_symbols": {lsp.WORKSPACE_SYMBOL: None},
    "semantic_tokens": {
        lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL: _LEGEND,
        lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL_DELTA: _LEGEND,
        lsp.TEXT_DOCUMENT_SEMANTIC_TOKENS_RANGE: _LEGEND,
    },
    "folding": {lsp.TEXT_DOCUMENT_FOLDING_RANGE: None},
    "selection_ranges": {lsp.TEXT_DOCUMENT_SELECTION_RANGE: None},
    "call_hierarchy": {
        lsp.TEXT_DOCUMENT_PREPARE_CALL_HIERARCHY: None,
        lsp.CALL_HIERARCHY_INCOMING_CALLS: None,
        lsp.CALL_HIERARCHY_OUTGOING_CALLS: None,
    },
    "code_lens": {
        lsp.TEXT_DOCUMENT_CODE_LENS: lsp.CodeLensOptions(resolve_provider=True),
        lsp.CODE_LENS_RESOLVE: None,
    },
    "ir": {IR: None, LEVELS: None, lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT: None},
    "sizes": {SIZES: None},
}
"""by the file of `tessera_lsp.features` that answers: its methods, with their options"""


# What a request can be answered with instead of a result.


class RequestFailedError(JsonRpcException):
    """A well-formed request that cannot be carried out; the message is shown to the person."""

    CODE = lsp.LSPErrorCodes.RequestFailed.value
