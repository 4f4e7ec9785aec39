"""`tessera ir`: any level of the compilation of one function, without running it."""

from __future__ import annotations

from typing import Annotated

import typer

from tessera.cli.programs import lowered, sizes
from tessera.compiler.pipeline import LEVELS, generate


def ir(
    where: Annotated[str, typer.Argument(metavar="FILE:NAME", help="A function or kernel in a file.")],
    level: Annotated[str, typer.Option(help=f"One of {', '.join(LEVELS)}.")] = "graph",
    target: Annotated[str, typer.Option(help="What to compile for.")] = "auto",
    dims: Annotated[str | None, typer.Option(help="Sizes of named dims: B=8,S=128. Others stay symbolic.")] = None,
) -> None:
    """Print a function's Graph, Schedule, Tile or Target IR."""
    if level not in LEVELS:
        raise typer.BadParameter(f"level is one of {', '.join(LEVELS)}, not {level!r}")
    program, chosen = lowered(where, target, sizes(dims))
    print(generate(program.program, chosen).source if level == "target" else program.text(level), end="")
