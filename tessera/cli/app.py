"""The typer application and its sub-commands, in the order in which `--help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

import tessera
from tessera.cli import cache, check, compile, demo, doctor, ir, lab, lsp, profile, run, tune

app = typer.Typer(
    help="Tile kernels and tensor functions: checked before you run, explained after.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # a user's own traceback is Python's business
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tessera {tessera.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command()(demo.demo)
app.command()(lab.lab)
app.command()(doctor.doctor)
app.command()(check.check)
app.command()(run.run)
app.command()(compile.compile)
app.command()(ir.ir)
app.command()(profile.profile)
app.command()(tune.tune)
app.command()(cache.cache)
app.command()(lsp.lsp)
