"""Narrower instruction sets of this processor as targets of their own, `avx2` and `baseline`."""

from __future__ import annotations

from functools import partial

from tessera.compiler.targets import base
from tessera.compiler.targets.cpu.llvm.isa import LEVELS, host
from tessera.compiler.targets.cpu.target import CpuTarget

NARROWER = tuple(level for level in LEVELS if host(level).bits < host().bits)
"""those that this machine has; what they compute has the bits of the target `cpu`"""

for _level in NARROWER:
    base.register(_level)(partial(CpuTarget, _level))
