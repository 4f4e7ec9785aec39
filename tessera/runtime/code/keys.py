"""Cache keys: what compiled code depends on, as digests.

A front key covers what is known before anything is compiled; a content key covers the lowered program. Both cover the
target, the options, what is registered from outside, and the compiler itself.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tessera
from tessera.compiler import extensions
from tessera.compiler.ir.printer import print_op
from tessera.compiler.targets.base import Target
from tessera.compiler.tile.program import Launch, Loop, Program, ScalarArg
from tessera.runtime.code.cache import digest


def front(target: Target, debug: bool, profile: bool, request: Sequence[str]) -> str:
    """The key of what was asked for: source text, argument types, what is read from outside."""
    return digest("front", target.fingerprint, _options(debug, profile), *request)


def content(target: Target, debug: bool, profile: bool, program: Program) -> str:
    """The key of a lowered program, under which its code lies in the disk cache."""
    return digest(target.fingerprint, _options(debug, profile), *_canonical(program))


def _options(debug: bool, profile: bool) -> str:
    options = f"debug={debug} profile={profile}{extensions.state()}"
    return f"tessera {tessera.__version__} {compiler_state()} {options}"


@functools.cache
def compiler_state() -> str:
    """The state of Tessera's own files: code made by a changed checkout is not taken for the present one's. All files
    count: many are compiled into programs (layers, kernels, functions), and what reads Python code stops at them.

    Empty for an installed package, whose version says it all. In a checkout it takes 4 ms, once in a process.
    """
    root = os.path.dirname(os.path.abspath(tessera.__file__))
    if "site-packages" in root:
        return ""
    found: list[tuple[str, int, int]] = []
    folders = [root]
    for folder in folders:  # grows while it is walked
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders += [entry.path] if entry.name != "__pycache__" else []
                else:
                    stat = entry.stat()
                    found.append((entry.path[len(root) :], stat.st_size, stat.st_mtime_ns))
    return digest(repr(sorted(found)))[:16]


def _canonical(program: Program) -> Iterator[str]:
    """The program as text without file names: what the disk cache hashes."""
    yield repr(
        (program.name, program.params, program.outputs, program.free, program.checks, program.structure, program.bands)
    )
    for b in program.buffers:
        yield repr((b.id, b.shape, b.dtype, b.role, b.param, b.data))
    numbers: dict[int, int] = {}
    for launch in program.launches:
        code, kernel = launch.code, launch.kernel
        if id(code) not in numbers:
            numbers[id(code)] = len(numbers)
            yield print_op(code)
            yield repr([op.span.line for op in code.walk()])
        if id(kernel) not in numbers:
            numbers[id(kernel)] = len(numbers)
            yield repr((numbers[id(code)], kernel.attrs["sym_name"], kernel.attrs["arg_names"]))
    yield repr(_steps(program.steps, numbers))


def _steps(steps: tuple[Any, ...], numbers: Mapping[int, int]) -> list[Any]:
    out: list[Any] = []
    for step in steps:
        if isinstance(step, Launch):
            args = [
                (a.param, a.dtype) if isinstance(a, ScalarArg) else (a.buffer, a.offset, "window") for a in step.args
            ]
            out.append((numbers[id(step.kernel)], args, step.span.line))
        elif isinstance(step, Loop):
            out.append(("Loop", step.cond, [_steps(v, numbers) for v in (step.head, step.body)], step.turns))
        else:
            out.append(("Branch", step.cond, [_steps(v, numbers) for v in (step.then, step.orelse)]))
    return out
