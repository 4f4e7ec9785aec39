"""What an optimizer keeps from one update to the next, and what it reports."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tessera as ts


@dataclass(frozen=True, slots=True)
class StepReport:
    """The outcome of a step. `applied`: the parameters were updated; if not, `reason` is why."""

    applied: bool
    reason: str
    grad_norm: float
    scale: float


@dataclass
class OptimizerState:
    """The state of an optimizer: the rule's arrays for each parameter, by name, and numbers for all of them."""

    moments: dict[str, dict[str, Any]]
    step: Any
    """int32: how many steps were applied"""
    good: Any
    """int32: how many of them since the loss scale last changed"""
    scale: Any
    """f32: what the loss is multiplied by, which gradients are divided by"""
    norm: Any
    """f32: of the last gradient, before clipping"""
    squares: Any
    """f32 [parameters]: what each added to the square of the norm"""

    @property
    def report(self) -> StepReport:
        """The report of the last update. Waits for its result."""
        norm, scale = float(self.norm), float(self.scale)
        if math.isfinite(norm):
            return StepReport(True, "", norm, scale)
        bad = [n for n, s in zip(self.moments, ts.asarray(self.squares).tolist(), strict=True) if not math.isfinite(s)]
        which = f"the gradient of {bad[0]}" if bad else "the gradient"
        more = f", and of {len(bad) - 1} more," if len(bad) > 1 else ""
        return StepReport(
            False, f"{which}{more} holds {'nan' if math.isnan(norm) else 'inf or overflows'}", norm, scale
        )
