"""Where a name comes from: an assignment, a parameter, the annotation that binds a dim, the module, another file."""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lsprotocol import types as lsp

from tessera.compiler.frontend.definition import source_of
from tessera.compiler.frontend.modules import Modules
from tessera.compiler.frontend.syntax import parse
from tessera.compiler.frontend.values import Module
from tessera.errors import Span
from tessera_lsp import names, signatures

if TYPE_CHECKING:
    from tessera_lsp.document import Document
    from tessera_lsp.server import TesseraServer

FILES = 8
"""files through which a name is followed"""


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    async def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        document = await server.document(params.text_document)
        span = _definition(document, *document.text.place(params.position))
        return document.location(span) if span is not None else None


def _definition(document: Document, line: int, col: int) -> Span | None:
    known = document.function_at(line)
    if known is None:
        return None
    dim = names.dim_at(known, line, col)
    if dim is not None:
        return known.dims.get(dim.name)
    word = names.word_at(known, line, col)
    if isinstance(word, ast.arg):
        return names.word_span(known, word)
    if isinstance(word, ast.Attribute):
        owner = signatures.resolve(document.scope, ast.unparse(word.value))
        return _of_file(owner.scope.file, word.attr, document.modules) if isinstance(owner, Module) else None
    if not isinstance(word, ast.Name):
        return None
    if names.is_local(known, word.id):
        return names.binding_of(known, word.id, line, col)
    return _bound(Place(document.file, document.text.plain, document.scope.tree), word.id, document.modules)


@dataclass(frozen=True, slots=True)
class Place:
    """A file whose top-level names are looked up."""

    file: str
    text: str
    tree: ast.Module


def _of_file(file: str, name: str, modules: Modules, depth: int = 0) -> Span | None:
    text = "".join(linecache.getlines(file))
    tree = parse(text, file).tree
    return _bound(Place(file, text, tree), name, modules, depth) if tree is not None else None


def _bound(place: Place, name: str, modules: Modules, depth: int = 0) -> Span | None:
    """The last statement at the top of the file that binds the name, as it is after the module has run.

    What a file of the workspace imports is looked up there; an import in a circle ends at the import.
    """
    found: Span | None = None
    for node in place.tree.body:
        here = _bound_in(place, node, name)
        if here is not None and isinstance(node, ast.ImportFrom) and depth < FILES:
            alias = next((a for a in node.names if (a.asname or a.name) == name), None)
            module = modules.find(place.file, node.module or "", node.level)
            if alias is not None and module is not None:
                here = _of_file(module.scope.file, alias.name, modules, depth + 1) or here
        found = here or found
    return found


def _bound_in(place: Place, node: ast.stmt, name: str) -> Span | None:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        name_span = names.definition_name(place.text.split("\n"), node)
        return replace(name_span, file=place.file) if node.name == name else None
    source = source_of(place.file, place.text)
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=found, ctx=ast.Store()) if found == name:
                return source.span(inner)
            case ast.alias(name=imported, asname=asname) if (asname or imported.partition(".")[0]) == name:
                return source.span(inner)
            case _:
                pass
    return None
