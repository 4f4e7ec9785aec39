"""What eigenvalues and singular values share: scales, strips of vectors, order; and NumPy's way through diagonals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tessera.compiler.graph.builder import GraphBuilder
from tessera.compiler.graph.cut import Cut
from tessera.compiler.graph.operator import Operator, tensor
from tessera.compiler.graph.operators.linalg.triangular import FEW, SHARED
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims, dtypes
from tessera.language.dims import Dim
from tessera.language.lazy import np

PANEL = 16
"""rows and columns that are reduced before the rest of a matrix is: each of them needs all that are before it in its
block, so that wider blocks are more work; results depend on it"""
SWEEPS = 2
"""as in kernels/condensed.py"""
STRIP = 64
"""elements of a row that a program turns at a time"""
SHARE = 256
"""elements of a row that a program turns: fewer would pay for finding the rotations once more"""

STEPS = 18
"""Launches in which programs share a matrix. All but two find rotations, so many that hardly a matrix leaves any."""

CLEAR = 0.7
"""A vector's sign is that of its first element that is at least so large beside its greatest one: where several are
equally large, which often happens, rounding would choose among them, and so would the target"""


class Condensed(Operator, abstract=True):
    """Of matrices with two or three diagonals, in lines [..., N]."""

    functions = ()
    methods = ()
    kind = "scan"
    batching = "batches"
    multiple = True
    differentiable = False

    def partition(self, cut: Cut, d: TensorType, *others: TensorType) -> None:
        a = cut.axis(d)
        if a is not None and a == d.rank - 1:
            cut.whole(f"it needs whole matrices, which run along {cut.dim}")


def batched_lines(g: GraphBuilder, name: str, operands: list[Value], behind: list[int]) -> Any:
    """`matrices.batched` for operands whose first one is of lines."""
    batch = tensor(operands[0]).shape[:-1]
    if len(batch) == 1:
        return None
    rows = (g.reshape(v, (dims.prod(batch), *tensor(v).shape[len(batch) :])) for v in operands)
    out = getattr(g, name)(*rows)
    return tuple(
        g.reshape(v, (*batch, *tensor(v).shape[tensor(v).rank - k :])) for v, k in zip(out, behind, strict=True)
    )


def strips(n: Dim) -> tuple[Dim, int, Dim]:
    """How many strips a row of n elements is, of how many elements each, and how many programs turn them."""
    width = STRIP
    while isinstance(n, int) and width >= 2 * max(n, 8):
        width //= 2
    return dims.ceildiv(n, width), width, dims.ceildiv(n, SHARE)


def lines(n: Dim, sides: int) -> tuple[int, Dim]:
    """The lines of a program that turns vectors on so many sides, and how long they are (kernels/condensed.py)."""
    return 2 + 2 * SWEEPS * sides, n + 2 * SWEEPS


def is_shared(d: TensorType) -> bool:
    """Whether programs share each of the matrices with the lines d [..., N]: one finds rotations, others turn."""
    *batch, n = d.shape
    count = dims.prod(batch)
    return isinstance(count, int) and isinstance(n, int) and count <= FEW and n >= SHARED


def shared_memory(d: TensorType, sides: int) -> tuple[TensorType, TensorType]:
    """The lines that the programs share, and the ranges of the pairs of sweeps in them (kernels/condensed.py)."""
    *batch, n = d.shape
    pairs = 2 * dims.ceildiv(n, 12)
    lines = d.with_shape((*batch, 1, 2 + 2 * SWEEPS * sides * pairs, n + 2 * SWEEPS))
    return lines, d.with_shape((*batch, pairs + 1, 2)).with_dtype(dtypes.int64)


def numpy_memory(d: Any, sides: int) -> tuple[Any, Any]:
    """`shared_memory` of arrays."""
    *batch, n = d.shape
    pairs = 2 * -(-n // 12)
    lines = np.zeros((*batch, 1, 2 + 2 * SWEEPS * sides * pairs, n + 2 * SWEEPS), d.dtype)
    return lines, np.zeros((*batch, pairs + 1, 2), np.int64)


def from_strips(g: GraphBuilder, z: Value, n: Dim) -> Value:
    """Rows [..., N, n] that lie in strips [..., strips, N, width]."""
    *batch, count, rows, width = tensor(z).shape
    whole = g.reshape(g.moveaxis(z, -3, -2), (*batch, rows, count * width))
    return g.slice(whole, (0,) * (len(batch) + 2), (*batch, rows, n))


def taken(g: GraphBuilder, rows: Value, order: Value) -> Value:
    """Rows in another order."""
    return g.take_along_axis(rows, g.broadcast_to(g.unsqueeze(order, -1), tensor(rows).shape), axis=-2)


def signs(g: GraphBuilder, rows: Value) -> Value:
    """The sign [..., N, 1] of each row's first element that is at least `CLEAR` times as large as its greatest one."""
    size = g.abs(rows)
    clear = g.ge(size, g.mul(g.max(size, axis=-1, keepdims=True), CLEAR))
    first = g.take_along_axis(rows, g.argmax(clear, axis=-1, keepdims=True), axis=-1)
    return g.where(g.lt(first, 0.0), -1.0, 1.0)


