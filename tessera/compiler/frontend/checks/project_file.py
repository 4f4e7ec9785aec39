"""`tessera.toml`: a file for a project's settings, as other tools have one. This version does not read it, and warns.

This module makes the warning for both `tessera check` and editors.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tessera.errors import Diagnostic, Span
from tessera.files import read_plain

NAME = "tessera.toml"
_WHERE = "settings are environment variables: see docs/settings"
_LARGEST = 1 << 20
"""bytes that are read of it"""
_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def project_files(paths: Iterable[Path]) -> list[Path]:
    """The `tessera.toml` of each project that files or folders lie in, once: the nearest above them, up to the root of
    a repository."""
    known: dict[Path, Path | None] = {}
    found = (_above(p if p.is_dir() else p.parent, known) for p in paths)
    return list({p.resolve(): p for p in found if p is not None}.values())


def _above(folder: Path, known: dict[Path, Path | None]) -> Path | None:
    folder = folder.absolute()
    if folder not in known:
        here = folder / NAME
        if here.is_file():
            known[folder] = here
        elif folder.parent == folder or (folder / ".git").exists():
            known[folder] = None
        else:
            known[folder] = _above(folder.parent, known)
    return known[folder]


def unread(path: Path, name: str = "") -> Diagnostic:
    """That the file at `path` is not read (TS613): at its first line, or where it is no TOML. `name`: as shown."""
    name = name or str(path)
    try:
        text = (read_plain(path.resolve(), _LARGEST) or b"").decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return _finding("is not a text file in UTF-8, and", Span(name, 1, 1, 1, 1))
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return _finding(f"is not valid TOML ({_PLACE.sub('', str(error))}), and", _span(name, text, str(error)))
    except RecursionError:
        pass  # unclosed brackets: the message is the same
    first = text.partition("\n")[0].rstrip("\r")
    return _finding("", Span(name, 1, 1, 1, len(first) + 1))


def _finding(fault: str, span: Span) -> Diagnostic:
    text = " ".join(word for word in (NAME, fault, "is not read by this version") if word)
    return Diagnostic("TS613", f"{text}; {_WHERE}", span, severity="warning")


def _span(name: str, text: str, error: str) -> Span:
    """Where Python's reader stopped, which it says in words alone; at the end it names no line."""
    place = _PLACE.search(error)
    lines = text.split("\n")
    line = int(place[1]) if place and place[1] else max(1, len(text.rstrip().split("\n")))
    column = int(place[2]) if place and place[2] else len(lines[line - 1].rstrip()) + 1
    return Span(name, line, column, line, max(column, len(lines[line - 1].rstrip("\r")) + 1))
