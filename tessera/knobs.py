"""Every TESSERA_* environment variable: its type, its default and what it does. Read nowhere else.

A knob is a function without arguments that reads the environment at each call, so that tests and notebooks may change
it at any time; `override` sets one for a while. A value that is not allowed raises TesseraError TS607 naming the
allowed ones.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from tessera.errors import Diagnostic, TesseraError
from tessera.immutable import immutable

T = TypeVar("T")


@immutable
class Knob(Generic[T]):
    """One variable. `read` turns its text into a value, or raises ValueError saying what is allowed."""

    variable: str
    doc: str
    default: str
    """what holds when the variable is not set, for people"""
    fallback: Callable[[], T]
    read: Callable[[str], T]

    def __call__(self) -> T:
        text = os.environ.get(self.variable, "")
        if not text:
            return self.fallback()
        try:
            return self.read(text)
        except ValueError as e:
            raise TesseraError(Diagnostic("TS607", f"{self.variable}={text!r} is not allowed: {e}")) from None

    @contextmanager
    def override(self, value: object) -> Generator[None]:
        """Sets the variable inside a `with` block; None unsets it."""
        old = os.environ.get(self.variable)
        self.set(None if value is None else str(value))
        try:
            yield
        finally:
            self.set(old)

    def set(self, text: str | None) -> None:
        """Sets the variable for this process; None unsets it."""
        if text is None:
            os.environ.pop(self.variable, None)
        else:
            os.environ[self.variable] = text


KNOBS: list[Knob[object]] = []


def _knob(variable: str, doc: str, default: str, fallback: Callable[[], T], read: Callable[[str], T]) -> Knob[T]:
    knob = Knob(variable, doc, default, fallback, read)
    KNOBS.append(knob)  # type: ignore[arg-type]
    return knob


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("it is 1 or 0")


def _threads(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 1024:
        raise ValueError("it is a number from 1 to 1024")
    return int(text)


def _autotune(text: str) -> str:
    if text.lower() in ("0", "1", "cached"):
        return text.lower()
    raise ValueError("it is 1, cached or 0")


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _figures(text: str) -> str:
    if text.lower() in ("measured", "usual"):
        return text.lower()
    raise ValueError("it is measured or usual")


def _size(text: str) -> int:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise ValueError("it is a size such as 500MB or 2GiB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def _default_cache() -> Path:
    try:
        import platformdirs  # slow: 5 ms where TESSERA_CACHE_DIR is set
    except ImportError:  # a plain checkout on a machine where nothing is installed for it
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tessera"
    return Path(platformdirs.user_cache_dir("tessera", appauthor=False))


cache_dir = _knob(
    "TESSERA_CACHE_DIR",
    "Where compiled code, tuning results and measured machine ceilings are kept.",
    "the user's cache folder",
    _default_cache,
    lambda text: Path(text).expanduser(),
)
cache_limit = _knob(
    "TESSERA_CACHE_SIZE", "The most that compiled code may take on disk, e.g. 500MB. 0 turns the disk cache off.",
    "1GB", lambda: 10**9, _size,
)  # fmt: skip
target = _knob(
    "TESSERA_TARGET", "What to compile for when the program does not say: auto, cpu, reference, cuda, sm_90a ...",
    "auto", lambda: "auto", str,
)  # fmt: skip
num_threads = _knob(
    "TESSERA_NUM_THREADS", "Worker threads of the CPU target, and threads that compile.",
    "one for each core that the process may use",
    lambda: len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, _threads,
)  # fmt: skip
autotune = _knob(
    "TESSERA_AUTOTUNE",
    "1 times the configurations of a tuned program at its first call with new shapes, cached goes by earlier timings "
    "alone, 0 always takes the first configuration.",
    "1", lambda: "1", _autotune,
)  # fmt: skip
debug = _knob(
    "TESSERA_DEBUG", "1 checks computed indices, asserts and NaN in kernels while they run.", "0", lambda: False, _flag
)
figures = _knob(
    "TESSERA_FIGURES",
    "usual takes the figures of a usual processor for predictions instead of those measured on this one, so that they "
    "are the same everywhere.",
    "measured", lambda: "measured", _figures,
)  # fmt: skip
tracebacks = _knob(
    "TESSERA_TRACEBACKS", "1 shows Tessera's own frames in the tracebacks of its errors.", "0", lambda: False, _flag
)
dump = _knob(
    "TESSERA_DUMP", "A folder that receives the IR after every pass of every compilation.", "nothing is written",
    lambda: None, lambda text: Path(text).expanduser(),
)  # fmt: skip


def table() -> list[tuple[str, str, str]]:
    """(variable, default, what it does) of every knob, for the documentation and `tessera doctor`."""
    return [(k.variable, k.default, k.doc) for k in KNOBS]
