"""The space of configurations of `@ts.autotune` and `@ts.kernel.autotune`, checked at the decorator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from tessera.errors import CompileError, Diagnostic

Metric = Literal["time", "throughput"] | Callable[[Any], float]
"""what the best configuration is best at; a function of a `Trial` gives a cost, and the least one wins"""
METRICS = ("time", "throughput")
MOST = 4096
"""configurations of one space: each is compiled and timed"""


def tuning_options(space: object, configs: object, metric: object, timeout_ms: object, cache: object) -> dict[str, Any]:
    """The decorator's arguments as plain data, the space as a list of configurations. Raises CompileError TS105."""
    if not callable(metric) and metric not in METRICS:
        raise _wrong(f'autotune\'s metric is "time", "throughput" or a function of a trial, not {metric!r}')
    if timeout_ms is not None and (
        not isinstance(timeout_ms, (int, float)) or isinstance(timeout_ms, bool) or not 0 < timeout_ms < math.inf
    ):
        raise _wrong(f"autotune's timeout_ms is a number of milliseconds above 0, not {timeout_ms!r}")
    if (space is None) == (configs is None):
        raise _wrong("autotune needs space={parameter: [values]} or configs=[{parameter: value}], one of the two")
    found = _product(space) if configs is None else _listed(configs)
    return {
        "configs": found,
        "metric": metric,
        "timeout_ms": timeout_ms,
        "cache": None if cache is None else str(cache),
    }


def _product(space: object) -> list[dict[str, Any]]:
    """All combinations, the last parameter's values varying fastest."""
    if not isinstance(space, Mapping) or not space:
        raise _wrong(f"autotune's space maps parameters to lists of values, as in dict(BLOCK=[64, 128]), not {space!r}")
    axes = cast("Mapping[str, Sequence[Any]]", space)
    for name, values in axes.items():
        if not isinstance(cast(object, values), (list, tuple, range)) or not values:
            raise _wrong(f"autotune needs a list of values for {name}, not {values!r}")
    count = math.prod(map(len, axes.values()))
    if count > MOST:
        raise _wrong(f"autotune's space has {count:,} configurations; at most {MOST:,} can be tried, so leave some out")
    return [_checked(dict(zip(axes, values, strict=True))) for values in itertools.product(*axes.values())]


def _listed(configs: object) -> list[dict[str, Any]]:
    if not isinstance(configs, (list, tuple)) or not configs:
        raise _wrong("autotune.space needs at least one configuration, as in configs=[{'BLOCK': 64}]")
    return [_checked(c) for c in cast("Sequence[object]", configs)]


def _checked(config: object) -> dict[str, Any]:
    """A configuration of names and plain values, which is what the store of timings and .sched files can hold."""
    if not isinstance(config, Mapping):
        raise _wrong(f"a configuration is a mapping of parameters to values, not {config!r}")
    for name, value in cast("Mapping[object, object]", config).items():
        if not isinstance(name, str) or not name.isidentifier():
            raise _wrong(f"a configuration's parameters are names, not {name!r}")
        if not is_plain(value):
            raise _wrong(f"the configuration's {name} is a number, text, or a tuple of such, not {value!r}")
    return dict(cast("Mapping[str, Any]", config))


def is_plain(value: object) -> bool:
    """Whether a parameter can be written down: JSON without mappings."""
    if isinstance(value, (tuple, list)):
        return all(map(is_plain, cast("Sequence[object]", value)))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (bool, int, str))


def _wrong(message: str) -> CompileError:
    return CompileError(Diagnostic("TS105", message))
