"""Launches with everything settled but addresses and scalars: what a repeated run writes and calls, and no more."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

from tessera.compiler.targets.cuda.call import steps
from tessera.errors import DeviceError
from tessera.immutable import mutable
from tessera.language import dtypes

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64
"""Bytes that a tensor map's own address is a multiple of (CUDA Driver API, cuTensorMapEncodeTiled)."""
MOST_ENCODED = 256
"""Addresses per tensor map whose encoding is kept."""
SLOT = 16
"""Bytes that a parameter is given: they hold the widest scalar."""
_TENSOR_TYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16", "tf32": "TFLOAT32"}
"""CUtensorMapDataType by dtype; copies of TFLOAT32 round to tf32."""
_CODES = {
    "f32": "f", "f64": "d", "bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B",
    "uint16": "H", "uint32": "I", "uint64": "Q",
}  # fmt: skip
"""struct's letters for scalars; others are packed as bytes."""


class DriverCalls(Protocol):
    """The driver's functions with errors raised as DeviceError."""

    bindings: Any

    def __call__(self, name: str, *arguments: Any) -> Any: ...


def aligned_room(size: int) -> ctypes.Array[ctypes.c_char]:
    """Zeroed memory of `size` bytes at an address that suits a tensor map."""
    room = ctypes.create_string_buffer(size + TENSOR_MAP_ALIGNMENT)
    return (ctypes.c_char * size).from_buffer(room, -ctypes.addressof(room) % TENSOR_MAP_ALIGNMENT)


_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int,
)  # fmt: skip
"""cuTensorMapEncodeTiled as cuda.h declares it."""
_SINCE = 12000
"""The CUDA version that brought it."""


def encode_tensor_map(driver: DriverCalls, t: steps.BoundTensorMap) -> bytes:
    """CUtensorMap: a swizzle of the box's lines, zeros outside, lines of 256 bytes in the second-level cache.

    The function is called directly: the bindings' own call encodes into an object of theirs at any address, and
    the driver refuses three addresses of four. Raises DeviceError.
    """
    b = driver.bindings
    line = t.box[0] * dtypes.BY_NAME[t.dtype].itemsize
    place = int(driver("cuGetProcAddress", b"cuTensorMapEncodeTiled", _SINCE, 0) or 0)
    if not place:
        raise DeviceError("This NVIDIA driver has no tensor copies (TMA), which need one of CUDA 12 or later.")
    out, rank = aligned_room(TENSOR_MAP_BYTES), len(t.sizes)
    sizes, strides = (ctypes.c_uint64 * rank)(*t.sizes), (ctypes.c_uint64 * rank)(*t.strides)
    box, every = (ctypes.c_uint32 * rank)(*t.box), (ctypes.c_uint32 * rank)(*(1,) * rank)
    status = _ENCODE(place)(
        ctypes.addressof(out),
        int(getattr(b.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TENSOR_TYPES[t.dtype]}")),
        rank,
        t.address,
        ctypes.addressof(sizes),
        ctypes.addressof(strides),
        ctypes.addressof(box),
        ctypes.addressof(every),
        int(b.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(getattr(b.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{line}B")),
        int(b.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B),
        int(b.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )
    if status:
        raise DeviceError(
            f"cuTensorMapEncodeTiled failed with error {status}: {t.dtype} of {t.sizes}, strides {t.strides} bytes, "
            f"boxes of {t.box}, at address {t.address:#x}"
        )
    return out.raw


@mutable
class PreparedMap:
    """A tensor map of a prepared launch, encoded once per address that its buffer has been seen at."""

    driver: DriverCalls
    at_zero: steps.BoundTensorMap
    encoded: dict[int, bytes] = field(default_factory=dict[int, bytes])

    def at(self, address: int) -> bytes:
        """The map's bytes, also for the next time."""
        if len(self.encoded) >= MOST_ENCODED:
            self.encoded.clear()
        data = self.encoded[address] = encode_tensor_map(self.driver, replace(self.at_zero, address=address))
        return data


@mutable
class PreparedKernel:
    """One launch. `block` holds its parameters, those that change from run to run first, which `pack` writes together:
    `pointers`: (place among the run's addresses, bytes to add), `scalars`: (number, dtype), then `maps`, each of a
    place and an offset."""

    function: Any
    grid: int
    threads: int
    shared: int
    block: Any
    parameters: Any
    """void*[]: the address of each parameter, in the kernel's order"""
    pointers: list[tuple[int, int]]
    scalars: list[tuple[int, str]]
    maps: list[tuple[int, int, PreparedMap]]

    def layout(self, packed: bool) -> str:
        """struct's format of the parameters that change; `packed`: scalars are given as bytes."""
        codes = ["Q8x"] * len(self.pointers)
        for _, dtype in self.scalars:
            code = f"{SLOT}s" if packed else _CODES.get(dtype, f"{SLOT}s")
            codes.append(f"{code}{SLOT - struct.calcsize('<' + code)}x")
        if self.maps:
            codes.append(f"{-SLOT * len(codes) % TENSOR_MAP_ALIGNMENT}x")
        return "<" + "".join(codes) + f"{TENSOR_MAP_BYTES}s" * len(self.maps)


def room(kind: str) -> int:
    """Bytes that a parameter of this kind is given."""
    return TENSOR_MAP_BYTES if kind == "tensor_map" else SLOT


def prepare(
    driver: DriverCalls, plan: steps.Steps, facts: Mapping[str, Any], args: Sequence[Any], env: Mapping[str, int],
    slots: Mapping[int, int],
) -> PreparedKernel:  # fmt: skip
    """The parameters of a launch at fixed sizes. `slots`: the index of a buffer's address among the run's addresses."""
    kinds: Sequence[Sequence[str]] = facts["parameters"]
    pointers: list[tuple[int, int]] = []
    scalars: list[tuple[int, str]] = []
    maps: list[tuple[int, int, PreparedMap]] = []
    order: dict[str, list[int]] = {"view": [], "scalar": [], "tensor_map": [], "dim": []}
    for i, (kind, _) in enumerate(kinds):
        order[kind].append(i)
    places: dict[int, int] = {}
    end = 0
    for what in order:
        if what == "tensor_map" and order[what]:
            end += -end % TENSOR_MAP_ALIGNMENT
        for i in order[what]:
            places[i] = end
            end += room(what)
    for i in order["view"]:
        buffer, start = plan.window(args[int(kinds[i][1])], env)
        pointers.append((slots[buffer], start))
    for i in order["scalar"]:
        scalars.append((args[int(kinds[i][1])][1], args[int(kinds[i][1])][2]))
    for i in order["tensor_map"]:
        described = facts["tensor_maps"][int(kinds[i][1])]
        buffer, start = plan.window(args[described["argument"]], env)
        maps.append((slots[buffer], start, PreparedMap(driver, plan.tensor_map(described, 0, env))))
    block = aligned_room(max(SLOT, end))
    start = ctypes.addressof(block)
    for i in order["dim"]:
        ctypes.c_int64.from_address(start + places[i]).value = env[kinds[i][1]]
    table = (ctypes.c_void_p * max(1, len(kinds)))(*(start + places[i] for i in range(len(kinds))))
    return PreparedKernel(None, 0, 0, 0, block, table, pointers, scalars, maps)
