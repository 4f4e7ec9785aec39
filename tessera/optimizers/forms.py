"""How trees are built, so that those that are built alike need not be explored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.language.records import field_names, is_record
from tessera.nn import tree

MOST = 4096
"""values of a tree; that of a larger one takes no time beside the work on its arrays"""


class Unusual(Exception):
    """Of a tree that holds objects which are not plain lists, tuples, dicts and dataclasses."""


class Form:
    """How a tree is built: which classes its parts have, and under which names they hold others.

    `values` takes a tree apart, `tree` builds one of the same form. Raises Unusual for a tree of other containers than
    lists, tuples, named ones too, dicts, and dataclasses that are their `__dict__`.
    """

    def __init__(self, example: Any) -> None:
        self.containers: list[tuple[int, type, tuple[Any, ...] | None, int, int]] = []
        """of each part that holds others: its place among the values, class and names, and where what it holds begins
        and ends"""
        self.places: dict[str, int] = {}
        """of the arrays among the values, by path"""
        values, paths = [example], [""]
        at = 0
        while at < len(values):
            if len(values) > MOST:  # or a tree that holds itself
                raise Unusual
            value, path = values[at], paths[at]
            if tree.is_array(value):
                self.places[path] = at
            elif (held := _held(value)) is not None:
                named = not isinstance(value, (list, tuple))
                first = len(values)
                values += held.values()
                paths += [f"{path}.{n}" if path else str(n) for n in held]
                self.containers.append((at, type(value), tuple(held) if named else None, first, len(values)))
            at += 1
        self.kinds = [*map(type, values)]
        written = _Written(self)
        self.values: Callable[[Any], list[Any] | None] = written.values
        """a tree and all that it holds, part by part; None if it is built in another way"""
        self.tree: Callable[[list[Any]], Any] = written.tree
        """a tree of this form from the arrays among `values`, and from what is no container"""


class _Written:
    """The two functions of a form as straight code. For a layer of two arrays::

    def values(v0):
        try:
            if v0.__class__ is not kind0 or (*(h := v0.__dict__),) != names0: return None
            v1, v2, = h.values()
        except (AttributeError, TypeError, ValueError): return None
        found = [v0, v1, v2]
        return found if [*map(type, found)] == kinds else None

    def tree(values):
        v0, v1, v2, = values
        v0 = new(kind0); set(v0, "__dict__", {"weight": v1, "bias": v2})
        return v0
    """

    def __init__(self, form: Form) -> None:
        known: dict[str, Any] = {"new": object.__new__, "set": object.__setattr__, "kinds": form.kinds}
        apart: list[str] = []
        together: list[str] = []
        for at, kind, names, first, end in form.containers:
            held = ", ".join(f"v{i}" for i in range(first, end))
            each = f"{held}, = " if held else "() = "
            known |= {f"kind{at}": kind, f"names{at}": names}
            unlike = f"if v{at}.__class__ is not kind{at}"
            if names is None:
                apart += [f"{unlike}: return None", f"{each}v{at}"]
                made = f"[{held}]" if kind is list else f"({held}{',' * bool(held)})"
                together.append(f"v{at} = {made if kind in (list, tuple) else f'kind{at}({held})'}")
                continue
            inner = f"v{at}" if kind is dict else f"(h := v{at}.__dict__)"
            apart += [f"{unlike} or (*{inner},) != names{at}: return None"]
            apart += [f"{each}{inner if kind is dict else 'h'}.values()"]
            known |= {f"n{i}": name for i, name in enumerate(names, first)}
            made = "{" + ", ".join(f"n{i}: v{i}" for i in range(first, end)) + "}"
            together.append(
                f"v{at} = {made}" if kind is dict else f"v{at} = new(kind{at}); set(v{at}, '__dict__', {made})"
            )
        every = ", ".join(f"v{i}" for i in range(len(form.kinds)))
        lines = [
            "def values(v0):",
            " try:",
            *(f"  {line}" for line in apart or ["pass"]),
            " except (AttributeError, TypeError, ValueError): return None",
            f" found = [{every}]",
            " return found if [*map(type, found)] == kinds else None",
            "def tree(values):",
            f" {every}, = values",
            *(f" {line}" for line in reversed(together)),
            " return v0",
        ]
        exec(compile("\n".join(lines), __file__, "exec"), known)
        self.values, self.tree = known["values"], known["tree"]


def _held(value: Any) -> dict[Any, Any] | None:
    """What a container holds, in the order in which it is iterated over; None for a value that is none."""
    kind = type(value)
    if kind is dict:
        return value
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return dict(enumerate(value))
    if isinstance(value, (list, tuple)) or (hasattr(kind, "__getitem__") and hasattr(kind, "keys")):
        raise Unusual
    if not is_record(value):
        return None
    inner = value.__dict__ if tree.is_plain(kind) else {}
    if kind is not value.__class__ or any(n not in inner for n in field_names(kind)):
        raise Unusual
    return inner
