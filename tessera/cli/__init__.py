"""The `tessera` command: one thin file per sub-command.

Every sub-command prints tables for people and takes `--json` for machines where it has data to give. Exit codes: 0
all is well, 1 the program or its environment has errors, 2 the command line itself is wrong.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the console script: a finding is shown as a finding, never as a traceback."""
    from tessera.cli.app import app
    from tessera.errors import TesseraError, render_all

    try:
        app(prog_name="tessera")
    except TesseraError as e:
        print(render_all(e.diagnostics, color=sys.stderr.isatty()), file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # `tessera ir ... | head`
        sys.stderr.close()
        sys.exit(1)
