"""What GPU architectures offer, as far as a tile program can be judged by it before any target compiles it."""

from __future__ import annotations

from tessera.language import dtypes
from tessera.language.dtypes import DType

# Shared memory that one block may have, in bytes (CUDA C++ Programming Guide, compute capabilities).
SHARED_LIMITS = {70: 98304, 75: 65536, 80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}
SECTOR = 32
"""bytes that are moved at least where any of them is wanted"""

CUDA_ARCHITECTURES = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120")
"""One that ends in `a` has instructions of its own and runs on that capability alone. The others run on the later ones
of their major version, and as PTX on any later GPU."""
ALIASES = {
    "v100": "sm_70", "t4": "sm_75", "a100": "sm_80", "rtx3090": "sm_86", "l4": "sm_89", "rtx4090": "sm_89",
    "h100": "sm_90a", "h200": "sm_90a", "sm_90": "sm_90a", "rtx5090": "sm_120",
    "b200": "sm_100", "b300": "sm_100", "sm_100a": "sm_100", "sm_100f": "sm_100", "sm_103": "sm_100",
    "sm_121": "sm_120",
    "cuda_70": "sm_70", "cuda_75": "sm_75", "cuda_80": "sm_80", "cuda_90": "sm_90a",
    "llvm": "cpu", "numpy": "reference",
}  # fmt: skip
"""what else targets are called"""

TENSOR_CORE_DTYPES = frozenset({
    dtypes.f16, dtypes.bf16, dtypes.tf32, dtypes.f64, dtypes.fp8_e4m3, dtypes.fp8_e5m2, dtypes.int8, dtypes.uint8,
})  # fmt: skip
"""dtypes whose products some architecture has an instruction for"""
MMA_ROWS, MMA_COLUMNS = 16, 8
"""what the rows and columns of such a product are multiples of, at least"""


def mma_depth(dtype: DType) -> int:
    """What its contracted axis is a multiple of: 32 bytes of it, doubles 4."""
    return 4 if dtype == dtypes.f64 else 32 // dtype.itemsize


def architecture_of(target: str) -> int | None:
    """90 for "h100", "sm_90a" and "emulator:sm_90a"; None for a target that is no GPU or not said."""
    name = target.lower().removeprefix("emulator:")
    name = ALIASES.get(name, name)
    return int(name.removeprefix("sm_").rstrip("af")) if name in CUDA_ARCHITECTURES else None


def best_target(capability: tuple[int, int]) -> str:
    """The target whose code runs on devices of this compute capability: the machine code that fits best, else the PTX
    of the latest target before it. Without any: the architecture's own name, which is no target.

    Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility".
    """
    own = {divmod(int(a.removeprefix("sm_").rstrip("a")), 10): a for a in CUDA_ARCHITECTURES}
    if capability in own:
        return own[capability]
    earlier = [c for c, a in own.items() if c < capability and not a.endswith("a")]
    return own[max(earlier)] if earlier else "sm_{}{}".format(*capability)
