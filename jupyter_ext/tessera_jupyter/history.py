"""Versions of the notebook's functions, and what each edit of a cell did to the time of a call.

A version is what a cell held when a function of it was profiled: its text, and what its names meant. To compare an edit
with the version before, those names mean the earlier things again while that one runs; arrays are what they are now, so
that both do the same work. Both run by turns: profiles of two moments would tell a busy machine from a slow program no
better than a person can.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import CodeType
from typing import Any, ClassVar

from tessera.compiler.frontend.syntax.parse import parse
from tessera.compiler.machines import HOST
from tessera.errors import CompileError
from tessera.language.decorators import Decorated
from tessera.profiler import Profiler
from tessera.profiler.quantity import format_time
from tessera.profiler.trial.intervals import MedianInterval, median_interval
from tessera.profiler.trial.paired import LEAST, SAME, PairedTimes, Timed, paired, timed
from tessera.profiler.views.markup import table, table_alone
from tessera.profiler.views.markup import text as escaped
from tessera.runtime import events
from tessera_jupyter.actions import cell_number

MOST = 10
"""versions of a function that are kept, the newest"""
BUDGET = 0.5
"""seconds of a comparison, where its fewest pairs take no longer"""
_LONG, _LEAST_LONG = 0.25, 6
"""calls of so many seconds are compared by six pairs, the fewest that an interval of 95 % can be had from"""
_WARM = 0.02
"""seconds: of shorter calls one is made before the clock starts, for names have just changed their meaning"""


@dataclass(frozen=True, slots=True)
class Change:
    """What an edit did. `lines`: those of the new text that differ. `times`: None where not measured, see `why`."""

    lines: tuple[int, ...]
    times: PairedTimes | None
    why: str = ""

    @property
    def ratio(self) -> MedianInterval | None:
        """Time of before over time of after: above 1 is faster."""
        if self.times is None:
            return None
        return median_interval([b / a for b, a in zip(self.times.before, self.times.after, strict=True)])

    @property
    def verdict(self) -> str:
        """ "faster", "slower" or "no difference" where the whole interval says so, else "unclear"."""
        ratio = self.ratio
        if ratio is None:
            return "not compared"
        if ratio.low > 1 + SAME:
            return "faster"
        if ratio.high < 1 - SAME:
            return "slower"
        return "no difference" if ratio.low >= 1 - SAME and ratio.high <= 1 + SAME else "unclear"

    @property
    def where(self) -> str:
        """`line 12`, `lines 3, 5 and 9 more`"""
        if not self.lines:
            return "lines that went away"
        shown = ", ".join(map(str, self.lines[:3]))
        more = f" and {len(self.lines) - 3} more" if len(self.lines) > 3 else ""
        return f"line{'s' * (len(self.lines) > 1)} {shown}{more}"

    def __str__(self) -> str:
        head = f"since you changed {self.where}"
        ratio, times = self.ratio, self.times
        if ratio is None or times is None:
            return f"{head}: not compared, {self.why}"
        took = " -> ".join(format_time(seconds * 1e9) for seconds in times.usual)
        return (
            f"{head}: {ratio.middle:.2f}x, 95 % interval {ratio.low:.2f} to {ratio.high:.2f}: {self.verdict} "
            f"({took} a call, {len(times.before)} pairs by turns)"
        )


@dataclass(slots=True)
class CellVersion:
    """A cell as it was when a function of it was profiled."""

    lines: tuple[str, ...]
    names: dict[str, Any]
    """what its names meant, but for arrays"""
    expression: str
    repeatable: str = ""
    """why the expression is not run again, "" if it may be"""
    change: Change | None = None
    """against the version before, once it was measured"""


@dataclass(frozen=True, slots=True)
class Edits:
    """The history of a function, as it is shown."""

    name: str
    versions: tuple[CellVersion, ...]

    _HEADS: ClassVar = ("version", "changed", "before", "after", "ratio", "95 % interval", "verdict")

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for number, version in enumerate(self.versions[1:], 2):
            change = version.change
            if change is None:
                continue
            ratio, times, cells = change.ratio, change.times, ("", "", "", "")
            if ratio is not None and times is not None:
                before, after = (format_time(seconds * 1e9) for seconds in times.usual)
                cells = before, after, f"{ratio.middle:.2f}x", f"{ratio.low:.2f} to {ratio.high:.2f}"
            said = change.verdict + (f": {change.why}" if change.why else "")
            rows.append((str(number), change.where, *cells, said))
        return rows

    def __str__(self) -> str:
        if len(self.versions) < 2:
            return f"{self.name} has one version so far: edit its cell, run it, and profile {self.name} again."
        rows = [self._HEADS, *self._rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(self._HEADS))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if len(self.versions) < 2:
            return f"<p>{escaped(self)}</p>"
        rows = [tuple(map(escaped, row)) for row in self._rows()]
        return table_alone("tessera-history", table(tuple(map(escaped, self._HEADS)), rows))


@dataclass(slots=True)
class CellHistory:
    """Of a notebook's session. `namespace` is the notebook's."""

    namespace: dict[str, Any]
    _of: dict[str, list[CellVersion]] = field(default_factory=dict[str, "list[CellVersion]"])

    def note(self, expression: str, profile: Profiler, once: bool) -> list[str]:
        """Notes the versions that a profile was taken of, and gives the names of their functions."""
        recording = profile.recording
        ran = {str(launch.attributes.get("function", launch.kernel)) for launch in recording.launches}
        device = next((d for launch in recording.launches if (d := launch.device.partition(":")[0]) != HOST), "")
        repeatable = "--once says that the call is made once" if once else ""
        repeatable = repeatable or (f"it ran on {device}, and versions are compared on the CPU alone" if device else "")
        noted: list[str] = []
        cells: dict[str, CellVersion] = {}
        for name, value in list(self.namespace.items()):
            if name.startswith("_") or not isinstance(value, Decorated) or value.name not in ran:
                continue
            file = value.__wrapped__.__code__.co_filename
            if cell_number(file) is None:
                continue  # it comes from a file
            if file not in cells:
                lines = tuple(line.rstrip() for line in value.definition().text.lines)
                cells[file] = CellVersion(lines, self._meanings(lines, file), expression, repeatable)
            noted.append(name)
            versions = self._of.setdefault(name, [])
            if versions and changed(versions[-1].lines, cells[file].lines) is None:
                versions[-1] = replace(cells[file], change=versions[-1].change)
            else:
                versions.append(cells[file])
                del versions[:-MOST]
        return noted

    def last_expression(self, names: list[str]) -> str:
        """What was profiled last of these functions, "" where nothing was."""
        return next((self._of[name][-1].expression for name in names if name in self._of), "")

    def edits(self, name: str) -> Edits:
        """Compares the versions of a function that have not been compared yet, and gives all."""
        self._compare(self._of.get(name, []))
        return self.known(name)

    def known(self, name: str) -> Edits:
        """What is known of the versions of a function, without running anything."""
        return Edits(name, tuple(self._of.get(name, [])))

    def last_change(self, names: list[str]) -> Change | None:
        """What the last edit of the cell of these functions did; None where there was none."""
        for name in names:
            last = self._of.get(name, [])[-2:]
            if len(last) == 2:
                self._compare(last)
                return last[1].change
        return None

    def _compare(self, versions: list[CellVersion]) -> None:
        for before, after in pairwise(versions):
            if after.change is None:
                after.change = self._compared(before, after)

    def _meanings(self, lines: tuple[str, ...], file: str) -> dict[str, Any]:
        """What the names that a cell binds mean now. Arrays are left out: all versions work on the same ones."""
        try:
            tree = parse("\n".join(lines), file).tree
        except CompileError:
            return {}
        known = {name: self.namespace[name] for name in _bound(tree) if name in self.namespace} if tree else {}
        return {name: value for name, value in known.items() if not hasattr(type(value), "__dlpack__")}

    def _compared(self, before: CellVersion, after: CellVersion) -> Change:
        lines = tuple(changed(before.lines, after.lines) or ())
        why = before.repeatable or after.repeatable
        if before.expression != after.expression:
            why = why or f"other calls were profiled: {before.expression} and {after.expression}"
        if why:
            return Change(lines, None, why)
        code = compile(after.expression, "<%tessera>", "eval")
        try:
            with events.paused():
                first = _side(self.namespace, before.names, code)
                seconds = first(1)
                least = _LEAST_LONG if seconds > _LONG else LEAST
                return Change(lines, paired(first, _side(self.namespace, after.names, code), BUDGET, least=least))
        except Exception as e:  # the program's own: an earlier version meets arrays that have changed since
            said = f"{type(e).__name__}: {e}".strip().partition("\n")[0]
            return Change(lines, None, f"one of both does not run on what the notebook holds now: {said}")


def changed(old: tuple[str, ...], new: tuple[str, ...]) -> list[int] | None:
    """The lines of `new`, counted from 1, that `old` does not have; None where they say the same. Blank lines and
    comments count for nothing."""
    (left, _), (right, numbers) = _spoken(old), _spoken(new)
    if left == right:
        return None
    found = difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes()
    return [numbers[k] for what, _, _, start, end in found if what != "equal" for k in range(start, end)]


def _spoken(lines: tuple[str, ...]) -> tuple[list[str], list[int]]:
    kept = [(line, n) for n, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")]
    return [line for line, _ in kept], [n for _, n in kept]


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a cell binds, those of its functions' insides left out."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _side(namespace: dict[str, Any], names: Mapping[str, Any], code: CodeType) -> Timed:
    """The expression, timed while `names` mean what they meant then."""
    call = timed(lambda: eval(code, namespace))
    last = 0.0

    def run(times: int) -> float:
        nonlocal last
        with _meaning(namespace, names):
            if last < _WARM:
                call(1)
            last = call(times)
        return last

    return run


@contextmanager
def _meaning(namespace: dict[str, Any], names: Mapping[str, Any]) -> Iterator[None]:
    now = {name: namespace[name] for name in names if name in namespace}
    namespace.update(names)
    try:
        yield
    finally:
        for name in names:
            namespace.pop(name, None)
        namespace.update(now)
