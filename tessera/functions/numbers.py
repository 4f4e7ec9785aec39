"""Integers where fractions are computed."""

from __future__ import annotations

import tessera as ts


def wide(dtype):
    """The dtype to compute in where f32 is enough for narrower ones."""
    return ts.f64 if dtype == ts.f64 else ts.f32


def real(x, dtype=ts.f32):
    """x, with integers and bools as numbers of `dtype`: those of few bits or without a sign would wrap where they are
    subtracted or multiplied, and cannot hold fractions. A plain number stays as it is."""
    if not hasattr(x, "dtype"):
        return x
    given = ts.asarray(x).dtype
    return x if given.is_float or given.is_complex else ts.astype(x, dtype)
