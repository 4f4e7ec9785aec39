"""Discrete Fourier transforms, with NumPy's names and meanings, in functions and outside.

They are programs over the operators `ts.dft`, `ts.rdft` and `ts.irdft`, to be read and copied. Real numbers of f32 and
less, and integers, give complex64; f64 gives complex128.
"""

from __future__ import annotations

import importlib
from typing import Any

from tessera.deferred import deferred

HOME = {
    **dict.fromkeys(("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn"), "whole"),
    **dict.fromkeys(("rfft", "irfft", "hfft", "ihfft", "rfft2", "irfft2", "rfftn", "irfftn"), "real"),
    **dict.fromkeys(("fftfreq", "rfftfreq", "fftshift", "ifftshift"), "frequencies"),
}
"""the module of each name"""
__all__ = [  # pyright: ignore[reportUnsupportedDunderAll]
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in HOME:
        raise AttributeError(f"module 'tessera.fft' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = deferred("runtime.eager.made").made(getattr(importlib.import_module(f"tessera.fft.{HOME[name]}"), name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
