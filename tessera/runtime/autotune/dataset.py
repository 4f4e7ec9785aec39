"""Tuning over several calls, and arguments made from sizes alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

from tessera.compiler.frontend.signature import Parameter, definition_signature
from tessera.errors import CompileError, Diagnostic, LaunchError
from tessera.language import dims as algebra
from tessera.language import dtypes
from tessera.language.annotations import ScalarAnn, TensorAnn, TileAnn
from tessera.language.lazy import np
from tessera.language.schedule import Schedule
from tessera.language.tuning import METRICS, Metric
from tessera.runtime.autotune.trials import Trial, TuningError, cost, show
from tessera.runtime.dispatch import launcher_of


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


def example_arguments(fn: Any, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Arguments of the annotated types with these sizes: random numbers, ones for integers and scalars.

    The same sizes give the same numbers. Parameters with a default keep it. Raises LaunchError TS502 for an open size,
    TS501 for a parameter whose annotation does not say what it takes.
    """
    out: dict[str, Any] = {}
    for i, p in enumerate(definition_signature(fn.definition()).parameters):
        python = launcher_of(fn).parameters.python.parameters[p.name]
        if isinstance(p.annotation, (TensorAnn, TileAnn)):
            out[p.name] = _array(fn, p, sizes, i)
        elif python.default is not python.empty:
            continue
        elif p.name in sizes:
            out[p.name] = sizes[p.name]
        elif isinstance(p.annotation, ScalarAnn) and not p.static:
            out[p.name] = 1
        else:
            message = f"{p.name} has no default, and no value for it follows from sizes; pass the arguments themselves"
            raise LaunchError(Diagnostic("TS501", message, p.span, function=fn.name))
    return out


def _array(fn: Any, p: Parameter, sizes: Mapping[str, int], seed: int) -> Any:
    annotation: Any = p.annotation
    if annotation.shape is None or ... in annotation.shape:
        message = f"the annotation of {p.name} leaves its shape open; pass the arguments themselves"
        raise LaunchError(Diagnostic("TS501", message, p.span, function=fn.name))
    dtype = annotation.dtype or dtypes.f32
    try:
        shape = tuple(algebra.evaluate(d, sizes) for d in annotation.shape)
    except algebra.DimError:
        missing = [n for d in annotation.shape for n in algebra.symbols(d) if n not in sizes]
        message = f"the size of {', '.join(dict.fromkeys(missing))} is needed to make {p.name} [{annotation}]"
        raise LaunchError(Diagnostic("TS502", message, p.span, function=fn.name)) from None
    if not (dtype.is_float or dtype.is_complex):
        return np.ones(shape, dtype.numpy)
    return np.random.Generator(np.random.Philox(seed)).standard_normal(shape, np.float32).astype(dtype.numpy)
