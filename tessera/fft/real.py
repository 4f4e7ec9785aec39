"""Transforms of real numbers, and those with real results: half of the complex numbers say all."""

from __future__ import annotations

import tessera as ts
from tessera.fft.arguments import FORWARD, INVERSE, as_complex, as_real, one_axis, resized, several_axes


def rfft(x, n: int | None = None, axis: int = -1, norm="backward"):
    """Results 0 to n // 2 of `fft` of real numbers, in about half of its time; the others are their conjugates.

    Raises TypeError for complex numbers.
    """
    x, power = one_axis(as_real(ts.asarray(x), "rfft"), n, axis, norm, FORWARD)
    return ts.rdft(x, axis, power)


def irfft(x, n: int | None = None, axis: int = -1, norm="backward"):
    """The inverse of `rfft`: `n` real numbers, by default 2 (m - 1) of m complex ones.

    The imaginary parts of result 0, and of result n / 2, are taken for 0.
    """
    x, power = one_axis(as_complex(ts.asarray(x)), None, axis, norm, INVERSE)
    return _to_real(x, n, axis, power)


def hfft(x, n: int | None = None, axis: int = -1, norm="backward"):
    """The real spectrum, of `n` numbers, of a signal whose second half is the conjugate of the first: m numbers of
    it are given, 2 (m - 1) by default."""
    x, power = one_axis(as_complex(ts.asarray(x)), None, axis, norm, FORWARD)
    return _to_real(ts.conj(x), n, axis, power)


def ihfft(x, n: int | None = None, axis: int = -1, norm="backward"):
    """The inverse of `hfft`: numbers 0 to n // 2 of the signal with this real spectrum."""
    x, power = one_axis(as_real(ts.asarray(x), "ihfft"), n, axis, norm, INVERSE)
    return ts.conj(ts.rdft(x, axis, power))


def rfftn(x, s: tuple[int, ...] | None = None, axes: tuple[int, ...] | None = None, norm="backward"):
    """`rfft` along the last one of `axes`, then `fft` along the others; `s` and `axes` as for `fftn`."""
    x = as_real(ts.asarray(x), "rfftn")
    own, lengths, power = several_axes(x, s, axes, norm, FORWARD)
    for i in range(len(own)):
        x = resized(x, lengths[i], own[i])
    x = ts.rdft(x, own[-1], power)
    for axis in own[-2::-1]:
        x = ts.dft(x, axis=axis, power=power)
    return x


def irfftn(x, s: tuple[int, ...] | None = None, axes: tuple[int, ...] | None = None, norm="backward"):
    """The inverse of `rfftn`; the last of `s` is the number of results along the last axis."""
    x = as_complex(ts.asarray(x))
    own, lengths, power = several_axes(x, s, axes, norm, INVERSE)
    for i in range(len(own) - 1):
        x = ts.dft(resized(x, lengths[i], own[i]), axis=own[i], inverse=True, power=power)
    return _to_real(x, lengths[-1], own[-1], power)


def rfft2(x, s: tuple[int, ...] | None = None, axes=(-2, -1), norm="backward"):
    """`rfftn` along two axes."""
    return rfftn(x, s, axes, norm)


def irfft2(x, s: tuple[int, ...] | None = None, axes=(-2, -1), norm="backward"):
    """`irfftn` along two axes."""
    return irfftn(x, s, axes, norm)


def _to_real(x, n, axis, power):
    if n is None:
        return ts.irdft(x, 2 * (x.shape[axis] - 1), axis, power)
    if n < 1:
        raise ValueError(f"a transform has at least 1 element, not {n}")
    return ts.irdft(resized(x, n // 2 + 1, axis), n, axis, power)
