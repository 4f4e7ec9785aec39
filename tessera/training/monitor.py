"""What a person sees of a run while it goes on, and `ts.log`, `ts.progress` for loops of their own."""

from __future__ import annotations

import atexit
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from tessera.fitted import fitted
from tessera.training.data import Ended, Feed, Position
from tessera.training.history import History
from tessera.training.views import Glance, PlainLines, RunView, TerminalLine, cell, shell_here

_open: list[Monitor] = []
"""the runs that go on, the innermost last"""


class Monitor:
    """Shows a run in the way that suits the place: curves in a notebook, a line in a terminal, lines in a file."""

    def __init__(self, history: History, steps: int | None, live: bool, begin: int = 0) -> None:
        self.history, self.steps, self.step = history, steps, begin
        self.said = ""
        self.cell = cell()
        self._view: RunView | None = view_here() if live else None
        self._live = live
        self._first: tuple[int, float] | None = None
        self._drawn = -1.0e9
        self._begun = self._last = time.monotonic()

    def __enter__(self) -> Monitor:
        _open.append(self)
        if self._view is not None and self._view.pause < 1:  # a file has no need of it
            self._draw(time.monotonic())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if self in _open:
            _open.remove(self)
        self.close("" if kind in (None, GeneratorExit) else "stopped by an error")

    def show(self, step: int) -> None:
        """Says that a step is done. Draws when the last drawing is long enough ago."""
        self.step = step
        self._last = now = time.monotonic()
        if self._first is None:  # the first step compiles; its time tells nothing of the others
            self._first = step, now
        if self._view is not None and now - self._drawn >= self._view.pause:
            self._draw(now)

    def close(self, said: str = "") -> None:
        """Draws once more, for good, with the time of the last step: what came later is not part of the run."""
        self.said = self.said or said
        if self._view is not None:
            self._draw(self._last)
            self._view.close()
        elif self.said:
            print(self.said)

    def _draw(self, now: float) -> None:
        assert self._view is not None
        first, since = self._first or (self.step, now)
        rate = (self.step - first) / (now - since) if now > since and self.step > first else None
        self._view.draw(
            Glance(self.history, self.step, self.steps, now - self._begun, rate, self.said, self._first is None)
        )
        self._drawn = time.monotonic()  # drawing takes time of its own


def view_here() -> RunView:
    """What suits the place."""
    shell = shell_here()
    if shell is not None and type(shell).__name__ != "TerminalInteractiveShell":
        from tessera.training.page import Page  # slow: IPython's display, for notebooks alone

        return Page()
    return TerminalLine() if sys.stdout.isatty() else PlainLines()


class _Unbound:
    """What is logged outside of a run: one history, drawn as that of a run; a cell of a notebook begins a new one."""

    def __init__(self) -> None:
        self.monitor: Monitor | None = None
        atexit.register(self.close)

    def take(self) -> Monitor:
        if self.monitor is None or self.monitor.cell != cell():
            self.close()
            self.monitor = Monitor(History(), None, live=True)
            if (shell := shell_here()) is not None:
                shell.events.register("post_run_cell", self._cell_ended)
        return self.monitor

    def close(self) -> None:
        monitor, self.monitor = self.monitor, None
        if monitor is not None:
            monitor.close()

    def _cell_ended(self, *_result: object) -> None:
        self.close()
        shell_here().events.unregister("post_run_cell", self._cell_ended)


_unbound = _Unbound()


@fitted
def log(values: Mapping[str, Any], step: int | None = None) -> None:
    """Logs numbers by name: `ts.log({"loss": loss, "grad_norm": norm})`.

    Within `ts.progress` they belong to its step, and outside of a run to the next one, or to `step`. They are shown as
    those of a run are: curves in a notebook, a line in a terminal. Arrays of one element are read when they are drawn.
    Raises LaunchError TS105 for what is not a number.
    """
    inside = next((m for m in reversed(_open) if m.cell == cell()), None)
    monitor = inside or _unbound.take()
    at = step if step is not None else monitor.step if inside is not None else monitor.step + 1
    monitor.history.add(at, values)
    if inside is None:
        monitor.show(at)


class Progress:
    """The batches of `ts.progress`. `history` is what `ts.log` has logged meanwhile."""

    def __init__(self, data: Any, steps: int | None, live: bool) -> None:
        self._feed = Feed(data)
        self.steps = steps if steps is not None else self._feed.length
        self._once, self._live = steps is None, live
        self.history = History()

    def __iter__(self) -> Iterator[Any]:
        position = Position()
        with Monitor(self.history, self.steps, self._live) as monitor:
            while self.steps is None or monitor.step < self.steps:
                try:
                    batch, position = self._feed.take(position)
                except Ended:
                    return
                if self._once and position.epoch:
                    return
                monitor.step += 1
                yield batch
                monitor.show(monitor.step)


@fitted
def progress(data: Any, steps: int | None = None, *, live: bool = True) -> Progress:
    """The batches of `data` for your own loop, with progress, time left and the curves of the values that `ts.log`
    logs::

        for x, y in ts.progress(data, steps=1000):
            loss, gradient = step(model, x, y)
            model, state = opt.update(model, gradient, state)
            ts.log({"loss": loss, "grad_norm": state.norm})

    `data` are as those of `ts.train`, passed again until there were `steps` batches; without, it is one pass.
    Raises LaunchError TS372 for data that are not batches.
    """
    return Progress(data, steps, live)
