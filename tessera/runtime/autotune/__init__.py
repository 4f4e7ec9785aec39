"""Autotuning: which schedule parameters suit a program, a signature and a machine best.

`trials` says what is known, `store` keeps it, `key` says what it holds for, `space` which configurations differ,
`screen` which need not be tried, `candidate` runs one, `search` runs them all, `launcher` goes by the outcome, and so
does `ahead`, which runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tessera.errors import CompileError, Diagnostic, LaunchError
from tessera.runtime.autotune.dataset import tune_schedule
from tessera.runtime.autotune.launcher import TunedLauncher
from tessera.runtime.autotune.trials import Trial, Tuning, TuningError
from tessera.runtime.dispatch import launcher_of

__all__ = ["Trial", "Tuning", "TuningError", "best_config", "latest", "report", "tune", "tune_schedule"]


def tuned(fn: Any) -> TunedLauncher:
    """The launcher of a program that has a space. Raises CompileError TS105 for one that has none."""
    if "autotune" not in fn.options:
        fix = "give it one with @ts.kernel.autotune(space=...) or @ts.autotune.space(configs=...)"
        raise CompileError(Diagnostic("TS105", f"{fn.name} has no configurations to tune; {fix}", function=fn.name))
    return cast(TunedLauncher, launcher_of(fn))


def tune(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tuning:
    """`Program.tune`."""
    return tuned(fn).tune(args, kwargs)


def best_config(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """`Program.best_config`."""
    launcher = tuned(fn)
    with launcher.lock:
        return launcher.settled(launcher.bind(launcher.parameters.positions(args, kwargs)))


def report(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tuning:
    """`Program.tuning_report`. Raises LaunchError TS501 without arguments before the first call."""
    launcher = tuned(fn)
    if args or kwargs:
        return launcher.tune(args, kwargs, measure=False)
    if launcher.tuning is None:
        message = f"{fn.name} has not been tuned in this process; call it, or pass the arguments to report on"
        raise LaunchError(Diagnostic("TS501", message, fn.definition().span, function=fn.name))
    return launcher.tuning


def latest(fn: Any) -> Tuning | None:
    """`Program.tuning`."""
    return tuned(fn).tuning
