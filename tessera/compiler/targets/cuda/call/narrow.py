"""Arrays that start between 16-byte boundaries: the same kernels once more, with narrower vectors, instead of a copy of
the array. What tensor copies (TMA) read is copied all the same: they take no other boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from tessera.compiler.targets.base import Artifact
from tessera.compiler.targets.cuda.call.steps import ALIGNMENT, Steps
from tessera.errors import MissingDependency, TargetError
from tessera.immutable import mutable

MACRO = "TS_ALIGNED_TO"
"""Arrays start at multiples of this number of bytes; memory.cuh relies on it."""


def narrowed(source: str, alignment: int) -> str:
    """The text for such arrays, every line at its place: the first says what the program is called."""
    return f"#define {MACRO} {alignment}\n{source.partition(chr(10))[2]}"


def with_code(artifact: Artifact, alignment: int, files: Mapping[str, bytes]) -> Artifact:
    """The artefact with other code, which takes arrays at multiples of `alignment` bytes."""
    return replace(artifact, files={**artifact.files, **files}, meta={**artifact.meta, "alignment": alignment})


@mutable
class Variants:
    """The narrower variants of an executable, made when an array first needs them. `make` gets the text and the
    boundary; where its compiler is not here there is none, and arrays are copied."""

    plan: Steps
    source: str
    make: Callable[[str, int], Any]
    made: dict[int, Any] = field(default_factory=dict[int, Any])

    def suited(self, pointers: Sequence[int]) -> Any:
        """The executable for arrays at these addresses; None where the usual one serves."""
        together = 0
        for buffer, p in zip(self.plan.bound, pointers, strict=True):
            if buffer not in self.plan.mapped:
                together |= p
        alignment = min(ALIGNMENT, together & -together) if together else ALIGNMENT
        if alignment >= self.plan.alignment:
            return None
        if alignment not in self.made:
            try:
                self.made[alignment] = self.make(narrowed(self.source, alignment), alignment)
            except (MissingDependency, TargetError):
                self.made[alignment] = None
        return self.made[alignment]
