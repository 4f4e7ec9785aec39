"""One function per kind of statement. Each takes the evaluator and the node; returns a Flow."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate import asserts, assignment, calls, spelling, undecided
from tessera.compiler.frontend.evaluate.expressions import iterate
from tessera.compiler.frontend.evaluate.returns import check_claim
from tessera.compiler.frontend.names.frame import Closure, Flow, Loop
from tessera.compiler.frontend.names.values import MISSING, UNKNOWN, Counting, Record, Unknown, type_name
from tessera.compiler.frontend.syntax.fragments import Broken
from tessera.compiler.frontend.syntax.parse import Sample
from tessera.errors import Diagnostics, Span

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluate.machine import Evaluator


def expression(ev: Evaluator, node: ast.Expr) -> Flow:
    if not isinstance(node.value, ast.Constant):  # docstrings and `...`
        ev.eval(node.value)
    return Flow.NEXT


def assign(ev: Evaluator, node: ast.Assign) -> Flow:
    value = ev.eval(node.value)
    for target in node.targets:
        assignment.assign(ev, target, value)
    return Flow.NEXT


def annotated(ev: Evaluator, node: ast.AnnAssign) -> Flow:
    """`y: Tensor["B", "D"] = ...` claims a type, which is checked."""
    if node.value is None:
        return Flow.NEXT
    value = ev.eval(node.value)
    check_claim(ev, node, value)
    assignment.assign(ev, node.target, value)
    return Flow.NEXT


def augmented(ev: Evaluator, node: ast.AugAssign) -> Flow:
    assignment.augment(ev, node)
    return Flow.NEXT


def if_(ev: Evaluator, node: ast.If) -> Flow:
    condition = ev.eval(node.test)
    if ev.layer.owns(condition):
        return ev.layer.branch(node, condition)
    truth = ev.decide(node.test, condition)
    if truth is None:
        return undecided.either(ev, node, condition)
    return ev.run(node.body if truth else node.orelse)


def while_(ev: Evaluator, node: ast.While) -> Flow:
    for _ in range(budget.ITERATIONS):
        condition = ev.eval(node.test)
        if ev.layer.owns(condition) or ev.layer.rolls(node):
            return ev.layer.repeat(node, condition)
        truth = ev.decide(node.test, condition)
        if truth is None:
            return undecided.loop(ev, node, condition)
        if not truth:
            return ev.run(node.orelse)
        flow = _iteration(ev, node)
        if flow is Flow.RETURN:
            return flow
        if flow is Flow.BREAK:
            return Flow.NEXT
    ev.error(
        "TS111",
        f"the loop runs more than {budget.ITERATIONS} times at compile time; make its condition depend on a tensor",
        ev.header(node),
    )
    return Flow.NEXT


def for_(ev: Evaluator, node: ast.For) -> Flow:
    iterable = ev.eval(node.iter)
    if isinstance(iterable, Counting):
        if iterable.path == "range":
            return undecided.loop(ev, node, iterable)
        return ev.layer.loop(node, iterable)
    if isinstance(iterable, range) and len(iterable) > budget.ITERATIONS:
        said = f"the loop runs {len(iterable)} times at compile time; use ts.range(...)"
        ev.error("TS111", said, node.iter, fixes=spelling.counted_by_tessera(ev, node.iter))
        return Flow.NEXT
    values = iterate(ev, node.iter, iterable)
    if values is None:
        return undecided.loop(ev, node, iterable)
    for value in values:
        assignment.assign(ev, node.target, value)
        flow = _iteration(ev, node)
        if flow is Flow.RETURN:
            return flow
        if flow is Flow.BREAK:
            return Flow.NEXT
    return ev.run(node.orelse)


def _iteration(ev: Evaluator, node: ast.For | ast.While) -> Flow:
    """One iteration at compile time. A return in it also skips the other iterations, which is marked for branches."""
    ev.frame.rests.append(Loop())
    try:
        return ev.run(node.body)
    finally:
        ev.frame.rests.pop()


def with_(ev: Evaluator, node: ast.With) -> Flow:
    """What a context means is its layer's business; one that is not known lets its body through."""
    for item in node.items:
        context = ev.eval(item.context_expr)
        if not isinstance(context, Unknown):
            ev.error(
                "TS102",
                f"{type_name(context)} is not a context that a {ev.definition.kind} can enter",
                item.context_expr,
            )
        if item.optional_vars is not None:
            assignment.assign(ev, item.optional_vars, UNKNOWN)
    return ev.run(node.body)


def assert_(ev: Evaluator, node: ast.Assert) -> Flow:
    asserts.assertion(ev, node)
    return Flow.NEXT


def return_(ev: Evaluator, node: ast.Return) -> Flow:
    value = ev.eval(node.value) if node.value is not None else None
    span = ev.span(node.value if node.value is not None else node)
    if ev.frame.depth == 0:
        ev.item_spans = _item_spans(ev, node.value)
        value = ev.layer.returned(value, span, ev.returns)
        ev.record(span, value, kind="return")
    ev.frame.returned, ev.frame.return_span = value, span
    return Flow.RETURN