def scaled(g: GraphBuilder, x: Value) -> tuple[Value, Value, Value]:
    """Matrices with a greatest element from 1 to 2, the powers of 2 [..., 1, 1] that they were divided by, and whether
    all their elements are numbers; others are 0."""
    greatest = g.max(g.abs(x), axis=(-2, -1), keepdims=True)
    whole = g.isfinite(greatest)
    known = g.logical_and(whole, g.gt(greatest, 0.0))
    power = g.exp2(g.floor(g.log2(g.where(known, greatest, 1.0))))
    return g.div(g.where(whole, x, 0.0), power), power, whole


def finite_or_nan(g: GraphBuilder, whole: Value, x: Value) -> Value:
    return g.where(whole, x, float("nan"))


def apart(g: GraphBuilder, w: Value) -> Value:
    """1 / (w_j - w_i), and 0 where they are equal."""
    difference = g.sub(g.unsqueeze(w, -2), g.unsqueeze(w, -1))
    equal = g.eq(difference, 0.0)
    return g.where(equal, 0.0, g.div(1.0, g.where(equal, 1.0, difference)))


def numpy_scaled(a: Any) -> Any:
    """`scaled` of arrays."""
    size = np.abs(a).max((-2, -1), keepdims=True) if a.size else np.ones((*a.shape[:-2], 1, 1))
    whole = np.isfinite(size)
    with np.errstate(all="ignore"):
        size = np.where(whole & (size > 0), np.exp2(np.floor(np.log2(size))), 1).astype(a.dtype)
    return np.where(whole, a, 0) / size, size, whole


def numpy_signs(rows: Any) -> Any:
    """`signs` of arrays."""
    if not rows.size:
        return np.ones((*rows.shape[:-1], 1), rows.dtype)
    size = np.abs(rows)
    first = np.argmax(size >= CLEAR * size.max(-1, keepdims=True), -1, keepdims=True)
    return np.where(np.take_along_axis(rows, first, -1) < 0, -1, 1).astype(rows.dtype)


def numpy_rows(z: Any, n: int) -> Any:
    """`from_strips` of arrays."""
    *batch, count, rows, width = z.shape
    return np.moveaxis(z, -3, -2).reshape(*batch, rows, count * width)[..., :n]


