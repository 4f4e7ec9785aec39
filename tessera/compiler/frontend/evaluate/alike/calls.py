"""Calls with arguments that are alike: the first is evaluated, and for the others its operators are copied.

For functions of the library that ask for it (`f.options["alike"] = True`), such as what an optimizer does to a
parameter, and for calls of modules at one place of a text, such as the layers of a stack. What a call reads besides its
arguments is the same wherever its text, its depth and its facts are. A call is copied if it has emitted plain operators
and has done nothing else: no finding, no check, nothing undecided, no function of a user run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import (
    ABSTRACT,
    Builtin,
    OperatorRef,
    Record,
    is_dict,
    is_sequence,
    remade,
)
from tessera.compiler.ir.core import Op, Value, clone
from tessera.compiler.ir.spec import SPECS
from tessera.immutable import immutable, mutable
from tessera.language.records import is_record, members

_PLAIN = (bool, int, float, str, type(None))


@immutable
class EvaluatedCall:
    """`values`: the tensors of its arguments, with the names that they had at its end; `ops`: what it has emitted, with
    those of their results, and whether it may be shared; `steps`: those it took; `kept`: the other arguments, which the
    key names by identity."""

    values: tuple[tuple[Value, str], ...]
    ops: tuple[tuple[Op, tuple[str, ...], bool], ...]
    result: Any
    steps: int
    kept: tuple[Any, ...]


@mutable
class _Arguments:
    settled: dict[int, tuple[Any, Hashable, tuple[Any, ...]]]
    """frozen objects without tensors by identity: the object, its key, and what it keeps"""
    values: dict[Value, int] = field(default_factory=dict[Value, int])
    kept: list[Any] = field(default_factory=list[Any])
    named: dict[Value, bool] = field(default_factory=dict[Value, bool])
    """whether a tensor had a name before the call"""
    inside: set[int] = field(default_factory=set[int])
    """live objects that are open, by identity"""
    changing: bool = False
    """whether an object that effects change is among them"""
    open: int = 0
    """tensors so far, and containers and objects that something may change"""

    def key(self, value: Any) -> Hashable:
        """Equal for arguments that are alike."""
        if isinstance(value, Value):
            self.open += 1
            constant = value.op if value.op is not None and value.op.name == "graph.constant" else None
            named = self.named.setdefault(value, bool(value.hint))
            return self.values.setdefault(value, len(self.values)), value.type, named, constant
        if is_dict(value):
            self.open += 1
            return self._items(value)
        if is_sequence(value):
            self.open += isinstance(value, list)
            return type(value), *map(self.key, value)
        if isinstance(value, _PLAIN):
            return type(value), repr(value)
        if isinstance(value, (OperatorRef, Builtin)):
            return value
        if not isinstance(value, Record) and (isinstance(value, ABSTRACT) or not is_record(value)):
            self.kept.append(value)
            return id(value)
        known = self.settled.get(id(value))
        if known is not None:
            self.kept += known[2]
            return known[1]
        before, first = self.open, len(self.kept)
        found = self._object(value)
        if self.open == before:
            self.settled[id(value)] = value, found, tuple(self.kept[first:])
        return found

    def _items(self, held: Mapping[Any, Any]) -> Hashable:
        return tuple([(k, self.key(v)) for k, v in held.items()])

    def _object(self, value: Any) -> Hashable:
        cls = value.cls if isinstance(value, Record) else value.__class__
        frozen = getattr(cls, "__dataclass_params__", None)
        self.open += frozen is None or not frozen.frozen
        if isinstance(value, Record):
            self.open += value.is_state
            self.changing |= value.is_state
            self.kept.append(value.cls)
            return id(value.cls), value.outside, self._items(value.members)
        self.kept.append(value)
        if id(value) in self.inside:
            self.open += 1
            return id(value)
        self.inside.add(id(value))  # objects may hold each other
        held = self._items(members(value))
        self.inside.discard(id(value))
        return id(value.__class__), held


def is_module_call(ev: Evaluator, closure: Closure, bound: Mapping[str, Any]) -> bool:
    """Whether a function is called that may be a layer: `__call__` of an object, in a function."""
    return closure.name == "__call__" and ev.definition.kind == "function" and isinstance(bound.get("self"), Record)


def evaluated(
    ev: Evaluator, node: ast.AST, closure: Closure, bound: Mapping[str, Any], inline: Callable[[], Any]
) -> Any:
    """What `inline` gives for these arguments, in a call at this node."""
    asked, found = bool(closure.definition.options.get("alike")), _Arguments(ev.settled)
    if ev.builder.position is not None or ev.speculative or (asked and ev.differentiating):
        return inline()
    own = found.key(dict(bound))
    if found.changing:
        return inline()
    key = (closure.node, None if asked else node, ev.builder.block, ev.builder.origin, *standing(ev), own)
    known = ev.alike.get(key)
    if known is not None:
        return _copied(ev, known, found)
    before, first, steps = done(ev), len(ev.builder.block.ops), ev.steps
    result = inline()
    same = done(ev) == before and _is_renewable(result)
    ops = ev.builder.block.ops[first:]
    if same and (asked or (_are_plain(ev, ops) and _is_unchanged(found, bound, own))):
        named = tuple([(op, tuple([r.hint for r in op.results]), asked and _is_shared(op)) for op in ops])
        given = tuple([(v, v.hint) for v in found.values])
        ev.alike[key] = EvaluatedCall(given, named, result, ev.steps - steps, (*found.kept,))
    return result


def standing(ev: Evaluator) -> tuple[Hashable, ...]:
    """What a call depends on besides its text and its arguments."""
    facts = ev.facts
    known = (*facts.divisible,), (*facts.equal.items(),), (*facts.zero,), (*facts.at_most,)
    return ev.frame.depth, ev.differentiating, known


def done(ev: Evaluator) -> tuple[Any, ...]:
    """What a call may do besides emitting operators."""
    lists = ev.findings.items, ev.undecided, ev.pending, ev.checks, ev.launches, ev.states, ev.layer.captures
    tried = () if ev.outside else ev.tried  # nobody looks at what is computed outside of programs
    counts = ev.harmless, ev.guesses, ev.incomplete, ev.invoked, ev.drawn, ev.moved, ev.paths
    return *map(len, (*lists, tried)), *counts, standing(ev)


def _are_plain(ev: Evaluator, ops: list[Op]) -> bool:
    return all(not op.regions and op.origin == ev.builder.origin for op in ops)


def _is_unchanged(found: _Arguments, bound: Mapping[str, Any], own: Hashable) -> bool:
    """Whether a call has left its arguments as they were."""
    now = _Arguments({}, named=found.named)
    return now.key(dict(bound)) == own and [*now.values] == [*found.values]


def _copied(ev: Evaluator, known: EvaluatedCall, found: _Arguments) -> Any:
    """The result of a call like a known one, whose operators are copied. What may be shared and does not depend on what
    differs between the calls is not computed again."""
    mapping: dict[Value, Value] = {}
    for (value, hint), other in zip(known.values, found.values, strict=True):
        other.hint = other.hint or hint
        if other is not value:
            mapping[value] = other
    insert = ev.builder.insert
    for op, hints, shared in known.ops:
        if shared and mapping.keys().isdisjoint(op.operands):
            continue
        copy = insert(clone(op, mapping))
        for result, hint in zip(copy.results, hints, strict=True):
            result.hint = hint
    ev.steps += known.steps
    return _renewed(known.result, mapping)


def _is_shared(op: Op) -> bool:
    """Whether a copy with the same operands would compute what the operator itself does."""
    return not op.regions and not SPECS[op.name].effects


def _is_renewable(result: Any) -> bool:
    if is_dict(result):
        return all(map(_is_renewable, result.values()))
    return all(map(_is_renewable, result)) if is_sequence(result) else isinstance(result, (Value, *_PLAIN))


def _renewed(result: Any, mapping: Mapping[Value, Value]) -> Any:
    if isinstance(result, Value):
        return mapping.get(result, result)
    if is_dict(result):
        return {k: _renewed(v, mapping) for k, v in result.items()}
    return remade(result, [_renewed(v, mapping) for v in result]) if is_sequence(result) else result
