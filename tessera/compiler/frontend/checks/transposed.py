"""A matrix that a kernel is given the other way round: its annotation, and each place where it is read or written."""

from __future__ import annotations

import ast
import re

from tessera.compiler.frontend.checks.finding import Look
from tessera.compiler.frontend.fixes import Candidate
from tessera.compiler.ir.core import Value


def kept_transposed(look: Look, view: Value) -> list[Candidate]:
    """The change for a parameter that is only ever subscripted with two indices. Who calls the kernel has to keep the
    array that way too, so there is none where the file has other lines with the kernel's name."""
    tree = look.tree
    while view.op is not None and view.op.name == "tile.subview":
        view = view.op.operands[0]
    if view.op is not None or not isinstance(tree, ast.FunctionDef) or _named_elsewhere(look, tree):
        return []
    parameter = next((a for a in tree.args.args if a.arg == view.hint), None)
    axes = _axes(parameter.annotation) if parameter is not None else None
    uses = [n for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == view.hint]
    places = [n for s in tree.body for n in ast.walk(s) if isinstance(n, ast.Subscript) and n.value in uses]
    pairs = [pair for n in places if (pair := _pair(n.slice)) is not None]
    if axes is None or not uses or len(pairs) != len(uses):
        return []
    changes = [(n, look.text(m)) for a, b in (axes, *pairs) for n, m in ((a, b), (b, a))]
    return [look.replaced(f"Keep {view.hint} transposed, here and where it is made", *changes)]


def _named_elsewhere(look: Look, tree: ast.FunctionDef) -> bool:
    lines = look.definition.text.lines
    own = range(look.definition.line - 1, tree.end_lineno or 0)
    return any(re.search(rf"\b{re.escape(tree.name)}\b", line) for i, line in enumerate(lines) if i not in own)


def _axes(annotation: ast.expr | None) -> tuple[ast.expr, ast.expr] | None:
    """The two axes of `Tensor["M", "N", f32]`."""
    match annotation:
        case ast.Subscript(slice=ast.Tuple(elts=[a, b])):
            return a, b
        case ast.Subscript(slice=ast.Tuple(elts=[a, b, ast.Name() | ast.Attribute()])):
            return a, b
        case _:
            return None


def _pair(index: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    match index:
        case ast.Tuple(elts=[a, b]) if not _special(a) and not _special(b):
            return a, b
        case _:
            return None


def _special(e: ast.expr) -> bool:
    """`...`, None and spread-out indices are no index of one axis."""
    return isinstance(e, ast.Starred) or (isinstance(e, ast.Constant) and not isinstance(e.value, int))
