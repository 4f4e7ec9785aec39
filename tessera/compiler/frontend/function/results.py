"""Results of functions: tensors in tuples, lists, dicts and dataclasses, flattened and rebuilt."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import (
    ABSTRACT,
    Number,
    OperatorRef,
    Record,
    Unknown,
    as_items,
    is_dict,
    is_list,
    is_sequence,
    is_static,
    remade,
    type_name,
)
from tessera.compiler.ir.core import Value
from tessera.compiler.structure import Instance, Kept, Structure
from tessera.language.dims import Expr
from tessera.language.records import is_record, members


def as_results(value: Any) -> Any:
    """A returned value with its lists as tuples; those of a dataclass stay what they are."""
    value = as_items(value)
    if is_sequence(value):
        items = [as_results(v) for v in value]
        return remade(value, items) if hasattr(value, "_fields") else tuple(items)
    return {k: as_results(v) for k, v in value.items()} if is_dict(value) else value


def fault(value: Any, held: bool = False) -> str:
    """Why a function cannot return this; "" where it can. `held`: by a dataclass."""
    if held and _is_kept(value):
        return ""
    if is_dict(value):
        for k in value:
            if not isinstance(k, str):
                shown = type_name(k) if isinstance(k, (Value, Expr, Number)) else repr(k)
                return f"the results in a dict are named by strings that are written in the program, not by {shown}"
    if is_sequence(value) or is_dict(value):
        found = (fault(v, held) for v in (value.values() if is_dict(value) else value))
        return next((f for f in found if f != ""), "")
    if isinstance(value, Record):
        return fault(list(value.members.values()), held=True)
    if _is_live(value):
        return ""
    if value is None or isinstance(value, (Value, Unknown, bool, int, float, complex, Expr, Number)):
        return ""
    return f"a function returns tensors, or tuples, dicts and dataclasses of tensors, not {type_name(value)}"


def in_order(value: Any, held: bool = False) -> Iterator[Any]:
    """What is computed, in order. `held`: by a dataclass; what it merely keeps is no result."""
    if value is None or (held and _is_kept(value)):
        return
    if is_sequence(value):
        for v in value:
            yield from in_order(v, held)
    elif is_dict(value):
        for v in value.values():
            yield from in_order(v, held)
    elif isinstance(value, Record):
        for v in value.members.values():
            yield from in_order(v, held=True)
    elif not _is_live(value):
        yield value


def structure_of(value: Any) -> Structure:
    """How results are nested in a returned value. A None in it is given back as it is."""
    if is_sequence(value):
        return _in_a_tuple(value, map(_part, value))
    if is_dict(value):
        return {k: _part(v) for k, v in value.items()}
    return _held(value) if isinstance(value, Record) or _is_live(value) else None


def _part(value: Any) -> Structure:
    return Kept(None) if value is None else structure_of(value)


def _in_a_tuple(value: Any, items: Iterable[Structure]) -> Structure:
    """That of a tuple; a named tuple keeps its class."""
    names: tuple[str, ...] | None = getattr(value, "_fields", None)
    return tuple(items) if names is None else Instance(type(value), dict(zip(names, items, strict=True)))


def _held(value: Any) -> Structure:
    """Of what a dataclass holds."""
    if _is_live(value):
        return Instance(type(value), {n: _held(v) for n, v in members(value).items()})
    if _is_kept(value):
        return Kept(_live(value))
    if isinstance(value, Record):
        return Instance(value.cls, {n: _held(v) for n, v in value.members.items()})
    if is_list(value):
        return Instance(list, {str(i): _held(v) for i, v in enumerate(value)})
    if is_sequence(value):
        return _in_a_tuple(value, map(_held, value))
    return {k: _held(v) for k, v in value.items()} if is_dict(value) else None


def _is_live(value: Any) -> bool:
    """Whether it is an instance of a dataclass that was made without tensors."""
    return is_record(value) and not isinstance(value, ABSTRACT)


def _is_kept(value: Any) -> bool:
    """Whether what a dataclass holds is an ordinary value, which is given back as it is."""
    if is_sequence(value) or is_dict(value):
        return False
    return isinstance(value, (OperatorRef, Closure)) or is_static(value)


def _live(value: Any) -> Any:
    if isinstance(value, OperatorRef):
        return getattr(importlib.import_module("tessera"), value.name)
    return value.live if isinstance(value, Closure) else value
