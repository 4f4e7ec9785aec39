"""Branches and loops that cannot be decided yet: on a size that is still a symbol, or on something unknown.

All paths are evaluated, so that mistakes in each are found and types flow on where the paths agree; the analysis then
has no IR, and says what must be known (`Evaluator.undecided`).
"""

from __future__ import annotations

import ast
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend import asserts, assignment, several
from tessera.compiler.frontend.frame import Flow
from tessera.compiler.frontend.inlining import stored_names
from tessera.compiler.frontend.snapshot import Snapshot
from tessera.compiler.frontend.values import (
    UNKNOWN,
    Counting,
    Number,
    Several,
    Unknown,
    is_dict,
    is_sequence,
    remade,
    type_name,
)
from tessera.compiler.ir.core import Block, Value
from tessera.compiler.ir.types import TensorType
from tessera.language import dims
from tessera.language.dims import Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator


def either(ev: Evaluator, node: ast.If, condition: Any) -> Flow:
    """`if` whose condition is open: both paths, each under what it says about sizes."""
    _because(ev, node.test, condition)
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
    _because(ev, node.test, condition)
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
    _because(ev, test, iterable)
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
    """One of the items of an iterable, nobody knows of how many. A counter is a size from 0 on, within its range."""
    if isinstance(iterable, Value) and isinstance(iterable.type, TensorType) and iterable.type.rank:
        assignment.assign(
            ev, target, ev.layer.placeholder(iterable.type.with_shape(iterable.type.shape[1:]), ev.span(target))
        )
        return
    if not isinstance(iterable, Counting) or not isinstance(target, ast.Name):
        assignment.assign(ev, target, several.step(target, iterable.item) if isinstance(iterable, Several) else UNKNOWN)
        return
    start, stop, step = iterable.start, iterable.stop, iterable.step
    if not all(isinstance(v, (int, Expr)) for v in (start, stop)) or not isinstance(step, int) or step < 1:
        assignment.assign(ev, target, Number(int, target.id))
        return
    counter = dims.symbol(f"?{target.id}")
    ev.facts.assume_at_most(start, counter)
    ev.facts.assume_at_most(counter + 1, stop)
    ev.frame.names[target.id] = counter


@contextmanager
def _perhaps(ev: Evaluator) -> Generator[None]:
    """A path that may not be taken: what it asserts, and checks at launch, concerns only who takes it."""
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
    """Evaluates what may not happen: ops go to a block that no IR holds, and a failing assert is no finding."""
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


def _because(ev: Evaluator, at: ast.AST, condition: Any) -> None:
    if isinstance(condition, Counting):
        ev.undecide("the length of this loop must be known when it is compiled; or loop with ts.range(...)", at)
    elif isinstance(condition, (Number, Expr)):
        ev.undecide(f"{type_name(condition)} must be known to decide this", at)
    elif not ev.undecided and not ev.findings.errors:  # else it is already said why it is not known
        ev.undecide("this must be known when the function is compiled", at)
