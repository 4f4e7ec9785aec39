"""The GPU of this machine, and running hand-built cases on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tessera.compiler.pipeline import generate
from tessera.compiler.targets import base
from tessera.errors import TesseraError
from tessera.runtime.arrays import devices
from tests.emulator.harness import Case, interpret, poisoned, sizes


@lru_cache(maxsize=1)
def missing() -> str:
    """Why nothing can run on a GPU here; empty where it can."""
    found = devices.cuda_devices()
    if not found:
        return "no NVIDIA GPU in this machine"
    try:
        base.get(found[0].target)
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except (TesseraError, ImportError) as e:
        return str(e).splitlines()[0]
    except Exception as e:  # CuPy raises types of its own where the driver is too old
        return f"CuPy cannot use the GPU: {e}"
    return ""


def target() -> Any:
    """The target that compiles for the first GPU."""
    return base.get(devices.cuda_devices()[0].target)


class DeviceArray:
    """The bytes of a NumPy array of any dtype in device memory, `shift` elements behind an aligned address."""

    def __init__(self, array: Any, shift: int = 0) -> None:
        import cupy

        self.like = np.ascontiguousarray(array)
        self.shift = shift * self.like.itemsize
        raw = np.frombuffer(self.like.tobytes(), np.uint8)
        self.memory = cupy.zeros(self.shift + max(1, raw.size), cupy.uint8)
        self.memory[self.shift : self.shift + raw.size] = cupy.asarray(raw)

    @property
    def pointer(self) -> int:
        return int(self.memory.data.ptr) + self.shift

    def get(self) -> Any:
        data = self.memory.get()[self.shift : self.shift + self.like.nbytes].tobytes()
        return np.frombuffer(bytearray(data), self.like.dtype).reshape(self.like.shape)


def load(case: Case, **options: Any) -> Any:
    compiled = target()
    return compiled.load(generate(case.program, compiled, **options))


def run(case: Case, executable: Any = None, stream: int = 0, shift: int = 0) -> dict[str, Any]:
    """The outputs by name; those that are not inputs start as poison."""
    import cupy

    executable = executable or load(case)
    arrays: dict[str, DeviceArray] = {}
    scalars: list[Any] = []
    for p in case.program.params:
        if p.shape is None:
            scalars.append(case.inputs[p.name])
        elif p.name in case.inputs:
            arrays[p.name] = DeviceArray(np.asarray(case.inputs[p.name]).astype(p.dtype.numpy), shift)
        else:
            arrays[p.name] = DeviceArray(poisoned(sizes(p.shape, case.dims), p.dtype), shift)
    cupy.cuda.Device().synchronize()
    executable.run(
        [a.pointer for a in arrays.values()], scalars, [case.dims[d] for d in case.program.free], stream=stream
    )
    cupy.cuda.Device().synchronize()
    return {p.name: arrays[p.name].get() for p in case.program.params if p.writes}


def check(case: Case, target: str = "", seeds: Sequence[int] = ()) -> dict[str, Any]:
    """As the emulator's check, on the GPU: two runs agree to the bit and with what is expected."""
    executable = load(case)
    first, again = run(case, executable), run(case, executable)
    for name, value in again.items():
        assert value.tobytes() == first[name].tobytes(), f"{name} differs from run to run"
    expected = case.expected if case.expected is not None else interpret(case)
    for name, value in expected.items():
        got = first[name]
        wide = np.complex128 if np.iscomplexobj(got) else np.float64 if got.dtype.kind not in "iub" else got.dtype
        # A GPU's elementary functions are good to a few units in the last place, not to one.
        rtol, atol = max(case.rtol, 4e-6 if case.rtol else 0), max(case.atol, 4e-6 if case.atol else 0)
        np.testing.assert_allclose(got.astype(wide), np.asarray(value).astype(wide), rtol=rtol, atol=atol, err_msg=name)
    return first
