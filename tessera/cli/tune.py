"""`tessera tune`: the autotuner, ahead of the first call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tessera import knobs
from tessera.cli.programs import sizes
from tessera.cli.run import execute
from tessera.language.decorators import Decorated
from tessera.runtime.arrays import devices
from tessera.runtime.call.examples import example_arguments


def tune(
    where: Annotated[str, typer.Argument(metavar="FILE:NAME", help="A tuned function or kernel in a file.")],
    dims: Annotated[str | None, typer.Option(help="Sizes of the named dims: B=8,S=128.")] = None,
    target: Annotated[str, typer.Option(help="auto, cpu, reference, cuda ...")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Time the configurations of a kernel on random data; later calls with such shapes use the fastest.

    The file is imported, which runs its top-level code.
    """
    file, colon, name = where.rpartition(":")
    if not colon or not name.isidentifier():
        raise typer.BadParameter(f"{where!r} is not FILE:NAME, as in model.py:attention")
    program = execute(Path(file), [], name="__tune__").get(name)
    if not isinstance(program, Decorated):
        raise typer.BadParameter(f"{file} has no function or kernel {name!r}")
    with knobs.target.override(knobs.target() if target == "auto" else devices.resolve(target)):
        tuning = program.tune(**example_arguments(program, sizes(dims)))
    if not as_json:
        print(tuning)
        return
    trials = [
        {"config": t.config, "status": t.status, "seconds": t.seconds, "spread": t.spread, "detail": t.detail}
        for t in tuning.trials
    ]
    about = {"name": tuning.name, "target": tuning.target, "device": tuning.device, "config": tuning.config}
    print(json.dumps({**about, "measured": tuning.measured, "trials": trials}, indent=1))