def _item_spans(ev: Evaluator, value: ast.expr | None) -> list[Span]:
    """Where each item of a written tuple or dict stands."""
    if isinstance(value, ast.Dict) and None not in value.keys:
        return [ev.span(e) for e in value.values]
    return [ev.span(e) for e in value.elts] if isinstance(value, ast.Tuple) else []


def raise_(ev: Evaluator, node: ast.Raise) -> Flow:
    """A raise that is reached for certain is a mistake of the arguments, found now."""
    if ev.builder.block is not ev.block and not ev.speculative:
        ev.error(
            "TS102", "whether this is raised would depend on tensor elements; use ts.where or check it outside", node
        )
    elif not ev.speculative:
        ev.error("TS107", _raised(ev, node.exc), node)
    ev.frame.returned, ev.frame.return_span = UNKNOWN, ev.span(node)
    return Flow.RETURN


def _raised(ev: Evaluator, exception: ast.expr | None) -> str:
    if isinstance(exception, ast.Call):
        said = [ev.eval(a) for a in exception.args]
        text = ", ".join(str(s) for s in said if not isinstance(s, Unknown))
        return f"{ast.unparse(exception.func)}: {text}" if text else ast.unparse(exception.func)
    return ast.unparse(exception) if exception is not None else "raise"


def function(ev: Evaluator, node: ast.FunctionDef) -> Flow:
    closure = Closure(node, ev.definition, ev.frame, calls.defaults_of(ev, node))
    for decorator in node.decorator_list:
        ev.error("TS102", "a nested function cannot be decorated", decorator)
    ev.frame.names[node.name] = closure
    return Flow.NEXT


def try_(ev: Evaluator, node: ast.Try) -> Flow:
    message = "try/except has no meaning in compiled code: nothing raises when it runs; move it out of the function"
    ev.error("TS102", message, ev.header(node))
    return ev.run(node.body)


def delete(ev: Evaluator, node: ast.Delete) -> Flow:
    for target in node.targets:
        owner = ev.eval(target.value) if isinstance(target, (ast.Subscript, ast.Attribute)) else None
        if isinstance(target, ast.Name):
            ev.frame.names.pop(target.id, None)
        elif isinstance(target, ast.Attribute) and isinstance(owner, Record):
            owner.members.pop(target.attr, None)
        elif isinstance(target, ast.Subscript) and isinstance(owner, (dict, list)):
            try:
                del owner[ev.eval(target.slice)]
            except Exception as e:
                ev.error("TS107", f"{type(e).__name__}: {e}", target)
        else:
            ev.error("TS102", "this cannot be deleted", target)
    return Flow.NEXT


def sample(ev: Evaluator, node: Sample) -> Flow:
    ev.error("TS102", "`~` samples from a distribution, and this version of Tessera has no distributions", node)
    for target in node.targets:
        assignment.assign(ev, target, UNKNOWN)
    return Flow.NEXT


def broken(ev: Evaluator, node: Broken) -> Flow:
    ev.cannot_parse(node)
    if ev.definition.recalled and node.was:
        return _as_it_was(ev, node)
    names = ev.frame.names
    for name in node.mentions - {*ev.layer.known_names()}:
        changeable = isinstance(names.get(name), (list, dict, Record))
        unheard_of = ev.frame.lookup(name) is MISSING and ev.frame.scope.lookup(name) is MISSING
        if name in node.binds or changeable or unheard_of:
            names[name] = UNKNOWN
            ev.frame.maybe.discard(name)
    if not node.leaves or ev.definition.recalled:  # one that is being typed: what is below it stays known
        return Flow.NEXT
    ev.frame.returned, ev.frame.return_span = UNKNOWN, ev.span(node)
    return Flow.RETURN


def _as_it_was(ev: Evaluator, node: Broken) -> Flow:
    """Nothing is said about a statement that is no longer there, nor is anything shown at its places."""
    kept = ev.findings, ev.pending, ev.frame.records
    ev.findings, ev.pending, ev.frame.records = Diagnostics(ev.definition.name), [], False
    try:
        return ev.run(node.was)
    finally:
        ev.findings, ev.pending, ev.frame.records = kept


STATEMENTS: dict[type[ast.AST], Callable[[Any, Any], Flow]] = {
    ast.Expr: expression, ast.Assign: assign, ast.AnnAssign: annotated, ast.AugAssign: augmented, ast.If: if_,
    ast.While: while_, ast.For: for_, ast.With: with_, ast.Assert: assert_, ast.Return: return_, ast.Raise: raise_,
    ast.FunctionDef: function, ast.Try: try_, ast.TryStar: try_, ast.Delete: delete,
    Sample: sample, Broken: broken,
    ast.Pass: lambda ev, node: Flow.NEXT,
    ast.Break: lambda ev, node: Flow.BREAK,
    ast.Continue: lambda ev, node: Flow.CONTINUE,
}  # fmt: skip
