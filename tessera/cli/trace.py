"""`tessera trace`: whether a viewer shows a trace as it was recorded."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def trace(
    action: Annotated[Literal["verify"], typer.Argument(help="What to do.")],
    file: Annotated[Path, typer.Argument(help="A Chrome trace or a TrackEvent file, compressed by gzip or not.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Check a trace file: what a viewer would drop or move of it. Exits with 1 if there is anything."""
    from tessera.profiler.export.verify import verify_trace  # slow: 60 ms for the other commands

    if not file.is_file():
        raise typer.BadParameter(f"there is no file {file}")
    found = verify_trace(file)
    print(json.dumps(dataclasses.asdict(found), indent=1) if as_json else found)
    if found.findings:
        raise typer.Exit(1)
