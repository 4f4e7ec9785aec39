"""Asserts and guards about sizes: checked now if possible; if not, facts from here on, checked at launch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.values import MISSING, Number, Unknown, is_collection, is_tuple
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Note
from tessera.language.dims import Dim, Expr, dim_max, dim_min, prod

ALL_CALLS = "it must hold for all calls, also for those that do not get here, since compiled code cannot raise"


def assertion(ev: Evaluator, node: ast.Assert) -> None:
    value = ev.eval(node.test)
    if ev.layer.owns(value):
        ev.layer.assertion(node, value)
        return
    truth = ev.decide(node.test, value)
    if truth is False and not ev.speculative:
        said = ev.eval(node.msg) if node.msg is not None else None
        detail = f": {said}" if said is not None and not isinstance(said, Unknown) else ""
        said = f"assert {ast.unparse(node.test)} is false{_sizes(ev, node.test)}{detail}"
        notes = [Note(ALL_CALLS)] if ev.builder.block is not ev.block else []
        ev.error("TS106", said, node.test, notes=notes)
    if truth is None and isinstance(value, (Number, Expr)):
        assert_sizes(ev, node)


def assert_sizes(ev: Evaluator, node: ast.Assert) -> None:
    """What an assert says of sizes that are not known yet: facts from here on, and checks at launch. What a launch
    cannot check, as it is no arithmetic of whole numbers, must be known when the program is compiled."""
    if _violation(ev, node.test, True) is None:
        ev.undecide(f"assert {ast.unparse(node.test)} can be checked where the sizes are known only", node.test)
    said = ev.eval(node.msg) if node.msg is not None else None
    why = said if isinstance(said, str) else f"assert {ast.unparse(node.test)}"
    assume(ev, node.test, True, why)


def guard(ev: Evaluator, node: ast.If, why: str) -> bool:
    """`if test: raise ...` about sizes that are not known yet is an assert of the opposite, with this message; False
    where a launch could not check it."""
    if _violation(ev, node.test, False) is None:
        return False
    assume(ev, node.test, False, why)
    return True


def compared(ev: Evaluator, test: ast.expr) -> list[Any] | None:
    """All that a test compares; None where it is anything but comparisons joined by `and` that a launch can check."""
    match test:
        case ast.BoolOp(op=ast.And(), values=values):
            parts = [compared(ev, v) for v in values]
            return None if None in parts else [v for part in parts if part is not None for v in part]
        case ast.Compare(left=left, ops=ops, comparators=rights):
            ordered = all(isinstance(op, (ast.Eq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in ops)
            return [ev.eval(t) for t in (left, *rights)] if ordered else None
        case _:
            return None


_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt}


def _orders(ev: Evaluator, test: ast.expr, truth: bool) -> Iterator[tuple[Dim, Dim]]:
    """(a, b) for each a <= b between sizes that holds when `test` is `truth`."""
    match test:
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is truth:
            for v in values:
                yield from _orders(ev, v, truth)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _orders(ev, inner, not truth)
        case ast.Compare(left=left, ops=ops, comparators=rights) if truth or len(ops) == 1:
            terms = [ev.eval(t) for t in (left, *rights)]
            for op, a, b in zip(ops, terms, terms[1:], strict=False):
                said = type(op) if truth else _OPPOSITE.get(type(op), type(op))
                if said in _OPPOSITE and _sized(a) and _sized(b):
                    a, b = (b, a) if said in (ast.Gt, ast.GtE) else (a, b)
                    yield (a + 1 if said in (ast.Lt, ast.Gt) else a), b
        case _:
            return


def _sized(v: Any) -> bool:
    return isinstance(v, (int, Expr)) and not isinstance(v, bool)


def assume(ev: Evaluator, test: ast.expr, truth: bool, why: str | None = None) -> None:
    """From here on `test` is `truth`. With `why` it is also checked at launch, since nothing else guarantees it."""
    for left, right in _equalities(ev, test, truth):
        if why is not None:
            ev.checks.append(LaunchCheck(left, right, why))
        ev.facts.learn(left, right)
    for least, most in _orders(ev, test, truth):
        if why is not None:
            ev.checks.append(LaunchCheck(dim_min(least, most), least, why))
        ev.facts.assume_at_most(least, most)
    if why is not None and (violated := _others(ev, test, truth)) is not None:
        ev.checks.append(LaunchCheck(violated, 0, why))


def _others(ev: Evaluator, test: ast.expr, truth: bool) -> Dim | None:
    """0 where those parts of a test hold that are neither equalities nor orders; None where there are none."""
    match test:
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is truth:
            found = [v for v in (_others(ev, part, truth) for part in values) if v is not None]
            return sum(found[1:], found[0]) if found else None
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _others(ev, inner, not truth)
        case ast.Compare(ops=ops) if truth and all(isinstance(op, (ast.Eq, *_OPPOSITE)) for op in ops):
            return None
        case ast.Compare(ops=[op]) if not truth and isinstance(op, (ast.NotEq, *_OPPOSITE)):
            return None
        case ast.BinOp(op=ast.Mod()) if not truth:
            return None
        case _:
            return _violation(ev, test, truth)


def _violation(ev: Evaluator, test: ast.expr, truth: bool) -> Dim | None:
    """A number that is 0 where a test of sizes is `truth`, and more where it is not; None where it tests others too."""
    match test:
        case ast.BoolOp(op=op, values=values):
            parts = [_violation(ev, v, truth) for v in values]
            known = [p for p in parts if p is not None]
            if len(known) < len(parts):
                return None
            return sum(known[1:], known[0]) if isinstance(op, ast.And) is truth else prod(known)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _violation(ev, inner, not truth)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            terms = [ev.eval(t) for t in (left, *rights)]
            pairs = [_pair(op, a, b) for op, a, b in zip(ops, terms, terms[1:], strict=False)]
            known = [p for p in pairs if p is not None]
            if len(known) < len(pairs):
                return None
            return sum(known[1:], known[0]) if truth else _zero_is_one(sum(known[1:], known[0]))
        case _:
            value = ev.eval(test)
            return None if not _sized(value) else _zero_is_one(value) if truth else dim_min(value, 1)


def _pair(op: ast.cmpop, a: Any, b: Any) -> Dim | None:
    """0 where `a op b` holds, else a positive number; None where these are no sizes, or shapes of as many."""
    if is_tuple(a) and is_tuple(b):
        return _shapes(op, a, b)
    return _numbers(op, a, b)


def _numbers(op: ast.cmpop, a: Any, b: Any) -> Dim | None:
    """The same of sizes, and of a size among several."""
    if isinstance(op, (ast.In, ast.NotIn)):
        if not is_collection(b) or not b or not all(map(_sized, (a, *b))):
            return None
        found = prod(_distance(a, item) for item in b)
        return found if isinstance(op, ast.In) else _zero_is_one(found)
    if not _sized(a) or not _sized(b):
        return None
    if isinstance(op, (ast.Eq, ast.NotEq)):
        return _distance(a, b) if isinstance(op, ast.Eq) else _zero_is_one(_distance(a, b))
    a, b = (b, a) if isinstance(op, (ast.Gt, ast.GtE)) else (a, b)
    if type(op) not in _OPPOSITE:
        return None
    return dim_max((a + 1 if isinstance(op, (ast.Lt, ast.Gt)) else a) - b, 0)


def _shapes(op: ast.cmpop, a: tuple[Any, ...], b: tuple[Any, ...]) -> Dim | None:
    """The same of shapes of as many axes."""
    axes = [_pair(ast.Eq(), x, y) for x, y in zip(a, b, strict=False)]
    known = [d for d in axes if d is not None]
    if len(a) != len(b) or len(known) < len(axes) or not isinstance(op, (ast.Eq, ast.NotEq)):
        return None
    apart: Dim = 0
    for d in known:
        apart = apart + d
    return apart if isinstance(op, ast.Eq) else _zero_is_one(apart)


def _distance(a: Dim, b: Dim) -> Dim:
    return dim_max(a - b, b - a)


def _zero_is_one(d: Dim) -> Dim:
    """1 for 0, and 0 for any positive number."""
    return 1 - dim_min(d, 1)


def _equalities(ev: Evaluator, test: ast.expr, truth: bool) -> Iterator[tuple[Dim, Dim]]:
    """The equations between sizes that hold when `test` is `truth`."""
    match test:
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) is truth:
            for v in values:
                yield from _equalities(ev, v, truth)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            yield from _equalities(ev, inner, not truth)
        case ast.Compare(left=left, ops=ops, comparators=rights):
            wanted = ast.Eq if truth else ast.NotEq
            if not truth and len(ops) > 1:
                return
            terms = [left, *rights]
            for i, op in enumerate(ops):
                if isinstance(op, wanted):
                    yield from _pairs(ev.eval(terms[i]), ev.eval(terms[i + 1]))
        case ast.BinOp(op=ast.Mod()) if not truth:  # `if D % H: raise ...`
            yield from _pairs(ev.eval(test), 0)
        case _:
            return


def _pairs(a: Any, b: Any) -> Iterator[tuple[Dim, Dim]]:
    if is_tuple(a) and is_tuple(b) and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            yield from _pairs(x, y)
    elif isinstance(a, (int, Expr)) and isinstance(b, (int, Expr)) and a != b:
        yield a, b


def _sizes(ev: Evaluator, test: ast.expr) -> str:
    """` (D = 10, H = 4)`: the values of the names in a failed test."""
    seen: dict[str, Any] = {}
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            value = ev.frame.lookup(node.id)
            value = ev.layer.settle(ev.frame.scope.lookup(node.id) if value is MISSING else value)
            if isinstance(value, (int, float, str, bool)) or (isinstance(value, Expr) and str(value) != node.id):
                seen[node.id] = value
    return f" ({', '.join(f'{n} = {v}' for n, v in sorted(seen.items()))})" if seen else ""
