"""The IR tab: the source beside every level of its compilation, lines that belong together linked."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.compiler.machines import TILE_IR, code_of
from tessera.profiler.views.markup import text
from tessera.runtime.levels import Level, LevelLine
from tessera_jupyter.markup import ir, python
from tessera_jupyter.shapes import source_lines
from tessera_jupyter.subject import Subject


def ir_tab(subjects: Sequence[Subject], thorough: bool, waiting: bool = False) -> str:
    """One section for each function or kernel; `thorough`: with assembly, and less of everything is cut; `waiting`:
    without what a disassembler has not read yet."""
    return "".join(_subject(s, thorough, waiting) for s in subjects)


def _subject(subject: Subject, thorough: bool, waiting: bool) -> str:
    definition = subject.analysis.definition
    source = "".join(
        f'<span class="ts-l" data-l="{n}"><i class="ts-n">{n:>3} </i>{python(line)}\n</span>'
        for n, line in source_lines(subject.analysis)
    )
    levels = "".join(
        _level(level, definition.file, subject.path, subject.target.name, subject.generic)
        for level in subject.levels(thorough, waiting)
    )
    return (
        f'<section class="ts-subject ts-linked" data-name="{text(subject.path)}"><h4>{text(subject.path)}</h4>'
        f'<div class="ts-columns"><div class="ts-column"><b class="ts-head">Source</b>'
        f'<pre data-side="source">{source}</pre></div>{levels}</div></section>'
    )


def _level(level: Level, file: str, path: str, target: str, generic: bool) -> str:
    shown = text if generic or (level.name in ("target", "assembly") and code_of(target) != TILE_IR) else ir
    texts = [line.text for line in level.lines]
    texts = _places_once(texts) if shown is ir else texts
    body = "".join(_line(line, file, shown(t)) for line, t in zip(level.lines, texts, strict=True))
    if level.more:
        command = f"%tessera ir {path} --level {level.name}"
        body += f'<span class="ts-more">... {level.more} more lines: {text(command)}\n</span>'
    content = (
        f'<pre data-side="{level.name}">{body}</pre>' if level.lines else f'<p class="ts-why">{text(level.why)}</p>'
    )
    title = level.title + (f" ({target})" if level.name == "target" else "")
    return (
        f'<details class="ts-column ts-level" data-level="{level.name}">'
        f'<summary class="ts-head">{text(title)}</summary>{content}</details>'
    )


def _places_once(texts: Sequence[str]) -> list[str]:
    """Without a line's place where the line above has the same: here every line is linked to its place."""
    places = [t.rpartition("   # ")[2] if "   # " in t else "" for t in texts]
    return [
        t.rpartition("   # ")[0] if place and place == above else t
        for t, place, above in zip(texts, places, ["", *places], strict=False)
    ]


def _line(line: LevelLine, file: str, markup: str) -> str:
    """Linked where it comes from this cell; a line from elsewhere says where from."""
    if not line.origin:
        return f"<span>{markup}\n</span>"
    if line.file != file:
        return f'<span title="from {text(line.file)}, line {line.origin[0]}">{markup}\n</span>'
    numbers = " ".join(map(str, line.origin))
    return f'<span class="ts-l" data-l="{numbers}">{markup}\n</span>'
