"""Names and state after branches and loops that are decided at run time.

Two paths become one by `Merger`. State is objects that effects change. An effect gives an object other members, which
go the way of names: what one path changes is chosen between, what a loop changes is carried. When the function ends,
what its states hold then are further results, which take the place of what they held before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Number,
    Record,
    Unknown,
    has_unknown,
    is_dict,
    is_list,
    is_sequence,
    is_static,
    is_tuple,
    remade,
    type_name,
)
from tessera.compiler.frontend.result import ExprInfo
from tessera.compiler.ir.core import Block, Value
from tessera.compiler.ir.types import TensorType, Type
from tessera.errors import Note, Span
from tessera.immutable import immutable, mutable
from tessera.language import dims
from tessera.language.dims import Expr

NUMBERS = (bool, int, float, complex, Expr, Number)


@immutable
class Slot:
    """Stands for result number `index` until the op exists."""

    index: int


@mutable
class Merger:
    """Collects what both regions yield. `merge` gives a template whose slots `fill` replaces by the op's results."""

    ev: Evaluator
    at: ast.AST
    paths: tuple[Block, Block]
    yields: tuple[list[Value], list[Value]] = field(default_factory=lambda: ([], []))

    def merge(self, a: Any, b: Any, what: str) -> Any:
        if a is b:
            return a
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            return UNKNOWN
        if is_sequence(a) and type(a) is type(b) and len(a) == len(b):
            return remade(a, (self.merge(x, y, f"{what}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))))
        if is_dict(a) and is_dict(b) and a.keys() == b.keys():
            return {k: self.merge(a[k], b[k], f"{what}[{k!r}]") for k in a}
        if isinstance(a, Record) and isinstance(b, Record) and a.cls is b.cls and a.members.keys() == b.members.keys():
            members = {k: self.merge(v, b.members[k], f"{what}.{k}") for k, v in a.members.items()}
            return Record(a.type_name, members, a.cls, a.outside)
        left, right = self.ev.whole(self.at, a), self.ev.whole(self.at, b)
        if left is not a or right is not b:
            return self.merge(left, right, what)
        owns = self.ev.layer.owns
        if (owns(a) or isinstance(a, NUMBERS)) and (owns(b) or isinstance(b, NUMBERS)):
            return a if type(a) is type(b) and a == b else self._values(a, b, what)
        if is_static(a) and is_static(b) and type(a) is type(b) and _equal(a, b):
            return a
        return self._differ(a, b, what)

    def _values(self, a: Any, b: Any, what: str) -> Any:
        like: Type | None = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else None
        if like is None and isinstance(a, float) is not isinstance(b, float):
            a, b = (float(v) if isinstance(v, (bool, int)) else v for v in (a, b))
        left, right = self._lift(a, like, 0), self._lift(b, like, 1)
        if left is None or right is None or left.type != right.type:
            return self._differ(left or a, right or b, what)
        self.yields[0].append(left)
        self.yields[1].append(right)
        return Slot(len(self.yields[0]) - 1)

    def _lift(self, value: Any, like: Type | None, path: int) -> Value | None:
        with self.ev.builder.inside(self.paths[path]):
            return self.ev.layer.lift(value, like, self.ev.span(self.at))

    def _differ(self, a: Any, b: Any, what: str) -> Unknown:
        """Neither the same nor of one type: nothing can stand for both."""
        notes = [
            Note(f"{what} is {type_name(v)} here", v.op.span if isinstance(v, Value) and v.op else None) for v in (a, b)
        ]
        shapes = isinstance(a, Value) and isinstance(b, Value)
        message = f"{what} is {_shown(a)} on one path and {_shown(b)} on the other"
        reason = "" if shapes else "; which path is taken is only known when the program runs"
        return self.ev.error("TS212", message + reason, self.at, notes=[n for n in notes if n.span])

    def fill(self, template: Any, results: list[Value]) -> Any:
        if isinstance(template, Slot):
            return results[template.index]
        if is_list(template):
            template[:] = [self.fill(v, results) for v in template]
            return template
        if is_tuple(template):
            return tuple(self.fill(v, results) for v in template)
        if is_dict(template):
            for k, v in template.items():
                template[k] = self.fill(v, results)
            return template
        if isinstance(template, Record):
            template.members = self.fill(template.members, results)
        return template


def _shown(value: Any) -> str:
    if isinstance(value, Value):
        return value.type.pretty()
    if is_dict(value):
        return f"a dict of {', '.join(map(str, value))}" if value else "an empty dict"
    return type_name(value) if not isinstance(value, (str, bool, int, float, type(None))) else repr(value)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except Exception:  # arrays and other objects without a plain truth
        return False


# State


@mutable(eq=False)
class State:
    """A stateful object of the caller. `place`: what it is called, "cache" or "model.caches[0]"."""

    record: Record
    place: str
    before: dict[str, Any]
    span: Span
    """of the parameter that it came by"""
    effects: dict[str, None] = field(default_factory=dict[str, None])
    """what the function does with it, in order: "reads", "appends" """

    @property
    def key(self) -> str:
        """Its name beside those of a frame."""
        return f"the state {self.place}"


@immutable
class StateUse:
    """What a function does with a state, for people."""

    done: tuple[str, ...]

    def pretty(self) -> str:
        return ", ".join(self.done)


_DOES = {"append": "appends", "prefetch": "prefetches", "update": "updates"}


def enter(ev: Evaluator, record: Record, place: str, span: Span) -> Record:
    """Notes an object that the function is given, if it is state."""
    if record.is_state:
        ev.states.append(State(record, place, record.members, span))
    return record


def read(ev: Evaluator, record: Record) -> None:
    """Notes that a state is read: not by the effect itself."""
    if record.is_state and not effect_of(ev):
        for s in ev.states:
            if s.record is record:
                s.effects["reads"] = None


def show(ev: Evaluator) -> None:
    """Keeps what the function does with each state, beside the parameter that it came by."""
    for span in dict.fromkeys(s.span for s in ev.states):
        done = dict.fromkeys(e for s in ev.states if s.span == span for e in s.effects)
        if done:
            ev.keep(ExprInfo(span, StateUse(tuple(done)), "", "state"))


def change(ev: Evaluator, target: ast.Attribute, owner: Record, value: Any) -> None:
    """Sets an attribute of the state of a method that is an effect. Other methods and functions are refused."""
    state = next((s for s in ev.states if s.record is owner), None)
    kind = effect_of(ev)
    if state is None:  # a copy of one
        why = "is changed by a function that a transform runs; return what it is to hold"
        ev.error("TS102", f"{owner.type_name} {why}", target)
        return
    if not kind:
        message = f"{owner.type_name} is state of the caller, which effects alone change: decorate the method that sets"
        ev.error("TS102", f'{message} {target.attr!r} with @ts.effect("update")', target)
        return
    if target.attr not in owner.members:
        known = ", ".join(owner.members)
        ev.error("TS381", f"{owner.type_name} holds {known}: an effect cannot add {target.attr!r}", target)
        return
    was = owner.members[target.attr]
    if (why := unlike(ev, was, value)) and not has_unknown(value):
        ev.error("TS381", f"{state.place}.{target.attr} is {why}: state keeps its shape and dtype", target)
        return
    state.effects[_DOES[kind]] = None
    if isinstance(was, Value) and not isinstance(value, (Value, Unknown)):
        value = ev.layer.lift(value, was.type, ev.span(target))
    owner.members = {**owner.members, target.attr: value}


def effect_of(ev: Evaluator) -> str:
    """The effect that runs: that of the innermost method that is one, "" where there is none."""
    frame = ev.frame
    while frame is not None:
        if frame.effect:
            return frame.effect
        frame = frame.caller
    return ""


def unlike(ev: Evaluator, was: Any, now: Any) -> str:
    """What is wrong with the value that takes the place of another one; "" where it fits."""
    if isinstance(was, Value) and isinstance(was.type, TensorType):
        given: Any = now if isinstance(now, Value) else ev.layer.lift(now, was.type, ev.builder.span)  # type: ignore[arg-type]
        if not isinstance(given, Value) or not isinstance(given.type, TensorType):
            return f"{type_name(was)}, and {type_name(now)} is given"
        same = given.type.dtype == was.type.dtype and given.type.rank == was.type.rank
        shapes = zip(given.type.shape, was.type.shape, strict=False)
        if not same or any(dims.compare(a, b, ev.facts) == "no" for a, b in shapes):
            return f"{type_name(was)}, and {type_name(now)} is given"
        return ""
    if isinstance(was, Record) or is_sequence(was) or is_dict(was):
        a, b = dict(_inner(was)), dict(_inner(now))
        classes: list[Any] = [v.cls if isinstance(v, Record) else type(v) for v in (was, now)]
        if classes[0] is not classes[1] or a.keys() != b.keys():
            return f"{type_name(was)}, and {type_name(now)} of another structure is given"
        return next((why for k, v in a.items() if (why := unlike(ev, v, b[k]))), "")
    if was is now or (type(was) is type(now) and was == now):
        return ""
    return f"{was!r}, known when the program is compiled; hold what changes in an array, such as ts.zeros((), ts.int64)"


def _inner(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, Record):
        yield from value.members.items()
    elif is_dict(value):
        yield from value.items()
    elif is_sequence(value):
        yield from enumerate(value)


# What paths and loops do with names, they do with what states hold, under a name of its own.


def into(ev: Evaluator, names: dict[str, Any]) -> dict[str, Any]:
    """What all states hold, beside the names."""
    names |= {s.key: s.record.members for s in ev.states}
    return names


def out_of(ev: Evaluator, names: dict[str, Any]) -> dict[str, Any]:
    """Gives the states what they hold by these names, and takes it out of them."""
    for s in ev.states:
        if s.key in names:
            s.record.members = names.pop(s.key)
    return names


def changed(ev: Evaluator, before: dict[str, Any]) -> list[str]:
    """The states that hold something else than they did, by their names."""
    return [s.key for s in ev.states if s.record.members is not before.get(s.key)]


def results(ev: Evaluator) -> Iterator[tuple[State, Value, Any]]:
    """(state, argument, its new value) for each tensor that has been replaced."""
    own = {id(s.record) for s in ev.states}

    def pairs(was: Any, now: Any) -> Iterator[tuple[Value, Any]]:
        if isinstance(was, Value):
            if now is not was:
                yield was, now
        elif not (isinstance(was, Record) and id(was) in own):
            inner = dict(_inner(now))
            for k, v in _inner(was):
                yield from pairs(v, inner[k])

    for s in ev.states:
        for name, was in s.before.items():
            for argument, now in pairs(was, s.record.members[name]):
                yield s, argument, now
