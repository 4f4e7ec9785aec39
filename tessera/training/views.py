"""A run as text: one line of a terminal that is drawn anew, or lines of a file."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tessera.training.history import History

_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Glance:
    """What is to be seen of a run at a moment. `steps`: those that are meant, where that is known; `rate`: steps a
    second; `seconds` since the run began."""

    history: History
    step: int
    steps: int | None
    seconds: float
    rate: float | None
    said: str
    compiling: bool = False
    """whether no step is done yet"""

    @property
    def part(self) -> float | None:
        return min(self.step / self.steps, 1.0) if self.steps else None

    @property
    def heading(self) -> str:
        """`412 of 1,000, 0:48 left, 12.3/s`."""
        of = f" of {self.steps:,}" if self.steps else " steps" if self.step != 1 else " step"
        if self.compiling and not self.said:
            return f"{self.step:,}{of}, compiling"
        left = (self.steps - self.step) / self.rate if self.steps and self.rate and not self.said else 0.0
        time = f", {duration(left)} left" if left > 0 else f" in {duration(self.seconds)}"
        return f"{self.step:,}{of}{time}{f', {speed(self.rate)}' if self.rate else ''}"

    @property
    def figures(self) -> dict[str, str]:
        """The last numbers that were logged, by name."""
        return {name: f"{self.history.last(name):.4g}" for name in self.history.names}


class RunView(Protocol):
    pause: float
    """seconds between two drawings"""

    def draw(self, glance: Glance) -> None: ...

    def close(self) -> None: ...


def speed(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 100 else f"{rate:.3g}/s" if rate >= 1 else f"{1 / rate:.3g} s each"


def duration(seconds: float) -> str:
    """`0:48`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def sparkline(values: np.ndarray, width: int = 12) -> str:
    """A curve in characters: the means of equal parts, from the least to the greatest."""
    values = values[np.isfinite(values)]
    if len(values) < 2:
        return ""
    means = np.array([part.mean() for part in np.array_split(values, min(width, len(values)))])
    span = means.max() - means.min()
    levels = (means - means.min()) / span * 7 if span > 0 else np.zeros(len(means))
    return "".join(_BLOCKS[round(level)] for level in levels)


def shell_here() -> Any:
    """IPython's shell, where the program runs in one."""
    get = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get() if get is not None else None


def cell() -> int:
    """The number of the notebook's cell that runs; 0 outside of one."""
    return getattr(shell_here(), "execution_count", 0)


class TerminalLine:
    """A line of a terminal. The cursor stays visible and nothing is left behind, so that a loop may end anywhere."""

    pause = 0.1

    def __init__(self) -> None:
        from rich.console import Console  # slow: 30 ms, for a terminal alone

        self._console = Console(highlight=False)

    def draw(self, glance: Glance) -> None:
        from rich.control import Control  # slow: see above
        from rich.segment import ControlType  # slow: see above
        from rich.text import Text  # slow: see above

        text = Text(no_wrap=True, overflow="ellipsis")
        if glance.part is not None:
            full = round(glance.part * 12)
            text.append("━" * full, "bold green" if glance.part == 1 else "bold cyan")
            text.append("━" * (12 - full) + " ", "bright_black")
        text.append(glance.heading)
        for name, figure in glance.figures.items():
            text.append(f"  {name} ", "bright_black").append(figure, "bold")
            if name == "loss":
                text.append(f" {sparkline(glance.history[name])}", "cyan")
        text.truncate(self._console.width - 1, overflow="ellipsis")
        self._console.control(Control((ControlType.CARRIAGE_RETURN,), (ControlType.ERASE_IN_LINE, 2)))
        self._console.print(text, end="")
        if glance.said:
            self._console.print(f"\n{glance.said}", end="", markup=False)
        self._console.file.flush()

    def close(self) -> None:
        self._console.print()


class PlainLines:
    """Lines of a file or a pipe: seldom, and the rarer the longer it takes."""

    pause = 5.0

    def draw(self, glance: Glance) -> None:
        figures = "".join(f", {name} {figure}" for name, figure in glance.figures.items())
        print(f"{glance.heading}{figures}{f'; {glance.said}' if glance.said else ''}", flush=True)
        self.pause = min(self.pause * 1.5, 60.0)

    def close(self) -> None:
        pass


def rounded_steps(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers from low to high for an axis."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
