"""CUDA: tile programs as readable CUDA C++ over the header-only device library in include/tessera.

`sm_*` compiles with NVRTC to a cubin, with or without a GPU in the machine; `emulator:sm_*` runs the same text on the
processor, slowly and with checks.
"""

from __future__ import annotations

from tessera.compiler.targets.base import Target


def create(name: str) -> Target:
    """The target called `sm_80`, ..., or `emulator:sm_80`. Raises TargetError TS601 for an unknown architecture."""
    if name.startswith("emulator:"):
        from tessera.compiler.targets.cuda.emulate import EmulatedTarget  # slow: 10 ms for GPUs

        return EmulatedTarget(name)
    from tessera.compiler.targets.cuda.target import CudaTarget  # slow: 0.1 s for other targets

    return CudaTarget(name)
