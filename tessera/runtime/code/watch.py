"""Checks that the values a function read from outside have not changed, so no stale kernel is used.

The present values are part of the key of a compilation, and `Watch.unchanged` asks before each call whether they are
still the same: by identity for most, by content for lists, dicts and other containers of Python, which change in
place. Arrays are passed at each launch; only their shapes and dtypes are part of the key.
"""

from __future__ import annotations

import builtins
import os
import types
from array import array
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any

from tessera import knobs
from tessera.compiler import extensions
from tessera.compiler.frontend.names.fingerprint import changes, fingerprint
from tessera.language.records import is_record
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.code.reads import MISSING, PLAIN, OwnNames, Read, own_names, python_function
from tessera.runtime.codegen import define

_ENVIRONMENT: Any = getattr(os.environ, "_data", os.environ)  # looking beneath os.environ saves a microsecond a call
_SETTINGS = [
    os.environ.encodekey(k.variable) if hasattr(os.environ, "encodekey") else k.variable
    for k in (knobs.target, knobs.debug)
]
"""what a compilation depends on besides the program and its arguments"""


def settings() -> tuple[Any, ...]:
    """The present settings, for keys, and what has been registered from outside."""
    return (*(_ENVIRONMENT.get(key) for key in _SETTINGS), extensions.state())


def setting(knob: knobs.Knob[Any]) -> Callable[[], Any]:
    """A fast function that returns the present text of a setting; the same object while the setting is unset."""
    key = os.environ.encodekey(knob.variable) if hasattr(os.environ, "encodekey") else knob.variable
    return lambda: _ENVIRONMENT.get(key)


class Watch:
    """The reads of one compilation."""

    def __init__(self, found: list[Read]) -> None:
        self.reads = found
        self.by_path = {r.path: r for r in found}
        self._same = [
            r
            for r in found
            if not (
                r.array
                or changes(r.value)
                or isinstance(r.value, types.MethodType)
                or r.kind == "argument"
                or _builtin(r)
            )
        ]
        # a bound method is a new object each time it is asked for; the function behind it is not
        self._methods = [(r, _behind(r.value)) for r in found if isinstance(r.value, types.MethodType)]
        self._content = [(r, r.content()) for r in found if changes(r.value)]
        self._arrays = [(r, _array_key(r.value)) for r in found if r.array]

    def fields(self) -> dict[str, str]:
        """The content of every read by name, for keys and for `why_recompiled`."""
        return {f"{r.kind} {r.path}": r.content() for r in self.reads}

    def path_of(self, value: Any) -> str | None:
        """Where an array, class or function is read; None where it was made on the way."""
        found = next((r.path for r in self.reads if r.value is value), None)
        if found is None and isinstance(value, type):
            return next((f"type of {r.path}" for r in self.reads if type(r.value) is value), None)
        return found

    def value_of(self, path: str) -> Any:
        """What `path_of` has named. Raises LookupError."""
        of_class = path.startswith("type of ")
        found = self.by_path[path.removeprefix("type of ")].value
        return type(found) if of_class else found

    def unchanged(self) -> bool:
        """Whether a call may go on with what was compiled."""
        for r in self._same:
            value = r.get()
            if value is not r.value and not (isinstance(value, PLAIN) and _equal(value, r.value)):
                return False
        for r, behind in self._methods:
            if _behind(r.get()) != behind:
                return False
        for r, content in self._content:
            if fingerprint(r.get()) != content:
                return False
        return self.arrays_unchanged()

    def arrays_unchanged(self) -> bool:
        """Whether the arrays that are read still have the shapes and dtypes they had."""
        return all(_array_key(r.get()) == key for r, key in self._arrays)

    def guard(self) -> Callable[[], bool]:
        """`unchanged`, and the environment as it was: as quick as it can be.

        Settings and values are compared by identity, arrays by what a launch depends on, in one generated expression;
        only where that fails, every read is looked at.
        """
        names: dict[str, Any] = {"env": _ENVIRONMENT, "ids": _ids, "slow": self._slow_guard()}
        parts: list[str] = []
        for i, key in enumerate(_SETTINGS):
            names |= {f"key{i}": key, f"set{i}": _ENVIRONMENT.get(key)}
            parts.append(f"env.get(key{i}) is set{i}")
        compared = self._compared()
        for i, r in enumerate(self.reads):
            if r.kind != "argument" and not _builtin(r) and id(r.owner) not in compared:
                parts += _quick(r, i, names)
        lines = (
            "def guard():",
            " try:",
            f"  if {' and '.join(parts)}: return True",
            " except Exception: pass",  # an attribute is gone
            " return slow()",
        )
        return define("\n".join(lines), names)["guard"]

    def _compared(self) -> set[int]:
        """Dataclasses among the arguments: what they hold is part of each call's key. Not those that code reaches by a
        name of its own as well."""
        given = {id(r.value) for r in self.reads if r.kind == "argument" and is_record(r.value)}
        return given - {id(r.value) for r in self.reads if r.kind in ("global", "closure", "item", "attribute")}

    def _slow_guard(self) -> Callable[[], bool]:
        then = settings()
        return lambda: settings() == then and self.unchanged()


