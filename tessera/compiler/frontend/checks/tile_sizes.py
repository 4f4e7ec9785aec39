"""Tiles of other sizes: the numbers that a kernel writes its tiles with, and the change of all of them together."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping

from tessera.compiler.frontend.checks.finding import Look
from tessera.compiler.frontend.fixes import Candidate
from tessera.errors import Edit, Fix

_SHAPED = ("zeros", "full", "alloc_shared", "load")
_STEPPED = ("range", "range_k")


def enlarged(look: Look, wanted: Mapping[int, int]) -> list[Candidate]:
    """Each tile size that is no multiple of what is wanted becomes the next one, wherever the kernel writes it: in
    slices, shapes and steps of loops, or as a constant of the module."""
    new = {size: math.ceil(size / least) * least for size, least in wanted.items()}
    edits: dict[tuple[int, int], Edit] = {}
    for node in _sizes(look.tree):
        found = look.number(node)
        if found is not None and found[0] in new:
            edits[found[1].line, found[1].col] = Edit(found[1], str(new[found[0]]))
    said = ", ".join(f"{old} -> {size}" for old, size in sorted(new.items()))
    return [Candidate(Fix(f"Change tile sizes: {said}", tuple(edits.values())))] if edits else []


def _sizes(tree: ast.AST) -> Iterator[ast.expr]:
    """The expressions that stand where a tile's size is given."""
    for node in ast.walk(tree):
        match node:
            case ast.Slice(upper=ast.BinOp(op=ast.Add(), right=size)):
                yield size
            case ast.Slice(upper=ast.expr() as size):
                yield size
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
                given = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "shape")]
                for shape in given if name in _SHAPED else ():
                    yield from shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else ()
                if name in _STEPPED and len(node.args) == 3:
                    yield node.args[2]
            case _:
                pass
