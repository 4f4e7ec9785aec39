"""Completion: operators and the other members of `ts`, methods of tensors, dims, variables, tile names, dtypes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from lsprotocol import types as lsp

from tessera.compiler.frontend.kernel import layer as kernel_layer
from tessera.compiler.frontend.kernel.builtins import public
from tessera.compiler.frontend.kernel.state import DEFAULTS
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import MISSING, Namespace, OperatorRef, Record
from tessera.compiler.frontend.result import type_text
from tessera.compiler.graph.operator import METHODS, PROPERTIES
from tessera.editor import signatures
from tessera.editor.calls import NAME, context_at
from tessera.editor.functions import Known, is_tensor
from tessera.editor.members import Member, Objects, members
from tessera.editor.names import COORDINATE, bound_by, context_names, fits, is_local
from tessera.editor.signatures import CallSignature
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera_lsp.document import Document
from tessera_lsp.server import TesseraServer

_OWNER = re.compile(r"(?P<name>[^\W\d][\w.]*(?:\[-?\w+\][\w.]*)*|[)\]])\s*\.\s*\w*$")
_TYPED = re.compile(r"\w+$")
MANY = 300
"""names of a module; of more, only those that fit what has been typed are sent"""
NEAR = 50_000
"""characters on either side of the cursor in which uses of names are counted"""
_WORD = re.compile(r"[^\W\d]\w*")
_IMPORT = re.compile(r"(?:import|from)\b")
_ANNOTATIONS = ("Tensor", "Tile", "Const")
_KIND = lsp.CompletionItemKind
_FIRST = {_KIND.Variable: 0, _KIND.Field: 0, _KIND.TypeParameter: 0, _KIND.EnumMember: 2, _KIND.Module: 3}
"""what stands before functions, methods and properties, and behind them"""


def register(server: TesseraServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION)
    async def completion(params: lsp.CompletionParams) -> lsp.CompletionList:
        document = server.documents.get(params.text_document.uri)
        members = at_once(document, params.position) if document is not None else None
        if members is not None:
            return lsp.CompletionList(False, _in_order(document, params.position, members))
        document = await server.document(params.text_document, at_once=True)
        found = _in_order(document, params.position, _completion(document, params.position))
        return lsp.CompletionList(not document.newest or len(document.scope.bound) > MANY, found)


def _in_order(
    document: Document, position: lsp.Position, found: Iterable[lsp.CompletionItem]
) -> list[lsp.CompletionItem]:
    """By what they are, of one kind what the text uses most first, and then functions before classes. Before that,
    clients go by what is typed."""
    at = document.text.offset(position)
    used = Counter(_WORD.findall(document.text.text, max(0, at - NEAR), at + NEAR))
    items = list(found)
    for item in items:
        kind = _FIRST.get(item.kind, 1) if item.kind is not None else 1
        item.sort_text = f"{kind}{max(0, 9999 - used[item.label]):04}{int(item.kind == _KIND.Class)}{item.label}"
    return items


def at_once(document: Document, position: lsp.Position) -> list[lsp.CompletionItem] | None:
    """The members of a module, after `ts.` say. They are the same whatever has just been typed, as long as the text
    gives the module's name to nothing else; so no analysis is waited for."""
    text, offset = document.text.text, document.text.offset(position)
    owner = _OWNER.search(text, _since(document, position), offset)
    head = owner["name"].partition(".")[0] if owner is not None else ")"
    context = context_at(text, offset)
    if owner is None or not head.isidentifier() or context.comment or context.string:
        return None
    for other in re.finditer(rf"\b{head}\b(?!\s*\.)", text):
        if not _IMPORT.match(text, text.rfind("\n", 0, other.start()) + 1):
            return None
    value = signatures.resolve(document.scope, owner["name"])
    return list(_of_namespace(value.path)) if isinstance(value, Namespace) else None


def _completion(document: Document, position: lsp.Position) -> Iterator[lsp.CompletionItem]:
    text, offset = document.text.text, document.text.offset(position)
    since = _since(document, position)
    context = context_at(text, offset)
    known, line, col = document.recent(*document.text.place(position))
    if context.comment:
        return
    if context.string:
        if context.subscript in _ANNOTATIONS:
            yield from _dims(document, known)
        return
    owner = _OWNER.search(text, since, offset)
    if owner is not None:
        yield from _members(document, known, owner["name"], line, col)
    elif known is not None:
        yield from _dims(document, known)
        yield from _variables(known, line, col)
        typed = _TYPED.search(text, since, offset)
        yield from _of_module(document, typed.group() if typed is not None else "")
        if context.subscript in _ANNOTATIONS:
            yield from _dtypes(document)


def _since(document: Document, position: lsp.Position) -> int:
    """From where on a name before a position is looked for: patterns of names take long on a line of megabytes."""
    return max(document.text.starts[document.text.place(position)[0] - 1], document.text.offset(position) - NAME)


