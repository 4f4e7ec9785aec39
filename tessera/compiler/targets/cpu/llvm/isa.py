"""The vector instruction set of a processor, as far as code generation cares.

Everything follows from feature names as LLVM reports them; the processor's name only tunes instruction scheduling.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import lru_cache

from tessera.compiler.figures import cached_bytes, caches
from tessera.immutable import immutable


@immutable
class VectorISA:
    """`bits`: register width; `registers`: how many there are; `features`: LLVM's feature string ("+avx2,-avx512f")."""

    name: str
    bits: int
    registers: int
    features: str
    cpu: str = ""
    masks: bool = False
    """AVX-512: mask registers and `scalef`"""
    bf16_products: bool = False
    """`vdpbf16ps`: pairs of products of bf16 (kernel/narrow.py)"""
    byte_products: bool = False
    """`vpdpbusd`: four products of bytes"""
    cached_bytes: int = 1 << 22
    """an output up to this size is likely still in a cache when it is read"""

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one register."""
        return self.bits // bits

    @property
    def vec4(self) -> bool:
        return self.bits == 128


AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
AVX2 = ("avx2", "fma", "f16c")
NARROW = frozenset(("avx512bf16", "avx512vnni", "avxvnni"))
LEVELS = ("avx512", "avx2", "baseline")


def from_features(features: Mapping[str, bool], cpu: str = "", level: str | None = None) -> VectorISA:
    """The widest instruction set that `features` allow, or the narrower `level` (one of LEVELS) of that processor.

    The levels have no instructions for products of narrow numbers.
    """
    on = {k for k, v in features.items() if v}
    if level is not None:
        on -= NARROW
    if level in ("avx2", "baseline"):
        on = {k for k in on if not k.startswith("avx512") and not k.startswith("avx10")}
        cpu = ""
    if level == "baseline":
        on -= {"avx2", "avx", "fma", "f16c", "vaes", "vpclmulqdq", "xop", "fma4"}
    text = ",".join(("+" if k in on else "-") + k for k in sorted(features))
    if on.issuperset(AVX512):
        narrow = {"bf16_products": "avx512bf16" in on, "byte_products": "avx512vnni" in on}
        return VectorISA("avx512", 512, 32, text, cpu, masks=True, cached_bytes=cached_bytes(caches()), **narrow)
    if on.issuperset(AVX2):
        return VectorISA("avx2", 256, 16, text, cpu, byte_products="avxvnni" in on, cached_bytes=cached_bytes(caches()))
    arm = platform.machine().lower() in ("arm64", "aarch64")
    return VectorISA("neon" if arm else "sse2", 128, 32 if arm else 16, text, cpu, cached_bytes=cached_bytes(caches()))


@lru_cache(maxsize=8)
def host(level: str | None = None) -> VectorISA:
    """This machine's instruction set."""
    from llvmlite import binding as llvm  # slow: LLVM, where the machine has been looked at before

    return from_features(dict(llvm.get_host_cpu_features()), llvm.get_host_cpu_name(), level)
