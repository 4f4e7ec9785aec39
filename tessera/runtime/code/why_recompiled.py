"""Why a function was compiled again: the key fields of its compilations, compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import field
from itertools import pairwise
from typing import Any

from tessera.errors import Diagnostic
from tessera.fitted import fitted
from tessera.immutable import immutable
from tessera.runtime.callsite import call_span
from tessera.runtime.locks import Locked

MANY = 3
"""compilations from which on open dims are advised"""
AGAIN = 8
"""compilations for other sizes alone, or other numbers alone, of which a warning tells"""
KEPT = 64
"""compilations remembered per function"""


@immutable
class Compilation:
    """One compilation and what its key was made of. `fields` maps a field ("argument x", "global scale") to its value:
    text, or for an array argument a mapping with `shape`, `dtype`, and the annotation's `dims`."""

    name: str
    fields: Mapping[str, Any]
    cache: str
    """"miss" (compiled), "disk" (loaded), "hit" (the same content was in memory)"""
    duration: int
    """ns"""


@immutable
class InputChange:
    """One field that differs. None means that it was not there."""

    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.field} is new: {_text(self.after)}"
        if self.after is None:
            return f"{self.field} is gone (it was {_text(self.before)})"
        if self.field == "source" or str(self.before).partition("#")[0] == str(self.after).partition("#")[0] != str(
            self.before
        ):
            return f"{'the text of the function' if self.field == 'source' else self.field} was edited"
        if self.field == "target":
            return "target: " + " -> ".join(_told_apart(str(self.before), str(self.after)))
        return f"{self.field}: {_text(self.before)} -> {_text(self.after)}"


def _told_apart(before: str, after: str) -> tuple[str, str]:
    """Two targets in as few words as tell one from the other: a processor's have a hundred, most of them equal."""
    old, new = (target.replace(",", " ").split() for target in (before, after))
    if old[:1] != new[:1]:
        return " ".join(old[:1]), " ".join(new[:1])
    kept = {*old} & {*new}
    gone, come = (" ".join(word for word in words if word not in kept) or "without" for words in (old, new))
    return gone, come


@immutable
class Recompilation:
    """The answer of `why_recompiled`: `changes` between the last two compilations; truthy where there were two."""

    name: str
    count: int
    changes: tuple[InputChange, ...] = field(default=())
    advice: str = ""
    """what to write so that sizes like these are compiled once; "" where that is not known"""

    def __bool__(self) -> bool:
        return self.count > 1

    def __str__(self) -> str:
        if self.count == 0:
            return f"{self.name} has not been compiled in this session."
        if self.count == 1:
            return f"{self.name} has been compiled once."
        if not self.changes:
            return f"{self.name} has been compiled {self.count} times; the last two have the same key."
        lines = [f"{self.name} has been compiled {self.count} times. Between the last two:"]
        return "\n".join([*lines, *(f"  {change}" for change in self.changes), *filter(None, [self.advice])])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html  # slow: 1 ms of each first call

        return f"<pre>{html.escape(str(self))}</pre>"


class _History(Locked):
    def __init__(self) -> None:
        super().__init__()
        self.recent: dict[str, deque[Compilation]] = {}
        self.counts: dict[str, int] = {}


_history = _History()


def record(identity: str, compilation: Compilation) -> None:
    """Remembers a compilation of the function called `identity` (module and qualified name)."""
    with _history.lock:
        known = _history.recent.setdefault(identity, deque(maxlen=KEPT))
        if known and compilation.cache == "hit" and known[-1].fields == compilation.fields:
            return  # nothing was compiled or loaded: another spelling of the same call
        known.append(compilation)
        _history.counts[identity] = _history.counts.get(identity, 0) + 1


def warned(function: Any, plain: Set[str] = frozenset()) -> str:
    """TS508 of a function that was compiled `AGAIN` times, for other sizes of its arguments alone, or other numbers of
    parameters without annotation (`plain`); "" of others."""
    known = compilations(function)
    if len(known) != AGAIN:
        return ""
    said = why_recompiled(function)
    fields = [f"argument {name}" for name in plain]
    if all(map(_resized, known, known[1:])):
        what = "other sizes"
        annotated = 'Name the dims in annotations, x: Tensor["B", "T"], and @ts.function(open_dims="T") compiles once.'
        how = said.advice or annotated
    elif all(_renumbered(a, b, fields) for a, b in pairwise(known)):
        what = "another number"
        dtypes = {c.field.removeprefix("argument "): _dtype(c.after) for c in said.changes}
        how = "A number without an annotation is a constant of the code. To pass it when the program runs, write "
        how += ", ".join(f"{name}: ts.{dtype}" for name, dtype in dtypes.items())
        how += "; int says that each number is compiled." if "int64" in dtypes.values() else "."
    else:
        return ""
    change = "; ".join(map(str, said.changes))
    message = f"{said.name} has been compiled {AGAIN} times, for {what} each time: {change}. {how}"
    return Diagnostic("TS508", message, call_span(), "warning").render()


