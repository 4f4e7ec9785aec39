"""Discrete Fourier transforms: pocketfft through NumPy on the CPU, cuFFT through CuPy on a GPU.

They are not part of `@ts.function` graphs. f32 and complex64 give complex64, f64 and complex128 complex128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tessera.language import dtypes
from tessera.language.lazy import np
from tessera.runtime.eager.tensor import Tensor
from tessera.runtime.standard.host import dtype_named, library, placed, public, refused, run, tensor

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip
Norm = Literal["backward", "ortho", "forward"]


def _along_one(name: str, doc: str) -> Callable[..., Tensor]:
    def transform(x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        x = tensor(x)
        return run(getattr(library(x).fft, name), x, n=n, axis=axis, norm=norm)

    transform.__name__, transform.__qualname__, transform.__doc__ = name, name, doc
    return transform


def _along_several(name: str, doc: str) -> Callable[..., Tensor]:
    def transform(x: Any, /, *, s: Any = None, axes: Any = None, norm: Norm = "backward") -> Tensor:
        x = tensor(x)
        if s is not None and axes is None:
            axes = tuple(range(x.ndim - len(s), x.ndim))
        return run(getattr(library(x).fft, name), x, s=s, axes=axes, norm=norm)

    transform.__name__, transform.__qualname__, transform.__doc__ = name, name, doc
    return transform


fft = _along_one("fft", "The transform along `axis`, of `n` elements (cut off, or filled with zeros).")
ifft = _along_one("ifft", "The inverse of `fft`.")
rfft = _along_one("rfft", "The transform of real numbers: frequencies from 0 to half the rate.")
irfft = _along_one("irfft", "The inverse of `rfft`; `n` is the number of results.")
hfft = _along_one("hfft", "The transform of a signal whose spectrum is real.")
ihfft = _along_one("ihfft", "The inverse of `hfft`.")
fftn = _along_several("fftn", "The transform along several axes (None: all), of `s` elements each.")
ifftn = _along_several("ifftn", "The inverse of `fftn`.")
rfftn = _along_several("rfftn", "The transform of real numbers along several axes; the last one has half of it.")
irfftn = _along_several("irfftn", "The inverse of `rfftn`.")


def _frequencies(name: str, n: int, d: float, dtype: Any, device: Any) -> Tensor:
    wanted = dtypes.f32 if dtype is None else dtype_named(dtype)
    if not wanted.is_float:
        raise refused(f"{name} gives floats, not {wanted}")
    return placed(run(getattr(np.fft, name), n, d=d).numpy().astype(wanted.numpy), device)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft`'s results, in cycles per unit of the spacing `d`."""
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft`'s results, in cycles per unit of the spacing `d`."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def fftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """Frequency 0 in the middle."""
    x = tensor(x)
    return run(library(x).fft.fftshift, x, axes=axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    x = tensor(x)
    return run(library(x).fft.ifftshift, x, axes=axes)


public(globals(), __all__)
