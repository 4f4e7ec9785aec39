"""What a request can be answered with instead of a result."""

from __future__ import annotations

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException


class RequestFailedError(JsonRpcException):
    """A well-formed request that cannot be carried out; the message is shown to the person."""

    CODE = lsp.LSPErrorCodes.RequestFailed.value