def _renumbered(before: Compilation, after: Compilation, fields: list[str]) -> bool:
    """Whether numbers in these fields are all that differs."""
    changes = compare(before.fields, after.fields)
    return bool(changes) and all(c.field in fields and _dtype(c.before) and _dtype(c.after) for c in changes)


def _dtype(shown: Any) -> str:
    """The dtype for a number that is shown like this; "" of what is none."""
    try:
        float(shown)
    except (TypeError, ValueError):
        return ""
    return "int64" if shown.lstrip("-").isdigit() else "f32"


def _resized(before: Compilation, after: Compilation) -> bool:
    """Whether sizes of arguments are all that differs."""
    return all(
        _of_other_sizes(a, b)
        for name in {*before.fields, *after.fields}
        if (a := before.fields.get(name)) != (b := after.fields.get(name))
    )


def _of_other_sizes(a: Any, b: Any) -> bool:
    """Whether both are arrays that differ in the sizes of their axes alone, not in how many they have."""
    arrays = isinstance(a, Mapping) and isinstance(b, Mapping)
    return arrays and len(a["shape"]) == len(b["shape"]) and {**a, "shape": b["shape"]} == b


def compilations(function: Any) -> list[Compilation]:
    """The remembered compilations of a function or kernel, the oldest first."""
    with _history.lock:
        return list(_history.recent.get(identity_of(function), ()))


def identity_of(function: Any) -> str:
    """A re-run cell makes a new object; module and qualified name tell that it is the same function."""
    plain = getattr(function, "__wrapped__", function)
    return f"{getattr(plain, '__module__', '')}.{getattr(plain, '__qualname__', repr(plain))}"


@fitted
def why_recompiled(function: Any) -> Recompilation:
    """The part of the key that changed between the last two compilations of a function or kernel.

    Print it, or display it in a notebook: "argument x axis 0: 8 -> 16", "global scale: 2.0 -> 3.0".
    """
    identity = identity_of(function)
    known = compilations(function)
    name = getattr(function, "name", None) or identity.rpartition(".")[2]
    if len(known) < 2:
        return Recompilation(name, _history.counts.get(identity, 0))
    before, after = known[-2].fields, known[-1].fields
    names = _varying(before, after) if len(known) >= MANY else []
    advice = ""
    if names:
        dims = repr(names[0]) if len(names) == 1 else str(tuple(names))
        of = f"@ts.{getattr(function, 'kind', 'function')}(open_dims={dims})".replace("'", '"')
        advice = f"Each size of {', '.join(names)} is compiled by itself. {of} compiles once for all sizes."
    return Recompilation(name, _history.counts[identity], tuple(compare(before, after)), advice)


def _varying(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The dims whose sizes are all that differs; none where something else does, or an axis has no name."""
    names: dict[str, None] = {}
    for name in dict.fromkeys((*before, *after)):
        a, b = before.get(name), after.get(name)
        if a == b:
            continue
        if not _of_other_sizes(a, b):
            return []
        dims = a.get("dims", ())
        for i, (x, y) in enumerate(zip(a["shape"], b["shape"], strict=True)):
            if x != y and not (i < len(dims) and dims[i].isidentifier()):
                return []
            names |= {dims[i]: None} if x != y else {}
    return list(names)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[InputChange]:
    """The fields that differ, arrays axis by axis."""
    out: list[InputChange] = []
    for name in dict.fromkeys((*before, *after)):
        a, b = before.get(name), after.get(name)
        if a == b:
            continue
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            out += _array_changes(name, a, b)
        else:
            out.append(InputChange(name, a, b))
    return out


def _array_changes(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[InputChange]:
    out: list[InputChange] = []
    if len(a["shape"]) != len(b["shape"]):
        out.append(InputChange(f"{name} shape", list(a["shape"]), list(b["shape"])))
    else:
        sizes = enumerate(zip(a["shape"], b["shape"], strict=True))
        out += [InputChange(f"{name} axis {i}", x, y) for i, (x, y) in sizes if x != y]
    return out + [
        InputChange(f"{name} {key}", a.get(key), b.get(key)) for key in a if key != "shape" and a[key] != b.get(key)
    ]


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"[{', '.join(map(str, value['shape']))}] {value['dtype']}"
    return str(value)
