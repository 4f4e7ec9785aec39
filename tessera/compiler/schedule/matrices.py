"""A contraction's labels sorted into batch, row, column and summed axes, and its operands as matrices."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.ir.core import Op, Value
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


@immutable
class Matrix:
    """An operand in memory: `batch` axes, then `lead` axes that are its rows, the others are its columns. Several axes
    count as one, in C order."""

    layout: ViewLayout
    batch: int
    lead: int
    shape: Shape
    strides: Shape

    @property
    def plain(self) -> bool:
        """Whether it has one strided axis of rows and one of columns."""
        return len(self.shape) == self.batch + 2

    @property
    def sizes(self) -> tuple[Dim, Dim]:
        """How many rows and columns it has."""
        middle = self.batch + self.lead
        return prod(self.shape[self.batch : middle]), prod(self.shape[middle:])

    @property
    def run(self) -> int:
        """How many columns are neighbours in memory, where the columns are several axes; else 0."""
        several = len(self.shape) > self.batch + self.lead + 1
        return size if several and self.strides[-1] == 1 and isinstance(size := self.shape[-1], int) else 0


def roles(c: Contraction) -> tuple[tuple[str, str], tuple[str, str]]:
    """The labels of rows and columns of the left and of the right operand."""
    return (c.rows, c.summed), (c.summed, c.columns)


def operands_as_matrices(op: Op) -> tuple[Matrix, Matrix]:
    """Left as [*batch, M, K] and right as [*batch, K, N], each with the fewest axes that walk through memory."""
    c = contraction(op)
    left, right = roles(c)
    return _matrix(op.operands[0], c.lhs, c.batch, left), _matrix(op.operands[1], c.rhs, c.batch, right)


def _matrix(v: Value, labels: str, batch: str, role: tuple[str, str]) -> Matrix:
    layout = layout_of(v)
    assert layout is not None, "views that need a copy have been given one"
    place = {label: i for i, label in enumerate(labels)}
    axes = [place[x] for x in batch]
    parts = [_walks(layout, [place[x] for x in group]) for group in role]
    shape = (*(layout.shape[a] for a in axes), *(d for sizes, _ in parts for d in sizes))
    strides = (*(layout.strides[a] for a in axes), *(s for _, steps in parts for s in steps))
    return Matrix(layout, len(axes), len(parts[0][0]), shape, strides)


def _walks(layout: ViewLayout, axes: Sequence[int]) -> tuple[list[Dim], list[Dim]]:
    """Sizes and strides of the fewest axes, at least one, that walk through these in C order."""
    sizes: list[Dim] = []
    steps: list[Dim] = []
    for a in axes:
        size, step = layout.shape[a], layout.strides[a]
        if size == 1:
            continue
        if sizes and steps[-1] == step * size:
            sizes[-1], steps[-1] = sizes[-1] * size, step
        else:
            sizes.append(size)
            steps.append(step)
    return (sizes, steps) if sizes else ([1], [0])


def ordered(c: Contraction) -> bool:
    """Whether the output's axes are already in the order batch, rows, columns."""
    return c.out == c.batch + c.rows + c.columns
