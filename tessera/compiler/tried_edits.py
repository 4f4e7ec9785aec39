"""Edits that made a program faster when they were tried, for editors to offer while its file still says the same.

`hint.try_it()` leaves them in the cache folder, one small JSON file for each source file; editors read it as data.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from tessera import knobs
from tessera.compiler.predict import digest
from tessera.errors import Edit, Span
from tessera.files import read_record, write_record

MOST = 20
"""edits that are kept of a file, the newest"""
_SCHEMA = 1


def record(file: str, old: str, new: str, title: str) -> None:
    """Keeps the change of a file from `old` to `new`. Of what is no file, or says something else by now, nothing is
    kept; a folder that cannot be written costs the record, nothing else."""
    path = Path(file).absolute()
    try:
        if digest(path.read_text(encoding="utf-8-sig")) != digest(old):
            return
    except (OSError, UnicodeError):
        return
    kept = [each for each in _read(str(path)) if each[1:] != [digest(old), new]]
    write_record(_path(str(path)), _what(str(path)), [[title, digest(old), new], *kept][:MOST])


def of(file: str, text: str) -> Iterator[tuple[str, tuple[Edit, ...]]]:
    """Titles and edits for a file that says `text`, the newest first."""
    now = digest(text)
    for title, before, new in _read(file):
        if before == now:
            yield title, edits_between(file, text, new)


def _read(file: str) -> list[list[str]]:
    found = read_record(_path(file), _what(file))
    kept = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("list[str]", each) for each in kept if _is_edit(each)]


def _is_edit(each: object) -> bool:
    texts = cast("list[object]", each) if isinstance(each, list) else []
    return len(texts) == 3 and all(isinstance(t, str) for t in texts)


def edits_between(file: str, old: str, new: str) -> tuple[Edit, ...]:
    """The lines of a file that differ, without the end of the last one where it stays."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    found: list[Edit] = []
    for what, i, j, k, m in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        gone, come = "".join(before[i:j]), "".join(after[k:m])
        end = next((e for e in ("\r\n", "\n") if gone.endswith(e) and come.endswith(e)), "")
        start = sum(map(len, before[:i]))
        places = (*_place(old, start), *_place(old, start + len(gone) - len(end)))
        found.append(Edit(Span(file, *places), come.removesuffix(end)))
    return tuple(found)


def _place(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _what(file: str) -> str:
    return f"tried edits of {file}, schema {_SCHEMA}"


def _path(file: str) -> Path:
    return knobs.cache_dir() / "tried" / f"{hashlib.sha256(file.encode()).hexdigest()[:16]}.json"
