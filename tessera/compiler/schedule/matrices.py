"""A contraction's labels sorted into batch, row, column and summed axes, and its operands as matrices."""

from __future__ import annotations

from itertools import pairwise

from tessera.compiler.ir.core import Op
from tessera.compiler.ir.types import Shape
from tessera.compiler.schedule.alignment import shape_of
from tessera.compiler.schedule.views import ViewLayout, layout_of
from tessera.immutable import immutable
from tessera.language.dims import Dim, prod


@immutable
class Contraction:
    """Labels of `graph.contract` by role, in the order of the output; summed ones in that of the left operand."""

    batch: str
    rows: str
    columns: str
    summed: str
    lhs: str
    rhs: str
    out: str
    sizes: dict[str, Dim]


def contraction(op: Op) -> Contraction:
    lhs, rhs, out = (str(op.attrs[k]) for k in ("lhs", "rhs", "out"))
    sizes = dict(zip(rhs, shape_of(op.operands[1]), strict=True)) | dict(
        zip(lhs, shape_of(op.operands[0]), strict=True)
    )
    return Contraction(
        "".join(c for c in out if c in lhs and c in rhs),
        "".join(c for c in out if c in lhs and c not in rhs),
        "".join(c for c in out if c in rhs and c not in lhs),
        "".join(c for c in lhs if c in rhs and c not in out),
        lhs, rhs, out, sizes,
    )  # fmt: skip


def merged(layout: ViewLayout, labels: str, groups: tuple[str, ...]) -> tuple[Shape, Shape] | None:
    """Shape and strides with one axis per group of labels; None where a group's axes do not merge into one strided
    axis."""
    stride = dict(zip(labels, layout.strides, strict=True))
    size = dict(zip(labels, layout.shape, strict=True))
    shape: list[Dim] = []
    strides: list[Dim] = []
    for group in groups:
        real = [c for c in group if size[c] != 1]
        for a, b in pairwise(real):
            if stride[a] != stride[b] * size[b]:
                return None
        shape.append(prod(size[c] for c in group))
        strides.append(stride[real[-1]] if real else 0)
    return tuple(shape), tuple(strides)


def roles(c: Contraction) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The groups of labels of the left and of the right operand that have to merge into one strided axis each. Labels
    of the batch are separate groups."""
    return (*c.batch, c.rows, c.summed), (*c.batch, c.summed, c.columns)


def operands_as_matrices(op: Op) -> tuple[tuple[ViewLayout, Shape, Shape], tuple[ViewLayout, Shape, Shape]] | None:
    """Left as [*batch, M, K] and right as [*batch, K, N], as (layout, shape, strides); None where one is to copy."""
    c = contraction(op)
    left, right = layout_of(op.operands[0]), layout_of(op.operands[1])
    if left is None or right is None:
        return None
    a, b = (merged(x, labels, r) for x, labels, r in zip((left, right), (c.lhs, c.rhs), roles(c), strict=True))
    return ((left, *a), (right, *b)) if a and b else None


def ordered(c: Contraction) -> bool:
    """Whether the output's axes are already in the order batch, rows, columns."""
    return c.out == c.batch + c.rows + c.columns
