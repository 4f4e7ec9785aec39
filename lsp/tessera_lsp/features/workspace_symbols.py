"""Functions and kernels of every file of the workspace, by part of their names.

Open documents are read as they are; other files from disk, once for each of their versions, as text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types as lsp
from pygls.uris import from_fs_path

from tessera.compiler.frontend.files import read_text
from tessera.compiler.frontend.syntax import parse
from tessera.errors import CompileError, Span
from tessera_lsp.names import definition_name
from tessera_lsp.text import Text
from tessera_lsp.workspace import LARGEST, files

if TYPE_CHECKING:
    from tessera_lsp.server import TesseraServer

_DECORATOR = re.compile(r"(?:^|\.)(function|kernel|shape_checked)$")


@dataclass(frozen=True, slots=True)
class Found:
    name: str
    kind: str
    span: Span


def register(server: TesseraServer) -> None:
    kept: dict[str, tuple[tuple[int, int], list[Found], Text]] = {}

    def of_file(path: Path) -> tuple[list[Found], Text]:
        stat = path.stat()
        version = stat.st_mtime_ns, stat.st_size
        old = kept.get(str(path))
        if old is None or old[0] != version:
            text = read_text(path) if stat.st_size <= LARGEST else ""
            kept[str(path)] = version, list(_definitions(str(path), text)), Text(text, server.encoding)
        return kept[str(path)][1:]

    @server.feature(lsp.WORKSPACE_SYMBOL)
    async def workspace_symbols(params: lsp.WorkspaceSymbolParams) -> list[lsp.WorkspaceSymbol]:
        out: list[lsp.WorkspaceSymbol] = []
        for document in server.documents.values():
            found = _definitions(document.file, document.text.plain) if document.concerns_tessera else ()
            out += (_symbol(f, document.uri, document.text) for f in found if _matches(f.name, params.query))
        opened = {d.file for d in server.documents.values()}
        for path in files(server):
            if str(path) in opened:
                continue
            try:
                found, text = of_file(path)
            except (OSError, CompileError):
                continue
            uri = from_fs_path(str(path)) or path.as_uri()
            out += (_symbol(f, uri, text) for f in found if _matches(f.name, params.query))
        return sorted(out, key=lambda s: (len(s.name), s.name))


def _symbol(found: Found, uri: str, text: Text) -> lsp.WorkspaceSymbol:
    place = lsp.Location(uri, text.span_range(found.span))
    return lsp.WorkspaceSymbol(place, found.name, lsp.SymbolKind.Function, container_name=found.kind)


def _matches(name: str, query: str) -> bool:
    """The query's letters stand in the name, in order: `lnorm` finds `layer_norm`."""
    letters = iter(name.lower())
    return all(c in letters for c in query.lower())


def _definitions(file: str, text: str) -> Iterator[Found]:
    if "tessera" not in text and not file.endswith(".tess"):
        return
    tree, lines = parse(text, file).tree, text.split("\n")
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef):
            named = (ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list)
            kind = next((m[1] for m in map(_DECORATOR.search, named) if m), None)
            if kind is not None:
                yield Found(node.name, kind, definition_name(lines, node))
