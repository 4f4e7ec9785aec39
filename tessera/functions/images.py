"""Images in other sizes, [batch, channels, ...] as in PyTorch."""

from __future__ import annotations

import math

import tessera as ts
from tessera.functions.numbers import real


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