def tridiagonal(a: Any) -> Any:
    """NumPy's `eigenvalues.tridiagonalize`, in its order of blocks."""
    n = len(a)
    out, t = np.array(a), np.zeros((-(-n // PANEL) * PANEL, PANEL), a.dtype)
    d, e = np.zeros(n, a.dtype), np.zeros(n, a.dtype)
    v, w = np.zeros((2, PANEL, n), a.dtype)
    for k in range(0, n, PANEL):
        v[:, k:], w[:, k:] = 0, 0
        for j in range(k, min(k + PANEL, n)):
            c = j - k
            v[c, k:] = (out[j] - w[:, j] @ v - v[:, j] @ w)[k:]
            d[j] = v[c, j]
            if j == n - 1:
                break
            e[j], tau, reflection = _reflection(v[c, j + 1 :])
            v[c, k:] = 0
            v[c, j + 1 :] = reflection
            along, other = v[:c, k:] @ v[c, k:], w[:c, k:] @ v[c, k:]
            image = tau * (out[k:, k:] @ v[c, k:] - (other @ v[:c] + along @ w[:c])[k:])
            image[: j + 1 - k] = 0
            w[c, k:] = image - tau / 2 * (image @ v[c, k:]) * v[c, k:]
            t[k : k + c, c] = -tau * t[k : k + c, :c] @ along
            t[j, c] = tau
        behind = slice(k + PANEL, n)
        out[k:, behind] -= v[:, k:].T @ w[:, behind] + w[:, k:].T @ v[:, behind]
        out[k:, k : k + PANEL] = v[: n - k, k:].T
    return out, t, d, e, v, w


def _reflection(x: Any) -> Any:
    """What is left of x, the factor, and the vector with first element 1."""
    norm = np.linalg.norm(x)
    if np.abs(x[1:]).max(initial=0) < _tiny(x) ** 2:
        return x[0], 0, np.eye(len(x), 1, dtype=x.dtype)[:, 0]
    beta = norm if x[0] < 0 else -norm
    reflection = x / (x[0] - beta)
    reflection[0] = 1
    return beta, (beta - x[0]) / beta, reflection


def _tiny(x: Any) -> float:
    return 1e-100 if x.dtype == np.float64 else 1e-15


def _coupled(d: Any, e: Any) -> Iterator[tuple[int, int]]:
    """The first and last line of the next part that is not yet diagonal, until there is none. Between two of them the
    caller changes d and e, which are taken as zero beside small neighbours."""
    unit, tiny, n = np.finfo(d.dtype).eps / 2, _tiny(d), len(d)
    low = rounds = 0
    while low < n - 1 and rounds < 30 * n:
        high, rounds = low, rounds + 1
        while high < n - 1 and abs(e[high]) > max(unit * (abs(d[high]) + abs(d[high + 1])), tiny):
            high += 1
        if high == low:
            low += 1
        else:
            yield low, high


def eigen_rows(d: Any, e: Any, rows: Any) -> Any:
    """NumPy's `eigenvalues.tridiagonal_vectors`: eigenvalues, and `rows` turned into the vectors' place."""
    d, e, rows = np.array(d), np.array(e), np.array(rows)
    for low, high in _coupled(d, e):
        g = (d[low + 1] - d[low]) / (2 * e[low])
        shift = d[low] - e[low] / (g + np.copysign(np.sqrt(g * g + 1), g))
        c, s = d.dtype.type(1), d.dtype.type(0)
        g = h = d[high] - shift
        for i in range(high - 1, low - 1, -1):
            r = np.sqrt(g * g + e[i] * e[i])
            if i + 1 < high:
                e[i + 1] = s * r
            beside, before = c * e[i], h
            c, s = g / r, e[i] / r
            g = c * (d[i] - shift) - s * beside
            h = c * g
            d[i + 1] = before + (d[i] - h)
            rows[i], rows[i + 1] = c * rows[i] - s * rows[i + 1], s * rows[i] + c * rows[i + 1]
        d[low], e[low], e[high] = shift + h, s * g, 0
    return d, rows


def bidiagonal(a: Any) -> Any:
    """NumPy's `singular_values.bidiagonalize`, in its order of blocks."""
    n = len(a)
    left, right = np.array(a), np.zeros_like(a)
    t, s = np.zeros((2, -(-n // PANEL) * PANEL, PANEL), a.dtype)
    d, e = np.zeros((2, n), a.dtype)
    v, y, u, x = np.zeros((4, PANEL, n), a.dtype)
    for k in range(0, n, PANEL):
        for panel in (v, y, u, x):
            panel[:, k:] = 0
        for j in range(k, min(k + PANEL, n)):
            c = j - k
            column = (left[k:, j] - y[:, j] @ v[:, k:] - u[:, j] @ x[:, k:])[c:]
            d[j], tau, v[c, j:] = _reflection(column)
            along, other = v[:c, k:] @ v[c, k:], x[:, k:] @ v[c, k:]
            image = left[k:, k:].T @ v[c, k:] - along @ y[:c, k:] - other @ u[:, k:]
            y[c, j + 1 :] = tau * image[c + 1 :]
            t[k : k + c, c] = -tau * t[k : k + c, :c] @ along
            t[j, c] = tau
            if j == n - 1:
                break
            line = (left[j, k:] - v[:, j] @ y[:, k:] - x[:, j] @ u[:, k:])[c + 1 :]
            e[j], tau, u[c, j + 1 :] = _reflection(line)
            along, other = u[:c, k:] @ u[c, k:], y[:, k:] @ u[c, k:]
            image = left[k:, k:] @ u[c, k:] - other @ v[:, k:] - along @ x[:c, k:]
            x[c, j + 1 :] = tau * image[c + 1 :]
            s[k : k + c, c] = -tau * s[k : k + c, :c] @ along
            s[j, c] = tau
        behind = slice(k + PANEL, n)
        left[k:, behind] -= v[:, k:].T @ y[:, behind] + x[:, k:].T @ u[:, behind]
        left[k:, k : k + PANEL], right[k:, k : k + PANEL] = v[: n - k, k:].T, u[: n - k, k:].T
    return left, right, t, s, d, e, v, y, u, x


def singular_rows(d: Any, e: Any, left: Any, right: Any) -> Any:
    """NumPy's `singular_values.bidiagonal_vectors`: values, and rows turned into the vectors' place."""
    d, e, left, right = np.array(d), np.array(e), np.array(left), np.array(right)
    unit, tiny = np.finfo(d.dtype).eps / 2, _tiny(d)

    def turned(f: Any, g: Any, rows: Any, i: int) -> Any:
        square = f * f + g * g
        none = square < tiny * tiny
        r = f if none else np.sqrt(square)
        c, s = (d.dtype.type(1), d.dtype.type(0)) if none else (f / r, g / r)
        rows[i], rows[i + 1] = c * rows[i] + s * rows[i + 1], c * rows[i + 1] - s * rows[i]
        return c, s, r

    for low, high in _coupled(d, e):
        f, g, h = abs(d[high - 1]), abs(e[high - 1]), abs(d[high])
        sizes = abs(d[low : high + 1])
        shift = 2 * f * h / (np.sqrt((f + h) ** 2 + g * g) + np.sqrt((f - h) ** 2 + g * g))
        shift = 0 if sizes.min() <= unit * max(sizes.max(), abs(e[low:high]).max()) else shift
        f = (abs(d[low]) - shift) * ((-1 if d[low] < 0 else 1) + (shift / d[low] if shift else 0))
        g = e[low]
        for i in range(low, high):
            c, s, r = turned(f, g, right, i)
            if i > low:
                e[i - 1] = r
            f, e[i], g, d[i + 1] = c * d[i] + s * e[i], c * e[i] - s * d[i], s * d[i + 1], c * d[i + 1]
            c, s, d[i] = turned(f, g, left, i)
            f, d[i + 1] = c * e[i] + s * d[i + 1], c * d[i + 1] - s * e[i]
            e[i] = f
            if i + 1 < high:
                g, e[i + 1] = s * e[i + 1], c * e[i + 1]
    return d, left, right
