"""What the transforms do with their arguments."""

from __future__ import annotations

import tessera as ts

FORWARD = {"backward": 0.0, "ortho": -0.5, "forward": -1.0}
"""by which power of the length `norm` multiplies a transform"""
INVERSE = {"backward": -1.0, "ortho": -0.5, "forward": 0.0}
"""the same of an inverse one"""


def is_complex(x):
    return x.dtype in (ts.complex64, ts.complex128)


def as_complex(x):
    """`x` as complex numbers: those of f64 as complex128, all others as complex64."""
    if is_complex(x):
        return x
    return ts.astype(x, ts.complex128 if x.dtype == ts.f64 else ts.complex64)


def as_real(x, name):
    """`x` as f32 or f64. Complex numbers are refused."""
    if is_complex(x):
        raise TypeError(
            f"{name} takes real numbers, not {x.dtype}; say which part of them, ts.real(x), or use the "
            f"transform of complex numbers"
        )
    return x if x.dtype in (ts.f32, ts.f64) else ts.astype(x, ts.f32)


def one_axis(x, n, axis, norm, powers):
    """`x` with `n` elements along `axis` (None: as many as it has), and by which power of n `norm` multiplies."""
    return resized(x, n, axis), _power(x, norm, powers)


def several_axes(x, s, axes, norm, powers):
    """The axes of a transform along several, counted from 0, the length along each (None: it stays), and the power."""
    for name, numbers in (("s", s), ("axes", axes)):
        if numbers is not None and not isinstance(numbers, (tuple, list)):
            raise TypeError(f"{name} is a tuple with a number for each axis, not {numbers!r}")
    rank = len(x.shape)
    if axes is None:
        axes = tuple(range(rank)) if s is None else tuple(range(rank - len(s), rank))
    for a in axes:
        if not -rank <= a < rank:
            raise ValueError(f"axis {a} of a tensor with {rank} axes")
    own = tuple(a % rank for a in axes)
    if len(set(own)) != len(own):
        raise ValueError(f"axes {tuple(axes)} name one axis twice")
    if len(own) == 0:
        raise ValueError("a transform needs at least one axis")
    lengths = (None,) * len(own) if s is None else tuple(None if n == -1 else n for n in s)
    if len(lengths) != len(own):
        raise ValueError(f"s has {len(lengths)} lengths for {len(own)} axes")
    return own, lengths, _power(x, norm, powers)


def resized(x, n, axis):
    """`x` with `n` elements along `axis`: cut off, or filled with zeros behind. None: as many as it has."""
    if n is None:
        return x
    if not isinstance(n, int):
        raise TypeError(f"the length of a transform is a whole number, not {n!r}")
    if n < 1:
        raise ValueError(f"a transform has at least 1 element, not {n}")
    return ts.fit_length(x, n, axis)


def _power(x, norm, powers):
    if norm is None:
        norm = "backward"
    if norm not in powers:
        raise ValueError(f"norm is 'backward', 'ortho' or 'forward', not {norm!r}")
    return powers[norm]
