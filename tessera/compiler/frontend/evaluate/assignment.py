"""Assignment to names, tuples, attributes and subscripts."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate.operators import SYMBOLS
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Record,
    Several,
    Unknown,
    has_unknown,
    is_collection,
    is_dict,
    is_list,
    is_sequence,
    is_static,
    type_name,
)

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluate.machine import Evaluator


def assign(ev: Evaluator, target: ast.expr, value: Any) -> None:
    match target:
        case ast.Name():
            ev.assign_name(target.id, value, target)
        case ast.Tuple() | ast.List():
            _unpack(ev, target, value)
        case ast.Subscript():
            _store_item(ev, target, value)
        case ast.Attribute():
            _store_attribute(ev, target, value)
        case ast.Starred():
            assign(ev, target.value, value)
        case _:
            ev.error("TS102", "this cannot be assigned to", target)


def _unpack(ev: Evaluator, target: ast.Tuple | ast.List, value: Any) -> None:
    from tessera.compiler.frontend.evaluate.expressions import iterate

    values = iterate(ev, target, value)
    targets = target.elts
    if values is None:
        for t in targets:
            starred = isinstance(t, ast.Starred)
            assign(ev, t, value.item if isinstance(value, Several) and not value.keyed and not starred else UNKNOWN)
        return
    star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    fits = len(values) == len(targets) if star is None else len(values) >= len(targets) - 1
    if not fits:
        expected = f"{len(targets)}" if star is None else f"at least {len(targets) - 1}"
        ev.error("TS105", f"{expected} values are expected here, {len(values)} are given", target)
        values = [UNKNOWN] * len(targets)
        star = None
    if star is not None:
        after = len(targets) - star - 1
        middle = values[star : len(values) - after]
        values = [*values[:star], middle, *values[len(values) - after :]]
    for t, v in zip(targets, values, strict=True):
        assign(ev, t, v)


def _store_item(ev: Evaluator, target: ast.Subscript, value: Any) -> None:
    from tessera.compiler.frontend.evaluate.expressions import index_of

    owner, index = ev.eval(target.value), index_of(ev, target.slice)
    if isinstance(owner, Unknown) or has_unknown(index):
        return
    if ev.layer.owns(owner):
        if not has_unknown(value):
            ev.layer.store(target, owner, index, value)
        return
    if not isinstance(owner, (list, dict)):
        ev.error("TS102", f"items of {type_name(owner)} cannot be assigned here", target)
        return
    if not is_static(index):
        what = "a list" if is_list(owner) else "a dict"
        said = f"{what} cannot be indexed by {type_name(index)}, known only when the program runs"
        ev.error("TS102", said, target)
        return
    try:
        owner[index] = value
    except Exception as e:
        ev.error("TS107", f"{type(e).__name__}: {e}", target)
        return
    if is_collection(value) or is_dict(value):
        ev.held(target, value)


def _store_attribute(ev: Evaluator, target: ast.Attribute, value: Any) -> None:
    owner = ev.eval(target.value)
    if isinstance(owner, Record):
        owner.members[target.attr] = value
    elif not isinstance(owner, Unknown):
        message = (
            "a function has no side effects: attributes of objects from outside cannot be set; return the new value"
        )
        ev.error("TS102", message, target)


def augment(ev: Evaluator, node: ast.AugAssign) -> None:
    symbol, target = SYMBOLS[type(node.op)], node.target
    if isinstance(target, ast.Subscript):
        from tessera.compiler.frontend.evaluate.expressions import index_of, subscript_value

        owner, index = ev.eval(target.value), index_of(ev, target.slice)
        item = ev.eval(node.value)
        if isinstance(owner, Unknown) or has_unknown(index) or has_unknown(item):
            return
        if ev.layer.owns(owner):
            ev.layer.augment(node, owner, index, symbol, item)
            return
        old = subscript_value(ev, target, owner, index)
        if not isinstance(old, Unknown):
            _store_item(ev, target, ev.operate(node, symbol, old, item))
        return
    load: Any = ast.copy_location(
        ast.Name(target.id, ast.Load())
        if isinstance(target, ast.Name)
        else ast.Attribute(target.value, target.attr, ast.Load()),
        target,
    )
    old, item = ev.eval(load), ev.eval(node.value)
    if is_list(old) and symbol == "+" and is_sequence(item):
        if len(old) + len(item) > budget.ITEMS:
            ev.too_large(node, "+=")
            raise budget.ExhaustedError
        old += list(item)  # Python's += changes the list itself
        ev.held(node, item)
        return
    assign(ev, target, ev.operate(node, symbol, old, item))
