"""A driver made of host memory and the emulator, for processes of their own; it misbehaves on command.

`GPU_DOUBLE_CAPABILITY`: "9.0". `GPU_DOUBLE_FAULT`: what goes wrong and where, as "cuLaunchKernel=719", with "=hang" for
a call that does not return and "=die" for one that ends the process; "@saxpy" behind it names the one kernel that it
happens to. "compile=error@saxpy" spoils a kernel's text. Errors from 700 on stay, as on a GPU: every later call gives
them.

A cubin says nothing to the emulator: what is compiled in this process is kept as text.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from tessera.compiler.targets.cuda import emulate, host_library, nvrtc
from tessera.compiler.targets.cuda.call import steps

CUresult = IntEnum("CUresult", {
    "CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_VALUE": 1, "CUDA_ERROR_OUT_OF_MEMORY": 2, "CUDA_ERROR_NOT_READY": 600,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700, "CUDA_ERROR_MISALIGNED_ADDRESS": 716, "CUDA_ERROR_LAUNCH_FAILED": 719,
})  # fmt: skip
CUdevice_attribute = SimpleNamespace(
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76
)
CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8)
CUmemPool_attribute = SimpleNamespace(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD=4)
CUtensorMapDataType = IntEnum("CUtensorMapDataType", {
    f"CU_TENSOR_MAP_DATA_TYPE_{n}": i for n, i in (("FLOAT16", 6), ("BFLOAT16", 9), ("TFLOAT32", 11))
})  # fmt: skip
CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE=0)
CUtensorMapSwizzle = SimpleNamespace(
    CU_TENSOR_MAP_SWIZZLE_32B=1, CU_TENSOR_MAP_SWIZZLE_64B=2, CU_TENSOR_MAP_SWIZZLE_128B=3
)
CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_256B=3)
CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE=0)
cuuint64_t = int

MAJOR, MINOR = map(int, os.environ.get("GPU_DOUBLE_CAPABILITY", "9.0").split("."))
CALL, _, _REST = os.environ.get("GPU_DOUBLE_FAULT", "").partition("=")
HOW, _, ON = _REST.partition("@")

_state = SimpleNamespace(error=0, encode=None)
_texts: list[tuple[bytes, str, str]] = []
"""cubins, the texts that they were compiled from, their architectures"""
_memory: dict[int, Any] = {}

_compile = nvrtc.compile_code


def _compiled(source: str, arch: str, *rest: Any) -> Any:
    if CALL == "compile" and f"{ON}_kernel" in source:
        source = source.replace("{", "{ nonsense;", 1)
    made = _compile(source, arch, *rest)
    _texts.extend((code, source, arch) for code in (made.cubin, made.ptx))
    return made


nvrtc.compile_code = _compiled


def _goes_wrong(call: str, kernel: str = "") -> int:
    """The status that a call ends with."""
    if _state.error:
        return _state.error
    if call != CALL or (ON and kernel != ON):
        return 0
    while HOW == "hang":
        time.sleep(60)
    if HOW == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    status = int(HOW)
    if status >= 700:
        _state.error = status
    return status


def _answer(call: str, *values: Any, kernel: str = "") -> Any:
    status = _goes_wrong(call, kernel)
    return (CUresult(status), *((None,) * len(values) if status else values))


def cuInit(_: int) -> Any:
    return _answer("cuInit")


def cuCtxGetCurrent() -> Any:
    return CUresult(0), 7


def cuCtxGetDevice() -> Any:
    return CUresult(0), 0


def cuDeviceGetAttribute(attribute: int, _: int) -> Any:
    return CUresult(0), MAJOR if attribute == 75 else MINOR


def cuStreamIsCapturing(_: int) -> Any:
    return CUresult(0), 0


def cuCtxSynchronize() -> Any:
    return _answer("cuCtxSynchronize")


def cuStreamSynchronize(_: int) -> Any:
    return _answer("cuStreamSynchronize")


def cuMemAlloc(size: int) -> Any:
    block = ctypes.create_string_buffer(size + 256)
    place = -(-ctypes.addressof(block) // 256) * 256
    _memory[place] = block
    return _answer("cuMemAlloc", place)


def cuMemAllocAsync(size: int, _: int) -> Any:
    return cuMemAlloc(size)


def cuMemFreeAsync(place: int, _: int) -> Any:
    del _memory[place]
    return (CUresult(0),)


def cuMemcpyHtoD(to: int, source: int, size: int) -> Any:
    ctypes.memmove(to, source, size)
    return _answer("cuMemcpyHtoD")


def cuMemcpyDtoH(to: int, source: int, size: int) -> Any:
    ctypes.memmove(to, source, size)
    return _answer("cuMemcpyDtoH")


def cuMemcpyHtoDAsync(to: int, source: int, size: int, _: int) -> Any:
    return cuMemcpyHtoD(to, source, size)


def cuMemcpyDtoHAsync(to: int, source: int, size: int, _: int) -> Any:
    return cuMemcpyDtoH(to, source, size)


cuMemcpyDtoDAsync = cuMemcpyDtoHAsync


def cuDeviceGetDefaultMemPool(_: int) -> Any:
    return CUresult(0), "pool"


def cuMemPoolGetAttribute(_: str, attribute: int) -> Any:
    return CUresult(0), 1


def cuGetProcAddress(symbol: bytes, version: int, flags: int) -> Any:
    from tessera.compiler.targets.cuda.call.launch import _ENCODE

    if _state.encode is None:
        _state.encode = _ENCODE(_encode)
    return CUresult(0), ctypes.cast(_state.encode, ctypes.c_void_p).value, 0


def _encode(
    out: int, dtype: int, rank: int, address: int, sizes: int, strides: int, box: int, every: int, *rest: int
) -> int:
    if status := _goes_wrong("cuTensorMapEncodeTiled"):
        return status
    if out % 64 or address % 16:
        return 1
    wide = [(ctypes.c_uint64 * n).from_address(p)[:] for p, n in ((sizes, rank), (strides, rank - 1)) if n]
    narrow = (ctypes.c_uint32 * rank).from_address(box)[:]
    name = {6: "f16", 9: "bf16", 11: "tf32"}[dtype]
    data = emulate.tensor_map_bytes(steps.BoundTensorMap(address, name, tuple(wide[0]), tuple(wide[1]), tuple(narrow)))
    ctypes.memmove(out, data, len(data))
    return 0


class _Module:
    """Emulated code: what `_HostMachine` asks of an executable."""

    seed = 0

    def __init__(self, source: str, arch: str) -> None:
        kernels = re.findall(r"(?m)^extern \"C\".*?\b(\w+)_kernel\(([^{;]*)\)\s*\{", source)
        self.types = {n: [_type(p) for p in _split(parameters)] for n, parameters in kernels}
        self.text = host_library.HostSource(source, self.types, int(re.sub(r"\D", "", arch)), "code", [])
        self.path = host_library.build(self.text)
        self.library: Any = ctypes.CDLL(str(self.path))
        self.artifact = SimpleNamespace(source=source, meta={"lines": []})


def _split(parameters: str) -> list[str]:
    return [p.strip() for p in parameters.split(",") if p.strip()]


def _type(parameter: str) -> str:
    text = re.sub(r"\b(const|__grid_constant__|__restrict__)\b", "", parameter).strip()
    return re.sub(r"\s*\w+$", "", text)


def cuModuleLoadData(address: int) -> Any:
    if status := _goes_wrong("cuModuleLoadData"):
        return CUresult(status), None
    for code, source, arch in _texts:  # the driver reads the length out of the file; here what was compiled is compared
        if ctypes.string_at(address, len(code)) == code:
            return CUresult(0), _Module(source, arch)
    return CUresult(1), None


def cuModuleGetFunction(module: _Module, name: bytes) -> Any:
    return CUresult(0), (module, name.decode().removesuffix("_kernel"))


def cuFuncSetAttribute(function: Any, attribute: int, value: int) -> Any:
    return (CUresult(0),)


def cuLaunchKernel(
    function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, table: int,
    extra: int,
) -> Any:  # fmt: skip
    module, name = function
    if status := _goes_wrong("cuLaunchKernel", name):
        return (CUresult(status),)
    types = module.types[name]
    places = (ctypes.c_void_p * len(types)).from_address(table)
    arguments = [ctypes.string_at(p, 128 if "TensorMap" in t else 16) for p, t in zip(places, types, strict=True)]
    windows = [("memory", place, len(block) - 256, True) for place, block in _memory.items()]
    machine = emulate._HostMachine(module)  # type: ignore[arg-type]
    try:
        machine.launch(steps.KernelCall(name, gx, bx, shared, arguments, windows))
    except Exception as e:  # the emulator's finding is a fault of the GPU's
        print(e, flush=True)
        _state.error = 719
        return (CUresult(719),)
    return (CUresult(0),)
