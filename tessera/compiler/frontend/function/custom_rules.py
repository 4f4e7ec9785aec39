"""Calls of functions with custom derivative rules: `@f.vjp`, `@f.jvp`.

Under differentiation, such a call is one `graph.custom` op: one region for the function, one for each rule.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tessera.compiler.autodiff.rules import smooth
from tessera.compiler.frontend.evaluate.inlining import Unfit, scalar
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.function.emission import Emission
from tessera.compiler.frontend.function.gradient_arguments import SIZES, Opened, Refused, each, each_number, parts
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import represent
from tessera.compiler.frontend.names.signature import definition_signature, is_scalar
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Record,
    has_unknown,
    is_dict,
    is_sequence,
    is_static,
)
from tessera.compiler.ir.core import Block, Op, Region, Value
from tessera.language.transforms import RULES


def call(
    ev: Evaluator, emission: Emission, node: ast.AST, closure: Closure, args: list[Any], kwargs: dict[str, Any],
    run: Callable[[list[Any], dict[str, Any]], Any],
) -> Any:  # fmt: skip
    """`run(args, kwargs)` evaluates the function itself."""
    if has_unknown(args) or has_unknown(kwargs):
        return UNKNOWN
    for definition, given, result in emission.rules:
        if definition is closure.definition and _same(given, [args, kwargs]):
            return result  # in its own rule: JAX's habit, `def forward(x): return f(x), x`
    try:
        return RuledCall(ev, emission, node, closure, *_annotated(ev, node, closure, args, kwargs)).emit(run)
    except Refused:
        return UNKNOWN


def _same(given: Any, asked: Any) -> bool:
    """Whether they are the same values in the same structure."""
    if isinstance(given, Value) or isinstance(asked, Value):
        return given is asked
    if is_sequence(given) and is_sequence(asked):
        return len(given) == len(asked) and all(map(_same, given, asked))
    if is_dict(given) and is_dict(asked):
        return given.keys() == asked.keys() and all(_same(v, asked[k]) for k, v in given.items())
    if isinstance(given, Record) and isinstance(asked, Record):
        return given.type_name == asked.type_name and _same(given.members, asked.members)
    return given is asked or (is_static(given) and is_static(asked) and bool(given == asked))


def _annotated(
    ev: Evaluator, node: ast.AST, closure: Closure, args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with scalars of the annotated dtypes: a rule differentiates what the function is given, and it is
    given these. What does not fit stays, for the function to say so."""
    wanted = {p.name: p for p in definition_signature(closure.definition).parameters if is_scalar(p)}

    def of(name: str, value: Any) -> Any:
        p = wanted.get(name)
        if p is None or not isinstance(value, Value):
            return value
        with suppress(Unfit):
            return scalar(ev, value, p.annotation.dtype, node)  # type: ignore[union-attr]
        return value

    names = [a.arg for a in (*closure.node.args.posonlyargs, *closure.node.args.args)]
    placed = [of(n, a) for n, a in zip(names, args, strict=False)]
    return [*placed, *args[len(placed) :]], {k: of(k, v) for k, v in kwargs.items()}


