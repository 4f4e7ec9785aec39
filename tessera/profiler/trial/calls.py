"""The call behind a launch, to make it again: the program, and arguments like those that it had."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tessera.language import dtypes
from tessera.language.lazy import np
from tessera.profiler.recording import Recording
from tessera.runtime.arrays.adapter import Adapter
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.events import CallEvent, LaunchEvent


class NotTried(Exception):
    """Why a hint's change cannot be made, or not be tried, for people."""


@dataclass(frozen=True, slots=True)
class Again:
    """A call that can be made again. `made_up`: the arguments that are gone, for which random ones stand in."""

    program: Any
    arguments: Mapping[str, Any]
    made_up: tuple[str, ...]


def call_of(recording: Recording, launch: LaunchEvent) -> Again:
    """Raises NotTried."""
    run = launch.attributes.get("run")
    event = next((call for call in recording.calls if call.run == run), None)
    if event is None:
        raise NotTried("the profile does not know the call: it comes from a file, or an operator made it")
    program = event.program()
    if program is None:
        raise NotTried(f"{launch.attributes.get('function')} is gone: it has been defined anew since it was profiled")
    arguments, made_up = _arguments(event)
    parameters = list(inspect.signature(program.__wrapped__).parameters)
    parts = [name for name in parameters if name not in arguments]
    if parts:
        raise NotTried(f"{', '.join(parts)} of {program.name} is not a single array or number")
    return Again(program, {name: arguments[name] for name in parameters}, made_up)


def _arguments(event: CallEvent) -> tuple[dict[str, Any], tuple[str, ...]]:
    out, made_up = dict[str, Any](event.fixed), list[str]()
    for seed, (name, held) in enumerate(event.arguments.items()):
        value = held.value()
        if value is None:
            if not held.host:
                raise NotTried(f"{name} lived on a device, and is gone: keep it until the hint has been tried")
            value = like(held.shape, held.dtype, seed)
            made_up.append(name)
        out[name] = value
    return out, tuple(made_up)


def like(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Random numbers in the place of an array that is gone: standard normal, or 0 and 1, which index most things."""
    found, random = dtypes.named(dtype), np.random.Generator(np.random.Philox(seed))
    if found is None:
        raise NotTried(f"no array of {dtype} can be made up")
    if found.is_float or found.is_complex:
        return random.standard_normal(shape, np.float32).astype(found.numpy)
    return random.integers(0, 2, shape).astype(found.numpy)


def on_host(value: Any) -> Any:
    """A result as a NumPy array; None for what is no array."""
    adapter: Adapter | None = adapter_of(value)
    return None if adapter is None else np.array(adapter.numpy(value))
