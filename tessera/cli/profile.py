"""`tessera profile`: a script under the profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tessera.cli.run import execute


def profile(
    file: Annotated[Path, typer.Argument(help="A .tess or .py file.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the script finds in sys.argv.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the interactive page here.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a Chrome trace here.")] = None,
    tiles: Annotated[bool, typer.Option(help="Record every tile.")] = True,
) -> None:
    """Run a script and show where its time went."""
    from tessera.profiler import Profiler

    with Profiler(tiles=tiles) as prof:
        execute(file, arguments or [])
    print(prof.summary())
    for hint in prof.hints():
        print(hint)
    if html:
        print(f"wrote {prof.to_html(html)}: open it in a browser")
    if trace:
        print(f"wrote {prof.export_chrome_trace(trace)}: open it at ui.perfetto.dev or chrome://tracing")
