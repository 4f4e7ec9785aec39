"""What is known of configurations: one `Trial` each, a `Tuning` for all of a program under one signature."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tessera.errors import TesseraError
from tessera.language.tuning import Metric

Status = Literal["timed", "stopped", "pruned", "failed", "bits", "same", "untried"]
"""timed; timed less often because it is clearly slower; not compiled for lack of resources; does not compile or run;
gives other bits than the first one; the same as another one; not looked at yet"""
TIE = 0.02
"""medians this close, relatively, count as equal: the earlier configuration wins, on every machine"""


class TuningError(TesseraError):
    """No configuration can be used."""

    default_code = "TS609"


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration under one signature. `samples` are seconds per launch, in the order they were taken."""

    config: Mapping[str, Any]
    status: Status = "untried"
    samples: tuple[float, ...] = ()
    detail: str = ""
    """why there is no time, or fewer samples"""
    flops: int | None = None
    bytes: int | None = None

    @property
    def seconds(self) -> float | None:
        """The median time of one launch."""
        return statistics.median(self.samples) if self.samples else None

    @property
    def spread(self) -> float | None:
        """The quartiles' distance relative to the median; None for fewer than four samples."""
        if len(self.samples) < 4:
            return None
        low, middle, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / middle if middle else None

    @property
    def usable(self) -> bool:
        """Whether it may be chosen."""
        return bool(self.samples) and self.status != "bits"

    def rate(self) -> tuple[float, str] | None:
        """Work done per second: FLOP/s where the kernel computes, else B/s."""
        seconds = self.seconds
        for work, unit in ((self.flops, "FLOP/s"), (self.bytes, "B/s")):
            if seconds and work:
                return work / seconds, unit
        return None


@dataclass(frozen=True)
class Tuning:
    """The outcome for one program and one signature. `best` is None until something has been timed."""

    name: str
    target: str
    device: str
    """what it ran on, for people"""
    arguments: tuple[str, ...]
    metric: Metric
    trials: tuple[Trial, ...]
    store: str
    """the file that keeps the timings"""
    measured: int = 0
    """configurations that were timed just now; 0 where all was known"""
    note: str = ""
    best: Trial | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "best", choose(self.trials, self.metric))

    @property
    def config(self) -> dict[str, Any]:
        """The configuration to run under: the best one, the first while none is known."""
        return dict((self.best or self.trials[0]).config)

    def __str__(self) -> str:
        from tessera.runtime.autotune.table import text  # loads rich

        return text(self)

    def __repr__(self) -> str:
        return f"<tuning of {self.name} for {self.target}: {show(self.config)}>"

    def _repr_html_(self) -> str:
        from tessera.runtime.autotune.table import html

        return html(self)


def choose(trials: Sequence[Trial], metric: Metric) -> Trial | None:
    """The best of the trials that have a time. A pure function of the trials: the same store, the same choice."""
    usable = [t for t in trials if t.usable]
    if not usable:
        return None
    costs = [cost(t, metric) for t in usable]
    least = min(costs)
    close = least if callable(metric) or math.isinf(least) else least * (1 + TIE)
    return next(t for t, c in zip(usable, costs, strict=True) if c <= close)


def cost(trial: Trial, metric: Metric) -> float:
    """What is minimised. The work of a signature is given, so the greatest throughput is the least time."""
    if not callable(metric):
        return trial.seconds or math.inf
    value = float(metric(trial))
    if math.isnan(value):
        raise TuningError(f"the metric of {show(trial.config)} is not a number")
    return value


def show(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in config.items()) or "as it is"
