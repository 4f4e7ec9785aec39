"""`tessera cache`: what the disk cache and the store of timings hold."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import typer

from tessera.runtime.autotune.store import store_at
from tessera.runtime.code import cache as disk


def cache(
    action: Annotated[Literal["stats", "clear", "verify"], typer.Argument(help="What to do.")] = "stats",
    tuning: Annotated[bool, typer.Option("--tuning", help="Clear the autotuner's timings instead of code.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Clear timings without asking.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show, empty or check the cache of compiled code and the autotuner's timings."""
    if tuning and action == "clear":
        _clear_timings(yes)
        return
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
        timings = store_at().stats()
        if as_json:
            print(json.dumps(plain | {"tuning": timings}, indent=1))
            return
        print("\n".join(f"{k.replace('_', ' ')}: {v}" for k, v in plain.items()))
        print(f"tuning: {_size(timings)} in {timings['path']}")


def _size(timings: Mapping[str, Any]) -> str:
    return f"{timings['trials']} timings of {timings['signatures']} signatures, {timings['bytes']:,} bytes"


def _clear_timings(yes: bool) -> None:
    """Code is made again in a moment, timings are not: so this asks."""
    store = store_at()
    timings = store.stats()
    if not yes and timings["trials"] and not typer.confirm(f"Remove {_size(timings)}? They take time to take again."):
        print("kept")
        return
    print(f"removed {store.clear()} timings")
