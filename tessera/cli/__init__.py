"""The `tessera` command: one thin file per sub-command.

Every sub-command prints tables for people and takes `--json` for machines where it has data to give. Exit codes: 0
all is well, 1 the program or its environment has errors, 2 the command line itself is wrong.
"""

from __future__ import annotations

import io
import sys
import traceback
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from tessera import knobs
from tessera.errors import Diagnostic, TesseraError, render_all
from tessera.signals import end_if_left

_INTERRUPTED = 130
"""the exit code after Ctrl-C"""


def main() -> None:
    """Entry point of the console script: a finding is shown as a finding, never as a traceback."""
    from tessera.cli.app import application  # slow: 60 ms for those who import one command

    if isinstance(sys.stdout, io.TextIOWrapper):  # names of a program may have letters that a terminal has not
        sys.stdout.reconfigure(errors="backslashreplace")
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    try:
        application(asked)(prog_name="tessera")
    except SystemExit as e:
        if e.code == _INTERRUPTED:
            end_if_left(_INTERRUPTED)
        raise
    except TesseraError as e:
        fail(e)
    except BrokenPipeError:  # `tessera ir ... | head`
        sys.stderr.close()
        sys.exit(1)
    except OSError as e:
        if _by_script(e) or knobs.debug():
            report(e)
        fail(TesseraError(Diagnostic("TS616", f"{e.filename}: {e.strerror}" if e.filename else str(e))))
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        if not Path(last.filename).is_relative_to(Path(__file__).parents[1]) or knobs.debug():
            report(e)  # the user's own script failed, and Python's report is the right one
        where = f"{last.filename}:{last.lineno} in {last.name}"
        message = f"{type(e).__name__}: {e}\n{where}\nTESSERA_DEBUG=1 shows the traceback."
        fail(TesseraError(Diagnostic("TS900", message)))


def _by_script(e: Exception) -> bool:
    """Whether a script that a command ran has failed, and not the command."""
    frames = [(f.f_globals.get("__name__"), f.f_code.co_name) for f, _ in traceback.walk_tb(e.__traceback__)]
    return any(a == ("tessera.cli.run", "execute") and b[1] == "<module>" for a, b in pairwise(frames))


def report(e: Exception) -> NoReturn:
    """Prints the traceback as if Python had run the script, without the frames of this command, and exits with 1."""
    script = trace = e.__traceback__
    while trace is not None and not knobs.tracebacks():
        if trace.tb_frame.f_globals.get("__name__") == "tessera.cli.run":
            script = trace.tb_next
        trace = trace.tb_next
    traceback.print_exception(type(e), e, script)
    sys.exit(1)


def fail(e: TesseraError) -> None:
    print(render_all(e.diagnostics, color=sys.stderr.isatty()), file=sys.stderr)
    sys.exit(1)
