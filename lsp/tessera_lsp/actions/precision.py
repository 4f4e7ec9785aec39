"""Another dtype for all of a function's floating-point parameters of one dtype, and for what it returns in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tessera.compiler.frontend.values import Builtin
from tessera.errors import Edit
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera_lsp import signatures
from tessera_lsp.actions import Offer, Selection, header_end, insertion, spread, tried
from tessera_lsp.annotations import dtype_name
from tessera_lsp.known import Known
from tessera_lsp.names import annotations_of

if TYPE_CHECKING:
    from tessera_lsp.document import Document

KIND = "refactor.rewrite.precision"
OFFERED = (dtypes.bf16, dtypes.f16, dtypes.f32)


def offers(document: Document, known: Known, selection: Selection) -> Iterator[Offer]:
    """Within the lines of `def`, where the parameters stand."""
    end = header_end(known)
    if end is None or not known.first_line <= selection.start[0] <= end.line:
        return
    present = dict.fromkeys(d for p in annotations_of(known.tree) for d, _ in _places(document, known, p))
    for old in (d for d in present if d in OFFERED):
        for new in (d for d in OFFERED if d is not old):
            edits = tuple(_edits(document, known, old, new))
            after = tried(known, edits)
            if after is None:
                continue
            title = f"Change the precision of {known.analysis.name}: {old} to {new}"
            wrong = after.errors or spread(document, known, edits, known.analysis.name)
            if wrong:
                where = f"in {wrong[0].function}: " if wrong[0].function != known.analysis.name else ""
                yield Offer(title, KIND, disabled=where + wrong[0].message.partition("\n")[0])
                continue
            warned = f" (warns: {after.found[0].message.partition(chr(10))[0]})" if after.found else ""
            yield Offer(title + warned, KIND, edits)


def _edits(document: Document, known: Known, old: DType, new: DType) -> Iterator[Edit]:
    name = dtype_name(document.scope, new)
    for annotation in annotations_of(known.tree):
        for dtype, node in _places(document, known, annotation):
            span = known.span(node)
            if dtype is not old or span is None:
                continue
            if isinstance(node, ast.Subscript):  # it names no dtype: f32 is meant
                inside = known.span(node.slice)
                if inside is not None:
                    yield insertion(inside, True, f", {name}")
            else:
                yield Edit(span, name)


def _places(document: Document, known: Known, annotation: ast.expr) -> Iterator[tuple[DType, ast.expr]]:
    """Each tensor's dtype with the node that names it; the subscript itself where nothing does."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and _resolved(document, node.value) == Builtin("tessera.Tensor"):
            elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            named = [(d, n) for e in elements for d, n in _named(document, e)]
            in_text = any(
                isinstance(e, ast.Constant) and dtypes.named(str(e.value).split()[0]) for e in elements if _text(e)
            )
            if named:
                yield named[0]
            elif not in_text and not any(isinstance(e, ast.Slice) for e in elements):
                yield dtypes.f32, node


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value.split())


def _named(document: Document, node: ast.expr) -> Iterator[tuple[DType, ast.expr]]:
    """`bf16`, and that of `bf16 @ accum(f32)`, whose accumulator keeps its dtype."""
    while isinstance(node, ast.BinOp):
        node = node.left
    value = _resolved(document, node)
    if isinstance(value, DType):
        yield value, node


def _resolved(document: Document, node: ast.expr) -> object:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    return signatures.resolve(document.scope, ast.unparse(node))
