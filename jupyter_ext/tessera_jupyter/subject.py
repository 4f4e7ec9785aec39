"""What a panel knows of one function or kernel: its analysis, its code, and the levels of its compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import tessera
from tessera import knobs
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.pipeline import Lowered, lower
from tessera.compiler.targets import base as targets
from tessera.compiler.targets.base import Target
from tessera.errors import Diagnostic, TesseraError, render_all
from tessera.language.decorators import Decorated
from tessera.runtime.arrays import devices
from tessera.runtime.code.assembly import is_at_hand
from tessera.runtime.compiled import Compiled
from tessera.runtime.levels import Level, assembly_lines, op_lines, target_lines
from tessera_jupyter.command import LEVELS

BRIEF = 8_000
"""characters of one level under a cell"""
THOROUGH = 60_000
"""the same in the panel of `%tessera ir f`; with `--level` it prints all of them"""
WAITING = "the machine code is still being read: this follows"


@dataclass(frozen=True, slots=True)
class Subject:
    """A function or kernel. `lowered` is None where it cannot be lowered as it stands, `compiled` where the target has
    no code for it; `why` says what is missing."""

    path: str
    program: Decorated[Any, Any]
    analysis: Analysis
    target: Target
    lowered: Lowered | None = None
    compiled: Compiled | None = None
    why: str = ""
    generic: bool = False
    """whether IR is shown as MLIR's generic text"""

    @property
    def signature(self) -> str:
        """`x [B, S] f32, w [S] f32 -> [B, S] f32`, as far as it is known."""
        op = self.analysis.op
        if op is not None and op.name == "tile.func":  # what one program returns is a part of these
            types = [a.type.pretty() for a in op.region.block.args]
            named = dict(zip(op.attrs["arg_names"], types, strict=True))
            given = [f"{p.name} {named[p.name]}" for p in self.analysis.params if p.name in named]
            returned = [", ".join(types[i] for i in op.attrs.get("returns", ()))]
        else:
            given = [f"{e.name} {e.text}" for e in self.analysis.expressions if e.kind == "param"]
            returned = [e.text for e in self.analysis.expressions if e.kind == "return"]
        return ", ".join(given) + (f" -> {returned[-1]}" if any(returned) else "")

    @property
    def is_whole(self) -> bool:
        """Whether the machine code can be shown without waiting for a disassembler."""
        return self.compiled is None or is_at_hand(self.compiled.artifact)

    def levels(self, thorough: bool, waiting: bool) -> list[Level]:
        """From Graph IR to the target's code; if `thorough`, more of each, and the assembly, which is left out if it
        is waited for."""
        made = [self.level(name, THOROUGH if thorough else BRIEF) for name in LEVELS[:-1]]
        if thorough:
            last = LEVELS[-1]
            made.append(Level(last, (), why=WAITING) if waiting and not self.is_whole else self.level(last, THOROUGH))
        return made

    def level(self, name: str, most: int) -> Level:
        """As many whole lines of one level as fit into `most` characters."""
        generated = {"target": target_lines, "assembly": assembly_lines}
        if self.lowered is None or (name in generated and self.compiled is None):
            return Level(name, (), why=self.why)
        try:
            compiled = self.compiled
            made = generated[name](compiled.lowered, compiled.artifact) if compiled and name in generated else None
            lines = list(op_lines(self.lowered.ops(name), self.generic) if made is None else made)
        except TesseraError as e:  # the disassembler is not installed
            return Level(name, (), why=render_all(e.diagnostics))
        if not lines:
            kernel = f"{self.path} is a kernel: it starts as Tile IR"
            return Level(name, (), why=f"{self.target.name} has no machine code" if name in generated else kernel)
        sizes = accumulate(len(line.text) for line in lines)
        kept = next((i for i, size in enumerate(sizes) if size > most), len(lines))
        return Level(name, tuple(lines[:kept]), len(lines) - kept)


def subject(
    path: str,
    program: Decorated[Any, Any],
    analysis: Analysis,
    target: str,
    dims: Mapping[str, int],
    last: Compiled | None = None,
) -> Subject:
    """Compiles for a panel, as far as it goes. What prevents more is told in the panel; no error is raised for it.

    `last`: what the last call ran, and is shown.
    """
    if last is not None:
        return Subject(path, program, analysis, last.target, last.lowered, last)
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
        found = replace(found, why=_error_text(e, path, chosen))
    try:
        return replace(found, lowered=lower(analysis.unit(), chosen))
    except Exception as e:
        return replace(found, why=_error_text(e, path, chosen))


def as_run(shown: Subject) -> Subject:
    """The same as the last call ran it, with its sizes, where that was on the same target."""
    last = Compiled.of_last_call(shown.program)
    if last is None or last.target.name != shown.target.name:
        return shown
    return Subject(shown.path, shown.program, last.analysis, last.target, last.lowered, last)


def _error_text(error: Exception, path: str, target: Target) -> str:
    if isinstance(error, TesseraError):
        return render_all(error.diagnostics)
    message = f"compiling {path} for {target.name} failed: {type(error).__name__}: {error}; please report it"
    return render_all([Diagnostic("TS900", message)])
