"""The elements of an array as texts for a hint: all of them where there are few, else statistics, of a sample where
there are very many. An array that is not in the host's memory, or not computed yet, is not read: that would wait."""

from __future__ import annotations

import math
from typing import Any, TypedDict

import numpy as np

from tessera.errors import TesseraError
from tessera.runtime.arrays.libraries import adapter_of

SHOWN = 8
"""elements that stand in a hint"""
READ = 2_000_000
"""elements of which all are read: about a millisecond"""
SAMPLE = 32_768
"""elements that are read of larger arrays"""
_HOST = (1, 3)
"""DLPack's kDLCPU and kDLCUDAHost"""
_GOLDEN = (math.sqrt(5) - 1) / 2


class ElementTexts(TypedDict, total=False):
    """Numbers are rounded texts. `values`: all elements, in brackets by axis; `first`: the first ones of more.
    `least`, `most`, `mean`: of those that are numbers, of magnitudes where `complex`; `true`: how many booleans are;
    `nan`, `inf`: how many are not finite, absent if none. `read`: how many elements the figures are of, where not of
    all. `unread`: why nothing is known."""

    values: str
    first: str
    least: str
    most: str
    mean: str
    true: int
    nan: int
    inf: int
    complex: bool
    read: int
    unread: str


def elements(array: Any) -> ElementTexts:
    """What a hint may say of an array's elements. Never waits for a device, and reads at most `READ` of them."""
    reason = _not_readable(array)
    if reason:
        return {"unread": reason}
    adapter = adapter_of(array)
    assert adapter is not None  # it has __dlpack__
    try:
        return _described(adapter.numpy(array))
    except (TesseraError, RuntimeError, TypeError, ValueError) as error:  # sparse, deleted, traced ...
        return {"unread": f"its library refuses to show them: {str(error).partition(chr(10))[0][:200]}"}


def _not_readable(array: Any) -> str:
    try:
        kind, number = array.__dlpack_device__()
    except Exception as error:
        return f"its device is not known: {type(error).__name__}"
    if int(kind) not in _HOST:
        return f"they lie on device {number}, and reading them would wait for its work"
    ready = getattr(array, "is_ready", None)
    return "they are being computed" if callable(ready) and not ready() else ""


def _described(host: np.ndarray) -> ElementTexts:
    if host.dtype.kind == "V":  # bf16, fp8 and the like, which NumPy has no arithmetic for
        few = host if host.size <= READ else _sample(host)
        found = _figures(few.astype(np.float32), few.size < host.size)
    else:
        found = _figures(host if host.size <= READ else _sample(host), host.size > READ)
    if host.size <= SHOWN:
        found["values"] = _nested(host)
    else:
        head = _first(host)
        found["first"] = f"[{', '.join(_number(x, 3) for x in head)}, ...]"
    return found


def _first(host: np.ndarray) -> list[Any]:
    """The first elements, without a copy of the others."""
    return [host[np.unravel_index(i, host.shape)] for i in range(SHOWN)]


def _sample(host: np.ndarray) -> np.ndarray:
    """ElementTexts from places that no period of the array meets: multiples of the golden ratio, modulo 1."""
    places = (np.arange(SAMPLE) * _GOLDEN % 1 * host.size).astype(np.int64)
    return host[np.unravel_index(places, host.shape)]


def _figures(numbers: np.ndarray, sampled: bool) -> ElementTexts:
    found: ElementTexts = {"read": numbers.size} if sampled else {}
    kind = numbers.dtype.kind
    if kind == "b":
        found["true"] = int(np.count_nonzero(numbers))
        return found
    if kind == "c":
        numbers, found["complex"] = np.abs(numbers), True
    if kind in "fc" and (nan := int(np.count_nonzero(np.isnan(numbers)))):
        found["nan"], numbers = nan, numbers[~np.isnan(numbers)]
    if not numbers.size:
        return found
    least, most = numbers.min(), numbers.max()
    if not (math.isfinite(least) and math.isfinite(most)):
        found["inf"] = int(np.count_nonzero(np.isinf(numbers)))
    with np.errstate(all="ignore"):  # infinities of both signs
        mean = numbers.mean(dtype=np.float64)
    found["least"], found["most"], found["mean"] = _number(least), _number(most), _number(mean)
    return found


def _nested(host: np.ndarray) -> str:
    if not host.ndim:
        return _number(host[()], 3)
    return f"[{', '.join(_nested(inner) for inner in host)}]" if host.size else "[]"


def _number(x: Any, digits: int = 4) -> str:
    if isinstance(x, (bool, np.bool_, int, np.integer)):
        return str(x)
    if isinstance(x, (complex, np.complexfloating)):
        return f"{complex(x):.{digits}g}"
    return f"{float(x):.{digits}g}"
