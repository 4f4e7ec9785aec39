"""The typer application and its sub-commands, in the order in which `--help` lists them."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import tessera

COMMANDS = {
    "demo": "Compile and run the tour on this machine's best target, and show where the time went.",
    "lab": "Open JupyterLab on the tour.",
    "doctor": "Show what works on this machine and what its processor does, and what to install for the rest.",
    "check": "Check files without running them. Exits with 1 if there are errors.",
    "run": "Run a script. A .tess file may use Tessera's dialect of Python (type parameters, keywords, policies).",
    "compile": "Compile ahead of time: .cubin and .cu for a GPU, object and assembly for a CPU.",
    "ir": "Print a function's Graph, Schedule, Tile or Target IR, assembly, accesses to memory, or spilled values.",
    "profile": "Run a script, or a function of it on random arguments, and show where the time went.",
    "trace": "Check a trace file for events that a viewer would drop or move. Exits with 1 if there are any.",
    "benchmark": "Measure the functions of a file on the CPU. With --compare, exit with 1 if one has become slower.",
    "hints": "Show how often the profiler's predictions were right, as measured by `hint.try_it()`.",
    "tune": "Time the configurations of a kernel on random data; later calls with such shapes use the fastest.",
    "cache": "Show, empty or check the cache of compiled code and the autotuner's timings.",
    "lsp": "Start the language server, on standard input and output or on a port for one client.",
}
"""name -> summary. A command is the function of this name in the module of this name, which is imported only when the
command runs, so `--help` does not load the compiler."""


def application(asked: str) -> typer.Typer:
    """The application. Only the command `asked` is imported; the others are listed."""
    app = typer.Typer(
        help="Tile kernels and tensor functions: checked before they run, profiled after.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,  # Rich's panels would take half of the time of `--help`
        pretty_exceptions_enable=False,  # a user's own traceback is Python's business
    )
    app.callback()(options)
    for name, summary in COMMANDS.items():
        run = getattr(importlib.import_module(f"tessera.cli.{name}"), name) if name == asked else _listed
        app.command(name, cls=_Command, short_help=summary)(run)
    return app


class _Command(TyperCommand):
    """A command that says where a script's own options belong."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        file = next((word for word in args if not word.startswith("-")), "")
        try:
            return super().parse_args(ctx, args)
        except Exception as e:  # Click's, which some versions of Typer bring along under a name of their own
            script = any(p.name == "arguments" for p in self.params) and file and ":" not in file
            if script and type(e).__name__ == "NoSuchOption":
                held = vars(e)
                likely = f" (possible: {', '.join(held['possibilities'])})" if held["possibilities"] else ""
                said = f"tessera {self.name} {file} -- {held['option_name']} ..."
                held["message"] += f"{likely}\nOptions of the script follow a --: {said}"
                held["possibilities"] = None
            raise


def _listed() -> None:
    """Stands for a command that does not run."""


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tessera {tessera.__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass
