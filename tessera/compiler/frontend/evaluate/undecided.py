"""Branches and loops that cannot be decided yet: their condition is a symbolic size or unknown.

All paths are evaluated, so that mistakes in each are found and types flow on where the paths agree; the analysis then
has no IR, and says what must be known (`Evaluator.undecided`).
"""

from __future__ import annotations

import ast
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tessera.compiler.frontend.evaluate import asserts
from tessera.compiler.frontend.evaluate.machine import Evaluator, method
from tessera.compiler.frontend.names.frame import Flow, Frame
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Counting,
    Method,
    Number,
    Record,
    Several,
    Unknown,
    is_dict,
    is_list,
    is_sequence,
    is_tuple,
    remade,
    type_name,
)
from tessera.compiler.frontend.syntax.assigned import stored_names
from tessera.compiler.ir.core import Block, Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Expr


def either(ev: Evaluator, node: ast.If, condition: Any) -> Flow:
    """`if` whose condition is open: both paths, each under what it says about sizes."""
    because(ev, node.test, condition)
    before = dict(ev.frame.names)
    paths: list[tuple[Flow, dict[str, Any], Any]] = []
    for truth, body in ((True, node.body), (False, node.orelse)):
        ev.frame.names = dict(before)
        with _perhaps(ev):
            if not isinstance(condition, Unknown):
                asserts.assume(ev, node.test, truth)
            flow = ev.run(body)
            learned = ev.facts
        paths.append((flow, ev.frame.names, learned))
        if flow is Flow.RETURN:
            ev.frame.possible.append(ev.frame.returned)
    going = [p for p in paths if p[0] is Flow.NEXT]
    if not going:
        flows = {p[0] for p in paths}
        ev.frame.names = paths[0][1]
        return flows.pop() if len(flows) == 1 else Flow.RETURN if Flow.RETURN in flows else Flow.BREAK
    if len(going) == 1:  # `if D % H != 0: raise ...` leaves D % H == 0 behind
        ev.frame.names, learned = going[0][1], going[0][2]
        if isinstance(condition, (Number, Expr)) and next(p for p in paths if p[0] is not Flow.NEXT)[0] is Flow.RETURN:
            ev.facts = learned
        return Flow.NEXT
    ev.frame.names = merge_names(ev, going[0][1], going[1][1], node)
    return Flow.NEXT


def either_value(ev: Evaluator, node: ast.IfExp, condition: Any) -> Any:
    because(ev, node.test, condition)
    values: list[Any] = []
    for truth, side in ((True, node.body), (False, node.orelse)):
        with _perhaps(ev):
            if not isinstance(condition, Unknown):
                asserts.assume(ev, node.test, truth)
            values.append(ev.eval(side))
    return merge(ev, values[0], values[1], node)


def loop(ev: Evaluator, node: ast.For | ast.While, iterable: Any) -> Flow:
    """A loop of unknown length: its body once, after which what it assigns is only known if it kept its type."""
    test = node.iter if isinstance(node, ast.For) else node.test
    because(ev, test, iterable)
    before = dict(ev.frame.names)
    for name in stored_names(node.body) & before.keys():
        if not isinstance(before[name], Value):  # a counter or list: some later iteration's value, which is not known
            ev.frame.names[name] = UNKNOWN
    with _perhaps(ev):
        if isinstance(node, ast.For):
            step(ev, node.target, iterable)
        ev.run(node.body)
    after = ev.frame.names
    ev.frame.names = merge_names(ev, before, after, node)
    for name in after.keys() - before.keys():
        ev.frame.names[name] = after[name]
    return Flow.NEXT


def step(ev: Evaluator, target: ast.expr, iterable: Any) -> None:
    """One of the items of an iterable of unknown length. A counter is a size from 0 on, within its range."""
    if isinstance(iterable, Value) and isinstance(iterable.type, TensorType) and iterable.type.rank:
        ev.assign(target, ev.layer.placeholder(iterable.type.with_shape(iterable.type.shape[1:]), ev.span(target)))
        return
    if not isinstance(iterable, Counting) or not isinstance(target, ast.Name):
        ev.assign(target, item_for(target, iterable.item) if isinstance(iterable, Several) else UNKNOWN)
        return
    start, stop, step = iterable.start, iterable.stop, iterable.step
    if not all(isinstance(v, (int, Expr)) for v in (start, stop)) or not isinstance(step, int) or step < 1:
        ev.assign(target, Number(int, target.id))
        return
    counter = dims.symbol(f"?{target.id}")
    ev.facts.assume_at_most(start, counter)
    ev.facts.assume_at_most(counter + 1, stop)
    ev.frame.names[target.id] = counter


@contextmanager
def _perhaps(ev: Evaluator) -> Generator[None]:
    """A path that may not be taken: its asserts and launch checks hold only if it is taken."""
    facts, ev.facts = ev.facts, ev.facts.copy()
    checks = len(ev.checks)
    try:
        with speculating(ev):
            yield
    finally:
        ev.facts = facts
        del ev.checks[checks:]


