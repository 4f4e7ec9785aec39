"""The call behind a launch, to make it again: the program, and arguments like those that it had."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tessera.compiler.frontend.syntax.parse import Source
from tessera.errors import Edit, Span
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
    libraries: Mapping[str, str]
    """the packages that its arrays are of"""

    def numpy_alone(self, names: Iterable[str]) -> None:
        """Raises NotTried where one of these is another library's array, for which an edit would say something else."""
        for name in names:
            if (library := self.libraries.get(name, "numpy")) != "numpy":
                raise NotTried(f"{name} is an array of {library}, and the edit is one for NumPy's")


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
    libraries = {name: held.library for name, held in event.arguments.items() if held.library}
    return Again(program, {name: arguments[name] for name in parameters}, made_up, libraries)


def own_arguments(again: Again) -> dict[str, Any]:
    """Its arguments as NumPy arrays, copied, since a kernel may store to them. What is not contiguous is only read, and
    stays as it lies."""
    out: dict[str, Any] = {}
    for name, value in again.arguments.items():
        adapter: Adapter | None = adapter_of(value)
        if adapter is not None:
            value = adapter.numpy(value)
            value = np.array(value) if value.flags.c_contiguous else value
        out[name] = value
    return out


def _arguments(event: CallEvent) -> tuple[dict[str, Any], tuple[str, ...]]:
    out, made_up = dict[str, Any](event.fixed), list[str]()
    for seed, (name, held) in enumerate(event.arguments.items()):
        value = held.value()
        if value is None:
            if not held.host:
                raise NotTried(f"{name} lived on a device, and is gone: keep it until the hint has been tried")
            value = like(held.shape, held.dtype, seed, held.strides)
            made_up.append(name)
        out[name] = value
    return out, tuple(made_up)


def like(shape: tuple[int, ...], dtype: str, seed: int, strides: tuple[int, ...] = ()) -> Any:
    """Random numbers in the place of an array that is gone: standard normal, or 0 and 1, which index most things.
    `strides` in bytes, of one that was not contiguous."""
    if strides:
        return _strided(shape, dtype, seed, strides)
    found, random = dtypes.named(dtype), np.random.Generator(np.random.Philox(seed))
    if found is None:
        raise NotTried(f"no array of {dtype} can be made up")
    if found.is_float or found.is_complex:
        return random.standard_normal(shape, np.float32).astype(found.numpy)
    return random.integers(0, 2, shape).astype(found.numpy)


def _strided(shape: tuple[int, ...], dtype: str, seed: int, strides: tuple[int, ...]) -> Any:
    reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
    first, last = -sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    memory = like((1,), dtype, seed)
    memory = like(((first + last) // memory.itemsize + 1,), dtype, seed)
    return np.lib.stride_tricks.as_strided(memory[first // memory.itemsize :], shape, strides)


def line_before(source: Source, statement: ast.stmt, line: str) -> Edit:
    """A line of its own in front of a statement. Raises NotTried where that shares its line with others."""
    span = source.span(statement)
    if source.lines[span.line - 1][: span.col - 1].strip():
        raise NotTried(f"there is no room for a line before {source.lines[span.line - 1].strip()}")
    return Edit(Span(span.file, span.line, span.col, span.line, span.col), f"{line}\n{' ' * (span.col - 1)}")


def on_host(value: Any) -> Any:
    """A result as a NumPy array; None for what is no array."""
    adapter: Adapter | None = adapter_of(value)
    return None if adapter is None else np.array(adapter.numpy(value))
