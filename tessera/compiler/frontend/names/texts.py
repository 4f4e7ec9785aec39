"""The texts that live functions were compiled from: files change while a process runs."""

from __future__ import annotations

import ast
import linecache
import os
from functools import lru_cache
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from tessera.began import BEGAN
from tessera.compiler.frontend.syntax.parse import parse_module
from tessera.errors import CompileError

_texts: dict[str, list[str]] = {}
"""what has been read of each file, the oldest first"""
_KEPT = 4


def text_of(code: CodeType, space: dict[str, Any]) -> tuple[str, CodeType] | None:
    """The text that `code`, of a module with these globals, was compiled from, "" if there is none; and its code, whose
    lines are those of the text.

    Of a file that has been written since this process began it may be the present text or one that was read earlier,
    which is told by compiling them. None: neither, as the file was changed before it was first read.
    """
    file = code.co_filename
    linecache.checkcache(file)
    text = "".join(linecache.getlines(file, space))
    texts = _texts.setdefault(file, [])
    if text and text not in texts:
        texts[:] = [*texts[1 - _KEPT :], text]
    if not text or (len(texts) == 1 and not _written(file)):
        return text, code
    for each in reversed(texts):
        if code in _codes(each, file):
            return each, code
    for each in reversed(texts):  # IPython's autoreload compiles the function alone
        alike = [
            c for c in _codes(each, file) if c.co_name == code.co_name and _without_lines(c) == _without_lines(code)
        ]
        if alike:
            return each, min(alike, key=lambda c: c.co_firstlineno)
    plain = type(space.get("__loader__")) is SourceFileLoader  # others may change the code: assertions of pytest
    return None if plain else (text, code)


def _without_lines(code: CodeType) -> tuple[Any, ...]:
    constants: list[Any] = [
        _without_lines(c) if isinstance(c, CodeType) else (type(c).__name__, repr(c)) for c in code.co_consts
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_name, code.co_argcount, code.co_kwonlyargcount, code.co_flags, code.co_code, names, constants


def _written(file: str) -> bool:
    """Whether a file has been written since this process began."""
    try:
        return os.stat(file).st_mtime > BEGAN
    except OSError:  # a cell of a notebook
        return False


@lru_cache(maxsize=16)
def _codes(text: str, file: str) -> frozenset[CodeType]:
    """The code of a text, and of all functions in it."""
    try:
        found = [compile(live_module(text, file)[0], file, "exec", dont_inherit=True)]
    except (CompileError, SyntaxError, ValueError):  # it is being written
        return frozenset()
    for code in found:  # grows meanwhile
        found += [c for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(found)


@lru_cache(maxsize=64)
def live_module(text: str, file: str) -> tuple[ast.Module, tuple[object, ...]]:
    """The tree of a module whose functions are live; shared, and never changed."""
    return parse_module(text, file)
