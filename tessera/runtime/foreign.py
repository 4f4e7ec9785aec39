"""Arrays of libraries that are not known by type: taken and given through the exchange protocols."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable
from typing import Any

from tessera.errors import Diagnostic, LaunchError
from tessera.language.lazy import np
from tessera.runtime.arrays import Adapter, View, unusable
from tessera.runtime.libraries import CUPY, NUMPY, ThroughCupy, cupy

_CPU_DEVICES = (1, 3)  # DLPack's kDLCPU and kDLCUDAHost
_CUDA_DEVICES = (2, 13)  # kDLCUDA and kDLCUDAManaged
# DLPack's type codes of floats that NumPy does not exchange: dlpack.h 1.1
_DLPACK_CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}


def storage_of(array: Any) -> Any:
    """A NumPy or CuPy array over the memory of any array that speaks a protocol. Raises LaunchError TS501, TS504."""
    if hasattr(array, "__dlpack_device__"):
        kind = int(array.__dlpack_device__()[0])
        if kind in _CPU_DEVICES:
            return _from_dlpack(np, array)
        if kind in _CUDA_DEVICES:
            return _from_dlpack(cupy(), array)
        raise LaunchError(
            Diagnostic("TS504", f"the array lives on a device (DLPack type {kind}) that Tessera has no target for")
        )
    if hasattr(array, "__cuda_array_interface__"):
        return cupy().asarray(array)
    if hasattr(array, "__array_interface__"):
        return np.asarray(array)
    raise unusable(f"{type(array).__name__} is not an array: it has neither __dlpack__ nor __array_interface__")


def _from_dlpack(library: Any, array: Any) -> Any:
    try:
        return library.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise unusable(f"{type(array).__name__} refuses to share its memory: {error}") from None


def _inner(storage: Any) -> Adapter:
    return NUMPY if isinstance(storage, np.ndarray) else CUPY


class ForeignAdapter(ThroughCupy):
    """Results for such arguments are `tessera.Tensor`s, which speak the same protocols."""

    name = "foreign"
    ordered = False
    transient = True  # an image, say, hands out a copy of its pixels each time

    def key(self, array: Any) -> Hashable:
        storage = storage_of(array)
        return type(storage), _inner(storage).key(storage)

    def view(self, array: Any) -> View:
        storage = storage_of(array)
        return _inner(storage).view(storage)

    def writable(self, array: Any) -> bool:
        return self.view(array).writable

    def contiguous(self, array: Any) -> Any:
        storage = storage_of(array)
        return (NUMPY if isinstance(storage, np.ndarray) else CUPY).contiguous(storage)

    def finish(self, array: Any) -> Any:
        return self.wrap(array)

    def numpy(self, array: Any) -> Any:
        storage = storage_of(array)
        return storage if isinstance(storage, np.ndarray) else storage.get()

    def wrap(self, array: Any) -> Any:
        from tessera.runtime.tensor import Tensor  # made of what this module offers

        return Tensor(array)


FOREIGN = ForeignAdapter()


def dlpack(array: Any, **options: Any) -> Any:
    """A DLPack capsule of a NumPy or CuPy array, small floats included.

    NumPy exchanges only dtypes of its own, so a small float goes out as integers of its width and the capsule's type
    code is then set to what the bits mean. Raises BufferError for dtypes that DLPack has no code for.
    """
    code = _DLPACK_CODES.get(array.dtype.name)
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view({1: np.uint8, 2: np.uint16}[array.dtype.itemsize]).__dlpack__(**options)
    name = _capsule_name(capsule)
    # DLTensor: data (8 bytes), device (4 + 4), ndim (4), type code (1); DLManagedTensorVersioned has 32 bytes before it
    offset = 20 if name == b"dltensor" else 52
    ctypes.c_uint8.from_address(_capsule_pointer(capsule, name) + offset).value = code
    return capsule


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
