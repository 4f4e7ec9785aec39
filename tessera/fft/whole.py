"""Transforms of complex numbers; real ones count as complex."""

from __future__ import annotations

import tessera as ts
from tessera.fft.arguments import FORWARD, INVERSE, as_complex, one_axis, resized, several_axes


def fft(x, n: int | None = None, axis: int = -1, norm="backward"):
    """sum over j of x[j] exp(-2 pi i j k / n), for k from 0 to n - 1, along `axis`.

    `n`: so many elements are transformed: x is cut off, or zeros follow it. `norm`: "ortho" divides by sqrt(n),
    "forward" by n. Complex numbers, also of real ones. Raises ValueError for n below 1 and other names of `norm`.
    """
    x, power = one_axis(as_complex(ts.asarray(x)), n, axis, norm, FORWARD)
    return ts.dft(x, axis=axis, power=power)


def ifft(x, n: int | None = None, axis: int = -1, norm="backward"):
    """The inverse of `fft`: 1 / n sum over k of x[k] exp(2 pi i j k / n). `norm`: "ortho" divides by sqrt(n) instead,
    "forward" by nothing."""
    x, power = one_axis(as_complex(ts.asarray(x)), n, axis, norm, INVERSE)
    return ts.dft(x, axis=axis, inverse=True, power=power)


def fftn(x, s: tuple[int, ...] | None = None, axes: tuple[int, ...] | None = None, norm="backward"):
    """`fft` along several `axes` (None: all, or as many of the last as `s` has), of `s` elements each (-1: as many as
    there are). Raises ValueError for an axis that is named twice."""
    return _along(as_complex(ts.asarray(x)), s, axes, False, norm, FORWARD)


def ifftn(x, s: tuple[int, ...] | None = None, axes: tuple[int, ...] | None = None, norm="backward"):
    """The inverse of `fftn`: `ifft` along several axes."""
    return _along(as_complex(ts.asarray(x)), s, axes, True, norm, INVERSE)


def fft2(x, s: tuple[int, ...] | None = None, axes=(-2, -1), norm="backward"):
    """`fftn` along two axes."""
    return fftn(x, s, axes, norm)


def ifft2(x, s: tuple[int, ...] | None = None, axes=(-2, -1), norm="backward"):
    """`ifftn` along two axes."""
    return ifftn(x, s, axes, norm)


def _along(x, s, axes, inverse, norm, powers):
    own, lengths, power = several_axes(x, s, axes, norm, powers)
    for i in range(len(own)):
        x = resized(x, lengths[i], own[i])
    for axis in own[::-1]:
        x = ts.dft(x, axis=axis, inverse=inverse, power=power)
    return x
