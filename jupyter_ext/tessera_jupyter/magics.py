"""`%%tessera` and `%tessera`."""

from __future__ import annotations

import ast
import difflib
import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

from IPython.core.error import TryNext, UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import display

import tessera
from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.targets import base as targets
from tessera.errors import CompileError, register_source
from tessera.language.decorators import Decorated, Function
from tessera.profiler import Profiler, side_by_side
from tessera.profiler.views.markup import prose, table, table_alone, text
from tessera.runtime import events
from tessera.runtime.arrays import devices
from tessera.runtime.compiled import Compiled
from tessera_jupyter import cell as cells
from tessera_jupyter import command, findings
from tessera_jupyter.actions import named_hint
from tessera_jupyter.command import MagicRequest
from tessera_jupyter.panel import OutputPanel, fill, show, show_early, show_tried
from tessera_jupyter.profile_tabs import show_outcome
from tessera_jupyter.progress import Waits, progress
from tessera_jupyter.session.cards import Session
from tessera_jupyter.session.message import ran, tell
from tessera_jupyter.session.report import SessionReport
from tessera_jupyter.subject import subject

_KEYS = ("%tessera", "%%tessera")


class _Shown(Profiler):
    """A profiler whose panel stands in the notebook already: `prof = %tessera profile f(x)` keeps it."""

    def _ipython_display_(self) -> None:
        pass


