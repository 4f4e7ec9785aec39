"""`tessera demo`: the first minute."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Annotated

import typer

from tessera.cli.run import execute

SCRIPT = "examples/tour.tess"


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for the profile.")] = Path("demo"),
) -> None:
    """Compile and run the tour on this machine's best target, and show where the time went."""
    from tessera import profiler  # slow: 60 ms for the other commands
    from tessera.runtime.arrays import devices  # slow: as the line above

    script = next(
        (p / SCRIPT for p in (Path.cwd(), Path(__file__).resolve().parents[2]) if (p / SCRIPT).is_file()), None
    )
    if script is None:
        raise typer.BadParameter(f"{SCRIPT} is not here; run the demo in a source checkout")
    print(f"target: {devices.resolve('auto')}   ({'; '.join(map(str, devices.devices()))})\n")
    with profiler():  # the first run compiles, for the profiler too; what is shown is the second
        execute(script, [])
    with profiler() as prof, contextlib.redirect_stdout(io.StringIO()):
        execute(script, [])
    print()
    print(prof.summary())
    output.mkdir(parents=True, exist_ok=True)
    page = prof.to_html(output / "profile.html")
    trace = prof.export_chrome_trace(output / "trace.json")
    print(f"\n{page}: open it in a browser\n{trace}: open it at ui.perfetto.dev or chrome://tracing")
