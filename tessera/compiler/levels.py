"""One level of a function's compilation as lines, each with the place in the sources that it comes from.

Graph and Schedule IR are made here, from the analysis of the text as it is. The levels below need targets, which this
server never loads: a process of its own makes them from the same text, by `tessera ir`. Nothing of the user's runs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tessera
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.readable import readable
from tessera.compiler.unit import Unit
from tessera.errors import NOWHERE, Span
from tessera.immutable import immutable

log = logging.getLogger(__name__)
LEVELS = ("graph", "schedule", "tile", "target", "assembly")
TIMEOUT = 120.0
"""seconds after which a compilation is given up"""


class NoIR(Exception):
    """Why there is no text, for people."""


@immutable
class IRLine:
    """A line of text and the lines that it comes from; a span of line 0 for none."""

    text: str
    span: Span = NOWHERE


@immutable
class Touched:
    """An access to global memory in words, its line, and the sectors of 32 bytes that a request touches on average, and
    at best."""

    text: str
    file: str
    line: int
    sectors: float
    least: float


def of(analysis: Analysis) -> tuple[str, ...]:
    """The levels that there are: a kernel, which is written in tiles, starts as Tile IR."""
    return LEVELS[LEVELS.index("tile") :] if analysis.definition.kind == "kernel" else LEVELS


def unit(analysis: Analysis, dims: Mapping[str, int]) -> Unit:
    """What the compiler would be given, with some sizes known. Raises NoIR."""
    known = {name: size for name, size in dims.items() if name in analysis.dims}
    found = analyse(analysis.definition, analysis.arguments, known) if known else analysis
    if found.op is None or not found.ok:  # the compiler takes neither
        why = [d.message.partition("\n")[0] for d in found.diagnostics if d.severity == "error"]
        why = why or [d.message for d in found.undecided] or ["what its text leaves open is known when it is called"]
        at = f"at {', '.join(f'{n}={size}' for n, size in known.items())}" if known else "as it stands"
        raise NoIR(f"{found.name} cannot be compiled {at}: {'; '.join(why)}")
    return found.unit()


def graph(analysis: Analysis, dims: Mapping[str, int]) -> Op:
    """The `graph.func` of a function with some sizes known, after the graph's passes. Raises NoIR, CompileError."""
    from tessera.compiler.pipeline import to_graph  # slow: the passes are loaded when a level is first asked for

    made = unit(analysis, dims)
    if made.is_kernel:
        raise NoIR(f"{made.name} is a kernel: it starts as Tile IR")
    return to_graph(made)


def schedule(analysis: Analysis, dims: Mapping[str, int], target: str) -> Op:
    """The groups of operators that become kernels. Raises NoIR, CompileError, TargetError."""
    from tessera.compiler.pipeline import to_schedule  # slow: as above

    return to_schedule(graph(analysis, dims), target)


def printed(op: Op) -> list[IRLine]:
    found = readable(op)
    return [IRLine(t, s or NOWHERE) for t, s in zip(found.text.splitlines(), found.spans, strict=True)]


async def compiled(
    analysis: Analysis, text: str, level: str, target: str, dims: Mapping[str, int]
) -> tuple[str, list[IRLine]]:
    """The target's name and one of the levels that need it. Raises NoIR; when it is cancelled, the process ends."""
    found = await _asked(analysis, text, level, target, dims)
    lines = [_line(each["text"], each["file"], each["lines"]) for each in found["lines"]]
    if not lines:
        raise NoIR(f"{analysis.name} has no {level} on {found['target']}")
    return found["target"], lines


async def accesses(analysis: Analysis, text: str, target: str, dims: Mapping[str, int]) -> list[Touched]:
    """The accesses of a GPU's kernels to global memory, where they are known. Raises NoIR, as above."""
    found = await _asked(analysis, text, "accesses", target, dims)
    return [
        Touched(each["text"], each["file"], each["lines"][0], each["sectors"], each["least"])
        for each in found["lines"]
        if each["sectors"] is not None and each["least"] is not None
    ]


async def spills(analysis: Analysis, text: str, target: str, dims: Mapping[str, int]) -> tuple[str, list[str]]:
    """The target's name, and the values that lie in memory for want of registers, in words. Raises NoIR, as above."""
    found = await _asked(analysis, text, "spills", target, dims)
    return found["target"], [each["text"] for each in found["lines"]]


async def _asked(analysis: Analysis, text: str, level: str, target: str, dims: Mapping[str, int]) -> dict[str, Any]:
    if importlib.util.find_spec("tessera.cli") is None:
        raise NoIR("this server came without the compiler; install tessera in the project's environment")
    definition = analysis.definition
    line = definition.span.line  # of several functions of one name, this one
    command = [sys.executable, "-P", "-m", "tessera", "ir", f"{definition.file}:{line}", "--stdin", "--json"]
    command += ["--level", level, "--target", target]
    given = [f"{name}={size}" for name, size in dims.items() if name in analysis.dims]
    command += ["--dims", ",".join(given)] if given else []
    out, err, code = await _run(command, text.encode("utf-8", "surrogateescape"))
    if code:
        raise NoIR(err.strip() or f"the compiler ended with status {code}")
    return json.loads(out)


def _line(text: str, file: str, numbers: list[int]) -> IRLine:
    return IRLine(text, Span(file, min(numbers), 1, max(numbers), 1) if numbers else NOWHERE)


async def _run(command: list[str], text: bytes) -> tuple[str, str, int]:
    own = str(Path(tessera.__file__).parents[1])
    path = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH", ""))))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(text), TIMEOUT)
    except TimeoutError:
        raise NoIR(f"the compiler has not finished in {TIMEOUT:.0f} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out.decode(errors="replace"), err.decode(errors="replace"), process.returncode or 0
