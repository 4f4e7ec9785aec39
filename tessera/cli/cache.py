"""`tessera cache`: what the disk cache holds."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Literal

import typer

from tessera.runtime import cache as disk


def cache(
    action: Annotated[Literal["stats", "clear", "verify"], typer.Argument(help="What to do.")] = "stats",
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show, empty or check the cache of compiled code."""
    found = disk.default()
    if found is None:
        print("the disk cache is off (TESSERA_CACHE_SIZE=0) or its folder cannot be used")
        raise typer.Exit(1)
    if action == "clear":
        print(f"removed {found.clear()} entries")
    elif action == "verify":
        bad = found.verify()
        print("\n".join(bad) if bad else "every entry is whole")
    else:
        figures = dataclasses.asdict(found.stats())
        plain = {k: v if isinstance(v, (int, float, str, bool, type(None))) else str(v) for k, v in figures.items()}
        print(
            json.dumps(plain, indent=1)
            if as_json
            else "\n".join(f"{k.replace('_', ' ')}: {v}" for k, v in plain.items())
        )
