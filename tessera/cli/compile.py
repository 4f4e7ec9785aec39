"""`tessera compile`: code for a target as files, with a JSON of the resources it needs."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tessera.cli.programs import lowered, sizes
from tessera.collector import collector_paused
from tessera.compiler.phases import phase, watched
from tessera.compiler.pipeline import generate, global_accesses
from tessera.compiler.targets.base import Artifact
from tessera.errors import DeviceError
from tessera.runtime.code.assembly import spilled_or_why
from tessera.runtime.compiled import save_artifact


def compile(
    where: Annotated[str, typer.Argument(metavar="FILE:NAME", help="A function or kernel in a file.")],
    target: Annotated[str, typer.Option(help="cpu, sm_90a, a100, h100 ...")] = "auto",
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write to.")] = Path("."),
    dims: Annotated[
        str | None, typer.Option(help="Sizes of dims and numbers: B=8,steps=3. Others stay symbolic.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the resources as JSON.")] = False,
    time: Annotated[bool, typer.Option("--time", help="Print the time of each phase of the compilation.")] = False,
) -> None:
    """Compile ahead of time: .cubin and .cu for a GPU, object and assembly for a CPU."""
    with watched() as spent, collector_paused():
        program, chosen = lowered(where, target, sizes(dims))
        artifact = generate(program.program, chosen)
        if time:
            with phase("loading"), contextlib.suppress(DeviceError):  # of code for another machine
                chosen.load(artifact)
    written = save_artifact(artifact, output)
    found = spilled_or_why(artifact)
    spilled, unknown = ([], found) if isinstance(found, str) else (found, "")
    touched = global_accesses(program.program, chosen, sizes(dims) or {}) if hasattr(chosen, "accesses") else []
    if as_json:
        print(
            json.dumps(
                {
                    "files": [str(p) for p in written],
                    "target": artifact.target,
                    "resources": artifact.resources,
                    **({"ms": {name: ns / 1e6 for name, ns in spent.items()}} if time else {}),
                    "kernels": {name: {what: k[what] for what in ("tiles", "notes")} for name, k in _reports(artifact)},
                    "spilled": unknown or [asdict(value) for value in spilled],
                    "accesses": [asdict(access) for access in touched],
                },
                indent=1,
            )
        )
        return
    _table(artifact.resources)
    reports = dict(_reports(artifact))
    for name in dict.fromkeys((*reports, *(value.kernel for value in spilled))):
        if name in reports:
            _tiles(name, reports[name])
        else:
            print(name)
        for value in spilled:
            if value.kernel == name:
                print(f"  spilled  {value}")
        for access in touched:
            if access.kernel == name:
                print(f"  access  {access}")
    if unknown:
        print(f"spilled values are not known: {unknown}")
    for name, ns in (*spent.items(), ("together", sum(spent.values()))) if time else ():
        print(f"{ns / 1e6:9.1f} ms  {name}")
    for path in written:
        print(f"wrote {path}  ({path.stat().st_size:,} bytes)")


def _reports(artifact: Artifact) -> list[tuple[str, dict[str, Any]]]:
    """A GPU target's report on the tiles of its kernels; empty for other targets."""
    kernels: Any = artifact.meta.get("kernels")
    return list(kernels.items()) if isinstance(kernels, dict) else []  # type: ignore[reportUnknownArgumentType]


def _tiles(name: str, kernel: dict[str, Any]) -> None:
    """A line for each tile and each note: they are long, and a table would break them."""
    parts = ("name", "what", "where", "takes")
    width = {part: max((len(str(t[part])) for t in kernel["tiles"]), default=0) for part in parts}
    print(f"{name}: {len(kernel['tiles'])} tiles, {len(kernel['notes'])} notes")
    for t in kernel["tiles"]:
        print("  tile", *(str(t[part]).ljust(width[part]) for part in parts), f"line {t['line']}: {t['how']}", sep="  ")
    for note in kernel["notes"]:
        print(f"  note  {note}")


_UNITS = {
    "threads": "per block", "registers": "per thread", "stack": "B per thread", "spills": "B per thread",
    "shared": "B per block", "blocks_per_sm": "at a time", "stack_bytes": "B", "scratch_bytes": "B per worker",
}  # fmt: skip


def _said(name: str, value: object) -> str:
    if name == "occupancy" and isinstance(value, float):
        return f"{value:.0%}"
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,} {_UNITS.get(name, '')}".strip()
    return str(value)


def _table(resources: dict[str, object]) -> None:
    from rich.console import Console  # slow: 15 ms for the other commands
    from rich.table import Table  # slow: 15 ms for the other commands

    for kernel, figures in resources.items():
        if not isinstance(figures, dict):
            continue
        table = Table(title=kernel, title_justify="left", show_header=False)
        for name, value in figures.items():
            if not name.endswith("_reason"):
                reason = figures.get(f"{name}_reason", "")
                table.add_row(
                    name.replace("_", " "), f"- ({reason})" if value is None and reason else _said(name, value)
                )
        Console().print(table)
