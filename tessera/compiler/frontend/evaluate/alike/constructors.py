"""Objects that texts make outside of programs: what a constructor made once, it makes of like arguments again.

A model of a file is made anew with each edit of a constructor, and most of its layers are as they were, or like each
other. What a constructor makes depends on its class and its arguments alone, so each class keeps it. The layers of
`ts.nn` are the same classes in every text; those of a file are new ones in the next. Each caller gets a copy of its
own: the objects may change, and the operators that make tensors stand among those of the evaluation.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeGuard

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate.alike.calls import done, standing
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import (
    Builtin,
    ClassRef,
    OperatorRef,
    Record,
    is_dict,
    is_sequence,
    is_tuple,
    remade,
)
from tessera.compiler.ir.core import Block, Op, Value, clone
from tessera.immutable import immutable, mutable
from tessera.language.dtypes import DType
from tessera.tracebacks import OWN

MOST = 64
"""objects of one class that are kept"""
_FIXED = (bool, int, float, str, type(None), DType, OperatorRef, Builtin)


class _AnyKey(int):
    """A key that a text does not give: it decides no size, so any will do."""


ANY_KEY: int = _AnyKey()


@immutable
class ConstructedObject:
    """An object, and what its constructor did besides: `ops` made its tensors, of the tensors `given`, in so many
    `steps`. `ran`: whether it called layers."""

    result: Any
    ops: tuple[Op, ...]
    given: tuple[Value, ...]
    steps: int
    ran: bool


class _Unlike(Exception):
    """An argument, or a part of the object, that may change or holds what may."""


@mutable
class _Arguments:
    """`library`: whether they are those of a class of the library, which outlives the functions of a file."""

    library: bool
    values: dict[Value, int] = field(default_factory=dict[Value, int])

    def key(self, value: Any) -> Hashable:
        """Equal for arguments of which equal objects are made. Raises _Unlike."""
        if isinstance(value, Value):
            if value.op is not None and value.op.name == "graph.constant":
                raise _Unlike
            return self.values.setdefault(value, len(self.values)), value.type, bool(value.hint)
        if is_tuple(value):
            return (*map(self.key, value),)
        if isinstance(value, _FIXED):
            return type(value), repr(value) if isinstance(value, float) else value
        if _is_plain(value) and (not self.library or value.definition.file.startswith(OWN)):
            return value
        raise _Unlike


def _is_plain(value: Any) -> TypeGuard[Closure]:
    return isinstance(value, Closure) and value.frame is None


def any_key(ev: Evaluator, node: ast.AST, args: list[Any], kwargs: dict[str, Any]) -> int:
    """`ts.random_key()` outside of programs."""
    return ANY_KEY


def split_of_any(closure: Closure, bound: Mapping[str, Any]) -> list[int] | None:
    """`ts.split_key(key, count)` of a key that the text does not give; None for other calls."""
    if bound.get("key") is not ANY_KEY or closure.name != "split_key" or not closure.definition.file.startswith(OWN):
        return None
    count = bound["count"]
    return [ANY_KEY] * count if isinstance(count, int) and count <= budget.ITEMS else None


def constructed(
    ev: Evaluator, cls: ClassRef, args: Sequence[Any], kwargs: Mapping[str, Any], make: Callable[[], Any]
) -> Any:
    """What `make` gives, the object of a class for these arguments."""
    inside = ev.builder.block is not ev.block or ev.builder.position is not None or ev.speculative or ev.paths
    if not ev.outside or inside or ev.differentiating:
        return make()
    given = _Arguments(library=getattr(cls.scope, "file", "").startswith(OWN))
    try:
        own = given.key(tuple(args)), tuple([(n, given.key(v)) for n, v in kwargs.items()])
    except _Unlike:
        return make()
    key = own, type(ev.layer), ev.as_python, standing(ev)
    known: ConstructedObject | None = cls.made.get(key)
    if known is not None and ev.steps + known.steps <= ev.most:
        ev.steps += known.steps
        ev.ran_layers |= known.ran
        return _copied(known, [*given.values], ev.builder.insert, {})[0]
    before, first, steps = done(ev), len(ev.block.ops), ev.steps
    ran, ev.ran_layers = ev.ran_layers, False
    result = make()
    mine, ev.ran_layers = ev.ran_layers, ran or ev.ran_layers
    if done(ev) == before and isinstance(result, Record):
        ops = ev.block.ops[first:]
        if _is_closed(ops, given.values):
            _keep(ev, cls, key, ConstructedObject(result, tuple(ops), (*given.values,), ev.steps - steps, mine))
    return result


def _is_closed(ops: Sequence[Op], given: Mapping[Value, int]) -> bool:
    """Whether the operators read nothing but what they make and the arguments."""
    known = {*given}
    for op in ops:
        if op.regions or not known.issuperset(op.operands):
            return False
        known.update(op.results)
    return True


def _keep(ev: Evaluator, cls: ClassRef, key: Hashable, made: ConstructedObject) -> None:
    """A copy of its own, without the evaluation that it comes from; none of what holds a container of the module."""
    given, seen = (*Block([v.type for v in made.given]).args,), dict[int, Any]()
    try:
        result, ops = _copied(made, given, lambda op: op, seen)
    except _Unlike:
        return
    if any(map(ev.is_foreign, seen)):
        return
    if len(cls.made) >= MOST:
        cls.made.clear()
    cls.made[key] = ConstructedObject(result, tuple(ops), given, made.steps, made.ran)


def _copied(
    made: ConstructedObject, given: Sequence[Value], insert: Callable[[Op], Op], seen: dict[int, Any]
) -> tuple[Any, list[Op]]:
    """The object and its operators, for these tensors. `seen` gets the copies of objects and containers by identity.
    Raises _Unlike."""
    mapping = dict(zip(made.given, given, strict=True))
    ops: list[Op] = []
    for op in made.ops:
        copy = insert(clone(op, mapping))
        for result, was in zip(copy.results, op.results, strict=True):
            result.hint = was.hint
        ops.append(copy)
    return _renewed(made.result, mapping, seen), ops


def _renewed(value: Any, mapping: Mapping[Value, Value], seen: dict[int, Any]) -> Any:
    """A value with other tensors. Objects may hold each other, and one may be held twice. Raises _Unlike."""
    if isinstance(value, Value):
        if value not in mapping:
            raise _Unlike
        return mapping[value]
    if isinstance(value, _FIXED) or _is_plain(value):
        return value
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, Record):
        made = seen[id(value)] = Record(value.type_name, {}, value.cls, value.outside)
        made.members |= {n: _renewed(v, mapping, seen) for n, v in value.members.items()}
        return made
    if is_dict(value):
        items = seen[id(value)] = dict[Any, Any]()
        items |= {k: _renewed(v, mapping, seen) for k, v in value.items()}
        return items
    if is_sequence(value):
        made = seen[id(value)] = remade(value, [_renewed(v, mapping, seen) for v in value])
        return made
    raise _Unlike
