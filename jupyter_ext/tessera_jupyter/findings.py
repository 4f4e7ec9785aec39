"""Diagnostics in a notebook: carets into the cell, fixes as the lines they would give, who called whom."""

from __future__ import annotations

import html
import linecache
import os
import textwrap
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import IPython
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

import tessera
from tessera import knobs
from tessera.errors import (
    Diagnostic,
    Edit,
    Fix,
    Note,
    Span,
    TesseraError,
    register_source,
    render,
    render_html,
    source_line,
)
from tessera_jupyter.actions import bundle, cell_number

_OWN, _MAGICS, _IPYTHON = (str(Path(file).parent) + os.sep for file in (tessera.__file__, __file__, IPython.__file__))
_NOT_USERS = (_OWN, _MAGICS, _IPYTHON)
_FIX = "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px);margin:0 0 .8em 1em"
_FIX += ";white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere"
_OLD, _NEW = "color:var(--jp-error-color1,#c62828)", "color:var(--jp-success-color1,#2e7d32)"


def show(diagnostics: Sequence[Diagnostic]) -> None:
    """Displays findings: HTML where the front end can, the same as text elsewhere."""
    display(bundle(as_html(diagnostics), as_text(diagnostics), fixes_of(diagnostics)), raw=True)


def as_html(diagnostics: Iterable[Diagnostic]) -> str:
    return "".join(render_html([d]) + "".join(map(fix_html, d.fixes)) for d in diagnostics)


def as_text(diagnostics: Iterable[Diagnostic]) -> str:
    return "\n\n".join("\n".join([render(d), *map(_fix_text, d.fixes)]) for d in diagnostics)


def fixes_of(diagnostics: Iterable[Diagnostic]) -> list[Fix]:
    """In the order in which `as_html` shows them."""
    return [fix for d in diagnostics for fix in d.fixes]


def fix_html(fix: Fix) -> str:
    rows = [f'<span class="tessera-fix-title"><b>Fix</b>: {html.escape(fix.message)}</span>']
    for sign, line in _signed_lines(fix):
        rows.append(f'<span style="{_OLD if sign == "-" else _NEW}">{sign} {html.escape(line)}</span>')
    return f'<pre class="tessera-fix" style="{_FIX}">' + "\n".join(rows) + "</pre>"


def _fix_text(fix: Fix) -> str:
    return "\n".join([f"  fix: {fix.message}", *(f"    {sign} {line}" for sign, line in _signed_lines(fix))])


def _signed_lines(fix: Fix) -> Iterator[tuple[str, str]]:
    for old, new in changed_lines(fix.edits):
        yield from (("-", line) for line in old.splitlines())
        yield from (("+", line) for line in new.splitlines())


def changed_lines(edits: Iterable[Edit]) -> list[tuple[str, str]]:
    """(lines as they are, lines as the edits make them), without those that stay and without common indentation."""
    out: list[tuple[str, str]] = []
    by_line: dict[tuple[str, int, int], list[Edit]] = {}
    for edit in edits:
        by_line.setdefault((edit.span.file, edit.span.line, edit.span.end_line), []).append(edit)
    for (file, first, last), group in sorted(by_line.items()):
        old = [source_line(file, n) or "" for n in range(first, last + 1)]
        text, start_of_last = "\n".join(old), len("\n".join(old)) - len(old[-1])
        for edit in sorted(group, key=lambda e: (e.span.line, e.span.col), reverse=True):
            text = text[: edit.span.col - 1] + edit.text + text[start_of_last + edit.span.end_col - 1 :]
        out.append(_differing(old, text.split("\n")))
    return out


def _differing(old: list[str], new: list[str]) -> tuple[str, str]:
    for at in (0, -1):
        while old and new and old[at] == new[at]:
            del old[at], new[at]
    lines = textwrap.dedent("\n".join((*old, *new))).split("\n")
    return "\n".join(lines[: len(old)]), "\n".join(lines[len(old) :])


def hook(shell: InteractiveShell) -> None:
    """From now on a TesseraError that reaches the notebook shows its diagnostics and the user's own calls, no more, and
    an interrupt inside of Tessera the user's own calls."""
    shell.set_custom_exc((TesseraError, KeyboardInterrupt), _handle)


def unhook(shell: InteractiveShell) -> None:
    shell.set_custom_exc((), None)


def _handle(
    shell: InteractiveShell, etype: type[BaseException], value: TesseraError | KeyboardInterrupt,
    tb: TracebackType | None, tb_offset: int | None = None,
) -> None:  # fmt: skip
    if isinstance(value, KeyboardInterrupt):
        _shorten(shell, value, tb)
    elif _TOLD not in vars(value):
        tell(shell, value, tb)
    shell.showtraceback((etype, value, tb), running_compiled_code=True)


