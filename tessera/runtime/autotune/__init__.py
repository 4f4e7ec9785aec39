"""Autotuning: which schedule parameters suit a program, a signature and a machine best.

`candidates` lists configurations and runs one, `search` times them, `trials` has the results, `store` keeps them on
disk. `choose` picks the best one: for calls, which may search first, and for code compiled ahead, which runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

from tessera.compiler.frontend.names.signature import definition_signature
from tessera.errors import CompileError, Diagnostic, LaunchError
from tessera.language.schedule import Schedule
from tessera.language.tuning import METRICS, Metric
from tessera.runtime.autotune.choose import TunedLauncher
from tessera.runtime.autotune.trials import Trial, Tuning, TuningError, cost, show
from tessera.runtime.call.dispatch import launcher_of
from tessera.runtime.call.examples import example_arguments

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


# Tuning over several calls.


def tune_schedule(
    schedule: Schedule, kernel: Any, dataset: Iterable[Any], metric: Metric, timeout_ms: float | None
) -> Schedule:
    """`Schedule.autotune`."""
    if not callable(metric) and metric not in METRICS:
        raise CompileError(Diagnostic("TS105", f"metric is {' or '.join(METRICS)} or a function, not {metric!r}"))
    space: Mapping[str, Any] = kernel.options.get("autotune", {})
    own = schedule.config_for(kernel)
    if space:
        configs = [own, *space["configs"]]
    else:
        configs = [s.config_for(kernel) for s in schedule.neighbours()]
    options = {"configs": [{**kernel.config, **c} for c in configs], "metric": metric if callable(metric) else "time",
               "timeout_ms": timeout_ms or space.get("timeout_ms"), "cache": space.get("cache")}  # fmt: skip
    tuned = kernel.with_options(config=configs[0], autotune=options)
    tunings = [tuned.tune(*args, **kwargs) for args, kwargs in (_call(kernel, item) for item in dataset)]
    if not tunings:
        raise LaunchError(Diagnostic("TS501", "the dataset is empty: tuning needs at least one call"))
    columns = list(zip(*(t.trials for t in tunings), strict=True))
    usable = [column for column in columns if all(t.usable for t in column)]
    if not usable:
        names = "\n".join(f"{show(c[0].config)}: {next(t.detail for t in c if not t.usable)}" for c in columns)
        message = f"none of the configurations of {kernel.name} can be used for every item of the dataset:\n{names}"
        raise TuningError(Diagnostic("TS609", message, kernel.definition().span, function=kernel.name))
    best = min(usable, key=lambda column: total(column, metric))
    return schedule.from_config(best[0].config)


def total(trials: Iterable[Trial], metric: Metric) -> float:
    """One configuration over all calls. The geometric mean of the times is least where that of the rates, whose work is
    given, is greatest."""
    costs = [cost(t, metric) for t in trials]
    if metric == "throughput":
        return math.exp(math.fsum(map(math.log, costs)) / len(costs))
    return math.fsum(costs)


def _call(kernel: Any, item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An item of a dataset as a call."""
    if isinstance(item, Mapping):
        given = cast("Mapping[str, Any]", item)
        sizes = all(isinstance(v, int) and not isinstance(v, bool) for v in given.values())
        names = {p.name for p in definition_signature(kernel.definition()).parameters}
        return (), example_arguments(kernel, given) if sizes and not set(given) <= names else dict(given)
    if isinstance(item, (tuple, list)):
        return tuple(cast("tuple[Any, ...]", item)), {}
    return (item,), {}
