"""What a panel knows of one function or kernel: its analysis, its code, and the IR at every level with source lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import tessera
from tessera import knobs
from tessera.compiler.frontend.analysis import Analysis
from tessera.compiler.ir.core import Op
from tessera.compiler.ir.printer import print_lines
from tessera.compiler.pipeline import Lowered, lower
from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Target
from tessera.errors import Diagnostic, Span, TesseraError, render_all
from tessera.language.decorators import Program
from tessera.runtime import devices
from tessera.runtime.compiled import LEVELS, Compiled

MOST_TEXT = 8_000
"""characters of one level in a panel; `%tessera ir f --level ...` has them all"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of IR or generated code, and the lines of the user's text that it comes from."""

    text: str
    file: str = ""
    origin: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the compilation. `more`: how many lines were left out; `why`: why there are none."""

    name: str
    lines: tuple[Line, ...]
    more: int = 0
    why: str = ""

    @property
    def title(self) -> str:
        return self.name.capitalize()


@dataclass(frozen=True, slots=True)
class Subject:
    """A function or kernel. `lowered` is None where it cannot be lowered as it stands, `compiled` where the target has
    no code for it; `why` says what is missing."""

    path: str
    program: Program[Any, Any]
    analysis: Analysis
    target: Target
    lowered: Lowered | None = None
    compiled: Compiled | None = None
    why: str = ""

    @property
    def signature(self) -> str:
        """`x [B, S] f32, w [S] f32 -> [B, S] f32`, as far as it is known."""
        given = [f"{e.name} {e.text}" for e in self.analysis.expressions if e.kind == "param"]
        returned = [e.text for e in self.analysis.expressions if e.kind == "return"]
        return ", ".join(given) + (f" -> {returned[-1]}" if returned else "")

    def levels(self, most: int = MOST_TEXT) -> list[Level]:
        """Graph, Schedule, Tile and Target, each as many whole lines as fit into `most` characters."""
        return [self._level(name, most) for name in LEVELS]

    def _level(self, name: str, most: int) -> Level:
        if self.lowered is None or (name == "target" and self.compiled is None):
            return Level(name, (), why=self.why)
        lines = list(
            _target_lines(self.compiled, self.lowered) if name == "target" else _op_lines(self.lowered.ops(name))
        )
        if not lines:
            return Level(name, (), why=f"{self.path} is a kernel: it starts as Tile IR")
        kept = next(
            (i for i, size in enumerate(accumulate(len(line.text) for line in lines)) if size > most), len(lines)
        )
        return Level(name, tuple(lines[:kept]), len(lines) - kept)


def subject(path: str, program: Program[Any, Any], analysis: Analysis, target: str, dims: Mapping[str, int]) -> Subject:
    """Compiles for a panel, as far as it goes. What prevents more is told in the panel; no error is raised for it."""
    chosen = targets.get(devices.resolve(knobs.target() if target == "auto" else target))
    found = Subject(path, program, analysis, chosen)
    if not analysis.ok:
        return replace(found, why="it has errors")
    if analysis.op is None:
        open_questions = "; ".join(d.message for d in analysis.undecided)
        return replace(found, why=f"compiled at its first call: {open_questions}")
    try:
        compiled = tessera.compile(program, target=target, dims=dims)
        return replace(found, lowered=compiled.lowered, compiled=compiled)
    except Exception as e:  # the cell is right, and it has been defined: what a target cannot do must not fail it
        found = replace(found, why=_told(e, path, chosen))
    try:
        return replace(found, lowered=lower(analysis, chosen))
    except Exception as e:
        return replace(found, why=_told(e, path, chosen))


def _told(error: Exception, path: str, target: Target) -> str:
    if isinstance(error, TesseraError):
        return render_all(error.diagnostics)
    said = f"compiling {path} for {target.name} failed: {type(error).__name__}: {error}; please report it"
    return render_all([Diagnostic("TS900", said)])


def _op_lines(ops: list[Op]) -> Iterator[Line]:
    for op in ops:
        printed = print_lines(op)
        for text, span in zip(printed.text.splitlines(), printed.spans, strict=True):
            yield _line(text, span)


def _target_lines(compiled: Compiled, lowered: Lowered) -> Iterator[Line]:
    """The generated code. A target says in `meta["lines"]` where its lines come from: [line, file, user's line].

    Without that, the head of each function of the code stands for all that its kernel comes from.
    """
    table = {int(line): (file, int(at)) for line, file, at in compiled.artifact.meta.get("lines", ())}
    texts = compiled.source.splitlines()
    if not table:
        tile = list(_op_lines(lowered.ops("tile")))
        if [line.text for line in tile] == [text for text in texts if text]:  # a target that prints Tile IR
            yield from tile
            return
    heads = {} if table else _heads(lowered)
    for number, text in enumerate(texts, 1):
        if number in table:
            file, at = table[number]
            yield Line(text, file, (at,))
        else:
            name = next((n for n in heads if f"@{n}(" in text and text.startswith("define")), "")
            yield Line(text, *heads.get(name, ()))


def _heads(lowered: Lowered) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Kernel -> (file, lines) of everything in it."""
    out: dict[str, tuple[str, tuple[int, ...]]] = {}
    for kernel in lowered.ops("tile"):
        lines = {
            n for op in kernel.walk() if op is not kernel for n in _numbers(op.span) if op.span.file == kernel.span.file
        }
        out[str(kernel.attrs["sym_name"])] = kernel.span.file, tuple(sorted(lines))
    return out


def _numbers(span: Span) -> tuple[int, ...]:
    return tuple(range(span.line, span.end_line + 1)) if span.line > 0 else ()


def _line(text: str, span: Span | None) -> Line:
    return Line(text) if span is None else Line(text, span.file, _numbers(span))
