"""Loading the protocol's classes quickly, which is most of what starting the server takes.

lsprotocol makes some 550 classes with attrs, which writes the methods of each as source text and compiles it, anew in
every process. That bytecode is kept here as Python keeps that of modules: in a `__pycache__` folder, under the version
of Python, each piece with the text that it was made from. Where it is missing, damaged or cannot be written, everything
works and takes longer.
"""

from __future__ import annotations

import hashlib
import importlib
import marshal
import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any


def load() -> None:
    """Imports lsprotocol.types; to be called before anything else does."""
    if "lsprotocol.types" in sys.modules:
        return
    import attr._make as maker

    path = _path()
    kept = _read(path)
    made: dict[tuple[str, str], CodeType] = {}

    def compiled(source: str, filename: str, mode: str) -> Any:
        key = (source, filename)
        code = kept.get(key)
        made[key] = code if code is not None else compile(source, filename, mode)
        return made[key]

    maker.compile = compiled  # type: ignore[attr-defined]  # in that module's eyes, instead of the builtin
    try:
        importlib.import_module("lsprotocol.types")
    finally:
        del maker.compile  # type: ignore[attr-defined]
    if made.keys() != kept.keys() and not sys.dont_write_bytecode:
        _write(path, made)


def _path() -> Path:
    return Path(cache_from_source(__file__)).with_suffix(".bin")


def _read(path: Path) -> dict[tuple[str, str], CodeType]:
    try:
        data = path.read_bytes()
        if hashlib.sha256(data[32:]).digest() == data[:32]:
            return marshal.loads(data[32:])
    except (OSError, ValueError, EOFError, TypeError):
        pass
    return {}


def _write(path: Path, code: dict[tuple[str, str], CodeType]) -> None:
    data = marshal.dumps(code)
    other = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        other.write_bytes(hashlib.sha256(data).digest() + data)
        other.replace(path)
    except OSError:
        with suppress(OSError):
            other.unlink()
