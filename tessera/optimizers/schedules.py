"""Learning rates that are functions of the step: a number or a 0-d tensor, counted from 0.

The update program computes them, so a new step needs neither new code nor the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted


@fitted
@dataclass(frozen=True)
class Constant:
    """`value` at each step, after a linear rise from 0 over `warmup` steps."""

    value: float
    warmup: int = 0

    def __call__(self, step):
        return self.value * warm(step, self.warmup)


@fitted
@dataclass(frozen=True)
class Linear:
    """A line from `start` at step 0 to `end` at step `steps`, `end` from there on."""

    start: float
    end: float
    steps: int

    def __call__(self, step):
        return self.start + (self.end - self.start) * ts.clip(step / self.steps, 0.0, 1.0)


@fitted
@dataclass(frozen=True)
class Cosine:
    """A line from 0 to `peak` in `warmup` steps, then half a cosine down to `end` at step `steps`, `end` from there on
    (I. Loshchilov, F. Hutter, "SGDR", 2017)."""

    peak: float
    steps: int
    warmup: int = 0
    end: float = 0.0

    def __post_init__(self) -> None:
        if self.steps < self.warmup:  # the rate would be that of the end at once, and rise after it
            message = f"Cosine: steps is at least {self.warmup}, those of the warmup, not {self.steps}"
            raise LaunchError(Diagnostic("TS105", message))

    def __call__(self, step):
        done = ts.clip((step - self.warmup) / (self.steps - self.warmup), 0.0, 1.0)
        return ts.where(done > 0, _half_cosine(self.peak, self.end, done), self.peak * warm(step, self.warmup))


@fitted
@dataclass(frozen=True)
class Polynomial:
    """end + (start - end) * (1 - step / steps)^power, `end` from step `steps` on."""

    start: float
    end: float
    steps: int
    power: float = 2.0

    def __call__(self, step):
        left = 1.0 - ts.clip(step / self.steps, 0.0, 1.0)
        return self.end + (self.start - self.end) * left**self.power


@fitted
@dataclass(frozen=True)
class Exponential:
    """start * factor^(step / every); with `stairs` step / every is rounded down, as PyTorch's StepLR does."""

    start: float
    factor: float
    every: int = 1
    stairs: bool = False

    def __call__(self, step):
        done = step / self.every
        return self.start * self.factor ** (ts.floor(done) if self.stairs else done)


@fitted
@dataclass(frozen=True)
class InverseSqrt:
    """A line from 0 to `peak` in `warmup` steps, then peak * sqrt(warmup / step) (A. Vaswani et al., 2017)."""

    peak: float
    warmup: int

    def __call__(self, step):
        return self.peak * ts.minimum((step + 1) / self.warmup, ts.sqrt(self.warmup / (step + 1)))


@fitted
@dataclass(frozen=True)
class OneCycle:
    """As PyTorch's OneCycleLR: half a cosine from peak / start_factor up to `peak` in the share `rising` of the steps,
    then one down to peak / start_factor / end_factor at the last step (L. Smith, N. Topin, "Super-convergence",
    2018)."""

    peak: float
    steps: int
    rising: float = 0.3
    start_factor: float = 25.0
    end_factor: float = 1e4

    def __call__(self, step):
        first = self.peak / self.start_factor
        top, last = max(self.rising * self.steps - 1, 0.0), self.steps - 1.0
        up = _half_cosine(first, self.peak, step / top if top > 0 else step * 0.0 + 1.0)
        down = _half_cosine(self.peak, first / self.end_factor, (step - top) / (last - top))
        return ts.where(step < top, up, down)


@fitted
@dataclass(frozen=True)
class Joined:
    """`schedules` after one another: the first up to step at[0], the second from there to at[1]. Each counts from 0.

    Warming up, staying, falling: `Joined((Constant(1e-3, warmup=100), Linear(1e-3, 0.0, 200)), at=(800,))`.
    """

    schedules: tuple[Callable[[Any], Any], ...]
    at: tuple[int, ...]

    def __post_init__(self) -> None:
        given = (self.schedules,) if callable(self.schedules) else self.schedules
        object.__setattr__(self, "schedules", tuple(given))
        object.__setattr__(self, "at", tuple(self.at))
        if len(self.at) != len(self.schedules) - 1 or list(self.at) != sorted({0, *self.at} - {0}):
            message = f"Joined: at has the first step of each schedule but the first, rising, not {self.at!r}"
            raise LaunchError(Diagnostic("TS105", f"{message} for {len(self.schedules)} schedules"))

    def __call__(self, step):
        rate = self.schedules[0](step)
        for begin, schedule in zip(self.at, self.schedules[1:], strict=True):
            rate = ts.where(step >= begin, schedule(ts.maximum(step - begin, 0.0)), rate)
        return rate


def _half_cosine(start, end, done):
    return end + (start - end) * 0.5 * (1 + ts.cos(math.pi * ts.clip(done, 0.0, 1.0)))


def warm(step, warmup: int):
    """From 1 / warmup at step 0 to 1."""
    return ts.minimum((step + 1) / warmup, 1.0) if warmup else 1.0
