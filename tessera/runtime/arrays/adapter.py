"""Arrays of any library as addresses with shapes: what an `Adapter` says about the arrays of one library."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from time import perf_counter_ns
from typing import Any

from tessera.errors import Diagnostic, LaunchError
from tessera.immutable import immutable
from tessera.language import dtypes
from tessera.language.dtypes import DType
from tessera.nearest import nearest


@immutable
class ArrayView:
    """One array as a kernel sees it. `strides` in bytes; `owner` keeps the memory alive; `device` "cpu" or "cuda:0"."""

    pointer: int
    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...]
    device: str
    writable: bool
    owner: Any

    @property
    def contiguous(self) -> bool:
        """C order without gaps; axes of size 1 may have any stride, and an array without elements is contiguous."""
        return is_contiguous(self.shape, self.strides, self.dtype.itemsize)


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    if 0 in shape:
        return True
    expected = itemsize
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a C-contiguous array."""
    out: list[int] = []
    for size in reversed(shape):
        out.append(itemsize)
        itemsize *= size
    return tuple(reversed(out))


class Adapter:
    """What the runtime does with the arrays of one library."""

    name = ""
    immutable: str = ""
    """why a kernel may not store into these arrays, where it may not"""
    ordered = True
    """whether freed memory is used again only after what is on the library's `stream` by then"""
    held = ""
    """the attribute of an array in which it keeps one of NumPy's or CuPy's, where it has no memory of its own"""
    wrapper: type[Any] | None = None
    """the class of results, where one is no more than what it keeps in `held`"""
    constant = False
    """whether the elements of an array never change, and its key is its own: code may keep what it derives from them"""
    transient = False
    """whether an address lasts only as long as the view it was asked with"""

    def key(self, array: Any) -> Hashable:
        """All that a prepared launch depends on except the address; cheap, as it is asked for at every call."""
        raise NotImplementedError

    def view(self, array: Any) -> ArrayView:
        """Raises LaunchError TS501 with a reason for people where a kernel cannot see this array."""
        raise NotImplementedError

    def pointer(self, array: Any) -> int:
        """The address, for an array whose key has been seen by `view` before."""
        return self.view(array).pointer

    def writable(self, array: Any) -> bool:
        """Whether a kernel may store into it, for an array whose key has been seen by `view` before."""
        return not self.immutable

    def contiguous(self, array: Any) -> Any:
        """A C-contiguous copy in the same library."""
        raise NotImplementedError

    def empty(self, shape: tuple[int, ...], dtype: DType, device: str) -> tuple[Any, int]:
        """A new uninitialised array, possibly provisional (see `finish`), and its address."""
        raise NotImplementedError

    def finish(self, array: Any) -> Any:
        """The result as the library wants it, once it has been written."""
        return array

    def numpy(self, array: Any) -> Any:
        """The content as a NumPy array, shared where the library can."""
        raise NotImplementedError

    def wrap(self, array: Any) -> Any:
        """A NumPy array as an array of this library, shared where it can be."""
        raise NotImplementedError

    def stream(self, device: str) -> int:
        """The CUDA stream that the library's work is ordered on."""
        return 0

    def stream_owner(self, device: str) -> Any:
        """What keeps that stream alive; None where nothing has to."""
        return None

    def stream_reader(self, device: str) -> Callable[[], int]:
        """The quickest way to `stream(device)` while that device is the current one."""
        return lambda: self.stream(device)

    def current(self, device: str) -> AbstractContextManager[Any]:
        """Makes a CUDA device the current one inside a `with` block."""
        raise NotImplementedError

    def stopwatch(self) -> Callable[[], int]:
        """Starts measuring on the current CUDA device's stream; the function that is returned waits and says the ns."""
        raise NotImplementedError


def host_stopwatch() -> Callable[[], int]:
    """Starts measuring on this processor; the function that is returned says the ns."""
    start = perf_counter_ns()
    return lambda: perf_counter_ns() - start


def device_index(device: str) -> int:
    """1 of "cuda:1"."""
    return int(device.partition(":")[2] or 0)


def dtype_of(dtype: Any, what: str = "an array") -> DType:
    """Tessera's dtype for a library's. Raises LaunchError TS501 where there is none."""
    found = dtypes.of(dtype)
    if found is None and isinstance(dtype, str):
        near = nearest(dtype, [*dtypes.BY_NAME, *dtypes.ALIASES])
        raise unusable(f"there is no dtype {dtype!r}{f'; did you mean {near!r}?' if near else ''}")
    if found is None:
        hint = _STRANGE.get(getattr(dtype, "kind", ""), "")
        fix = "convert it with .astype(np.float32)"
        raise unusable(f"{what} has dtype {dtype}{hint}, which no kernel can compute with; {fix}")
    return found


_STRANGE = {
    "O": " (a Python object in each element)", "U": " (text)", "S": " (bytes)", "M": " (dates)", "m": " (times)",
    "V": " (records)",
}  # fmt: skip
"""NumPy's kinds of dtypes without arithmetic"""


def unusable(message: str) -> LaunchError:
    return LaunchError(Diagnostic("TS501", message))
