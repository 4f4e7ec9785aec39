"""Spans, diagnostics and the exception family.

A diagnostic is data: a stable code, a span with an end, notes with their own spans and machine-applicable fixes.
Terminals draw carets from it (`render`), notebooks HTML (`render_html`), editors squiggles and quick fixes, and
`tessera check --json` prints it as it is (`Diagnostic.to_json`). Nothing else in Tessera formats an error.
"""

from __future__ import annotations

import io
import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tessera.codes import CODES
from tessera.immutable import immutable

Severity = str  # "error" | "warning" | "note"


@immutable
class Span:
    """A half-open piece of source text. Lines and columns count from 1, columns in characters, not bytes."""

    file: str
    line: int
    col: int
    end_line: int
    end_col: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.col}"

    def to(self, other: Span) -> Span:
        """The smallest span that covers both (same file)."""
        start = min((self.line, self.col), (other.line, other.col))
        end = max((self.end_line, self.end_col), (other.end_line, other.end_col))
        return Span(self.file, *start, *end)

    def contains(self, line: int, col: int) -> bool:
        return (self.line, self.col) <= (line, col) <= (self.end_line, self.end_col)


NOWHERE = Span("<unknown>", 0, 0, 0, 0)


@immutable
class Note:
    """A further place or remark: where a dim was bound, who called whom, a counterexample."""

    message: str
    span: Span | None = None


@immutable
class Edit:
    """Replace the text of `span` (empty to insert) by `text`."""

    span: Span
    text: str


@immutable
class Fix:
    """A change that has been re-checked before it is offered."""

    message: str
    edits: tuple[Edit, ...]


@immutable
class Diagnostic:
    """One finding. `function` names the function or kernel it was found in ("" at file level)."""

    code: str
    message: str
    span: Span = NOWHERE
    severity: Severity = "error"
    notes: tuple[Note, ...] = ()
    fixes: tuple[Fix, ...] = ()
    function: str = ""
    label: str = ""
    """Text behind the carets, e.g. "has shape [B, C]"."""

    def with_notes(self, *notes: Note) -> Diagnostic:
        return replace(self, notes=self.notes + notes)

    @property
    def kind(self) -> str:
        return CODES[self.code].kind

    def to_json(self) -> dict[str, object]:
        """The shape printed by `tessera check --json`."""
        s = self.span
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "label": self.label,
            "function": self.function,
            "file": s.file,
            "line": s.line,
            "column": s.col,
            "end_line": s.end_line,
            "end_column": s.end_col,
            "notes": [{"message": n.message, **(_span_json(n.span) if n.span else {})} for n in self.notes],
            "fixes": [
                {"message": f.message, "edits": [{**_span_json(e.span), "text": e.text} for e in f.edits]}
                for f in self.fixes
            ],
        }

    def render(self, color: bool = False) -> str:
        """The message as LANGUAGE.md draws it: heading, source line, carets, notes."""
        return render(self, color=color)

    def _repr_html_(self) -> str:
        return render_html([self])


def _span_json(s: Span) -> dict[str, object]:
    return {"file": s.file, "line": s.line, "column": s.col, "end_line": s.end_line, "end_column": s.end_col}


def source_line(file: str, line: int) -> str | None:
    """Line `line` of `file` as last registered or read; None if it is not available."""
    text = linecache.getline(file, line)
    return text.rstrip("\r\n") if text else None


def register_source(file: str, text: str) -> None:
    """Makes text that lies in no file (a notebook cell, an editor's buffer) known to carets and tracebacks."""
    # Lines end where Python's parser ends them; str.splitlines() also ends them at form feeds and the like.
    lines = io.StringIO(text, newline="").readlines()
    linecache.cache[file] = (len(text), None, lines, file)


