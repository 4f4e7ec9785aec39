"""What a timing holds for: the program, the machine, the signature, and who compiled it.

Shapes are part of it as they are, not in classes of similar ones: code is compiled for exact shapes, and whether a
configuration keeps the bits of the first one depends on them (one block that covers a loop, or two). Where a function
stands in its file is no part of it, so that editing the file above it loses no timing.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tessera
from tessera.compiler.frontend.fingerprint import fingerprint
from tessera.compiler.targets.base import Target
from tessera.runtime import devices
from tessera.runtime.arguments import Bound
from tessera.runtime.build import compiler_state
from tessera.runtime.cache import digest
from tessera.runtime.watch import Read, Watch, is_function, python_function


@dataclass(frozen=True, slots=True)
class Key:
    """`fields` as people read them; they are kept beside the timings."""

    name: str
    target: str
    device: str
    arguments: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        return digest(*(part for pair in self.fields for part in pair))


def key_of(fn: Any, bound: Bound, target: Target, watch: Watch, device: str | None = None) -> Key:
    """The key of a call's timings; `device` where they are of another machine than this one."""
    device = device or device_text(target, bound.device)
    arguments = arguments_of(bound)
    options = {k: v for k, v in fn.options.items() if k not in ("config", "autotune")}
    fields = [
        ("program", f"{fn.kind} {content(python_function(fn))}"),
        ("options", fingerprint(options)),
        ("target", target.name),
        ("compiler", f"tessera {tessera.__version__} {compiler_state()} {target.fingerprint}"),
        ("device", device),
        *(("argument", text) for text in arguments),
        *(("reads", f"{read.path}: {_read(read)}") for read in watch.reads),
    ]
    return Key(fn.name, target.name, device, arguments, tuple(fields))


def arguments_of(bound: Bound) -> tuple[str, ...]:
    """`x [300] f32` ..."""
    return tuple(_argument(name.removeprefix("argument "), value) for name, value in bound.fields.items())


def device_text(target: Target, device: str) -> str:
    """The machine as far as timings depend on it: model, features and threads of a CPU; a GPU's model and size."""
    if devices.home(target) == "cpu":
        cpu = devices.devices()[0]
        threads = devices.get_num_threads()
        return f"{cpu.description}, {threads} thread{'s' * (threads != 1)} ({' '.join(cpu.features)})"
    index = int(device.partition(":")[2] or 0)
    found = devices.cuda_devices()[index]
    return f"{found.description}, {found.units} multiprocessors"


def content(function: types.FunctionType) -> str:
    """A hash of what a function does: its code, constants, defaults and annotations, but not where it stands."""
    notes = sorted((k, str(v)) for k, v in function.__annotations__.items())
    parts = repr((*_code(function.__code__), fingerprint(function.__defaults__), fingerprint(function.__kwdefaults__)))
    return f"{function.__name__}#{digest(parts, repr(notes))[:16]}"


def _code(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code
    yield code.co_names
    yield code.co_varnames
    for i, constant in enumerate(code.co_consts):
        if isinstance(constant, types.CodeType):
            yield tuple(_code(constant))
        elif i or not isinstance(constant, str):  # the first one is the docstring
            yield repr(constant)


def _read(read: Read) -> str:
    if is_function(read.value):
        options = getattr(read.value, "options", None)
        return f"{content(python_function(read.value))} {fingerprint(options) if options else ''}"
    return read.content()


def _argument(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{name} [{', '.join(map(str, value['shape']))}] {value['dtype']}"  # type: ignore[index]
    return f"{name} {value}"
