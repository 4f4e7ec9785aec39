"""How a Tensor shows itself: text in a terminal, a small table in a notebook."""

from __future__ import annotations

import html as markup
from typing import TYPE_CHECKING, Any

from tessera.language.lazy import np

if TYPE_CHECKING:
    from tessera.runtime.tensor import Tensor

_EDGE = 4  # rows and columns shown at each end of a large axis
_STATISTICS_LIMIT = 1 << 24  # elements; looking at more would make a cell wait


def _heading(tensor: Tensor) -> str:
    shape = ", ".join(map(str, tensor.shape))
    return f"[{shape}] {tensor.dtype} on {tensor.device}"


def _values(tensor: Tensor) -> Any:
    """As a NumPy array that NumPy can print: small floats as f32."""
    array = tensor.numpy()
    return array.astype(np.float32) if tensor.dtype.is_low_precision else array


def text(tensor: Tensor) -> str:
    """`Tensor([1. 2. 3.], [3] f32 on cpu)`, large ones shortened."""
    body = np.array2string(_values(tensor), prefix="Tensor(", threshold=200, edgeitems=3, separator=", ")
    gap = "\n       " if "\n" in body else " "
    return f"Tensor({body},{gap}{_heading(tensor)})"


def html(tensor: Tensor) -> str:
    """Shape, dtype, device, statistics and the values at the edges as an HTML table."""
    array = _values(tensor)
    parts = [f"<b>Tensor</b> <code>{markup.escape(_heading(tensor))}</code>"]
    if 0 < array.size <= _STATISTICS_LIMIT and array.dtype.kind in "fiu":
        parts.append(_statistics(array))
    if array.size:
        parts.append(_table(array if array.ndim >= 2 else array.reshape(1, -1)))
    return f'<div class="tessera-tensor">{"".join(parts)}</div>'


def _statistics(array: Any) -> str:
    finite = np.isfinite(array)
    bad = array.size - int(np.count_nonzero(finite))
    seen = array[finite]
    figures = (
        [f"min {seen.min():.4g}, mean {seen.mean(dtype=np.float64):.4g}, max {seen.max():.4g}"] if seen.size else []
    )
    figures += [f"<b>{bad} not finite</b>"] if bad else []
    return f"<div>{'; '.join(figures)}</div>"


def _table(array: Any) -> str:
    while array.ndim > 2:
        array = array[0]
    rows, columns = _edges(array.shape[0]), _edges(array.shape[1])
    body = "".join(
        "<tr>" + "".join(f"<td>{'…' if None in (r, c) else _cell(array[r, c])}</td>" for c in columns) + "</tr>"
        for r in rows
    )
    return f"<table>{body}</table>"


def _edges(size: int) -> list[int | None]:
    if size <= 2 * _EDGE + 1:
        return list(range(size))
    return [*range(_EDGE), None, *range(size - _EDGE, size)]


def _cell(value: Any) -> str:
    return markup.escape(f"{value:.4g}" if value.dtype.kind in "fc" else str(value))
