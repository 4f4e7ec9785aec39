"""The vector instruction set of a processor, as far as code generation cares.

Everything follows from feature names as LLVM reports them; the processor's name only tunes instruction scheduling.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import cast

from tessera.compiler.figures import cached_bytes, caches
from tessera.immutable import immutable
from tessera.once import once


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
    """`vdpbf16ps`: pairs of products of bf16 (kernel/instructions/narrow.py)"""
    byte_products: bool = False
    """`vpdpbusd`: four products of bytes"""
    bf16_tiles: bool = False
    """`tdpbf16ps` on tile registers of 16 rows of 64 bytes (kernel/instructions/tiles.py)"""
    byte_tiles: bool = False
    """`tdpbssd` and its like"""
    cached_bytes: int = 1 << 22
    """an output up to this size is likely still in a cache when it is read"""
    own_bytes: int = 1 << 19
    """of the second cache, the last one that a core has for itself"""

    def lanes(self, bits: int) -> int:
        """Elements of `bits` bits in one register."""
        return self.bits // bits

    @property
    def vec4(self) -> bool:
        return self.bits == 128


AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
AVX2 = ("avx2", "fma", "f16c")
TILES = frozenset(("amx-tile", "amx-bf16", "amx-int8"))
NARROW = frozenset(("avx512bf16", "avx512vnni", "avxvnni")) | TILES
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
    held = {"cached_bytes": cached_bytes(caches()), "own_bytes": caches()[1]}
    made = partial(VectorISA, features=text, cpu=cpu, **held)
    if on.issuperset(AVX512):
        narrow = {"bf16_products": "avx512bf16" in on, "byte_products": "avx512vnni" in on}
        tiles = {"bf16_tiles": on >= {"amx-tile", "amx-bf16"}, "byte_tiles": on >= {"amx-tile", "amx-int8"}}
        return made("avx512", 512, 32, masks=True, **narrow, **tiles)
    if on.issuperset(AVX2):
        return made("avx2", 256, 16, byte_products="avxvnni" in on)
    arm = platform.machine().lower() in ("arm64", "aarch64")
    return made("neon" if arm else "sse2", 128, 32 if arm else 16)


@lru_cache(maxsize=8)
def host(level: str | None = None) -> VectorISA:
    """This machine's instruction set, as far as this process may use it."""
    from llvmlite import binding as llvm  # slow: LLVM, where the machine has been looked at before

    features = dict(cast("Mapping[str, bool]", llvm.get_host_cpu_features()))
    if features.get("amx-tile") and not tiles_are_permitted():
        features |= dict.fromkeys((f for f in features if f.startswith("amx")), False)
    return from_features(features, llvm.get_host_cpu_name(), level)


@once
def tiles_are_permitted() -> bool:
    """Asks Linux for the state of tile registers, which a process has to do before it uses them.

    The answer holds for all threads, those that run already and those that come, and for children by fork. It is no
    where a thread has a stack for signals that is too small for this state.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call(*(ctypes.c_long(x) for x in (ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))) == 0


ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""of Linux: the number of the system call, its request, the state asked for"""