def _members(document: Document, known: Known | None, owner: str, line: int, col: int) -> Iterator[lsp.CompletionItem]:
    head = owner.partition(".")[0]
    value = MISSING if known is not None and is_local(known, head) else signatures.resolve(document.scope, owner)
    if isinstance(value, Namespace):
        yield from _of_namespace(value.path)
        return
    held = Objects(document.scope, document.objects, known, line).at(owner)
    if isinstance(held, Record):
        yield from map(_member, members(held))
        return
    if known is None or value is not MISSING:
        return
    if known.analysis.definition.kind == "kernel":
        yield from _of_kernel_value(known, owner)
        return
    type = known.type_of(owner, line, col) if head == owner else None
    if type is None or is_tensor(type):
        methods = sorted({*METHODS, *vocabulary.made_methods()})
        yield from (_function(n, signatures.of_method(n), _KIND.Method) for n in methods)
        yield from (_function(n, signatures.of_method(n), _KIND.Property) for n in sorted(PROPERTIES))
        for name in ("shape", "dtype", "ndim", "size"):
            yield lsp.CompletionItem(name, kind=_KIND.Property)


def _member(m: Member) -> lsp.CompletionItem:
    kinds = {"field": _KIND.Field, "method": _KIND.Method, "property": _KIND.Property}
    return lsp.CompletionItem(m.name, kind=kinds[m.kind], detail=m.detail or None, documentation=m.summary or None)


def _of_kernel_value(known: Known, owner: str) -> Iterator[lsp.CompletionItem]:
    """The dims and settings of `ts.tile.context()`; the tile functions as methods of anything else."""
    if owner in context_names(known):
        yield from (lsp.CompletionItem(n, kind=_KIND.TypeParameter, detail="dim") for n in known.analysis.dims)
        yield from (lsp.CompletionItem(n, kind=_KIND.Property) for n in DEFAULTS)
        return
    yield from (_function(n, signatures.of_tile(n, method=True), _KIND.Method) for n in sorted(public()))
    yield from (lsp.CompletionItem(n, kind=_KIND.Property) for n in kernel_layer.PROPERTIES)


def _of_namespace(path: str) -> Iterator[lsp.CompletionItem]:
    names = sorted(public()) if path == "tessera.tile" else sorted({*vocabulary.members(path)})
    for name in names:
        value = vocabulary.member(path, name)
        if isinstance(value, DType):
            yield _dtype(name, value)
        elif isinstance(value, Namespace):
            yield lsp.CompletionItem(name, kind=_KIND.Module)
        else:
            kind = _KIND.Class if name[0].isupper() else _KIND.Function
            yield _function(name, signatures.of_value(value), kind)


def _function(name: str, signature: CallSignature | None, kind: lsp.CompletionItemKind) -> lsp.CompletionItem:
    if signature is None:
        return lsp.CompletionItem(name, kind=kind)
    return lsp.CompletionItem(name, kind=kind, detail=signature.text, documentation=signature.summary or None)


def _dtype(label: str, dtype: DType, word: str | None = None) -> lsp.CompletionItem:
    return lsp.CompletionItem(label, kind=_KIND.EnumMember, detail=f"dtype, {dtype.bits} bits", filter_text=word)


def _dims(document: Document, known: Known | None) -> Iterator[lsp.CompletionItem]:
    """The dims of the function; while it has never been analysed, those of the file's other functions."""
    for k in [known] if known is not None else document.known:
        for dim in k.analysis.dims:
            axes = " and ".join(bound_by(k, dim)).replace("`", "")
            yield lsp.CompletionItem(dim, kind=_KIND.TypeParameter, detail=f"dim: {axes}" if axes else "dim")
            if known is not None and k.analysis.definition.kind == "kernel":
                coordinate = COORDINATE + dim.lower()
                yield lsp.CompletionItem(coordinate, kind=_KIND.Variable, detail=f"grid coordinate over {dim}")


def _variables(known: Known, line: int, col: int) -> Iterator[lsp.CompletionItem]:
    for name in dict.fromkeys(e.name for e in known.expressions if e.name):
        type = known.type_of(name, line, col)
        if type is not None:
            yield lsp.CompletionItem(name, kind=_KIND.Variable, detail=type_text(type))


def _of_module(document: Document, typed: str) -> Iterator[lsp.CompletionItem]:
    """Of many names those that what has been typed may become: clients leave the others out anyway."""
    scope = document.scope
    for name in _own_names(scope.names()):
        if len(scope.bound) > MANY and not fits(typed, name):
            continue
        value: Any = scope.lookup(name)
        if isinstance(value, DType):
            yield _dtype(name, value)
        elif isinstance(value, Namespace):
            yield lsp.CompletionItem(name, kind=_KIND.Module)
        elif isinstance(value, (Closure, OperatorRef)):
            yield _function(name, signatures.of_value(value), _KIND.Function)
        else:
            yield lsp.CompletionItem(name, kind=_KIND.Variable)


def _own_names(names: Iterable[str]) -> list[str]:
    return [n for n in names if n not in vocabulary.PYTHON_BUILTINS]


def _dtypes(document: Document) -> Iterator[lsp.CompletionItem]:
    """`ts.f32` for `f32`, by the name that the file knows Tessera under."""
    scope = document.scope
    for alias in _own_names(scope.names()):
        if scope.lookup(alias) == Namespace("tessera"):
            yield from (_dtype(f"{alias}.{n}", d, n) for n, d in dtypes.BY_NAME.items())
            return