_ANSI = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m", "dim": "\x1b[2m", "end": "\x1b[0m"}


@immutable
class _Style:
    """How text is made safe and coloured for one medium."""

    safe: Callable[[str], str]
    colour: Callable[[str, str], str]

    def paint(self, style: str, text: str) -> str:
        return self.colour(style, self.safe(text)) if text else ""


def _printable(text: str) -> str:
    """Without the control characters by which a source text could recolour the terminal."""
    return "".join(c if c == "\t" or c.isprintable() else "\ufffd" for c in text)


_LONG, _BEFORE = 240, 80
"""characters of a line that are shown whole, and those of a longer one that are shown before the place"""


def _near(text: str, col: int) -> tuple[str, int]:
    """The part of a long line around a column, and by how many columns it stands further left."""
    first = max(min(col - 1 - _BEFORE, len(text) - _LONG), 0)
    before, after = "…" * (first > 0), "…" * (first + _LONG < len(text))
    return before + text[first : first + _LONG] + after, first - len(before)


def _excerpt(span: Span, label: str, style: _Style, severity: Severity) -> list[str]:
    text = source_line(span.file, span.line)
    if text is None or span.line <= 0:
        return []
    end = span.end_col if span.end_line == span.line else len(text) + 1
    start = max(span.col, 1)
    if len(text) > _LONG:
        text, left = _near(text, start)
        start, end = start - left, end - left
    # Tabs stay tabs in the gap so that carets stand under what they mean whatever the terminal's tab width.
    gap = "".join(c if c == "\t" else " " for c in text[: start - 1])
    carets = "^" * max(1, min(end, len(text) + 1) - start)
    number = str(span.line)
    bar = style.paint("dim", "|")
    under = style.paint(severity, f"{carets} {label}" if label else carets)
    return [f"  {style.paint('dim', number)} {bar} {style.safe(text)}", f"  {' ' * len(number)} {bar} {gap}{under}"]


def _draw(d: Diagnostic, style: _Style) -> str:
    where = f" in {d.function}" if d.function else ""
    at = f" at {d.span}" if d.span.line else ""
    lines = [style.paint(d.severity, f"{d.kind} {d.code}") + style.safe(where + at)]
    lines += _excerpt(d.span, d.label, style, d.severity)
    fixable = "   [fix available]" if d.fixes else ""
    message = [style.safe(m) for m in d.message.splitlines()] or [""]
    lines += [f"  {m}" for m in message[:-1]] + [f"  {message[-1]}{fixable}"]
    for note in d.notes:
        place = f"   ({note.span})" if note.span else ""
        lines.append(f"  {style.paint('note', 'note')}: {style.safe(note.message + place)}")
    return "\n".join(lines)


_PLAIN = _Style(_printable, lambda style, text: text)
_TERMINAL = _Style(_printable, lambda style, text: f"{_ANSI[style]}{text}{_ANSI['end']}")


def render(d: Diagnostic, color: bool = False) -> str:
    return _draw(d, _TERMINAL if color else _PLAIN)


def render_all(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    return "\n\n".join(render(d, color) for d in diagnostics)


_HTML_STYLE = (
    "font-family:var(--jp-code-font-family,monospace);font-size:var(--jp-code-font-size,13px);"
    "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;line-height:1.4;margin:0 0 .6em 0"
)
_HTML_COLOUR = {
    "error": "var(--jp-error-color1,#c62828)",
    "warning": "var(--jp-warn-color1,#b26a00)",
    "note": "var(--jp-info-color1,#00695c)",
    "dim": "var(--jp-ui-font-color2,#777)",
}


def _escaped(text: str) -> str:
    import html  # slow: its table of entities is large, and few programs draw in HTML

    return html.escape(_printable(text), quote=False)


_HTML = _Style(
    _escaped,
    lambda style, text: f'<span style="color:{_HTML_COLOUR[style]}">{text}</span>',
)


def render_html(diagnostics: Iterable[Diagnostic]) -> str:
    """The same text with colours for a notebook; nothing in it is markup from the source."""
    return "".join(
        f'<pre class="tessera-diagnostic" style="{_HTML_STYLE}">{_draw(d, _HTML)}</pre>' for d in diagnostics
    )


class TesseraError(Exception):
    """Root of everything that Tessera raises on purpose. `.diagnostics` holds the findings as data."""

    default_code = "TS900"

    def __init__(self, diagnostics: Diagnostic | Sequence[Diagnostic] | str, code: str | None = None) -> None:
        if isinstance(diagnostics, str):
            diagnostics = Diagnostic(code or self.default_code, diagnostics)
        if isinstance(diagnostics, Diagnostic):
            diagnostics = (diagnostics,)
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        super().__init__(render_all(self.diagnostics))

    @property
    def code(self) -> str:
        return self.diagnostics[0].code if self.diagnostics else self.default_code

    def _repr_html_(self) -> str:
        return render_html(self.diagnostics)

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a cell shows the diagnostic, which points into the cell, and not Tessera's own frames."""
        return render_all(self.diagnostics, color=True).splitlines()


class CompileError(TesseraError):
    """The program is wrong: syntax, names, shapes, dtypes, tiles."""

    default_code = "TS102"


class CompilationWarning(UserWarning):
    """TS102, TS112: what a line does in a compiled function is other than in Python, or takes long to compile.
    TS415, TS420, TS421: a kernel reads or stores at places that its text hardly means."""


class RecompilationWarning(UserWarning):
    """TS508: the same code is compiled again and again, for other sizes or numbers."""


class TrainingWarning(UserWarning):
    """TS354, TS373, TS374: something is not trained as its text seems to say."""


class UnknownName(TesseraError, AttributeError):
    """A module of Tessera does not have this name (TS104)."""

    default_code = "TS104"


class UnknownImport(TesseraError, ImportError):
    """The same where `from ... import` asks, for which Python drops what an AttributeError says."""

    default_code = "TS104"


class AnnotationError(CompileError, TypeError):
    """An invalid annotation (TS211). `.diagnostics[0]` has the position, the reason and any fix."""

    default_code = "TS211"


class LaunchError(TesseraError, ValueError):
    """The program is right, the arguments are not."""

    default_code = "TS501"


class TargetError(TesseraError):
    """A target does not exist here or cannot compile this program."""

    default_code = "TS602"


class DeviceError(TesseraError, RuntimeError):
    """A device is absent or failed."""

    default_code = "TS605"


class DebugCheckError(TesseraError, ArithmeticError):
    """The reference target or debug mode met NaN, an out-of-range access or an uninitialised read."""

    default_code = "TS506"


class MissingDependency(TesseraError, ImportError):
    """An optional library is needed; names the extra that brings it."""

    default_code = "TS604"

    def __init__(self, library: str, extra: str, why: str) -> None:
        fix = f"Install it with: pip install 'tessera[{extra}]'"
        super().__init__(f"{why} needs {library}, which is not installed.\n{fix}")


class Diagnostics:
    """Collects findings so that every error of a function is reported, not the first."""

    def __init__(self, function: str = "") -> None:
        self.function = function
        self.items: list[Diagnostic] = []
        self._seen: set[tuple[str, Span, str]] = set()

    def add(self, d: Diagnostic) -> None:
        key = (d.code, d.span, d.message)
        if key not in self._seen:  # a loop body is evaluated more than once; its finding is said once
            self._seen.add(key)
            self.items.append(d if d.function else replace(d, function=self.function))

    def forget(self, since: int) -> None:
        """Takes back the findings from this one on."""
        self._seen -= {(d.code, d.span, d.message) for d in self.items[since:]}
        del self.items[since:]

    def error(self, code: str, message: str, span: Span = NOWHERE, **rest: object) -> None:
        self.add(Diagnostic(code, message, span, **rest))  # type: ignore[arg-type]

    @property
    def errors(self) -> list[Diagnostic]:
        return [d for d in self.items if d.severity == "error"]

    def raise_if_errors(self, error: type[TesseraError] = CompileError) -> None:
        if self.errors:
            raise error(self.errors)
