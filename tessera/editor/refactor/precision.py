"""Another dtype for all of a function's floating-point parameters of one dtype, and for what it returns in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from tessera.compiler.frontend.names.values import Builtin
from tessera.editor import signatures
from tessera.editor.annotations import dtype_name
from tessera.editor.functions import Known
from tessera.editor.kinds import PRECISION as KIND
from tessera.editor.names import annotations_of
from tessera.editor.open_file import OpenFile
from tessera.editor.refactor import Offer, Selection, header_end, insertion, spread, tried
from tessera.errors import Edit
from tessera.language import dtypes
from tessera.language.dtypes import DType

OFFERED = (dtypes.bf16, dtypes.f16, dtypes.f32)


def offers(document: OpenFile, known: Known, selection: Selection) -> Iterator[Offer]:
    """Within the lines of `def`, where the parameters stand."""
    end = header_end(known)
    if end is None or not known.first_line <= selection.start[0] <= end.line:
        return
    present = dict.fromkeys(d for p in annotations_of(known.tree) for d, _ in _places(document, known, p))
    for old in (d for d in present if d in OFFERED):
        for new in (d for d in OFFERED if d is not old):
            annotations = tuple(_edits(document, known, old, new))
            everywhere = (*annotations, *_in_body(document, known, old, new))
            # what the body says of f32 are sums, which stay wide; what it says of others are operands
            ways = (annotations,) if old is dtypes.f32 else (everywhere, annotations)
            found = [_offer(document, known, old, new, e) for e in dict.fromkeys(ways)]
            offer = next((o for o in found if o is not None and not o.disabled), found[0])
            if offer is not None:
                yield offer


def _offer(document: OpenFile, known: Known, old: DType, new: DType, edits: tuple[Edit, ...]) -> Offer | None:
    after = tried(known, edits)
    if after is None:
        return None
    title = f"Change the precision of {known.analysis.name}: {old} to {new}"
    wrong = after.errors or spread(document, known, edits, known.analysis.name)
    if wrong:
        where = f"in {wrong[0].function}: " if wrong[0].function != known.analysis.name else ""
        return Offer(title, KIND, disabled=where + wrong[0].message.partition("\n")[0])
    warned = f" (warns: {after.found[0].message.partition(chr(10))[0]})" if after.found else ""
    return Offer(title + warned, KIND, edits)


def _in_body(document: OpenFile, known: Known, old: DType, new: DType) -> Iterator[Edit]:
    """Where the body hands the dtype to a function, such as a cast."""
    name = dtype_name(document.scope, new)
    calls = [n for s in known.tree.body for n in ast.walk(s) if isinstance(n, ast.Call)]
    for node in (a for call in calls for a in (*call.args, *(k.value for k in call.keywords))):
        span = known.span(node) if _resolved(document, node) is old else None
        if span is not None:
            yield Edit(span, name)


def _edits(document: OpenFile, known: Known, old: DType, new: DType) -> Iterator[Edit]:
    name = dtype_name(document.scope, new)
    for annotation in annotations_of(known.tree):
        for dtype, node in _places(document, known, annotation):
            span = known.span(node)
            if dtype is not old or span is None:
                continue
            if isinstance(node, ast.Constant):  # "bf16 @accum(f32)"
                quote = 1 + len(known.analysis.definition.text.segment(span)) - len(repr(node.value))
                start = span.col + quote + str(node.value).index(str(node.value).split()[0])
                width = len(str(node.value).split()[0])
                yield Edit(replace(span, col=start, end_line=span.line, end_col=start + width), str(new))
            elif isinstance(node, ast.Subscript):  # it names no dtype: f32 is meant
                inside = known.span(node.slice)
                if inside is not None:
                    yield insertion(inside, True, f", {name}")
            else:
                yield Edit(span, name)


def _places(document: OpenFile, known: Known, annotation: ast.expr) -> Iterator[tuple[DType, ast.expr]]:
    """Each tensor's dtype with the node that names it; the subscript itself where nothing does."""
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and _resolved(document, node.value) == Builtin("tessera.Tensor"):
            elements = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            named = [(d, n) for e in elements for d, n in _named(document, e)]
            if named:
                yield named[0]
            elif not any(isinstance(e, ast.Slice) for e in elements):
                yield dtypes.f32, node


def _named(document: OpenFile, node: ast.expr) -> Iterator[tuple[DType, ast.expr]]:
    """`bf16`, `dtype=bf16`, and that of `bf16 @ accum(f32)`, also in quotes, whose accumulator keeps its dtype."""
    if isinstance(node, ast.Slice) and isinstance(node.lower, ast.Constant) and node.lower.value == "dtype":
        node = node.upper or node
    while isinstance(node, ast.BinOp):
        node = node.left
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.split():
        dtype = dtypes.named(node.value.split()[0])
        if dtype is not None:
            yield dtype, node
    value = _resolved(document, node)
    if isinstance(value, DType):
        yield value, node


def _resolved(document: OpenFile, node: ast.AST) -> object:
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    return signatures.resolve(document.scope, ast.unparse(node))
