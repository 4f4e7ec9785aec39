"""Tuning over several calls."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

from tessera.compiler.frontend.signature import definition_signature
from tessera.errors import CompileError, Diagnostic, LaunchError
from tessera.language.schedule import Schedule
from tessera.language.tuning import METRICS, Metric
from tessera.runtime.autotune.trials import Trial, TuningError, cost, show
from tessera.runtime.examples import example_arguments


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
