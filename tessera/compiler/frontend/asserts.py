"""What asserts and guards say about sizes: checked now where it can be, else a fact from here on, checked at launch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend.values import MISSING, Number, Unknown, is_tuple
from tessera.compiler.ir.checks import Check
from tessera.language.dims import Dim, Expr, Facts

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator


def assertion(ev: Evaluator, node: ast.Assert) -> None:
    value = ev.eval(node.test)
    if ev.layer.owns(value):
        ev.layer.assertion(node, value)
        return
    truth = ev.decide(node.test, value)
    if truth is False and not ev.speculative:
        said = ev.eval(node.msg) if node.msg is not None else None
        detail = f": {said}" if said is not None and not isinstance(said, Unknown) else ""
        sizes = _sizes(ev, node.test)
        ev.error("TS106", f"assert {ast.unparse(node.test)} is false{sizes}{detail}", node.test)
    if truth is None and isinstance(value, (Number, Expr)):
        said = ev.eval(node.msg) if node.msg is not None else None
        why = said if isinstance(said, str) else f"assert {ast.unparse(node.test)}"
        assume(ev, node.test, True, why)


def assume(ev: Evaluator, test: ast.expr, truth: bool, why: str | None = None) -> None:
    """From here on `test` is `truth`. With `why` it is also checked at launch, since nothing else guarantees it."""
    for left, right in _equalities(ev, test, truth):
        if why is not None:
            ev.checks.append(Check(left, right, why))
        learn(ev.facts, left, right)


def learn(facts: Facts, left: Dim, right: Dim) -> None:
    """`left == right` as a fact: a remainder that is 0 is a divisibility, a symbol is rewritten."""
    for a, b in ((left, right), (right, left)):
        if b == 0 and isinstance(a, Expr) and len(a.terms) == 1:
            (monomial, c), *_ = a.terms
            if c == 1 and len(monomial) == 1 and monomial[0].op == "%":
                x, y = monomial[0].args
                facts.assume_divisible(x, y)  # type: ignore[arg-type]
                return
    facts.assume_equal(left, right)


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
            value = ev.frame.scope.lookup(node.id) if value is MISSING else value
            if isinstance(value, (int, float, str, bool, Expr)):
                seen[node.id] = value
    return f" ({', '.join(f'{n} = {v}' for n, v in sorted(seen.items()))})" if seen else ""
