"""How the results of a function are put together: one array, a tuple, a dict of names, or these in one another.

Compiled code knows results only in a row. A structure is plain data, as it stands in a cached plan: None for one
result, a tuple of structures, or a dict of them by name, in the order in which the names were written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

Structure: TypeAlias = "tuple[Structure, ...] | Mapping[str, Structure] | None"


def structure_of(value: object) -> Structure:
    """The structure of tuples, lists and dicts as they are nested in `value`; a list is given back as a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(structure_of(v) for v in cast("Sequence[object]", value))
    if isinstance(value, dict):
        return {k: structure_of(v) for k, v in cast("dict[str, object]", value).items()}
    return None


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
    return {k: _assembled(s, results) for k, s in structure.items()}


def expression(structure: Structure, results: Sequence[str]) -> str:
    """`assembled` as Python text, of the texts of the results."""
    return _expression(structure, iter(results)) if structure is not None else results[0] if results else "None"


def _expression(structure: Structure, results: Iterator[str]) -> str:
    if structure is None:
        return next(results)
    if isinstance(structure, tuple):
        return f"({''.join(f'{_expression(s, results)}, ' for s in structure)})"
    return f"{{{''.join(f'{k!r}: {_expression(s, results)}, ' for k, s in structure.items())}}}"


def in_a_row(value: object) -> list[Any]:
    """The results that an assembled value holds, in order."""
    if isinstance(value, dict):
        value = list(cast("dict[str, object]", value).values())
    if isinstance(value, (tuple, list)):
        return [r for v in cast("Sequence[object]", value) for r in in_a_row(v)]
    return [value]


def of_json(data: Any) -> Structure:
    """The structure as JSON gives it back, with lists for tuples."""
    if isinstance(data, list):
        return tuple(of_json(d) for d in cast("list[Any]", data))
    return {k: of_json(d) for k, d in cast("dict[str, Any]", data).items()} if data is not None else None
