"""What the operators of linear algebra share: demands on operands, triangles, diagonals, batches of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.infer import shown
from tessera.compiler.graph.operator import Infer, tensor
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import Shape, TensorType, shape_text
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

T = TypeVar("T")
BLOCK = 32
"""rows and columns of a block of the kernels; results depend on it"""


def demand_matrices(t: Infer, x: TensorType, operand: int = 0) -> None:
    """f32 or f64, and two axes or more."""
    if x.dtype not in (dtypes.f32, dtypes.f64):
        what = "complex matrices are not supported" if x.dtype.is_complex else 'convert it with .cast("f32")'
        t.fail("TS301", f"{t.operator} takes f32 or f64 elements, not {x.dtype}; {what}", operand=operand)
    if x.rank < 2:
        message = f"{t.operator} takes matrices, [..., rows, columns], not {shape_text(x.shape)}"
        t.fail("TS213", message, operand=operand)


def demand_square(t: Infer, x: TensorType, operand: int = 0) -> None:
    demand_matrices(t, x, operand)
    rows, columns = x.shape[-2:]
    message = f"takes square matrices, and {shape_text(x.shape)} has {rows} rows and {columns} columns"
    t.same(rows, columns, "TS213", f"{t.operator} {message}", operand)


def one_of(t: Infer, value: object, name: str, ways: Mapping[str | int, T], text: str) -> T:
    """What an attribute means. `text`: its values, for the message."""
    if not isinstance(value, (int, str)) or value not in ways:
        t.fail("TS213", f"{name} of {t.operator} is {text}, not {shown(value)}")
    return ways[value]


def turned(g: GraphBuilder, x: Value) -> Value:
    return g.matrix_transpose(x)


def positions(g: GraphBuilder, x: Value) -> tuple[Value, Value]:
    """The row and the column of each element."""
    rows, columns = tensor(x).shape[-2:]
    return g.iota((rows, 1), axis=0), g.iota((1, columns), axis=1)


def lower_part(g: GraphBuilder, x: Value, diagonal: float = 1.0) -> Value:
    """The lower triangle; `diagonal`: the factor of what is on the diagonal."""
    row, column = positions(g, x)
    on = x if diagonal == 1.0 else g.mul(x, diagonal) if diagonal else 0.0
    return g.where(g.gt(row, column), x, g.where(g.eq(row, column), on, 0.0))


def upper_part(g: GraphBuilder, x: Value, diagonal: float = 1.0) -> Value:
    row, column = positions(g, x)
    on = x if diagonal == 1.0 else g.mul(x, diagonal) if diagonal else 0.0
    return g.where(g.lt(row, column), x, g.where(g.eq(row, column), on, 0.0))


def diagonal_of(g: GraphBuilder, x: Value) -> Value:
    """[..., N, N] as [..., N]."""
    row, column = positions(g, x)
    return g.sum(g.where(g.eq(row, column), x, 0.0), axis=-1)


def identity(g: GraphBuilder, like: TensorType, rows: Dim, columns: Dim) -> Value:
    """Unit matrices for all batches of `like`."""
    eye = g.eye(rows, columns, dtype=like.dtype)
    return g.broadcast_to(eye, (*like.shape[:-2], rows, columns)) if like.rank > 2 else eye


def batched(g: GraphBuilder, name: str, operands: list[Value], behind: list[int], *attrs: Any) -> Any:
    """An operator over one axis of batches for operands [..., rows, columns] with any number of such axes; None where
    they have one. `behind`: how many axes of each result follow those of batches."""
    batch = tensor(operands[0]).shape[:-2]
    if len(batch) == 1:
        return None
    rows = (g.reshape(v, (dims.prod(batch), *tensor(v).shape[len(batch) :])) for v in operands)
    out = getattr(g, name)(*rows, *attrs)
    several = cast("tuple[Value, ...]", out if isinstance(out, tuple) else (out,))
    values = tuple(
        g.reshape(v, (*batch, *tensor(v).shape[tensor(v).rank - n :])) for v, n in zip(several, behind, strict=True)
    )
    return values if isinstance(out, tuple) else values[0]


def keep_matrices(cut: Cut, *operands: TensorType) -> None:
    """Batches can be cut into parts, matrices cannot."""
    for x in operands:
        a = cut.axis(x)
        if a is not None and a >= x.rank - 2:
            cut.whole(f"it needs whole matrices, which run along {cut.dim}")


def count_of(shape: Shape) -> Dim:
    """The number of matrices."""
    return dims.prod(shape[:-2])


def whole_blocks(n: Dim) -> Dim:
    """So many rows or columns in whole blocks."""
    return dims.ceildiv(n, BLOCK) * BLOCK


def each(f: Callable[..., Any], shapes: list[tuple[int, ...]], *arrays: Any) -> Any:
    """NumPy's: `f` for each matrix of a batch. `shapes`: those of one matrix's results."""
    batch = arrays[0].shape[:-2]
    out = [np.zeros((*batch, *s), arrays[0].dtype) for s in shapes]
    for i in np.ndindex(*batch):
        found = f(*(a[i] for a in arrays))
        for o, v in zip(out, cast("tuple[Any, ...]", found if isinstance(found, tuple) else (found,)), strict=True):
            o[i] = v
    return tuple(out) if len(out) > 1 else out[0]