@contextmanager
def speculating(ev: Evaluator) -> Generator[None]:
    """Evaluates what may not happen: ops go to a block that no IR holds, and a failing assert is not a finding."""
    block = Block()
    ev.tried.append(block)
    ev.speculative += 1
    saved = Snapshot(ev.frame)
    try:
        with ev.builder.inside(block):
            yield
    finally:
        ev.speculative -= 1
        changed = {id(v) for v in saved.restore()}
        for name, value in ev.frame.names.items():
            if id(value) in changed:
                ev.frame.names[name] = UNKNOWN  # it has the old content or the new one


def merge_names(ev: Evaluator, a: dict[str, Any], b: dict[str, Any], at: ast.AST) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name in {**a, **b}:
        if name in a and name in b:
            out[name] = merge(ev, a[name], b[name], at)
        else:  # assigned on one path: when sizes are known it is there, or the name is unbound
            out[name] = a[name] if name in a else b[name]
    return out


@method
def merge(ev: Evaluator, a: Any, b: Any, at: ast.AST) -> Any:
    """The value that is either `a` or `b`: known as far as both agree."""
    if a is b:
        return a
    if isinstance(a, Value) and isinstance(b, Value):
        return ev.layer.placeholder(a.type, ev.span(at)) if a.type == b.type else UNKNOWN
    if is_sequence(a) and type(a) is type(b) and len(a) == len(b):
        return remade(a, (merge(ev, x, y, at) for x, y in zip(a, b, strict=True)))
    if is_dict(a) and is_dict(b) and a.keys() == b.keys():
        return {k: merge(ev, a[k], b[k], at) for k in a}
    if type(a) is type(b) and isinstance(a, (bool, int, float, str, Expr)):
        if a == b:
            return a
        return Number(type(a), "a value of either path") if isinstance(a, (bool, int, float)) else UNKNOWN
    return UNKNOWN


def because(ev: Evaluator, at: ast.AST, condition: Any) -> None:
    if isinstance(condition, Counting):
        other = "ts.tile.range_k" if ev.definition.kind == "kernel" else "ts.range"
        ev.undecide(f"the length of this loop must be known when it is compiled; or loop with {other}(...)", at)
    elif isinstance(condition, (Number, Expr)):
        ev.undecide(f"{type_name(condition)} must be known to decide this", at)
    elif not ev.undecided and not ev.findings.errors:  # else it is already said why it is not known
        ev.undecide("this must be known when the function is compiled", at)


def unknown_store(ev: Evaluator, at: ast.AST) -> None:
    """Something is stored that is not known, or to an unknown place. In an editor, the compiler may know it."""
    if ev.live:
        because(ev, at, UNKNOWN)


# Values of one kind whose number is not known: what loops, unpacking and Python's builtins make of them.

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
    """zip, enumerate, reversed, list or tuple of arguments, one of them with an unknown number of items."""
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


def item_for(target: ast.expr, item: Any) -> Any:
    """One item, in which a counter has the name that the loop gives it."""
    if item is COUNTER and isinstance(target, ast.Name):
        return dims.symbol(f"?{target.id}")
    if is_tuple(item) and isinstance(target, ast.Tuple) and len(item) == len(target.elts):
        return tuple(item_for(t, i) for t, i in zip(target.elts, item, strict=True))
    return item


def item_of(value: Any) -> Any:
    """Any one of the items of an iterable."""
    if isinstance(value, Several):
        return UNKNOWN if value.keyed else value.item
    if isinstance(value, Counting):
        return COUNTER
    return value[0] if is_sequence(value) and value and all(v is value[0] for v in value) else UNKNOWN


# Lists, dicts and records that a branch or loop may change, so that a path which is not taken leaves no trace.

_MUTABLE = (list, dict, set, Record)


class Snapshot:
    """Remembers the content of every mutable container that can be reached from a frame's names."""

    def __init__(self, frame: Frame) -> None:
        self._saved: dict[int, tuple[Any, Any]] = {}
        outer: Frame | None = frame
        while outer is not None:
            for value in outer.names.values():
                self._save(value)
            outer = outer.outer

    def _save(self, value: Any) -> None:
        if is_tuple(value):
            for v in value:
                self._save(v)
        if type(value) not in _MUTABLE or id(value) in self._saved:
            return
        if isinstance(value, Record) and value.is_state:  # its members are replaced, and not changed
            for v in value.members.values():
                self._save(v)
            return
        content: Any = value.members if isinstance(value, Record) else value
        self._saved[id(value)] = (value, content.copy())
        if not isinstance(value, set):
            for v in list(content.values() if is_dict(content) else content):
                self._save(v)

    def changed(self) -> bool:
        """Whether any container holds other objects now."""
        return any(not _same(value, content) for value, content in self._saved.values())

    def restore(self) -> list[Any]:
        """Puts the old content back; gives the containers that had changed."""
        found: list[Any] = []
        for value, content in self._saved.values():
            if _same(value, content):
                continue
            found.append(value)
            target = value.members if isinstance(value, Record) else value
            if is_list(target):
                target[:] = content
            else:
                target.clear()
                target.update(content)
        return found


def _same(value: Any, content: Any) -> bool:
    now = value.members if isinstance(value, Record) else value
    if isinstance(now, set):
        return now == content
    if len(now) != len(content):
        return False
    if is_dict(now):
        return all(k in content and now[k] is content[k] for k in now)
    return all(a is b for a, b in zip(now, content, strict=True))
