"""Custom targets. `register` decorates a class that follows `Target`."""

from __future__ import annotations

from tessera.compiler.machines import Code, Machine, Multiprocessor, Peaks, Sizes
from tessera.compiler.targets.base import Artifact, Executable, Target, register

__all__ = ["Artifact", "Code", "Executable", "Machine", "Multiprocessor", "Peaks", "Sizes", "Target", "register"]
