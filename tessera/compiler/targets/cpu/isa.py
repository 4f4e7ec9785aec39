"""The vector instruction set of a processor, as far as code generation cares.

Everything follows from feature names as LLVM reports them; the processor's name only tunes instruction scheduling.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class VectorISA:
    """`bits`: register width; `registers`: how many there are; `features`: LLVM's feature string ("+avx2,-avx512f")."""

    name: str
    bits: int
    registers: int
    features: str
    cpu: str = ""
    masks: bool = False
    """AVX-512: mask registers and `scalef`"""
    l2_bytes: int = 1 << 20

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one register."""
        return self.bits // bits

    @property
    def vec4(self) -> bool:
        return self.bits == 128


AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
AVX2 = ("avx2", "fma", "f16c")
LEVELS = ("avx512", "avx2", "baseline")


def from_features(features: Mapping[str, bool], cpu: str = "", level: str | None = None) -> VectorISA:
    """The widest instruction set that `features` allow, or the narrower `level` (one of LEVELS) of that processor."""
    on = {k for k, v in features.items() if v}
    if level in ("avx2", "baseline"):
        on = {k for k in on if not k.startswith("avx512") and not k.startswith("avx10")}
        cpu = ""
    if level == "baseline":
        on -= {"avx2", "avx", "fma", "f16c", "vaes", "vpclmulqdq", "xop", "fma4"}
    text = ",".join(("+" if k in on else "-") + k for k in sorted(features))
    if on.issuperset(AVX512):
        return VectorISA("avx512", 512, 32, text, cpu, masks=True, l2_bytes=l2_bytes())
    if on.issuperset(AVX2):
        return VectorISA("avx2", 256, 16, text, cpu, l2_bytes=l2_bytes())
    arm = platform.machine().lower() in ("arm64", "aarch64")
    return VectorISA("neon" if arm else "sse2", 128, 32 if arm else 16, text, cpu, l2_bytes=l2_bytes())


@lru_cache(maxsize=8)
def host(level: str | None = None) -> VectorISA:
    """This machine's instruction set."""
    from llvmlite import binding as llvm

    return from_features(dict(llvm.get_host_cpu_features()), llvm.get_host_cpu_name(), level)


@lru_cache(maxsize=1)
def l2_bytes() -> int:
    """The size of one core's second-level cache; 1 MiB where the system does not say."""
    try:
        return max(os.sysconf("SC_LEVEL2_CACHE_SIZE"), 1 << 18)
    except (ValueError, OSError, AttributeError):
        return 1 << 20
