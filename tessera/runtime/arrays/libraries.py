"""The libraries whose arrays are known by type: NumPy, CuPy, PyTorch, JAX.

Nothing here imports one: an argument of type `torch.Tensor` exists only where PyTorch has been imported. What is not
known by its type is taken through `__dlpack__`, `__cuda_array_interface__` or `__array_interface__` (foreign.py).
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from tessera.deferred import deferred
from tessera.errors import Diagnostic, LaunchError, MissingDependency
from tessera.language.dtypes import DType
from tessera.language.lazy import np
from tessera.once import once
from tessera.runtime.arrays import host_memory
from tessera.runtime.arrays.adapter import Adapter, ArrayView, c_strides, device_index, dtype_of, unusable


class NumpyAdapter(Adapter):
    name = "numpy"
    _reader: Callable[[Any], int] | None = None

    def key(self, array: Any) -> Hashable:
        return array.dtype, array.shape, array.strides

    def view(self, array: Any) -> ArrayView:
        dtype = dtype_of(array.dtype)
        if not array.dtype.isnative:
            raise unusable(f"the array's bytes are in foreign order ({array.dtype.str}); "
                           'convert it with x.astype(x.dtype.newbyteorder("="))')  # fmt: skip
        if type(array) is not np.ndarray and hasattr(array, "mask"):
            raise unusable("a masked array has no meaning for a kernel; pass x.filled(value) or x.data")
        interface = array.__array_interface__
        return ArrayView(interface["data"][0], array.shape, dtype, array.strides, "cpu", array.flags.writeable, array)

    def pointer(self, array: Any) -> int:
        return self.pointer_reader()(array)

    def writable(self, array: Any) -> bool:
        return array.flags.writeable

    def pointer_reader(self) -> Callable[[Any], int]:
        """The quickest way to an array's address."""
        if self._reader is None:
            self._reader = _pointer_reader()
        return self._reader

    def contiguous(self, array: Any) -> Any:
        copy = host_memory.empty(array.shape, array.dtype, array.nbytes, "a contiguous copy")
        copy[...] = array
        return copy

    def empty(self, shape: tuple[int, ...], dtype: DType, device: str) -> tuple[Any, int]:
        array = host_memory.empty(shape, dtype.numpy, math.prod(shape) * dtype.itemsize)
        return array, self.pointer(array)

    def numpy(self, array: Any) -> Any:
        return np.asarray(array)

    def wrap(self, array: Any) -> Any:
        return array


def _pointer_reader() -> Callable[[Any], int]:
    """NumPy's own ways to an address cost a microsecond. Its C interface fixes that the address is the first field
    behind the object's head (PyArrayObject_fields), so it is read there, once probes have shown that this holds here.
    """
    offset, read = object.__basicsize__, ctypes.c_void_p.from_address
    probes = [np.empty(n, np.uint8) for n in (1, 1000)]
    if all(read(id(p) + offset).value == p.__array_interface__["data"][0] for p in probes):
        return lambda array: read(id(array) + offset).value or 0
    return lambda array: array.__array_interface__["data"][0]


class CupyAdapter(Adapter):
    name = "cupy"

    def key(self, array: Any) -> Hashable:
        return array.dtype, array.shape, array.strides, array.device.id

    def view(self, array: Any) -> ArrayView:
        dtype = dtype_of(array.dtype)
        return ArrayView(array.data.ptr, array.shape, dtype, array.strides, f"cuda:{array.device.id}", True, array)

    def pointer(self, array: Any) -> int:
        return array.data.ptr

    def contiguous(self, array: Any) -> Any:
        return cupy().ascontiguousarray(array)

    def empty(self, shape: tuple[int, ...], dtype: DType, device: str) -> tuple[Any, int]:
        library = cupy()
        nbytes = math.prod(shape) * dtype.itemsize
        with library.cuda.Device(device_index(device)):
            try:
                array = library.empty(shape, dtype.numpy)
            except library.cuda.memory.OutOfMemoryError:
                free = library.cuda.runtime.memGetInfo()[0]
                raise host_memory.too_large(nbytes, free, "result", device) from None
        return array, array.data.ptr

    def numpy(self, array: Any) -> Any:
        return array.get()

    def wrap(self, array: Any) -> Any:
        return cupy().asarray(array)

    def stream(self, device: str) -> int:
        return cupy().cuda.get_current_stream().ptr

    def stream_owner(self, device: str) -> Any:
        return cupy().cuda.get_current_stream()

    def stream_reader(self, device: str) -> Callable[[], int]:
        current = cupy().cuda.get_current_stream
        return lambda: current().ptr

    def current(self, device: str) -> AbstractContextManager[Any]:
        return cupy().cuda.Device(device_index(device))

    def stopwatch(self) -> Callable[[], int]:
        cuda = cupy().cuda
        start, end = cuda.Event(), cuda.Event()
        start.record()

        def stop() -> int:
            end.record()
            end.synchronize()
            return round(cuda.get_elapsed_time(start, end) * 1e6)

        return stop