class RuledCall:
    def __init__(
        self, ev: Evaluator, emission: Emission, node: ast.AST, closure: Closure, args: list[Any],
        kwargs: dict[str, Any],
    ) -> None:  # fmt: skip
        self.ev, self.emission, self.node, self.closure = ev, emission, node, closure
        self.args, self.kwargs = args, kwargs
        self.opened = Opened(ev, emission, node)
        self.operands = [v for v in parts([args, kwargs]) if isinstance(v, Value)]

    def emit(self, run: Callable[[list[Any], dict[str, Any]], Any]) -> Any:
        ev, span = self.ev, self.ev.span(self.node)
        block, args, kwargs = self.region()
        with ev.builder.inside(block):
            result, held = self.stored(run, args, kwargs)
            returned = self.returned
            if has_unknown(result):
                raise Refused
            result = each_number(result, lambda v: v if isinstance(v, SIZES) else ev.layer.lift(v, None, span))
            yields = [v for v in parts(result) if isinstance(v, Value)]
        _end(block, yields, span)
        rules = [name for name in RULES if name in self.closure.definition.options]
        made = [getattr(self, name)(represent(self.closure.definition.options[name]), result, yields) for name in rules]
        attrs: dict[str, Any] = {"rules": tuple(rules), "function": self.closure.name}
        attrs |= {name: tuple(numbers) for name, (_, numbers) in zip(rules, made, strict=True)}
        regions = [Region([b]) for b in (block, *(b for b, _ in made))]
        op = ev.builder.op("graph.custom", self.operands, [v.type for v in yields], attrs, regions, span)
        of = {id(v): r for v, r in zip(yields, op.results, strict=True)}
        for name, v in held.items():
            ev.frame.names[name] = of[id(v)]
        return each(result, lambda v: of.get(id(v), v)) if returned or not held else None

    def stored(self, run: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Value]]:
        """The result, and what a kernel has stored to variables of the caller: then that is the result."""
        names, node = self.ev.frame.names, self.node
        self.returned = True
        if self.closure.definition.kind != "kernel" or not isinstance(node, ast.Call):
            return run(args, kwargs), {}
        given = dict(zip(node.args, args, strict=False))
        given |= {k.value: kwargs[k.arg] for k in node.keywords if k.arg in kwargs}
        inside = {n.id: v for n, v in given.items() if isinstance(n, ast.Name) and isinstance(v, Value)}
        before = {name: names[name] for name in inside if name in names}
        names |= inside
        try:
            result = run(args, kwargs)
            held = {name: names[name] for name, v in inside.items() if names[name] is not v}
        finally:
            names |= before
        self.returned = result is not None
        if not held:
            return result, {}
        kept = {id(v) for v in held.values()}
        if result is not None and kept != {id(v) for v in parts(result)}:
            message = f"{self.closure.name} stores to a variable and returns something; a rule is for one of both"
            raise self.opened.refused("TS355", message)
        if result is not None:
            return result, held
        return tuple(held.values()) if len(held) > 1 else next(iter(held.values())), held

    def region(self, *further: Value) -> tuple[Block, Any, Any]:
        """A block that takes the operands and further values, and the arguments in it."""
        block = Block([v.type for v in self.operands], [v.hint for v in self.operands])
        mine = iter(block.args)
        args, kwargs = (each(a, lambda v: next(mine) if isinstance(v, Value) else v) for a in (self.args, self.kwargs))
        for v in further:
            block.add_arg(v.type, v.hint)
        return block, args, kwargs

    def vjp(self, rule: Any, result: Any, yields: list[Value]) -> tuple[Block, list[int]]:
        """rule(result, cotangent, *arguments) -> a cotangent for each argument, or None."""
        block, args, kwargs = self.region(*yields, *yields)
        count = len(self.operands)
        outs, cts = (_renamed(result, yields, block.args[i:]) for i in (count, count + len(yields)))
        with self.ev.builder.inside(block):
            found = self.called(rule, outs, cts, args, kwargs)
            given, found = self.for_arguments(found, list(args), kwargs)
            pairs = self.opened.fitting(given, found, f"the result of the rule of {self.closure.name}")
        _end(block, [c for _, c in pairs], self.ev.span(self.node))
        numbers = {v: i for i, v in enumerate(block.args)}
        return block, [numbers[v] for v, _ in pairs]

    def for_arguments(self, found: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], Any]:
        """The arguments and what a rule gives for them. A rule that gives something for each parameter may be asked by
        a call that names arguments, and leaves some out."""
        node = self.closure.node
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        if is_sequence(found) and len(found) == len(names) > len(args) and kwargs.keys() <= set(names):
            of = dict(zip(names, found, strict=True))
            return [*args, *kwargs.values()], (*found[: len(args)], *(of[n] for n in kwargs))
        if is_sequence(found) and len(found) == len(args):
            return args, found
        return args, (found,) if len(args) == 1 else found

    def jvp(self, rule: Any, result: Any, yields: list[Value]) -> tuple[Block, list[int]]:
        """rule(result, tangents of the arguments, *arguments) -> the tangent of the result."""
        block, args, kwargs = self.region(*yields, *self.operands)
        count = len(self.operands)
        outs = _renamed(result, yields, block.args[count:])
        moves = iter(block.args[count + len(yields) :])

        def tangent(v: Any) -> Any:
            move = next(moves) if isinstance(v, Value) else None
            return move if move is not None and smooth(move) else None

        tangents = tuple(each(a, tangent) for a in self.args)
        with self.ev.builder.inside(block):
            found = self.called(rule, outs, tangents, args, kwargs)
            pairs = self.opened.fitting(outs, found, f"the result of the rule of {self.closure.name}")
        _end(block, [t for _, t in pairs], self.ev.span(self.node))
        numbers = {v: i for i, v in enumerate(block.args[count:])}
        return block, [numbers[v] for v, _ in pairs]

    def called(self, rule: Any, result: Any, moved: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.emission.rules.append((self.closure.definition, [args, kwargs], result))
        try:
            found = self.ev.call(self.node, rule, [result, moved, *args], kwargs)
        finally:
            self.emission.rules.pop()
        if has_unknown(found):
            raise Refused
        return found


def _end(block: Block, values: list[Value], span: Any) -> None:
    block.append(Op("graph.yield", values, (), span))


def _renamed(value: Any, old: list[Value], new: list[Value]) -> Any:
    """The structure of `value` with the tensors `old` in it replaced, in order."""
    fresh = iter(new[: len(old)])
    return each(value, lambda v: next(fresh) if isinstance(v, Value) else v)
