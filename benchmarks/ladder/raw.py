"""The GPU through the driver alone, with arrays of NumPy: no array library that may be missing or fail itself."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera.compiler.targets import base
from tessera.compiler.targets.cuda import nvrtc
from tessera.compiler.targets.cuda.call import steps
from tessera.compiler.targets.cuda.call.device import Driver, driver
from tessera.compiler.targets.cuda.call.launch import aligned_room, encode_tensor_map
from tessera.compiler.targets.cuda.write import cxx
from tessera.runtime.arrays.devices import best_target

POISON = 0xFF
"""What every byte of an output holds before a launch: NaN, where it is read as a float."""
GUARD = 512
"""Bytes around each array that must not change."""


class Gpu:
    """Device 0 with its primary context, which is made current."""

    def __init__(self) -> None:
        self.call = Driver(driver())
        self.call.ensure_context()
        self.capability = self.call.capability()
        self.target = best_target(self.capability)

    def finish(self) -> None:
        """Waits for everything, so that a fault is this case's and none of a later one's."""
        self.call("cuCtxSynchronize")

    def put(self, array: Any, shift: int = 0) -> Held:
        return Held(self, array, shift)

    def run(
        self, compiled: Any, arrays: Mapping[str, Any], scalars: Sequence[Any] = (), dims: Sequence[int] = (), *,
        shift: int = 0,
    ) -> dict[str, Any]:  # fmt: skip
        """Launches a compiled program; all its arrays afterwards by name. An output is given as (shape, dtype),
        and poisoned. `shift`: bytes that every array starts behind a 256-byte boundary."""
        executable: Any = base.get(compiled.artifact.target).load(compiled.artifact)
        held: dict[str, Held] = {}
        for buffer in compiled.artifact.meta["buffers"]:
            if buffer["role"] not in ("input", "output"):
                continue
            value = arrays[buffer["name"]]
            if isinstance(value, tuple):
                shape, dtype = value
                value = np.frombuffer(
                    bytes([POISON]) * int(np.prod(shape)) * np.dtype(dtype).itemsize, dtype
                ).reshape(shape)  # fmt: skip
            held[buffer["name"]] = self.put(value, shift)
        executable.run([h.pointer for h in held.values()], scalars, dims)
        self.finish()
        return {name: h.get() for name, h in held.items()}

    def kernel(self, source: str, name: str) -> Any:
        """A kernel written by hand over the library's headers, loaded."""
        code, _ = nvrtc.compile_cubin(source, self.target, name, [])
        held = ctypes.create_string_buffer(code, len(code))
        module = self.call("cuModuleLoadData", ctypes.addressof(held))
        return self.call("cuModuleGetFunction", module, cxx.kernel_symbol(name).encode())

    def launch(self, function: Any, grid: int, threads: int, shared: int, *arguments: bytes) -> None:
        """`arguments`: the bytes of each parameter."""
        places = [aligned_room(max(16, len(a))) for a in arguments]
        for place, argument in zip(places, arguments, strict=True):
            ctypes.memmove(place, argument, len(argument))
        table = (ctypes.c_void_p * len(places))(*(ctypes.addressof(p) for p in places))
        self.call(
            "cuLaunchKernel", function, grid, 1, 1, threads, 1, 1, shared, 0, ctypes.addressof(table), 0
        )  # fmt: skip
        self.finish()

    def tensor_map(self, held: Held, dtype: str, box: tuple[int, int]) -> bytes:
        """Of a row-major matrix."""
        rows, cols = held.like.shape
        row = cols * held.like.itemsize
        return encode_tensor_map(self.call, steps.BoundTensorMap(held.pointer, dtype, (cols, rows), (row,), box))


class Held:
    """An array in the GPU's memory, with guards before and behind it."""

    def __init__(self, gpu: Gpu, array: Any, shift: int = 0) -> None:
        self.gpu, self.like, self.shift = gpu, np.ascontiguousarray(array), shift
        self.size = 2 * GUARD + shift + self.like.nbytes
        self.place = int(gpu.call("cuMemAlloc", self.size))
        raw = bytearray(b"\xa5" * self.size)
        raw[GUARD + shift : GUARD + shift + self.like.nbytes] = self.like.tobytes()
        self.written = bytes(raw)
        room = ctypes.create_string_buffer(self.written, self.size)
        gpu.call("cuMemcpyHtoD", self.place, ctypes.addressof(room), self.size)

    @property
    def pointer(self) -> int:
        return self.place + GUARD + self.shift

    def get(self) -> Any:
        """The array now. Raises AssertionError where something was written around it."""
        room = ctypes.create_string_buffer(self.size)
        self.gpu.call("cuMemcpyDtoH", ctypes.addressof(room), self.place, self.size)
        first = GUARD + self.shift
        last = first + self.like.nbytes
        assert room.raw[:first] == self.written[:first], "something was written before an array"
        assert room.raw[last:] == self.written[last:], "something was written behind an array"
        return np.frombuffer(bytearray(room.raw[first:last]), self.like.dtype).reshape(self.like.shape)


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")
