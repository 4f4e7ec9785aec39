"""Images in other sizes, [batch, channels, ...] as in PyTorch."""

from __future__ import annotations

import math

import tessera as ts
from tessera.functions.numbers import real, wide


def interpolate(
    x,
    size: int | tuple[int, ...] | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
):
    """`x` [batch, channels, ...] with other sizes of the axes behind the channels: `size`, or the old ones times
    `scale_factor` (a number for all axes or one for each, rounded down).

    "nearest" repeats elements; "linear", "bilinear" and "trilinear" weigh the two neighbours of each axis. The corner
    pixels' centres stay in place with `align_corners`, else their outer edges.
    """
    axes = len(x.shape) - 2
    x = x if mode == "nearest" else real(x)
    smooth = {"linear": 1, "bilinear": 2, "trilinear": 3}
    if mode != "nearest" and smooth.get(mode) != axes:
        raise ValueError(f"mode {mode!r} of interpolate for {axes} axes: 'nearest', or {tuple(smooth)[axes - 1]!r}")
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate needs either size or scale_factor")
    for i in range(axes):
        n = x.shape[i + 2]
        if size is not None:
            new = size[i] if isinstance(size, (list, tuple)) else size
            step = n / new
        else:
            factor = scale_factor[i] if isinstance(scale_factor, (list, tuple)) else scale_factor
            new, step = math.floor(n * factor), 1 / factor
        places = ts.arange(new, dtype=ts.f32)
        if mode == "nearest":
            chosen = ts.minimum(ts.astype(ts.floor(places * step), ts.int64), n - 1)
            x = ts.take(x, chosen, axis=i + 2)
            continue
        if align_corners:
            at = places * ((n - 1) / max(new - 1, 1))
        else:
            at = ts.maximum((places + 0.5) * step - 0.5, 0.0)
        low = ts.minimum(ts.astype(ts.floor(at), ts.int64), n - 1)
        share = ts.reshape(at - low, (new,) + (1,) * (axes - 1 - i))
        first, second = ts.take(x, low, axis=i + 2), ts.take(x, ts.minimum(low + 1, n - 1), axis=i + 2)
        x = first * ts.astype(1 - share, x.dtype) + second * ts.astype(share, x.dtype)
    return x