_TOLD = "_render_traceback_"


def tell(shell: InteractiveShell, error: Exception, tb: TracebackType | None, closing: str = "") -> None:
    """Shows an error that is about to be raised; what the notebook prints of it then are no more than a few lines.

    A TesseraError shows its findings, with the user's calls that led there; any other its traceback from `tb` on.
    """
    lines: list[str]
    if isinstance(error, TesseraError):
        show([_named(shell, d.with_notes(*_calls(tb, d))) for d in error.diagnostics])
        kinds = ", ".join(dict.fromkeys(f"{d.kind} {d.code}" for d in error.diagnostics))
        lines = [f"{type(error).__name__}: {closing or kinds}"]
    else:
        lines = shell.InteractiveTB.structured_traceback(type(error), error, tb)
    setattr(error, _TOLD, lambda: lines)


def within(tb: TracebackType | None, file: str) -> TracebackType | None:
    """The traceback from the first frame of a text on."""
    while tb is not None and tb.tb_frame.f_code.co_filename != file:
        tb = tb.tb_next
    return tb


@contextmanager
def told_from(shell: InteractiveShell, *files: str) -> Iterator[None]:
    """What code of these texts raises is shown from its own frames on: those of the magic that ran it help nobody."""
    try:
        yield
    except TesseraError:
        raise  # it shows its findings
    except Exception as e:
        own = next(filter(None, (within(e.__traceback__, file) for file in files)), None)
        if own is not None:
            tell(shell, e, own)
        raise


def _shorten(shell: InteractiveShell, interrupt: KeyboardInterrupt, tb: TracebackType | None) -> None:
    """Has an interrupt that came inside of Tessera shown without Tessera's frames, and any other one as it is."""
    frames = list[TracebackType]()
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    names = [frame.tb_frame.f_code.co_filename for frame in frames]
    last = max((i for i, frame in enumerate(frames) if _is_typed(frame)), default=-1)
    end = next((i for i in range(last + 1, len(names)) if names[i].startswith((_OWN, _MAGICS))), None)
    if end is None or knobs.tracebacks():
        return
    kept: TracebackType | None = None
    for i in reversed(range(end)):
        if _is_typed(frames[i]) or (i > last >= 0 and not names[i].startswith(_IPYTHON)):
            kept = TracebackType(kept, frames[i].tb_frame, frames[i].tb_lasti, _line(frames[i]))
    lines = ["KeyboardInterrupt: Tessera was interrupted. What was defined before it stays."]
    if kept is not None:
        own = shell.InteractiveTB.structured_traceback(KeyboardInterrupt, interrupt, kept, tb_offset=0)
        lines = [*own[:-1], *lines]
    setattr(interrupt, _TOLD, lambda: lines)


def _is_typed(frame: TracebackType) -> bool:
    """Whether a frame is of what stands in a cell, and no line that IPython has made of a magic."""
    name = frame.tb_frame.f_code.co_filename
    line = linecache.getline(name, _line(frame))
    return (cell_number(name) is not None or name.startswith("<%tessera")) and not line.startswith("get_ipython()")


def _line(frame: TracebackType) -> int:
    """A frame's line, or where its function begins: an interrupt can come at an instruction that has no line."""
    return frame.tb_lineno or frame.tb_frame.f_code.co_firstlineno


def _calls(tb: TracebackType | None, d: Diagnostic) -> list[Note]:
    """The user's lines that led to an error, the outermost first, but for those that the diagnostic shows itself."""
    out: list[Note] = []
    known = {(s.file, s.line) for s in (d.span, *(n.span for n in d.notes)) if s is not None}
    for frame in traceback.extract_tb(tb):
        own = frame.filename.startswith(_NOT_USERS) or not linecache.getlines(frame.filename)
        line = frame.lineno or 0
        if own or (frame.filename, line) in known or (frame.line or "").startswith("get_ipython()"):
            continue
        end = frame.end_colno or 0
        span = Span(frame.filename, line, (frame.colno or 0) + 1, frame.end_lineno or line, end + 1)
        out.append(Note(f"called by: {frame.line}", span))
    return out


def _named(shell: InteractiveShell, d: Diagnostic) -> Diagnostic:
    """The same, where cells that the kernel keeps in temporary files go by the name that the notebook shows."""

    def named(span: Span | None) -> Span | None:
        found = shell.compile.format_code_name(span.file) if span is not None else None
        if span is None or found is None:
            return span
        if not linecache.getlines(found[1]):
            register_source(found[1], "".join(linecache.getlines(span.file)))
        return replace(span, file=found[1])

    notes = tuple(replace(n, span=named(n.span)) for n in d.notes)
    return replace(d, span=named(d.span) or d.span, notes=notes)
