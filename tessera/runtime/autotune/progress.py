"""Says what tuning is doing, when it takes longer than a second."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from tessera.runtime import events

PATIENCE = 1.0
"""seconds before anything is shown"""
Step = Callable[[str, float], None]
"""what is being done, and which part of everything is done (0 to 1)"""


@contextmanager
def terminal(title: str) -> Generator[Step]:
    """A bar on a terminal's standard error; nothing anywhere else, and nothing that stays."""
    if not sys.stderr.isatty():
        yield lambda text, part: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TextColumn("{task.fields[doing]}"))
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task: Any = progress.add_task(title, total=1.0, doing="")
    begin, shown = monotonic(), False

    def step(text: str, part: float) -> None:
        nonlocal shown
        progress.update(task, completed=part, doing=text)
        if not shown and monotonic() - begin > PATIENCE:
            shown = True
            progress.start()

    try:
        yield step
    finally:
        if shown:
            progress.stop()


@contextmanager
def shown(title: str) -> Generator[Step]:
    """Stands around a tuning: who listens to waits is told; where nobody does, a terminal shows a bar."""
    with events.waiting(title) as tell, contextlib.nullcontext() if events.waits_heard() else terminal(title) as bar:

        def step(text: str, part: float) -> None:
            tell(text, part)
            if bar is not None:
                bar(text, part)

        yield step
