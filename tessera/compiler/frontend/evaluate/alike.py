"""Calls with arguments that are alike: the first is evaluated, and for the others its operators are copied.

For functions of the library that ask for it (`f.options["alike"] = True`), such as what an optimizer does to a
parameter: there are hundreds of these calls, and few that differ. Such a function changes nothing that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.values import is_dict, is_sequence, remade
from tessera.compiler.ir.core import Op, Value, clone
from tessera.immutable import immutable, mutable

_PLAIN = (bool, int, float, str, type(None))


@immutable
class EvaluatedCall:
    """`values`: the tensors of its arguments; `ops`: what it has emitted; `kept`: the other arguments, which the key
    names by identity."""

    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    result: Any
    kept: tuple[Any, ...]


@mutable
class _Arguments:
    values: dict[Value, int] = field(default_factory=dict[Value, int])
    kept: list[Any] = field(default_factory=list[Any])

    def key(self, value: Any) -> Hashable:
        """Equal for arguments that are alike."""
        if isinstance(value, Value):
            constant = value.op if value.op is not None and value.op.name == "graph.constant" else None
            return self.values.setdefault(value, len(self.values)), value.type, bool(value.hint), constant
        if is_dict(value):
            return tuple((k, self.key(v)) for k, v in value.items())
        if is_sequence(value):
            return type(value), *map(self.key, value)
        if isinstance(value, _PLAIN):
            return type(value), repr(value)
        self.kept.append(value)
        return id(value)


def evaluated(ev: Evaluator, closure: Closure, bound: Mapping[str, Any], inline: Callable[[], Any]) -> Any:
    """What `inline` gives for these arguments."""
    block, found = ev.builder.block, _Arguments()
    if ev.builder.position is not None or ev.speculative or ev.differentiating:
        return inline()
    key = (closure.node, block, ev.builder.origin, found.key(dict(bound)))
    known = ev.alike.get(key)
    if known is None:
        first, said, hints = len(block.ops), len(ev.findings.items), [v.hint for v in found.values]
        result = inline()
        same = len(ev.findings.items) == said and [v.hint for v in found.values] == hints
        if same and _is_renewable(result):
            ev.alike[key] = EvaluatedCall((*found.values,), (*block.ops[first:],), result, (*found.kept,))
        return result
    mapping = dict(zip(known.values, found.values, strict=True))
    for op in known.ops:
        ev.builder.insert(clone(op, mapping))
    return _renewed(known.result, mapping)


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
