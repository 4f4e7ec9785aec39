"""`tessera hints`: what came of hints that were tried."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer


def hints(
    entries: Annotated[bool, typer.Option("--entries", help="List every outcome instead of the rules.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show how often the profiler's predictions were right, as measured by `hint.try_it()`."""
    from tessera.profiler.hints import VERSION  # slow: 60 ms for the other commands
    from tessera.profiler.quantity import format_percent  # slow: 60 ms for the other commands
    from tessera.profiler.trial import ledger  # slow: 60 ms for the other commands

    known = ledger.entries()
    found = ledger.standings(VERSION, known)
    if as_json:
        rules = [asdict(s) | {"silent": s.silent} for s in found]
        print(json.dumps({"path": str(ledger.path()), "rules": rules, "entries": [asdict(e) for e in known]}, indent=1))
        return
    if not known:
        print("no hint has been tried on this machine; print(prof.hints()[0].try_it()) tries the first of a profile")
        return
    if entries:
        for e in known:
            predicted, measured = map(format_percent, e.predicted), map(format_percent, (e.measured[0], e.measured[2]))
            outside = "" if e.covered else "  outside"
            print(f"{e.rule}: {e.program}  predicted {' to '.join(predicted)}, saved {' to '.join(measured)}{outside}")
        return
    for s in found:
        silent = f"  silent: fewer than {format_percent(ledger.COVERAGE)} inside" if s.silent else ""
        print(f"{s.rule}: tried {s.tried}, {s.covered} inside the predicted range, {s.gained} faster{silent}")
    print(ledger.path())
