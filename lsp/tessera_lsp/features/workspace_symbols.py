"""Functions and kernels of every file of the workspace, by part of their names.

What is open is read as it is; other files from disk, once for each of their versions, as text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcContentModified
from pygls.uris import from_fs_path

from tessera.compiler.frontend.syntax.parse import parse
from tessera.editor.names import definition_name, fits
from tessera.errors import Span
from tessera_lsp.server import TesseraServer
from tessera_lsp.text import Text
from tessera_lsp.workspace import looked_at, stamp, text_of

_DECORATOR = re.compile(r"(?:^|\.)(function|kernel|shape_checked|jit|autodiff|differentiable|custom_vjp|custom_jvp)$")
_START = re.compile(r"(?<![^\W_])[^\W_]|(?<=[^\W\dA-Z_])[A-Z]")
"""of each word of a name, `layer_norm` and `LayerNorm`"""


@dataclass(frozen=True, slots=True)
class Found:
    name: str
    kind: str
    location: lsp.Location


@dataclass(frozen=True, slots=True)
class File:
    path: Path
    version: tuple[int, int]
    text: str | None
    """None where the file is as it was when it was read last"""


def register(server: TesseraServer) -> None:
    kept: dict[Path, tuple[tuple[int, int], list[Found]]] = {}

    def look(path: Path) -> File | None:
        version = stamp(path)
        if version is None or str(path) in server.modules.opened:
            return None
        known = kept.get(path)
        return File(path, version, None if known is not None and known[0] == version else text_of(path))

    async def on_disk() -> list[Found]:
        out: list[Found] = []
        present: set[Path] = set()
        async for file in looked_at(server, look):
            if file.text is not None:
                text = Text(file.text, server.encoding)
                kept[file.path] = file.version, list(_of_text(str(file.path), text))
            present.add(file.path)
            out += kept[file.path][1]
        for gone in kept.keys() - present:
            del kept[gone]
        return out

    @server.feature(lsp.WORKSPACE_SYMBOL)
    async def workspace_symbols(params: lsp.WorkspaceSymbolParams) -> list[lsp.WorkspaceSymbol]:
        found = await on_disk()
        opened = [(d, d.location) for d in server.documents.values()]
        opened += [(n.document, n.location) for n in server.notebooks.values()]
        for document, location in opened:
            if not document.scope.text:  # opened a moment ago
                with suppress(JsonRpcContentModified):
                    await document.ready()
            for name, kind, span in _definitions(document.scope.tree, document.source.lines, document.file):
                found.append(Found(name, kind, location(span)))
        ranked = [(rank, f.name, n) for n, f in enumerate(found) if (rank := _rank(f.name, params.query))]
        return [
            lsp.WorkspaceSymbol(found[n].location, name, lsp.SymbolKind.Function, container_name=found[n].kind)
            for _, name, n in sorted(ranked)
        ]


def _rank(name: str, query: str) -> tuple[int, int] | None:
    """How well a name answers a query, least first; None where the query's letters do not stand in it in order.

    The name itself, its start, the starts of its words (`ln` for `layer_norm`), a part of it, and anything else.
    """
    asked, own = query.replace(" ", "").lower(), name.lower()
    if own == asked:
        return 0, len(name)
    if own.startswith(asked):
        return 1, len(name)
    if "".join(m.group() for m in _START.finditer(name)).lower().startswith(asked):
        return 2, len(name)
    if asked in own:
        return 3, len(name)
    return (4, len(name)) if fits(asked, own) else None


def _of_text(file: str, text: Text) -> Iterator[Found]:
    if "tessera" not in text.text and not file.endswith(".tess"):
        return
    uri = from_fs_path(file) or Path(file).as_uri()
    tree = parse(text.plain, file).tree
    for name, kind, span in _definitions(tree, text.plain.split("\n"), file) if tree is not None else ():
        yield Found(name, kind, lsp.Location(uri, text.span_range(span)))


def _definitions(tree: ast.Module, lines: list[str], file: str) -> Iterator[tuple[str, str, Span]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            named = (ast.unparse(d.func if isinstance(d, ast.Call) else d) for d in node.decorator_list)
            kind = next((m[1] for m in map(_DECORATOR.search, named) if m), None)
            if kind is not None:
                own = definition_name(lines, node)
                yield node.name, kind, Span(file, own.line, own.col, own.end_line, own.end_col)
