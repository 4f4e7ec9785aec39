"""Learning rates that are functions of the step: a number or a 0-d tensor, counted from 0.

The update program computes them, so a new step needs neither new code nor the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tessera as ts
from tessera.errors import Diagnostic, LaunchError


@dataclass(frozen=True)
class Constant:
    """`value` at each step, after a linear rise from 0 over `warmup` steps."""

    value: float
    warmup: int = 0

    def __call__(self, step):
        return self.value * warm(step, self.warmup)


@dataclass(frozen=True)
class Linear:
    """A line from `start` at step 0 to `end` at step `steps`, `end` from there on."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        _demand_steps(self, 1)

    def __call__(self, step):
        return self.start + (self.end - self.start) * ts.clip(step / self.steps, 0.0, 1.0)


@dataclass(frozen=True)
class Cosine:
    """A line from 0 to `peak` in `warmup` steps, then half a cosine down to `end` at step `steps`, `end` from there on
    (I. Loshchilov, F. Hutter, "SGDR", 2017)."""

    peak: float
    steps: int
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        _demand_steps(self, max(self.warmup, 1))

    def __call__(self, step):
        done = ts.clip((step - self.warmup) / (self.steps - self.warmup), 0.0, 1.0)
        falling = self.end + (self.peak - self.end) * 0.5 * (1 + ts.cos(math.pi * done))
        return ts.where(done > 0, falling, self.peak * warm(step, self.warmup))


def _demand_steps(schedule: Linear | Cosine, least: int) -> None:
    """Raises LaunchError TS105 where there are fewer: the rate would be that of the end at once, and rise after it."""
    if schedule.steps < least:
        why = ", those of the warmup" if least > 1 else ""
        message = f"{type(schedule).__name__}: steps is at least {least}{why}, not {schedule.steps}"
        raise LaunchError(Diagnostic("TS105", message))


def warm(step, warmup: int):
    """From 1 / warmup at step 0 to 1."""
    return ts.minimum((step + 1) / warmup, 1.0) if warmup else 1.0