class TorchAdapter(Adapter):
    name = "torch"

    def key(self, array: Any) -> Hashable:
        recorded = array.requires_grad and sys.modules["torch"].is_grad_enabled()  # such tensors are refused by view()
        return array.dtype, array.shape, array.stride(), array.device, recorded

    def view(self, array: Any) -> ArrayView:
        torch = sys.modules["torch"]
        if array.layout != torch.strided:
            raise unusable(f"the tensor is sparse ({array.layout}); pass x.to_dense()")
        if array.is_conj() or array.is_neg():
            raise unusable("the tensor is a lazy conjugate or negative; pass x.resolve_conj().resolve_neg()")
        if array.requires_grad and torch.is_grad_enabled():
            raise unusable("the tensor requires grad, and a kernel's results carry no PyTorch gradients; "
                           "pass x.detach(), or call it under torch.no_grad()")  # fmt: skip
        if array.device.type not in ("cpu", "cuda"):
            raise LaunchError(
                Diagnostic("TS504", f"the tensor lives on {array.device}; move it with x.cpu() or x.cuda()")
            )
        dtype = dtype_of(array.dtype)
        device = "cpu" if array.device.type == "cpu" else f"cuda:{array.device.index or 0}"
        strides = tuple(s * dtype.itemsize for s in array.stride())
        return ArrayView(array.data_ptr(), tuple(array.shape), dtype, strides, device, True, array)

    def pointer(self, array: Any) -> int:
        return array.data_ptr()

    def contiguous(self, array: Any) -> Any:
        return array.detach().contiguous()

    def empty(self, shape: tuple[int, ...], dtype: DType, device: str) -> tuple[Any, int]:
        torch = sys.modules["torch"]
        nbytes = math.prod(shape) * dtype.itemsize
        if device == "cpu" and nbytes >= host_memory.RECYCLED and dtype.numpy.name in _PLAIN:
            array = torch.from_numpy(host_memory.empty(shape, dtype.numpy, nbytes))
        else:
            try:
                array = torch.empty(shape, dtype=torch_dtype(dtype), device=device)
            except (torch.OutOfMemoryError, RuntimeError) as error:
                if "memory" not in str(error):
                    raise
                raise host_memory.too_large(nbytes, None, "result", device) from None
        return array, array.data_ptr()

    def numpy(self, array: Any) -> Any:
        torch = sys.modules["torch"]
        array = array.detach().cpu()
        dtype = dtype_of(array.dtype)
        if dtype.numpy.name in _PLAIN:
            return array.numpy()
        return array.view({1: torch.uint8, 2: torch.int16}[dtype.itemsize]).numpy().view(dtype.numpy)

    def wrap(self, array: Any) -> Any:
        torch = sys.modules["torch"]
        if array.dtype.name in _PLAIN:
            return torch.from_numpy(array)
        plain = array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize])
        return torch.from_numpy(plain).view(torch_dtype(dtype_of(array.dtype)))

    def stream(self, device: str) -> int:
        return sys.modules["torch"].cuda.current_stream(device).cuda_stream

    def stream_owner(self, device: str) -> Any:
        return sys.modules["torch"].cuda.current_stream(device)

    def stream_reader(self, device: str) -> Callable[[], int]:
        raw = getattr(sys.modules["torch"]._C, "_cuda_getCurrentRawStream", None)  # makes no Stream object
        return super().stream_reader(device) if raw is None else partial(raw, device_index(device))

    def current(self, device: str) -> AbstractContextManager[Any]:
        return sys.modules["torch"].cuda.device(device_index(device))

    def stopwatch(self) -> Callable[[], int]:
        cuda = sys.modules["torch"].cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()

        def stop() -> int:
            end.record()
            end.synchronize()
            return round(start.elapsed_time(end) * 1e6)

        return stop


_PLAIN = frozenset(
    {"float64", "float32", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
     "complex64", "complex128"}
)  # fmt: skip
"""dtypes that NumPy itself has, and that libraries exchange with it"""


def torch_dtype(dtype: DType) -> Any:
    """PyTorch's dtype object. Raises LaunchError TS501 where PyTorch has none."""
    found = getattr(sys.modules["torch"], dtype.numpy_name, None)
    if found is None:
        raise unusable(f"PyTorch has no dtype for a result of {dtype}; pass NumPy arrays instead")
    return found


