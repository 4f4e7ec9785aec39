"""What the last call of a function copied, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.compiler.predict import quantity
from tessera.errors import Diagnostic, LaunchError
from tessera.fitted import fitted
from tessera.immutable import immutable
from tessera.language import dims
from tessera.language.decorators import Decorated

if TYPE_CHECKING:
    from tessera.runtime.call.dispatch import Launcher
    from tessera.runtime.call.prepared import PreparedLaunch
    from tessera.runtime.code.plan import LaunchInfo

_JOINED = "parts are put into one tensor"
_MOVES = {"copy": "", "concat": _JOINED, "pad": _JOINED, "fill": _JOINED, "put": _JOINED}
"""operators that move elements and compute nothing; why a copy is one depends on what it writes"""
_ARGUMENT = (
    "its elements do not lie in row order. Pass np.ascontiguousarray of it if it is used again, or, of a transposed "
    "array, the array itself, and write .T in the program"
)
_RESULT = "a result has memory of its own, also where it is a view of an argument or is returned twice"
_STATE = (
    "the new value stands in other memory, as it reads other elements of the old one; "
    "only elementwise operators of the old value are computed in place"
)
_TEMPORARY = "what follows needs the elements in this order, or changes them"


@immutable
class CopiedArray:
    """One thing that is copied: an argument, or what a line of the program makes. `bytes` are those of the copy."""

    what: str
    file: str
    line: int
    """0 for an argument"""
    bytes: int
    why: str

    def __str__(self) -> str:
        where = f"  ({self.file}:{self.line})" if self.line else ""
        return f"{self.what}, {quantity(self.bytes, 'B')}: {self.why}{where}"


@immutable
class Copies:
    """The answer of `why_copied`: copies of the last call, the largest first; truthy where there are some."""

    name: str
    copies: tuple[CopiedArray, ...] | None
    """None before the first call"""

    def __bool__(self) -> bool:
        return bool(self.copies)

    def __str__(self) -> str:
        if self.copies is None:
            return f"{self.name} has not been called in this session."
        if not self.copies:
            return f"The last call of {self.name} copied nothing."
        return "\n".join([f"The last call of {self.name} copied:", *(f"  {c}" for c in self.copies)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html  # slow: 1 ms of each first call

        return f"<pre>{html.escape(str(self))}</pre>"


@fitted
def why_copied(function: Any) -> Copies:
    """What the last call of a function or kernel copied, in bytes, and why: arguments whose elements do not lie in row
    order, results that are views, state whose new value could not be computed in place, parts that are put together.

    Print it, or display it in a notebook. Raises LaunchError TS105 for what is not a function or kernel of Tessera.
    """
    if not isinstance(function, Decorated):
        message = f"why_copied takes a function or kernel of Tessera, not {type(function).__name__}"
        raise LaunchError(Diagnostic("TS105", message))
    launcher: Launcher | None = vars(function).get("launcher")
    launch = launcher.ready.prepared if launcher is not None and launcher.ready is not None else None
    if launch is None:
        return Copies(function.name, None)
    found = [*_arguments(launch), *_moved(launch)]
    return Copies(function.name, tuple(sorted(found, key=lambda c: -c.bytes)))


def _arguments(launch: PreparedLaunch) -> Iterator[CopiedArray]:
    for param, shape, dtype in launch.slots:
        if param in launch.copied:
            what = f"argument {launch.plan.params[param].name} {list(shape)} {dtype}"
            yield CopiedArray(what, "", 0, math.prod(shape) * dtype.itemsize, _ARGUMENT)


def _moved(launch: PreparedLaunch) -> list[CopiedArray]:
    """Launches that only move elements; those of one line that have one reason together."""
    found: dict[tuple[str, int, str], CopiedArray] = {}
    for info in launch.plan.launches:
        size = sum(dims.evaluate(n, launch.env) for _, n in info.writes)
        if info.label in _MOVES and size:
            what, why = _purpose(launch, info)
            key = info.file, info.line, why
            first = found.setdefault(key, CopiedArray(what, info.file, info.line, 0, why))
            found[key] = replace(first, bytes=first.bytes + size)
    return list(found.values())


def _purpose(launch: PreparedLaunch, info: LaunchInfo) -> tuple[str, str]:
    """What such a launch copies, and why."""
    if _MOVES[info.label]:
        return info.title, _MOVES[info.label]
    passed = [launch.slots[b][0] for b, _ in info.writes if b >= 0]
    changed = ", ".join(launch.plan.params[p].name for p in passed if p is not None)
    if changed:
        return f"{info.title}: {changed}", _STATE
    return info.title, _RESULT if passed else _TEMPORARY
