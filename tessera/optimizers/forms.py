"""How trees are built, so that those that are built alike need not be explored."""

from __future__ import annotations

from typing import Any

from tessera.language.records import field_names, is_record
from tessera.nn import tree

_new, _set = object.__new__, object.__setattr__
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

    def values(self, given: Any) -> list[Any] | None:
        """A tree and all that it holds, part by part; None if it is built in another way."""
        values = [given]
        for at, kind, names, _, _ in self.containers:
            held = values[at]
            if held.__class__ is not kind:
                return None
            if names is None:
                values += held
            else:
                inner = held if kind is dict else held.__dict__
                if (*inner,) != names:
                    return None
                values += inner.values()
            if len(values) > len(self.kinds):
                return None
        return values if [*map(type, values)] == self.kinds else None

    def tree(self, values: list[Any]) -> Any:
        """A tree of this form from the arrays among `values`, and from what is no container."""
        for at, kind, names, first, end in reversed(self.containers):
            part = values[first:end]
            if names is None:
                values[at] = part if kind is list else tuple(part) if kind is tuple else kind(*part)
            elif kind is dict:
                values[at] = dict(zip(names, part))  # noqa: B905 - `strict` takes longer than the rest
            else:
                made = values[at] = _new(kind)
                for name, value in zip(names, part):  # noqa: B905
                    _set(made, name, value)
        return values[0]


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
