"""The CPU target: Tile IR to LLVM IR with explicit vectors, worker threads over the grid."""

from __future__ import annotations

from tessera.compiler.targets.base import Target


def create(name: str) -> Target:
    from tessera.compiler.targets.cpu.target import CpuTarget  # slow: 0.1 s for other targets

    return CpuTarget()
