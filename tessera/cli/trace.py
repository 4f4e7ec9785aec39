"""`tessera trace`: checks that a viewer shows a trace as recorded, and merges profiles of several processes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def trace(
    action: Annotated[Literal["verify", "merge"], typer.Argument(help="What to do.")],
    files: Annotated[
        list[Path],
        typer.Argument(help="verify: a Chrome trace or a TrackEvent file. merge: profiles that prof.save() wrote."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="merge: the trace to write, .json or .json.gz.")
    ] = None,
    tiles: Annotated[
        int | None, typer.Option(min=0, help="merge: how many tile records to keep per profile, longest first.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Check a trace file for events that a viewer would drop or move. Exits with 1 if there are any.

    Or merge profiles into one trace: each is a group of rows, and their clocks are aligned.
    """
    for file in files:
        if not file.is_file():
            raise typer.BadParameter(f"there is no file {file}")
    if action == "merge":
        _merge(files, output, tiles, as_json)
        return
    if len(files) != 1 or output is not None or tiles is not None:
        raise typer.BadParameter("verify takes one file, and --output and --tiles are for merge")
    from tessera.profiler.export.verify import verify_trace  # slow: 60 ms for the other commands

    found = verify_trace(files[0])
    print(json.dumps(dataclasses.asdict(found), indent=1) if as_json else found)
    if found.findings:
        raise typer.Exit(1)


def _merge(files: list[Path], output: Path | None, tiles: int | None, as_json: bool) -> None:
    if output is None or not output.name.endswith((".json", ".json.gz")):
        raise typer.BadParameter("merge needs --output NAME.json or NAME.json.gz")
    from tessera.profiler.export.merge import TILES, merge_traces  # slow: 60 ms for the other commands

    merged = merge_traces(files, output, TILES if tiles is None else tiles)
    print(json.dumps(dataclasses.asdict(merged), indent=1, default=str) if as_json else merged)
