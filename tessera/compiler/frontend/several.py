"""Values of one kind whose number is not known: what loops, unpacking and Python's builtins make of them."""

from __future__ import annotations

import ast
from typing import Any

from tessera.compiler.frontend.values import UNKNOWN, Counting, Method, Several, is_sequence, is_tuple
from tessera.language import dims

COUNTER = dims.symbol("?i")
"""the number of an item: a size from 0 on"""
_OF_DICTS = ("values", "items", "keys", "get")


def attribute(value: Several, name: str) -> Any:
    return Method(value, name) if value.keyed and name in _OF_DICTS else UNKNOWN


def called(method: Method) -> Any:
    """`d.values()`, `d.items()`, `d.get(name)`."""
    item = method.owner.item
    return {"values": Several(item), "items": Several((UNKNOWN, item)), "get": item}.get(method.name, UNKNOWN)


def sequence(name: str, args: list[Any]) -> Any:
    """zip, enumerate, reversed, list or tuple of arguments of which one has nobody knows how many items."""
    items = [item_of(a) for a in args]
    match name:
        case "zip":
            return Several(tuple(items))
        case "enumerate":
            return Several((COUNTER, *items[:1]))
        case "reversed" | "list" | "tuple":
            return Several(items[0])
        case _:
            return UNKNOWN


def step(target: ast.expr, item: Any) -> Any:
    """One item, in which a counter has the name that the loop gives it."""
    if item is COUNTER and isinstance(target, ast.Name):
        return dims.symbol(f"?{target.id}")
    if is_tuple(item) and isinstance(target, ast.Tuple) and len(item) == len(target.elts):
        return tuple(step(t, i) for t, i in zip(target.elts, item, strict=True))
    return item


def item_of(value: Any) -> Any:
    """Any one of the items of an iterable."""
    if isinstance(value, Several):
        return UNKNOWN if value.keyed else value.item
    if isinstance(value, Counting):
        return COUNTER
    return value[0] if is_sequence(value) and value and all(v is value[0] for v in value) else UNKNOWN
