"""How the results of a function are put together: one array, a tuple, a dict of names, a dataclass, or these in one
another.

Compiled code knows results only in a row. A structure says what is made of them: None for one result, a tuple of
structures, a dict of them by name, in the order in which the names were written, an `Instance` for what a class makes,
`Kept` for an ordinary value that is given back as it is. In a cached plan it is JSON, where classes and functions are
named by where the program reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias, cast

from tessera.immutable import immutable
from tessera.language.records import holding, is_record, members

PLAIN = (bool, int, float, str, type(None))
"""what JSON holds as it is"""


@immutable
class Instance:
    """An instance of a dataclass or named tuple by what it holds, or a list by its items."""

    kind: Any = field(repr=False)
    held: Mapping[str, Structure]


@immutable
class Kept:
    """A value that is no result: a number, a name, a function that a dataclass holds."""

    value: Any = field(repr=False)


Structure: TypeAlias = "tuple[Structure, ...] | Mapping[str, Structure] | Instance | Kept | None"


class Nameless(Exception):
    """A class or function that the program reads from no place, so that no other process can find it."""


def row(count: int) -> Structure:
    """A tuple of `count` results."""
    return (None,) * count


def assembled(structure: Structure, results: Sequence[Any]) -> Any:
    """The value of this structure; `results` are in order. None where a function has no result at all."""
    return _assembled(structure, iter(results)) if structure is not None else results[0] if results else None


def _assembled(structure: Structure, results: Iterator[Any]) -> Any:
    if structure is None:
        return next(results)
    if isinstance(structure, tuple):
        return tuple([_assembled(s, results) for s in structure])
    if isinstance(structure, Kept):
        return structure.value
    if isinstance(structure, Instance):
        held = {k: _assembled(s, results) for k, s in structure.held.items()}
        if _is_named(structure):
            return structure.kind._make(held.values())
        return [*held.values()] if structure.kind is list else holding(structure.kind, held)
    return {k: _assembled(s, results) for k, s in structure.items()}


def expression(structure: Structure, results: Sequence[str], names: dict[str, Any]) -> str:
    """`assembled` as Python text, of the texts of the results; values that it needs are added to `names`."""
    return _expression(structure, iter(results), names) if structure is not None else results[0] if results else "None"


def _expression(structure: Structure, results: Iterator[str], names: dict[str, Any]) -> str:
    if structure is None:
        return next(results)
    if isinstance(structure, tuple):
        return f"({''.join(f'{_expression(s, results, names)}, ' for s in structure)})"
    if isinstance(structure, Kept):
        return _named(structure.value, names)
    if isinstance(structure, Instance):
        if structure.kind is list or _is_named(structure):
            items = f"[{', '.join(_expression(s, results, names) for s in structure.held.values())}]"
            return items if structure.kind is list else f"{_named(structure.kind, names)}._make({items})"
        held = _expression(structure.held, results, names)
        return f"{_named(holding, names)}({_named(structure.kind, names)}, {held})"
    return f"{{{''.join(f'{k!r}: {_expression(s, results, names)}, ' for k, s in structure.items())}}}"


def _is_named(made: Instance) -> bool:
    """Whether it is a named tuple."""
    return hasattr(made.kind, "_make")


def _named(value: Any, names: dict[str, Any]) -> str:
    name = f"made{id(value):x}"
    names[name] = value
    return name


def in_a_row(value: object) -> list[Any]:
    """The results that an assembled value holds, in order, and what its dataclasses keep."""
    if is_record(value):
        value = list(members(value).values())
    elif isinstance(value, dict):
        value = list(cast("dict[str, object]", value).values())
    if isinstance(value, (tuple, list)):
        return [r for v in cast("Sequence[object]", value) for r in in_a_row(v)]
    return [value]


def to_json(structure: Structure, path_of: Callable[[Any], str | None]) -> Any:
    """As JSON. `path_of` says where the program reads a class or function. Raises Nameless where it does not."""
    if isinstance(structure, tuple):
        return [to_json(s, path_of) for s in structure]
    if isinstance(structure, Kept):
        plain = isinstance(structure.value, PLAIN)
        return {"value": structure.value} if plain else {"read": _path(structure.value, path_of)}
    if isinstance(structure, Instance):
        kind = "" if structure.kind is list else _path(structure.kind, path_of)
        return {"class": kind, "held": [[k, to_json(s, path_of)] for k, s in structure.held.items()]}
    if structure is None:
        return None
    return {"names": [[k, to_json(s, path_of)] for k, s in structure.items()]}


def _path(value: Any, path_of: Callable[[Any], str | None]) -> str:
    path = path_of(value)
    if not path:
        raise Nameless
    return path


def of_json(data: Any, value_of: Callable[[str], Any]) -> Structure:
    """The structure behind JSON. Raises LookupError where the program does not read what it names."""
    if data is None:
        return None
    if isinstance(data, list):
        return tuple(of_json(d, value_of) for d in cast("list[Any]", data))
    if "value" in data:
        return Kept(data["value"])
    if "read" in data:
        return Kept(value_of(data["read"]))
    held = {str(k): of_json(s, value_of) for k, s in data["names" if "names" in data else "held"]}
    if "names" in data:
        return held
    return Instance(value_of(data["class"]) if data["class"] else list, held)