def _quick(r: Read, i: int, names: dict[str, Any]) -> list[str]:
    """Conditions, in terms of `names`, that hold where a read surely gives what it gave. What a container or a property
    holds is the business of its own read."""
    if isinstance(r, OwnNames):
        return _quick_names(r, i, names)
    names |= {f"seen{i}": r.value, f"from{i}": r.owner}
    now = f"seen{i}"
    if isinstance(r.owner, dict):
        names[f"name{i}"] = r.name
        now = f"from{i}.get(name{i})"
    elif r.name:
        now = f"from{i}.{r.name}" if r.name.isidentifier() and not iskeyword(r.name) else "None"
    parts: list[str] = []
    if r.array:
        adapter = adapter_of(r.value)
        names |= {f"type{i}": type(r.value), f"of{i}": adapter.key, f"was{i}": adapter.key(r.value)}  # type: ignore[union-attr]
        parts.append(f"type(v := {now}) is type{i} and of{i}(v) == was{i}")
    elif isinstance(r.value, types.MethodType) and r.get() is not r.value:  # made when it is asked for
        names |= {f"was{i}": r.value.__func__, f"self{i}": r.value.__self__}
        parts.append(f"(v := {now}).__func__ is was{i} and v.__self__ is self{i}")
    elif now != f"seen{i}":
        parts.append(f"{now} is seen{i}")
    if changes(r.value):
        names |= {f"held{i}": _ids(r.value), f"kept{i}": _kept(r.value)}
        parts.append(f"ids(seen{i}) == held{i}")
    return parts


def _quick_names(r: OwnNames, i: int, names: dict[str, Any]) -> list[str]:
    held = r.owner if isinstance(r.owner, dict) else r.owner.__dict__
    names[f"keys{i}"] = held.keys()
    if r.among is not None and not r.value:
        names[f"among{i}"] = r.among
        return [f"keys{i}.isdisjoint(among{i})"]
    names |= {f"held{i}": [*held], f"now{i}": own_names, f"from{i}": r.owner, f"was{i}": r.value, f"among{i}": r.among}
    return [f"now{i}(from{i}, among{i}) == was{i}"]


def _ids(value: Any) -> Any:
    """What tells whether a container still holds the same objects, while `_kept` of it holds them."""
    return bytes(value) if isinstance(value, (bytearray, memoryview, array)) else [*map(id, _kept(value))]


def _kept(value: Any) -> list[Any]:
    return [*value, *value.values()] if isinstance(value, Mapping) else [*value]


def _behind(method: Any) -> tuple[int, int]:
    """The function and the object of a bound method; the read that was compiled with keeps both."""
    return id(python_function(method)), id(getattr(method, "__self__", None))


def _builtin(r: Read) -> bool:
    return getattr(builtins, r.path, MISSING) is r.value


def _array_key(value: Any) -> Any:
    adapter = adapter_of(value)
    return (type(value), adapter.key(value)) if adapter is not None else None


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b) and repr(a) == repr(b)  # 0.0 and -0.0 are different constants