class ThroughCupy(Adapter):
    """A library without CUDA memory of its own to give out: results there are CuPy's."""

    def current(self, device: str) -> AbstractContextManager[Any]:
        return CUPY.current(device)

    def stopwatch(self) -> Callable[[], int]:
        return CUPY.stopwatch()

    def stream(self, device: str) -> int:
        return CUPY.stream(device)

    def stream_owner(self, device: str) -> Any:
        return CUPY.stream_owner(device)

    def stream_reader(self, device: str) -> Callable[[], int]:
        return CUPY.stream_reader(device)

    def empty(self, shape: tuple[int, ...], dtype: DType, device: str) -> tuple[Any, int]:
        return (CUPY if device.startswith("cuda") else NUMPY).empty(shape, dtype, device)


class JaxAdapter(ThroughCupy):
    """JAX's arrays on the CPU are read where they lie, through the NumPy view that JAX gives."""

    name = "jax"
    immutable = "belongs to JAX, whose arrays never change"
    ordered = False

    def key(self, array: Any) -> Hashable:
        return array.dtype, array.shape, array.sharding

    def view(self, array: Any) -> ArrayView:
        jax = sys.modules["jax"]
        if isinstance(array, jax.core.Tracer):
            raise unusable(
                "a kernel cannot be called on values that JAX is tracing (inside jit, grad or vmap); call it outside"
            )
        devices = array.devices()
        if len(devices) != 1:
            raise LaunchError(
                Diagnostic("TS504", f"the array is sharded over {len(devices)} devices; gather it on one first")
            )
        (device,) = devices
        dtype = dtype_of(array.dtype)
        strides = c_strides(array.shape, dtype.itemsize)
        if device.platform == "cpu":
            host = np.asarray(array)
            return ArrayView(host.__array_interface__["data"][0], array.shape, dtype, host.strides, "cpu", False, host)
        if device.platform in ("gpu", "cuda"):
            array.block_until_ready()
            pointer = array.unsafe_buffer_pointer()
            return ArrayView(
                pointer, array.shape, dtype, strides, f"cuda:{device.local_hardware_id or 0}", False, array
            )
        raise LaunchError(Diagnostic("TS504", f"the array lives on {device.platform}; move it with jax.device_put"))

    def contiguous(self, array: Any) -> Any:
        return array  # always is

    def finish(self, array: Any) -> Any:
        return self.wrap(array)

    def numpy(self, array: Any) -> Any:
        return np.asarray(array)

    def wrap(self, array: Any) -> Any:
        # Shares the memory. JAX makes 64-bit results 32-bit unless jax_enable_x64 is set, as it does with its own.
        jax = sys.modules["jax"]
        if type(array) is np.ndarray and array.dtype.name not in _PLAIN:
            return jax.numpy.asarray(array)
        return jax.dlpack.from_dlpack(array)


NUMPY, CUPY, TORCH, JAX = NumpyAdapter(), CupyAdapter(), TorchAdapter(), JaxAdapter()
_BY_TYPE: dict[type, Adapter | None] = {}
_EXTRA: list[Callable[[type], Adapter | None]] = []


def register(find: Callable[[type], Adapter | None]) -> None:
    """Adds a way to find the adapter of a type; asked before the libraries that are known here."""
    _EXTRA.append(find)
    _BY_TYPE.clear()


@once
def own_library() -> Adapter:
    """`tessera.Tensor`'s: what results are where no argument says to which library they belong."""
    return deferred("runtime.eager.tensor").TENSOR


def adapter_of(value: Any) -> Adapter | None:
    """The adapter for an argument; None for what is not an array."""
    kind = type(value)
    try:
        return _BY_TYPE[kind]
    except KeyError:
        found = _BY_TYPE[kind] = _find(kind)
        return found


def _find(kind: type) -> Adapter | None:
    for find in _EXTRA:
        if (found := find(kind)) is not None:
            return found
    modules = sys.modules
    for module, name, adapter in (
        ("numpy", "ndarray", NUMPY), ("torch", "Tensor", TORCH), ("jax", "Array", JAX), ("cupy", "ndarray", CUPY)
    ):  # fmt: skip
        base = getattr(modules.get(module), name, None)
        if isinstance(base, type) and issubclass(kind, base):
            return adapter
    if "jax" in modules and issubclass(kind, modules["jax"].core.Tracer):
        return JAX  # whose view says that it cannot be used
    if any(hasattr(kind, name) for name in ("__dlpack__", "__cuda_array_interface__", "__array_interface__")):
        return FOREIGN if not issubclass(kind, np.generic) else None
    return None


def cupy() -> Any:
    """The CuPy module. Raises MissingDependency where it is not installed or finds no CUDA."""
    try:
        import cupy  # optional: the extra cuda  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingDependency("CuPy", "cuda", "memory on a CUDA device") from None
    return cupy


# Arrays of libraries that are not known by type: taken and given through the exchange protocols.

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

    def view(self, array: Any) -> ArrayView:
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
        return own_library().wrap(array)


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
