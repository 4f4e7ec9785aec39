"""Discrete Fourier transforms: those of `ts.fft`, with the standard's parameters.

f32 and complex64 give complex64, f64 and complex128 complex128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from tessera.compiler.machines import HOST
from tessera.deferred import deferred
from tessera.language import dtypes
from tessera.runtime.eager.tensor import Tensor
from tessera.runtime.standard.host import dtype_named, public, refused, tensor

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip
Norm = Literal["backward", "ortho", "forward"]


def _run(name: str, *args: Any, **kwargs: Any) -> Tensor:
    """A function of `ts.fft`. Raises LaunchError TS501 for arguments that it refuses."""
    try:
        return getattr(deferred("fft"), name)(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise refused(f"{name}: {error}") from None


def _along_one(name: str, doc: str) -> Callable[..., Tensor]:
    def transform(x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
        return _run(name, tensor(x), n, axis, norm)

    transform.__name__, transform.__qualname__, transform.__doc__ = name, name, doc
    return transform


def _along_several(name: str, doc: str) -> Callable[..., Tensor]:
    def transform(x: Any, /, *, s: Any = None, axes: Any = None, norm: Norm = "backward") -> Tensor:
        return _run(name, tensor(x), s, axes, norm)

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
    made = _run(name, n, d, wanted)
    return made if device in (None, HOST) else made.to(device)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `fft`'s results, in cycles per unit of the spacing `d`."""
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of `rfft`'s results, in cycles per unit of the spacing `d`."""
    return _frequencies("rfftfreq", n, d, dtype, device)


def fftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """Frequency 0 in the middle."""
    return _run("fftshift", tensor(x), axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _run("ifftshift", tensor(x), axes)


public(globals(), __all__)
