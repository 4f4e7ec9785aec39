"""Every level of a function's compilation as a read-only text, linked line by line with the sources.

`tessera/ir` asks for a text and its links; a client of LSP 3.18 can open the address in its answer as a document.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, unquote

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified, JsonRpcInvalidParams

from tessera.compiler import levels
from tessera.compiler.levels import IRLine, NoIR
from tessera.compiler.machines import code_of
from tessera.editor.functions import Known
from tessera_lsp.capabilities import RequestFailedError
from tessera_lsp.document import Document
from tessera_lsp.messages import IR, LEVELS, FunctionParams, IrParams, IrResult, LevelsResult, SourceLines
from tessera_lsp.progress import progress
from tessera_lsp.server import TesseraServer

SCHEME = "tessera"
_IR = "tessera-ir"
_LANGUAGES = {"graph": _IR, "schedule": _IR, "tile": _IR, "assembly": "asm"}


def register(server: TesseraServer) -> None:
    @server.feature(IR)
    async def ir(params: IrParams) -> IrResult:
        return await _answer(server, params)

    @server.feature(LEVELS)
    async def levels_(params: FunctionParams) -> LevelsResult:
        analysis = asked_function(await server.document(params.text_document), params).analysis
        return LevelsResult(analysis.name, levels.of(analysis))

    @server.feature(lsp.WORKSPACE_TEXT_DOCUMENT_CONTENT)
    async def content(params: lsp.TextDocumentContentParams) -> lsp.TextDocumentContentResult:
        return lsp.TextDocumentContentResult((await _answer(server, _params_of(params.uri))).text)


async def _answer(server: TesseraServer, params: IrParams) -> IrResult:
    document = await server.document(params.text_document)
    if params.level not in levels.LEVELS:
        raise JsonRpcInvalidParams(f"level is one of {', '.join(levels.LEVELS)}, not {params.level!r}")
    known, state = asked_function(document, params), document.state
    settings = server.settings_for(document)
    target, dims = params.target or settings.target, settings.dims if params.dims is None else params.dims
    try:
        if params.level == "graph":
            lines = levels.printed(levels.graph(known.analysis, dims))
        elif params.level == "schedule":
            lines = levels.printed(levels.schedule(known.analysis, dims, target))
        else:
            with progress(server, params.work_done_token, f"Compiling {known.analysis.name}"):
                source = known.analysis.definition.source
                target, lines = await levels.compiled(known.analysis, source, params.level, target, dims)
    except NoIR as e:
        raise RequestFailedError(str(e)) from None
    if document.state != state:  # its lines are no longer where they were
        raise JsonRpcContentModified
    name = known.analysis.name
    return IrResult(
        uri=_address(params, name),
        text="".join(f"{line.text}\n" for line in lines),
        language=_language(params.level, target),
        function=name,
        level=params.level,
        target=target,
        lines=[_source(document, line) for line in lines],
    )


def asked_function(document: Document, params: IrParams | FunctionParams) -> Known:
    """The function that a request is about. Raises RequestFailedError where there is none."""
    if params.position is not None:
        known = document.function_at(document.text.place(params.position)[0])
        if known is None:
            raise RequestFailedError("there is no function or kernel at this place")
        return known
    programs = [k for k in document.known if k.analysis.definition.owner is None]
    found = [k for k in programs if k.analysis.name == params.function]
    if not found:
        has = ", ".join(k.analysis.name for k in programs) or "none"
        raise RequestFailedError(f"there is no function or kernel {params.function!r} here; there is {has}")
    return found[-1]


def _language(level: str, target: str) -> str:
    return code_of(target).language if level == "target" else _LANGUAGES[level]


def _source(document: Document, line: IRLine) -> SourceLines | None:
    if not line.span.line:
        return None
    place = document.location(line.span)
    return SourceLines(place.uri, list(range(place.range.start.line, place.range.end.line + 1)))


def _address(params: IrParams, function: str) -> str:
    """A name for people, and all that has been asked for: the text can be made again from it."""
    asked: dict[str, Any] = {"source": params.text_document.uri, "function": function, "level": params.level}
    asked |= {"target": params.target} if params.target else {}
    asked |= {"dims": dict(params.dims)} if params.dims else {}
    return f"{SCHEME}:/{quote(function)}.{params.level}?{quote(json.dumps(asked))}"


def _params_of(address: str) -> IrParams:
    scheme, _, rest = address.partition(":")
    try:
        asked = json.loads(unquote(rest.partition("?")[2]))
        source = lsp.TextDocumentIdentifier(asked["source"])
        if scheme != SCHEME:
            raise ValueError(scheme)
        return IrParams(source, asked["level"], asked["function"], None, asked.get("target"), asked.get("dims"))
    except (ValueError, KeyError, TypeError):
        raise JsonRpcInvalidParams(f"{address} is not an address of this server") from None