@magics_class
class TesseraMagics(Magics):
    """One magic: with two signs it runs a cell of the dialect, with one it asks about what is there."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._raw = ""
        self.session = Session(shell.user_ns)
        self._waits = 0

    @classmethod
    def install(cls, shell: InteractiveShell) -> None:
        cls.remove(shell)
        magics = cls(shell)
        magics._remember_loading(shell)
        shell.register_magics(magics)
        shell.events.register("pre_run_cell", magics._remember)
        shell.events.register("post_run_cell", magics._tell)
        for key in _KEYS:
            shell.set_hook("complete_command", magics._complete, str_key=key)
        findings.hook(shell)
        magics._waits = events.subscribe_waits(Waits())

    @classmethod
    def remove(cls, shell: InteractiveShell) -> None:
        magics = shell.magics_manager.registry.pop(cls.__name__, None)
        if magics is None:
            return
        for kind in ("line", "cell"):
            shell.magics_manager.magics[kind].pop("tessera", None)
        shell.magics_manager.lazy_magics.pop("tessera", None)
        shell.events.unregister("pre_run_cell", magics._remember)
        shell.events.unregister("post_run_cell", magics._tell)
        for key in _KEYS:
            shell.strdispatchers["complete_command"].s_matches(key)
            shell.strdispatchers["complete_command"].strs.pop(key, None)
        findings.unhook(shell)
        events.unsubscribe(magics._waits)

    def _remember_loading(self, shell: InteractiveShell) -> None:
        """Remembers the cell that is running, which may be the first `%%tessera` cell behind `import tessera`."""
        self._raw = shell.history_manager.input_hist_raw[-1] if shell.history_manager is not None else ""
        parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
        self.session.cell = parent.get("metadata", {}).get("cellId")

    def _remember(self, info: Any) -> None:
        self._raw = info.raw_cell
        self.session.cell = info.cell_id if info.store_history else None

    def _tell(self, result: Any) -> None:
        """When a cell has run: its number is known from now on."""
        if self.session.cell is not None and result.execution_count is not None:
            self.session.cells[result.execution_count] = self.session.cell
        ran(self.shell, self.session, result)

    @no_var_expand
    @line_cell_magic
    def tessera(self, line: str, cell: str | None = None) -> Any:
        """Tessera in this notebook.

        %%tessera [--target T] [--dims S=4,D=1024] [--profile "f(x)"] [--watch] [--show shapes,ir,kernel,profile,hints]
            Runs the cell, which is Python plus Tessera's dialect, checks every function and kernel in it, and shows
            shapes, IR and resources under it. With --watch it profiles at every run and says what the last edit did.
        %tessera profile f(x) [-o page.html]    %tessera hints f(x)    %tessera memory f(x)
            These run f(x) twice, and record the second run; with --once the first.
        %tessera try f(x)    %tessera compare f(x), g(x)
        %tessera history f    %tessera functions
        %tessera ir f [--level L] [--target T] [--dims ...] [--generic]    %tessera why f
        %tessera trace f(x) [-o trace.json]    %tessera doctor
        """
        if cell is not None:
            return self._cell(command.cell_request(line), cell)
        if not line.strip():
            print(command.usage())
            return None
        name, request = command.line_request(line)
        return getattr(self, f"_{name}")(request)

    # %%tessera

    def _cell(self, request: MagicRequest, body: str) -> None:
        _check_target(request.target)
        outcome = cells.run(self.shell, body, cells.lines_above(self._raw, body), request.dims)
        if outcome.errors:
            self._refuse(outcome)
        if outcome.error is not None:
            findings.tell(self.shell, outcome.error, outcome.error.__traceback__)
            raise outcome.error
        subjects = [subject(d.path, d.program, d.analysis, request.target, request.dims) for d in outcome.defined]
        self.session.asked.update((s.program, request) for s in subjects)
        names = [d.path for d in outcome.defined]
        watched = request.watch and not request.profile
        expression = self.session.versions.last_expression(names) if watched else request.profile
        profile = self._record(expression, request.once) if expression else None
        since = self._since(names, expression) if request.watch else ""
        if subjects or profile:
            first = "profile" if profile is not None or since else ""
            show(OutputPanel(tuple(subjects), profile, request.show, first, since))

    def _since(self, names: list[str], expression: str) -> str:
        """What a watched cell says: what its last edit did, or what it waits for."""
        if not expression:
            call = f"{names[0] if names else 'f'}(...)"
            return f"watched: profile a call once (%tessera profile {call}), and this cell will at every run"
        with progress(f"Comparing {expression} with the version before"):
            change = self.session.versions.last_change(names)
        return (
            str(change) if change is not None else f"watched: the next edit is compared with this run of {expression}"
        )

    def _refuse(self, outcome: cells.Outcome) -> None:
        """Shows every finding, takes the broken definitions out of the namespace, and fails the cell."""
        broken = cells.forget_broken(self.shell, outcome)
        count = len(outcome.errors)
        message = f"{count} error{'s' * (count != 1)}, shown above."
        if broken:
            message += f" {', '.join(broken)} {'is' if len(broken) == 1 else 'are'} not defined until that is fixed."
        error = CompileError(outcome.diagnostics)
        findings.tell(self.shell, error, None, message)
        raise error

    # %tessera ...

    def _profile(self, request: MagicRequest) -> Profiler:
        path = _writable(request.output) if request.output else None
        profile = self._record(request.expression, request.once)
        if path is not None:
            print(f"wrote {profile.to_html(path)}: open it in a browser")
        show(OutputPanel((), profile, ("profile", "hints")))
        return profile

    def _hints(self, request: MagicRequest) -> None:
        program = self.shell.user_ns.get(request.expression)
        if isinstance(program, Decorated):
            profile = self.session.profile_of(program)
            if profile is None:
                call = f"{request.expression}(...)"
                raise UsageError(
                    f"{request.expression} has not been profiled; give a call to run: %tessera hints {call}"
                )
        else:
            profile = self._record(request.expression, request.once)
        show(OutputPanel((), profile, ("hints",)))

    def _try(self, request: MagicRequest) -> None:
        """Hints that no edit can try say so, and the next one is tried."""
        if request.hint:
            return self._try_shown(request.hint)
        hints = self._record(request.expression).hints()
        if not hints:
            print("Nothing worth changing in this run.")
        for hint in hints:
            with progress(f"Trying: {hint.change}"):
                outcome = hint.try_it()
            show_outcome(outcome)
            if outcome.verdict != "not tried":
                return

    def _try_shown(self, name: str) -> None:
        """Tries a hint of a panel, which keeps what comes of it."""
        try:
            profile, shown, index = named_hint(name)
        except KeyError:
            raise UsageError("this profile is no longer held by the kernel: profile again, and try its hint") from None
        hint = shown.hints[index]
        try:
            with progress(f"Trying: {hint.change}"):
                outcome = hint.try_it()
        except KeyboardInterrupt:
            print("Interrupted: nothing was changed, and nothing is kept of it.")
            return
        shown.tried[index] = outcome
        show_outcome(outcome)
        show_tried(profile)

    def _compare(self, request: MagicRequest) -> None:
        pair = _pair(request.expression)
        calls = [lambda code=code: eval(code, self.shell.user_ns) for code in pair]
        files = (code.co_filename for code in pair)
        with progress(f"Running {request.expression} by turns"), findings.told_from(self.shell, *files):
            found = side_by_side(*calls)
        display(found)

    def _history(self, request: MagicRequest) -> None:
        name = request.expression
        self._program(name)
        with progress(f"Comparing the versions of {name}"):
            found = self.session.versions.edits(name)
        if not found.versions:
            raise UsageError(f"no call of {name} as a cell defines it was profiled yet: %tessera profile {name}(...)")
        display(found)

    def _functions(self, request: MagicRequest) -> None:
        """With `--follow` for a page, which is told after each cell from then on."""
        if request.follow:
            self.session.followed = True
            tell(self.shell, self.session)
        else:
            display(SessionReport(self.session.cards(math.inf)[0]))

    def _trace(self, request: MagicRequest) -> None:
        path = _writable(request.output or "trace.json")
        self._record(request.expression, request.once).export_chrome_trace(path)
        print(f"wrote {path}: open it at ui.perfetto.dev or chrome://tracing")

    def _memory(self, request: MagicRequest) -> None:
        report = self._record(request.expression, request.once).memory()
        display({"text/html": prose(report.details()), "text/plain": report.details()}, raw=True)

    def _ir(self, request: MagicRequest) -> None:
        _check_target(request.target)
        program = self._program(request.expression)
        cell = self.session.asked.get(program, MagicRequest())
        target = request.target if request.target != "auto" else cell.target
        dims = request.dims or (cell.dims if target == cell.target else {})
        last = Compiled.of_last_call(program) if target == "auto" and not request.dims else None
        analysis = last.analysis if last is not None else analyse(program.definition(), None, dims)
        if not analysis.ok:
            raise CompileError([d for d in analysis.diagnostics if d.severity == "error"])
        found = subject(request.expression, program, analysis, target, dims, last)
        found = replace(found, generic=request.generic)
        if request.level:
            level = found.level(request.level, sys.maxsize)
            print("\n".join(line.text for line in level.lines) or level.why)
            return
        show_early(OutputPanel((found,), None, ("shapes", "ir", "kernel"), "ir", thorough=True))

    def _why(self, request: MagicRequest) -> None:
        display(tessera.why_recompiled(self._program(request.expression)))

    def _doctor(self, request: MagicRequest) -> None:
        command_line = [sys.executable, "-P", "-m", "tessera", "doctor", "--json"]
        answer = subprocess.run(command_line, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise UsageError(f"tessera doctor failed: {answer.stderr.strip()[-500:]}")
        marks = {True: "ok", False: "!!", None: "--"}
        rows = [(f["what"], marks[f["ok"]], f["detail"], f["remedy"]) for f in json.loads(answer.stdout)]
        plain = "\n".join("  ".join(filter(None, (mark, what, detail, remedy))) for what, mark, detail, remedy in rows)
        told = [
            (text(what), text(mark), "<br>".join(map(text, filter(None, (detail, remedy)))))
            for what, mark, detail, remedy in rows
        ]
        markup = table_alone("tessera-doctor", table(("", "", ""), told))
        display({"text/html": markup, "text/plain": plain}, raw=True)

    # what they share

    def _program(self, expression: str) -> Decorated[Any, Any]:
        """The function or kernel that an expression names. Raises UsageError."""
        value = self._value(expression)
        if isinstance(value, Compiled):
            return value.function
        if isinstance(value, Decorated):
            return value
        if callable(value) and hasattr(value, "__code__"):
            return Function(value)
        known = ", ".join(self._names()) or "none yet"
        raise UsageError(f"{expression} is not a function or kernel of Tessera. Defined in this notebook: {known}")

    def _value(self, expression: str) -> Any:
        try:
            return self.shell.ev(expression)
        except (NameError, SyntaxError) as e:
            close = difflib.get_close_matches(expression, self._names(), n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{expression!r}: {e}{hint}") from None

    def _names(self) -> list[str]:
        return sorted(
            name for name, v in self.shell.user_ns.items() if isinstance(v, Decorated) and not name.startswith("_")
        )

    def _record(self, expression: str, once: bool = False) -> Profiler:
        """Runs an expression under the profiler; the panels of the functions that ran are filled with it.

        It runs once before, so that compiling what is new is over, and then several times, so that what differs from
        run to run is known (see `Profiler.repeat`); `once` keeps to one run.
        """
        code = _expression(expression)
        with progress(f"Running {expression}"), findings.told_from(self.shell, code.co_filename):
            if not once:
                with Profiler():  # the variant that records its tiles is compiled by this one
                    eval(code, self.shell.user_ns)
            profile = _Shown()
            profile.repeat(lambda: eval(code, self.shell.user_ns), 1 if once else None)
        self.session.versions.note(expression, profile, once)
        fill(self.session.took(profile, expression), profile)
        return profile

    def _complete(self, _: Any, event: Any) -> list[str]:
        line = event.line[: len(event.text_until_cursor)] if hasattr(event, "text_until_cursor") else event.line
        found = command.completions(line, self._names())
        if not found:
            raise TryNext
        return found


_expressions = itertools.count(1)


def _writable(name: str) -> Path:
    """A path to write to, its folder made. Raises UsageError before anything runs for it."""
    path = Path(name).expanduser()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as e:
        raise UsageError(f"{path} cannot be written: {e.strerror}") from None
    return path


def _check_target(name: str) -> None:
    """Raises TargetError TS601, with the nearest name, before anything runs."""
    if name != "auto":
        targets.get(devices.resolve(name))


def _expression(text: str) -> CodeType:
    """Its code, under a name by which hints and tracebacks find the text. Raises UsageError."""
    name = f"<%tessera {next(_expressions)}>"
    try:
        code = compile(text, name, "eval")
    except SyntaxError as e:
        raise UsageError(f"{text!r} is not an expression that could be run: {e.msg}") from None
    register_source(name, text + "\n")
    return code


def _pair(expression: str) -> tuple[CodeType, CodeType]:
    """The two calls of `f(x), g(x)`. Raises UsageError."""
    try:
        found = ast.parse(expression, mode="eval").body
    except SyntaxError as e:
        raise UsageError(f"{expression!r} is not an expression that could be run: {e.msg}") from None
    if not isinstance(found, ast.Tuple) or len(found.elts) != 2:
        raise UsageError(f"{expression!r} is not two calls; usage: %tessera compare f(x), g(x)")
    old, new = (_expression(ast.unparse(one)) for one in found.elts)
    return old, new
