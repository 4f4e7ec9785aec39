"""`tessera ir`: any level of the compilation of one function, without running it."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tessera.cli.programs import lowered, sizes
from tessera.compiler.pipeline import LEVELS, generate, global_accesses
from tessera.runtime.code.assembly import spilled_of
from tessera.runtime.levels import LevelLine, assembly_lines, op_lines, target_lines

ACCESSES, SPILLS = "accesses", "spills"
"""no levels, but what the Tile level says of memory, and the assembly of registers"""
ALL = (*LEVELS, "assembly", ACCESSES, SPILLS)


def ir(
    where: Annotated[str, typer.Argument(metavar="FILE:NAME", help="A function or kernel in a file, or FILE:LINE.")],
    level: Annotated[str, typer.Option(help=f"One of {', '.join(ALL)}.")] = "graph",
    target: Annotated[str, typer.Option(help="What to compile for.")] = "auto",
    dims: Annotated[
        str | None, typer.Option(help="Sizes of dims and numbers: B=8,steps=3. Others stay symbolic.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter known at compile time: --set causal=True."),
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read the file's text from standard input instead.")] = False,
    generic: Annotated[bool, typer.Option("--generic", help="Print MLIR's generic form, which tools read.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each line with its source lines, as JSON.")] = False,
) -> None:
    """Print a function's Graph, Schedule, Tile or Target IR, assembly, accesses to memory, or spilled values."""
    if level not in ALL:
        raise typer.BadParameter(f"level is one of {', '.join(ALL)}, not {level!r}")
    text = sys.stdin.buffer.read().decode("utf-8", "surrogateescape") if stdin else None
    program, chosen = lowered(where, target, sizes(dims), text, given)
    found = global_accesses(program.program, chosen, sizes(dims) or {}) if level == ACCESSES else []
    if level == ACCESSES:
        lines = [LevelLine(str(access), access.file, (access.line,)) for access in found]
    elif level == SPILLS:
        values = spilled_of(generate(program.program, chosen))
        lines = [LevelLine(str(value), value.file, (value.line,)) for value in values]
    elif level in ("target", "assembly"):
        artifact = generate(program.program, chosen)
        lines = list((target_lines if level == "target" else assembly_lines)(program, artifact))
    else:
        lines = list(op_lines(program.ops(level), generic))
    if as_json:
        shown = [{"text": line.text, "file": line.file, "lines": line.origin} for line in lines]
        for line, access in zip(shown, found, strict=False):
            line |= {"sectors": access.per_request, "least": access.least}
        print(json.dumps({"function": program.program.name, "level": level, "target": chosen.name, "lines": shown}))
    elif lines:
        print("\n".join(line.text for line in lines))
    else:
        kinds = {"assembly": "machine code", ACCESSES: "accesses to global memory", SPILLS: "spilled values"}
        has = kinds.get(level, f"{level} level: it starts as Tile IR")
        print(f"// {program.program.name} has no {has}")