def pixel_shuffle(x, factor: int):
    """[batch, channels * factor^2, h, w] as [batch, channels, h * factor, w * factor]: channels become pixels."""
    batch, channels, h, w = x.shape
    parts = ts.reshape(x, (batch, channels // (factor * factor), factor, factor, h, w))
    return ts.reshape(
        ts.permute(parts, (0, 1, 4, 2, 5, 3)), (batch, channels // (factor * factor), h * factor, w * factor)
    )


def pixel_unshuffle(x, factor: int):
    """[batch, channels, h * factor, w * factor] as [batch, channels * factor^2, h, w]: pixels become channels."""
    batch, channels, rows, columns = x.shape
    h, w = rows // factor, columns // factor
    parts = ts.reshape(x, (batch, channels, h, factor, w, factor))
    return ts.reshape(ts.permute(parts, (0, 1, 3, 5, 2, 4)), (batch, channels * factor * factor, h, w))


def adaptive_avg_pool1d(x, size: int | tuple[int | None, ...]):
    """Means of `size` windows along the last axis that cover it, as PyTorch's: from floor(i n / size) to
    ceil((i + 1) n / size)."""
    return _averaged(x, size, 1)


def adaptive_avg_pool2d(x, size: int | tuple[int | None, ...]):
    """`adaptive_avg_pool1d` along the last two axes. `size` is a number for both, or one for each; None keeps the
    axis."""
    return _averaged(x, size, 2)


def adaptive_avg_pool3d(x, size: int | tuple[int | None, ...]):
    """`adaptive_avg_pool1d` along the last three axes."""
    return _averaged(x, size, 3)


def _averaged(x, size, axes):
    x = real(x)
    for i in range(axes):
        axis = i - axes
        new, n = size[i] if isinstance(size, (list, tuple)) else size, x.shape[axis]
        if new is None or new == n:
            continue
        if new == 1:
            x = ts.mean(x, axis=axis, keepdims=True)
            continue
        window, place = ts.arange(new)[:, None], ts.arange(n)[None, :]
        first, end = window * n // new, ((window + 1) * n + new - 1) // new
        inside = ts.logical_and(place >= first, place < end)
        weights = ts.where(inside, 1.0 / ts.astype(end - first, wide(x.dtype)), 0.0)
        x = ts.moveaxis(ts.matmul(ts.moveaxis(x, axis, -1), ts.astype(weights, x.dtype).T), -1, axis)
    return x


def affine_grid(theta, size: tuple[int, ...], align_corners: bool = False):
    """The places [batch, h, w, 2] from which `grid_sample` takes an image of `size` [batch, channels, h, w] that the
    matrices `theta` [batch, 2, 3] move: theta (x, y, 1) of each pixel's place."""
    batch, _, h, w = size
    y, x = _centres(h, align_corners, wide(theta.dtype)), _centres(w, align_corners, wide(theta.dtype))
    places = ts.stack(
        [ts.broadcast_to(x[None, :], (h, w)), ts.broadcast_to(y[:, None], (h, w)), ts.ones((h, w), x.dtype)], -1
    )
    moved = ts.matmul(ts.reshape(ts.astype(places, theta.dtype), (1, h * w, 3)), ts.swapaxes(theta, 1, 2))
    return ts.reshape(moved, (batch, h, w, 2))


def _centres(n, align_corners, dtype):
    """The places of n pixels from -1 to 1: of their centres if those of the corner pixels lie there, else of edges."""
    places = ts.arange(n, dtype=dtype)
    return places * (2.0 / max(n - 1, 1)) - 1.0 if align_corners else (2.0 * places + 1.0) / n - 1.0


def grid_sample(x, grid, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False):
    """Pixels of `x` [batch, channels, h, w] at the places `grid` [batch, i, j, 2], as PyTorch's:
    [batch, channels, i, j].

    A place is (column, row), from -1 to 1: the outer edges, or with `align_corners` the centres of the corner pixels.
    "bilinear" weighs four pixels, "nearest" takes one. Outside are zeros, or with `padding_mode="border"` the pixels of
    the border. Both `x` and, for "bilinear", `grid` have gradients.
    """
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border"):
        raise ValueError("grid_sample has the modes 'bilinear' and 'nearest', and padding by 'zeros' or 'border'")
    h, w = x.shape[2], x.shape[3]
    column, row = (
        _place(grid[..., 0], w, padding_mode, align_corners),
        _place(grid[..., 1], h, padding_mode, align_corners),
    )
    if mode == "nearest":
        return _pixels(x, ts.round(row), ts.round(column), padding_mode)
    top, left = ts.floor(row), ts.floor(column)
    down, right = ts.astype(row - top, x.dtype)[:, None], ts.astype(column - left, x.dtype)[:, None]
    upper = _pixels(x, top, left, padding_mode) * (1 - right) + _pixels(x, top, left + 1, padding_mode) * right
    lower = _pixels(x, top + 1, left, padding_mode) * (1 - right) + _pixels(x, top + 1, left + 1, padding_mode) * right
    return upper * (1 - down) + lower * down


def _place(at, n, padding_mode, align_corners):
    """A place from -1 to 1 in pixels."""
    at = (at + 1.0) * ((n - 1) / 2) if align_corners else ((at + 1.0) * n - 1.0) / 2
    return ts.clip(at, 0.0, n - 1.0) if padding_mode == "border" else at


def _pixels(x, row, column, padding_mode):
    """The pixels [batch, channels, i, j] at whole numbers, zeros outside."""
    batch, channels, h, w = x.shape
    _, i, j = row.shape
    inside = ts.logical_and(ts.logical_and(row >= 0, row <= h - 1), ts.logical_and(column >= 0, column <= w - 1))
    place = ts.astype(ts.clip(row, 0, h - 1), ts.int64) * w + ts.astype(ts.clip(column, 0, w - 1), ts.int64)
    places = ts.broadcast_to(ts.reshape(place, (batch, 1, i * j)), (batch, channels, i * j))
    found = ts.reshape(
        ts.take_along_axis(ts.reshape(x, (batch, channels, h * w)), places, axis=2), (batch, channels, i, j)
    )
    return found if padding_mode == "border" else ts.where(inside[:, None], found, ts.zeros_like(found))
