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
    tally: Any
    """int32 [3]: how many gradients come before the first that holds NaN, infinity or what overflows, how many hold
    nothing of it, and whether one is 0"""

    @property
    def report(self) -> StepReport:
        """The report of the last update. Waits for its result."""
        norm, scale = float(self.norm), float(self.scale)
        if math.isfinite(norm):
            return StepReport(True, "", norm, scale)
        names = [*self.moments]
        first, finite, _ = ts.asarray(self.tally).tolist()
        bad = len(names) - finite
        which = f"the gradient of {names[first]}" if bad else "the gradient"
        more = f", and of {bad - 1} more," if bad > 1 else ""
        return StepReport(
            False, f"{which}{more} holds {'nan' if math.isnan(norm) else 'inf or overflows'}", norm, scale
        )
