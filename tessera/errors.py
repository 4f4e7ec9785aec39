"""Spans, diagnostics and the exception family.

A diagnostic is data: a stable code, a span with an end, notes with their own spans and machine-applicable fixes.
Terminals draw carets from it (`render`), notebooks HTML (`render_html`), editors squiggles and quick fixes, and
`tessera check --json` prints it as it is (`Diagnostic.to_json`). Nothing else in Tessera formats an error.
"""

from __future__ import annotations

import io
import linecache
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Note:
    """A further place or remark: where a dim was bound, who called whom, a counterexample."""

    message: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of `span` (empty to insert) by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that has been re-checked before it is offered."""

    message: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One entry of the catalogue: `kind` heads the message ("Shape error"), `summary` explains the rule."""

    kind: str
    summary: str


CODES: dict[str, CodeEntry] = {
    # TS1xx: syntax and Python constructs
    "TS101": CodeEntry("Syntax error", "the text is not Python plus Tessera's three dialect forms"),
    "TS102": CodeEntry("Unsupported construct", "this Python construct has no meaning inside a function or kernel"),
    "TS103": CodeEntry("Unknown name", "no variable, parameter, dim, global or operator has this name"),
    "TS104": CodeEntry("Unknown attribute", "the value has no such attribute or method"),
    "TS105": CodeEntry("Bad call", "the arguments do not fit the callee's parameters"),
    "TS106": CodeEntry("Failed assertion", "an assert over compile-time values is false"),
    "TS107": CodeEntry("Compile-time error", "ordinary Python evaluated at compile time raised an exception"),
    "TS108": CodeEntry("Unbounded recursion", "a function calls itself through calls that are all inlined"),
    "TS109": CodeEntry("Source unavailable", "the text of the function cannot be read, so it cannot be compiled"),
    "TS110": CodeEntry("Possibly unbound name", "a name is assigned on some paths only"),
    "TS111": CodeEntry("Compile-time limit", "what is computed at compile time takes too many steps, or is too large"),
    # TS2xx: shapes
    "TS201": CodeEntry("Shape error", "the returned shape differs from the annotation"),
    "TS202": CodeEntry("Shape error", "operand shapes do not broadcast"),
    "TS203": CodeEntry("Shape error", "contracted dimensions differ"),
    "TS204": CodeEntry("Shape error", "an axis is out of range or repeated"),
    "TS205": CodeEntry("Shape error", "a reshape does not keep the number of elements"),
    "TS206": CodeEntry("Shape error", "shapes to be joined differ outside the joined axis"),
    "TS207": CodeEntry("Shape error", "an index or slice does not fit the shape"),
    "TS208": CodeEntry("Shape error", "a dim is bound to two different sizes"),
    "TS209": CodeEntry("Shape error", "an argument's rank or size differs from the annotation"),
    "TS210": CodeEntry("Shape error", "an einsum equation does not fit its operands"),
    "TS211": CodeEntry("Annotation error", "a shape, dtype or policy annotation cannot be understood"),
    "TS212": CodeEntry("Shape error", "branches or loop iterations give different shapes"),
    "TS213": CodeEntry("Shape error", "an operator needs another rank or size"),
    # TS3xx: dtypes and numerics
    "TS301": CodeEntry("Dtype error", "an operator does not accept this dtype"),
    "TS302": CodeEntry("Dtype error", "dtypes have no common type without an explicit cast"),
    "TS303": CodeEntry("Dtype error", "the returned dtype differs from the annotation"),
    "TS304": CodeEntry("Dtype error", "an argument's dtype differs from the annotation"),
    "TS305": CodeEntry("Policy conflict", "numerics policies of the operands disagree"),
    "TS306": CodeEntry("Policy error", "a numerics policy is asked for that nothing enforces yet"),
    "TS311": CodeEntry("Numerics warning", "an online softmax is rescaled twice, or not at all"),
    "TS312": CodeEntry("Numerics warning", "exponentials that may overflow are divided by their sum"),
    "TS313": CodeEntry("Numerics warning", "a tensor is narrowed to 8 bits or fewer without a scale"),
    "TS314": CodeEntry("Numerics warning", "digits cancel, or a value is rounded to 0, where an exact function exists"),
    "TS315": CodeEntry("Numerics warning", "the logarithm of a sum that may be 0"),
    "TS316": CodeEntry("Numerics warning", "a division by a sum or norm that may be 0"),
    "TS317": CodeEntry("Numerics warning", "a long sum is kept in 16 bits or fewer"),
    "TS318": CodeEntry("Numerics warning", "squares overflow although their root would not"),
    # TS4xx: kernels and tiles
    "TS401": CodeEntry("Kernel error", "a tile form is used outside a kernel, or a graph form inside one"),
    "TS402": CodeEntry("Tile shape error", "tile shapes do not fit together"),
    "TS403": CodeEntry("Kernel error", "a tile coordinate or grid axis cannot be derived"),
    "TS404": CodeEntry("Kernel error", "a tile extent must be known at compile time"),
    "TS405": CodeEntry("Kernel error", "shared memory exceeds what the target has"),
    "TS406": CodeEntry("Kernel error", "a store or in-place update has no valid destination"),
    "TS407": CodeEntry("Kernel error", "a load reads a tile that no program has written"),
    "TS408": CodeEntry("Kernel note", "a barrier was missing and has been inserted"),
    "TS409": CodeEntry("Kernel error", "an access is out of range"),
    "TS410": CodeEntry("Kernel error", "a mma shape or dtype is not supported by the target"),
    "TS411": CodeEntry("Kernel error", "tiles need more registers than a thread of the target has"),
    "TS412": CodeEntry("Kernel note", "neighbouring elements of an access lie apart in memory"),
    "TS413": CodeEntry("Kernel warning", "a copy is started and never read"),
    "TS414": CodeEntry("Kernel note", "a barrier orders nothing"),
    "TS415": CodeEntry("Kernel warning", "lanes read beyond an end of a tensor, and no condition keeps them inside"),
    "TS416": CodeEntry("Kernel warning", "nothing reads what a kernel stores, in a function whose tensors are values"),
    "TS417": CodeEntry("Kernel note", "an access moves no whole vectors, for a size is not known to be a multiple"),
    "TS418": CodeEntry("Tile axis error", "tiles may meet along more than one axis, and nothing says which is meant"),
    "TS419": CodeEntry("Index error", "an index names too few axes, and nothing says which they are"),
    # TS5xx: launching
    "TS501": CodeEntry("Launch error", "an argument has the wrong type, shape, dtype or device"),
    "TS502": CodeEntry("Launch error", "a dim cannot be solved from the arguments"),
    "TS503": CodeEntry("Launch error", "a parameter that the kernel writes to is read-only or not contiguous"),
    "TS504": CodeEntry("Launch error", "arguments live on different devices"),
    "TS505": CodeEntry("Launch error", "the arrays would not fit into memory"),
    "TS506": CodeEntry("Debug check", "a debug check found a bad value or access"),
    "TS507": CodeEntry("Launch error", "a parameter that the kernel writes to shares memory with another argument"),
    # TS6xx: targets and environment
    "TS601": CodeEntry("Target error", "the target is unknown"),
    "TS602": CodeEntry("Target error", "the target cannot compile this operation"),
    "TS603": CodeEntry("Target error", "the target's compiler failed"),
    "TS604": CodeEntry("Missing dependency", "an optional library is not installed"),
    "TS605": CodeEntry("Device error", "the device is not present or failed"),
    "TS606": CodeEntry("Cache warning", "the disk cache cannot be used; compilation goes on without it"),
    "TS607": CodeEntry("Setting error", "an environment setting has a value that is not allowed"),
    "TS608": CodeEntry("Tuning warning", "the file of timings cannot be read or written"),
    "TS609": CodeEntry("Tuning error", "no configuration of a tuned program can be used"),
    "TS610": CodeEntry("Schedule error", "a file is not a schedule, or one of its fields cannot be understood"),
    "TS611": CodeEntry("Capture error", "a launch cannot be captured into a CUDA graph"),
    "TS612": CodeEntry("Device error", "a fault has ended the GPU's context"),
    "TS613": CodeEntry(
        "Setting warning", "a tessera.toml is not read by this version; settings are environment variables"
    ),
    "TS614": CodeEntry("Extension error", "a pass, scheduler or target cannot be registered, or is not known"),
    "TS615": CodeEntry("Extension error", "a registered pass or scheduler failed, or left IR that is not valid"),
    # TS7xx: profiling
    "TS701": CodeEntry("Profile error", "a file is not a saved profile, or is damaged"),
    "TS702": CodeEntry("Profiler error", "a profiler is entered while it is recording"),
    # TS8xx: distribution
    "TS801": CodeEntry("Distribution error", "an operator needs the whole of the dim that is distributed"),
    "TS802": CodeEntry("Distribution error", "a program cannot be distributed in this way"),
    "TS900": CodeEntry("Internal error", "a fault in Tessera itself; please report it"),
}


@dataclass(frozen=True, slots=True)
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
    """Line `line` of `file` as last registered or read; None where it is not to be had."""
    text = linecache.getline(file, line)
    return text.rstrip("\r\n") if text else None


def register_source(file: str, text: str) -> None:
    """Makes text that lies in no file (a notebook cell, an editor's buffer) known to carets and tracebacks."""
    # Lines end where Python's parser ends them; str.splitlines() also ends them at form feeds and the like.
    lines = io.StringIO(text, newline="").readlines()
    linecache.cache[file] = (len(text), None, lines, file)


_ANSI = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "note": "\x1b[1;36m", "dim": "\x1b[2m", "end": "\x1b[0m"}


@dataclass(frozen=True, slots=True)
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
    "white-space:pre-wrap;line-height:1.4;margin:0 0 .6em 0"
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
