"""The messages that are Tessera's own, beside those of the protocol. docs/editors.md describes them for clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from lsprotocol import types as lsp
from pygls.protocol import default_converter

from tessera_lsp.lazy_types import later

CURSOR = "tessera/cursor"
IR = "tessera/ir"
LEVELS = "tessera/levels"
SIZES = "tessera/sizes"


@later
class CursorParams:
    """Where the person's cursor is: in quiet mode its surroundings keep their hints."""

    text_document: lsp.TextDocumentIdentifier
    position: lsp.Position


@later
class CursorNotification:
    params: CursorParams
    method: str = CURSOR
    jsonrpc: str = "2.0"


@later
class IrParams:
    """One level of the compilation of the function at `position`, or of the one named `function`."""

    text_document: lsp.TextDocumentIdentifier
    level: str = "graph"
    function: str | None = None
    position: lsp.Position | None = None
    target: str | None = None
    dims: Mapping[str, int] | None = None
    work_done_token: Any = None


@later
class SourceLines:
    """Lines (from 0) of a document."""

    uri: str
    lines: Sequence[int]


@later
class IrResult:
    """`lines` has for each line of `text` what it comes from, null where that is nothing in the sources."""

    uri: str
    text: str
    language: str
    function: str
    level: str
    target: str
    lines: Sequence[SourceLines | None]


@later
class IrRequest:
    id: int | str
    params: IrParams
    method: str = IR
    jsonrpc: str = "2.0"


@later
class IrResponse:
    id: int | str | None
    result: IrResult | None
    jsonrpc: str = "2.0"


@later
class FunctionParams:
    """The function at `position`, or the one named `function`."""

    text_document: lsp.TextDocumentIdentifier
    function: str | None = None
    position: lsp.Position | None = None


@later
class LevelsResult:
    """The levels of IR that a function or kernel has, from the most abstract on."""

    function: str
    levels: Sequence[str]


@later
class LevelsRequest:
    id: int | str
    params: FunctionParams
    method: str = LEVELS
    jsonrpc: str = "2.0"


@later
class LevelsResponse:
    id: int | str | None
    result: LevelsResult | None
    jsonrpc: str = "2.0"


@later
class SizesResult:
    """What a call of a function can be made from: a value for each of its dims and whole numbers.

    `open` are those that neither the settings nor the function say: a person may want to choose them.
    """

    function: str
    sizes: Mapping[str, int]
    open: Sequence[str]


@later
class SizesRequest:
    id: int | str
    params: FunctionParams
    method: str = SIZES
    jsonrpc: str = "2.0"


@later
class SizesResponse:
    id: int | str | None
    result: SizesResult | None
    jsonrpc: str = "2.0"


TYPES: Mapping[str, tuple[type, type | None]] = {
    CURSOR: (CursorNotification, None),
    IR: (IrRequest, IrResponse),
    LEVELS: (LevelsRequest, LevelsResponse),
    SIZES: (SizesRequest, SizesResponse),
}
_OWN = (
    *(CursorParams, CursorNotification, IrParams, SourceLines, IrResult, IrRequest, IrResponse),
    *(FunctionParams, LevelsResult, LevelsRequest, LevelsResponse, SizesResult, SizesRequest, SizesResponse),
)


def converter() -> Converter:
    """The protocol's, which also knows these: in JSON their names are written in camel case."""
    made = default_converter()

    def names(cls: type) -> dict[str, Any]:
        return {f.name: override(rename=_camel(f.name)) for f in attrs.fields(cls)}

    def ours(cls: Any) -> bool:
        return cls in _OWN

    # Factories: code for a message is generated when the first one comes, not when the server starts.
    made.register_structure_hook_factory(ours, lambda cls: make_dict_structure_fn(cls, made, **names(cls)))
    made.register_unstructure_hook_factory(ours, lambda cls: make_dict_unstructure_fn(cls, made, **names(cls)))
    return made


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
