"""The backward of a live kernel as a function that can be called: `kernel.backward()`."""

from __future__ import annotations

import linecache
from typing import Any

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.backward.recorded import refused_at
from tessera.compiler.frontend.backward.text import derived
from tessera.compiler.frontend.names.live import live_definition
from tessera.errors import CompileError


def backward(kernel: Any) -> tuple[Any, str]:
    """The rule, decorated, and its text. Raises CompileError TS355 where it cannot be derived."""
    definition = kernel.definition()
    found = derived(definition)
    python = kernel.__wrapped__
    cells = zip(python.__code__.co_freevars, python.__closure__ or (), strict=True)
    names = {**python.__globals__, **{n: c.cell_contents for n, c in cells}}
    file = f"<backward of {definition.name}, {abs(hash((found.text, definition.file))):x}>"
    lines = found.text.splitlines(keepends=True)
    linecache.cache[file] = len(found.text), None, lines, file
    exec(compile(found.text, file, "exec"), names)
    made = [names[k].definition() for k in found.kernels]
    problems = [d for k in made for d in analyse(k).diagnostics if d.severity == "error"]
    if problems:
        raise refused_at(definition, definition.span, f"the result is not a kernel ({problems[0].message})")
    return names[found.rule], found.text


__all__ = ["CompileError", "backward", "live_definition"]
