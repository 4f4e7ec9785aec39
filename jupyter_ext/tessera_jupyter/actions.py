"""What a page may do with what it shows: apply a fix to its cell, and have the kernel try a hint.

Both stand beside the HTML of an output, as data of a type of their own. JupyterLab's extension makes buttons of them;
hosts without it show the HTML as it is. No code stands in the data: a fix is an edit of a text, and a hint is named by
a word that means something to the kernel that made it, and to no other.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypedDict
from weakref import WeakKeyDictionary

from IPython.core.getipython import get_ipython

from tessera.errors import Edit, Fix, source_line
from tessera.profiler import Profiler
from tessera.profiler.hints import Hint
from tessera.profiler.trial.outcome import TriedHint

MIME = "application/vnd.tessera.actions+json"
MOST_PROFILES = 20
"""whose hints can be tried from a page, the newest"""
_CELL = re.compile(r"In\[(\d+)\]")
"""the name under which IPython knows a cell"""


class CellEdit(TypedDict):
    """`start` and `end` count UTF-16 units of the cell's text, as editors do."""

    start: int
    end: int
    text: str


class CellFix(TypedDict):
    """A fix, and the whole text of the cell that it is for: a cell that says anything else is left alone."""

    title: str
    cell: str
    edits: list[CellEdit]


class Actions(TypedDict):
    """In the order in which the HTML shows them. None: a fix that is for no cell, a hint that no edit can try.
    `changes`: what each hint advises, for hosts whose buttons stand beside the HTML."""

    fixes: list[CellFix | None]
    hints: list[str | None]
    changes: list[str]


def bundle(markup: str, plain: str, fixes: Iterable[Fix], profile: Profiler | None = None) -> dict[str, object]:
    """A mime bundle: what is shown, and what can be done with it where there is anything. Behind `fixes` come the edits
    that made the program faster when hints of `profile` were tried."""
    shown = shown_hints(profile) if profile is not None else None
    tried = [o.fix for _, o in sorted(shown.tried.items()) if o.fix is not None] if shown else []
    cells = [_cell_fix(fix) for fix in (*fixes, *tried)]
    hints = [f"{shown.word}.{i}" if _triable(h) else None for i, h in enumerate(shown.hints)] if shown else []
    out: dict[str, object] = {"text/html": markup, "text/plain": plain}
    if any(cells) or any(hints):
        changes = [hint.change for hint in shown.hints] if shown else []
        out[MIME] = Actions(fixes=cells, hints=hints, changes=changes)
    return out


def cell_number(file: str) -> int | None:
    """The number of the cell that a function or a finding names as its file; None for any other file."""
    shell = get_ipython()
    named = shell.compile.format_code_name(file) if shell is not None else None
    found = _CELL.match(named[1] if named is not None else file)  # kernels keep plain cells in temporary files
    return int(found[1]) if found is not None else None


def _triable(hint: Hint) -> bool:
    return hint.trial is not None and hint.trial.change != "by hand"


def _cell_fix(fix: Fix) -> CellFix | None:
    shell = get_ipython()
    files = {edit.span.file for edit in fix.edits}
    number = cell_number(files.pop()) if len(files) == 1 else None
    past = shell.history_manager.input_hist_raw if shell is not None else ()
    if number is None or number >= len(past):
        return None
    cell = past[number]
    lines = cell.split("\n")
    edits = [_cell_edit(edit, lines) for edit in fix.edits]
    known = [edit for edit in edits if edit is not None]
    return CellFix(title=fix.message, cell=cell, edits=known) if len(known) == len(edits) else None


def _cell_edit(edit: Edit, lines: Sequence[str]) -> CellEdit | None:
    """None where the cell has other lines there than the text that was analysed, as where a magic rewrote them."""
    span = edit.span
    for number in range(span.line, span.end_line + 1):
        if number > len(lines) or lines[number - 1] != source_line(span.file, number):
            return None
    start = _units(lines, span.line, span.col)
    return CellEdit(start=start, end=_units(lines, span.end_line, span.end_col), text=edit.text)


def _units(lines: Sequence[str], line: int, col: int) -> int:
    before = "".join(f"{text}\n" for text in lines[: line - 1]) + lines[line - 1][: col - 1]
    return len(before.encode("utf-16-le")) // 2


@dataclass(slots=True)
class ShownHints:
    """The hints of a profile as a panel lists them, and what came of those that were tried. They are found once: a
    rule that falls silent later does not change which of them a button means."""

    hints: list[Hint]
    tried: dict[int, TriedHint] = field(default_factory=dict[int, TriedHint])
    word: str = field(default_factory=lambda: secrets.token_hex(4))


_by_profile: WeakKeyDictionary[Profiler, ShownHints] = WeakKeyDictionary()
_profiles: dict[str, Profiler] = {}


def shown_hints(profile: Profiler) -> ShownHints:
    """The hints that panels show of a profile."""
    found = _by_profile.get(profile)
    if found is None:
        found = _by_profile[profile] = ShownHints(profile.hints())
        _profiles[found.word] = profile
        while len(_profiles) > MOST_PROFILES:
            del _profiles[next(iter(_profiles))]
    return found


def named_hint(name: str) -> tuple[Profiler, ShownHints, int]:
    """The hint that a page names. Raises KeyError where it is of another session, or of a profile long ago."""
    word, _, index = name.partition(".")
    profile = _profiles[word]
    found = shown_hints(profile)
    if not index.isdecimal() or int(index) >= len(found.hints):
        raise KeyError(name)
    return profile, found, int(index)
