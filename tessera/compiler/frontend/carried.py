"""The values a structured loop carries from one iteration to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.merging import NUMBERS
from tessera.compiler.frontend.values import UNKNOWN, Record, Unknown, is_dict, is_sequence, is_static, type_name
from tessera.compiler.ir.core import Block, Value
from tessera.compiler.ir.types import Type
from tessera.errors import Note

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator


class Carried:
    """Names that the body assigns and that were bound before: their leaves (tensors, numbers) become block arguments.

    A Python number has no dtype of its own. It starts with the one it would have alone, and where the body gives it
    another, `leave` answers False and the loop is evaluated again with that type.
    """

    def __init__(self, ev: Evaluator, node: ast.For | ast.While, assigned: Iterable[str]) -> None:
        self.ev, self.node = ev, node
        self.before = dict(ev.frame.names)
        self.maybe = set(ev.frame.maybe)
        targets = ast.walk(node.target) if isinstance(node, ast.For) else ()
        self.own = {*assigned, *(n.id for n in targets if isinstance(n, ast.Name))}
        """what the loop's statements assign; a call of a kernel changes other names"""
        self._start_with(assigned)

    def _start_with(self, assigned: Iterable[str]) -> None:
        # What may be unbound, such as a name of an earlier loop's body, has no value to start from.
        bound = [n for n in assigned if n in self.before and n not in self.maybe]
        self.names = sorted(n for n in bound if not isinstance(self.before[n], Unknown))
        self.initial: list[Value] = []
        self.number: list[bool] = []
        self.next: list[Value] = []
        self.unknown: set[str] = set()
        """names of which is not known what they are after an iteration"""
        for name in self.names:
            for leaf in _leaves(self.before[name]):
                if _carriable(self.ev, leaf):
                    self._start(leaf, None)

    def _start(self, leaf: Any, like: Type | None) -> None:
        value = self.ev.layer.lift(leaf, like, self.ev.span(self.node))
        assert value is not None
        self.initial.append(value)
        self.number.append(isinstance(leaf, NUMBERS))

    def enter(self, block: Block) -> None:
        """Binds the names to fresh block arguments."""
        args = iter([block.add_arg(v.type, v.hint) for v in self.initial])
        self.ev.frame.names = dict(self.before)
        self.ev.frame.maybe = set(self.maybe)
        for name in self.names:
            self.ev.frame.names[name] = self._rebuild(self.before[name], args)

    def leave(self, block: Block) -> bool:
        """Collects the values at the end of the body. False: a number's type changed, or a kernel has stored to a
        tensor that is carried on from here; evaluate again."""
        names = self.ev.frame.names
        others = self.before.keys() - self.own - set(self.names)
        stored = [n for n in sorted(others) if isinstance(self.before[n], Value)]
        if stored := [n for n in stored if isinstance(now := names.get(n), Value) and now is not self.before[n]]:
            self._start_with([*self.names, *stored])
            return False
        self.next, self.unknown, settled, i = [], set(), True, 0
        for name in self.names:
            old, new = self.before[name], self.ev.frame.names.get(name, UNKNOWN)
            for was, now in self._pairs(name, old, new):
                if not _carriable(self.ev, was):
                    self._unchanged(name, was, now)
                    continue
                with self.ev.builder.inside(block):
                    value = (
                        self.ev.layer.lift(now, self.initial[i].type, self.ev.span(self.node))
                        if not isinstance(now, Unknown)
                        else None
                    )
                if isinstance(now, Unknown):
                    self.unknown.add(name)
                if value is not None and value.type != self.initial[i].type and self.number[i]:
                    with self.ev.builder.at(self.ev.span(self.node)):
                        retyped = self.ev.layer.lift(was, value.type, self.ev.span(self.node))
                    if retyped is not None and retyped.type == value.type:
                        self.initial[i], settled = retyped, False
                if value is None or (value.type != self.initial[i].type and settled):
                    self._differs(name, now, value, i)
                    value = block.args[i - len(self.initial)]
                self.next.append(value)
                i += 1
        return settled

    def _pairs(self, name: str, old: Any, new: Any) -> list[tuple[Any, Any]]:
        a = _leaves(old)
        b = _leaves(new) if not isinstance(new, Unknown) else [UNKNOWN] * len(a)
        if len(a) != len(b) or (type(old) is not type(new) and isinstance(old, (list, tuple, dict, Record))):
            if not isinstance(new, Unknown):
                self.ev.error("TS212", f"{name!r} has another structure after an iteration", self.ev.header(self.node))
            b = [UNKNOWN] * len(a)
        return list(zip(a, b, strict=True))

    def _unchanged(self, name: str, was: Any, now: Any) -> None:
        same = was is now or (is_static(was) and is_static(now) and type(was) is type(now) and was == now)
        if not same and not isinstance(now, Unknown):
            message = f"{name!r} is {type_name(was)} before the loop and {type_name(now)} after an iteration"
            self.ev.error(
                "TS212",
                f"{message}; how often the loop runs is only known when the program runs",
                self.ev.header(self.node),
            )

    def _differs(self, name: str, now: Any, value: Value | None, i: int) -> None:
        if isinstance(now, Unknown):
            return
        first = self.initial[i]
        notes = [Note(f"{first.type.pretty()} here", first.op.span)] if first.op else []
        if value is not None and value.op:
            notes.append(Note(f"{value.type.pretty()} here", value.op.span))
        after = value.type.pretty() if value is not None else type_name(now)
        message = f"{name!r} is {first.type.pretty()} before the loop and {after} after an iteration"
        self.ev.error("TS212", message, self.ev.header(self.node), notes=notes)

    def _rebuild(self, old: Any, values: Any) -> Any:
        """`old` with its carried leaves replaced by the next of `values`."""
        if is_sequence(old):
            return type(old)(self._rebuild(v, values) for v in old)
        if is_dict(old):
            return {k: self._rebuild(v, values) for k, v in old.items()}
        if isinstance(old, Record):
            return Record(old.type_name, self._rebuild(old.members, values), old.cls)
        return next(values) if _carriable(self.ev, old) else old

    def after(self, results: list[Value], local: set[str]) -> None:
        """Names after the loop: carried ones hold the results; what only the body assigned may be unbound."""
        inside = self.ev.frame.names
        names = dict(self.before)
        values = iter(results)
        for name in self.names:
            names[name] = self._rebuild(self.before[name], values)
        for name in inside.keys() - names.keys():
            names[name] = inside[name]
            self.maybe.add(name)
        for name in local & self.before.keys():
            self.maybe.add(name)
        self.ev.frame.names, self.ev.frame.maybe = names, self.maybe

    def restore(self) -> None:
        self.ev.frame.names, self.ev.frame.maybe = dict(self.before), set(self.maybe)

    def discard(self, block: Block) -> None:
        """Lets go of an attempt's ops, so that they count as nobody's users."""
        for op in reversed([op for top in block.ops for op in top.walk()]):
            op.set_operands(())


def _leaves(value: Any) -> list[Any]:
    if is_sequence(value):
        return [leaf for v in value for leaf in _leaves(v)]
    if is_dict(value):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    return _leaves(value.members) if isinstance(value, Record) else [value]


def _carriable(ev: Evaluator, value: Any) -> bool:
    return ev.layer.owns(value) or isinstance(value, NUMBERS)
