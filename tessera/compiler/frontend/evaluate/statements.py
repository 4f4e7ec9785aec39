"""One function per kind of statement. Each takes the evaluator and the node; returns a Flow."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate import asserts, calls, states, suggested_fixes, undecided
from tessera.compiler.frontend.evaluate.expressions import index_of, subscript_value
from tessera.compiler.frontend.evaluate.machine import Evaluator, evaluates, method
from tessera.compiler.frontend.evaluate.operators import SYMBOLS
from tessera.compiler.frontend.evaluate.returns import check_claim
from tessera.compiler.frontend.names.frame import Closure, Flow, LoopMark
from tessera.compiler.frontend.names.values import (
    MISSING,
    NO_GRAD,
    UNKNOWN,
    Counting,
    Record,
    Several,
    Unknown,
    has_unknown,
    is_collection,
    is_dict,
    is_list,
    is_sequence,
    is_static,
    type_name,
)
from tessera.compiler.frontend.syntax.parse import Sample
from tessera.compiler.frontend.syntax.trees import Broken
from tessera.compiler.ir.core import Value
from tessera.errors import Diagnostic, Diagnostics, Span
from tessera.language.absent import rows_given, rows_named


@evaluates(ast.Expr)
def expression(ev: Evaluator, node: ast.Expr) -> Flow:
    if not isinstance(node.value, ast.Constant):  # docstrings and `...`
        ev.eval(node.value)
    return Flow.NEXT


@evaluates(ast.Assign)
def assignment(ev: Evaluator, node: ast.Assign) -> Flow:
    value = ev.eval(node.value)
    for target in node.targets:
        ev.assign(target, value)
        if isinstance(target, (ast.Tuple, ast.List)) and len(target.elts) == 2 and isinstance(value, Value):
            _note_rows(ev, node, target, value)
    return Flow.NEXT


def _note_rows(ev: Evaluator, node: ast.Assign, target: ast.expr, value: Value) -> None:
    """Warns of `out, h = gru(x)` where the batch has two rows."""
    shape: Sequence[Any] = getattr(value.type, "shape", ())
    if not isinstance(node.value, ast.Call) or len(shape) < 3 or shape[0] != 2:
        return
    layer = ev.eval(node.value.func)
    if said := rows_named(layer.cls) if isinstance(layer, Record) else "":
        ev.error("TS102", said, target, severity="warning")


@evaluates(ast.AnnAssign)
def annotated(ev: Evaluator, node: ast.AnnAssign) -> Flow:
    """`y: Tensor["B", "D"] = ...` claims a type, which is checked. Without a value a layer may declare something."""
    if node.value is None:
        ev.layer.declared(node)
        return Flow.NEXT
    value = ev.eval(node.value)
    check_claim(ev, node, value)
    ev.assign(node.target, value)
    return Flow.NEXT


@evaluates(ast.AugAssign)
def augmented(ev: Evaluator, node: ast.AugAssign) -> Flow:
    symbol, target = SYMBOLS[type(node.op)], node.target
    if isinstance(target, ast.Subscript):
        owner, index = ev.eval(target.value), index_of(ev, target.slice)
        item = ev.eval(node.value)
        if isinstance(owner, Unknown) or has_unknown(index) or has_unknown(item):
            undecided.unknown_store(ev, node)
            return Flow.NEXT
        if ev.layer.owns(owner):
            ev.layer.augment(node, owner, index, symbol, item)
            return Flow.NEXT
        old = subscript_value(ev, target, owner, index)
        if not isinstance(old, Unknown):
            _store_item(ev, target, ev.operate(node, symbol, old, item))
        return Flow.NEXT
    load: Any = ast.copy_location(
        ast.Name(target.id, ast.Load())
        if isinstance(target, ast.Name)
        else ast.Attribute(target.value, target.attr, ast.Load()),
        target,
    )
    old, item = ev.eval(load), ev.eval(node.value)
    if is_list(old) and symbol == "+" and is_sequence(item):
        if not ev.may_change(old, node):
            return Flow.NEXT
        if len(old) + len(item) > budget.ITEMS:
            ev.too_large(node, "+=")
            raise budget.ExhaustedError
        old += list(item)  # Python's += changes the list itself
        ev.held(node, item)
        return Flow.NEXT
    assign(ev, target, ev.operate(node, symbol, old, item))
    return Flow.NEXT


@evaluates(ast.If)
def if_(ev: Evaluator, node: ast.If) -> Flow:
    condition = ev.eval(node.test)
    if ev.layer.owns(condition):
        return ev.layer.branch(node, condition)
    truth = ev.decide(node.test, condition)
    if truth is None and _is_guard(ev, node, condition):
        return ev.run(node.orelse)
    if truth is None:
        return undecided.either(ev, node, condition)
    return ev.run(node.body if truth else node.orelse)


def _is_guard(ev: Evaluator, node: ast.If, condition: Any) -> bool:
    """Whether a branch on sizes that are not known yet does nothing but raise; it is checked at launch from here on."""
    body = node.body[0]
    if not isinstance(body, ast.Raise) or ev.paths or isinstance(condition, Unknown):
        return False
    said = [calls.said_by(ev, a) for a in body.exc.args] if isinstance(body.exc, ast.Call) else []
    why = next((s.message if isinstance(s, Diagnostic) else s for s in said if isinstance(s, (Diagnostic, str))), None)
    return asserts.guard(ev, node, why or f"if {ast.unparse(node.test)}: raise")


@evaluates(ast.While)
def while_(ev: Evaluator, node: ast.While) -> Flow:
    done, before = 0, len(ev.block.ops)
    while done < budget.ITERATIONS and len(ev.block.ops) - before < budget.LOOP_OPS:
        done += 1
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
        f"the loop runs more than {done} times at compile time; make its condition depend on a tensor",
        ev.header(node),
    )
    return Flow.NEXT


@evaluates(ast.For)
def for_(ev: Evaluator, node: ast.For) -> Flow:
    iterable = ev.eval(node.iter)
    if isinstance(iterable, Counting):
        if iterable.path == "range":
            return undecided.loop(ev, node, iterable)
        return ev.layer.loop(node, iterable)
    if isinstance(iterable, range) and len(iterable) > budget.ITERATIONS:
        message = f"the loop runs {len(iterable)} times at compile time; use ts.range(...)"
        ev.error("TS111", message, node.iter, fixes=suggested_fixes.counted_by_tessera(ev, node.iter))
        return Flow.NEXT
    values = ev.iterate(node.iter, iterable)
    if values is None:
        return undecided.loop(ev, node, iterable)
    done, before = 0, len(ev.block.ops)
    flow = Flow.NEXT
    for value in values:
        ev.assign(node.target, value)
        done, flow = done + 1, _iteration(ev, node)
        if flow in (Flow.RETURN, Flow.BREAK):
            break
    if isinstance(iterable, range):
        _warn_of_copies(ev, node, done, len(ev.block.ops) - before)
    if flow in (Flow.RETURN, Flow.BREAK):
        return flow if flow is Flow.RETURN else Flow.NEXT
    return ev.run(node.orelse)


def _warn_of_copies(ev: Evaluator, node: ast.For, copies: int, made: int) -> None:
    """Compiling takes time for each copy, and the line that asks for them looks like any other."""
    span = ev.span(node)
    inside = any(d.code == "TS112" and span.contains(d.span.line, d.span.col) for d in ev.findings.items)
    if made < budget.COPIED_OPS or copies < budget.COPIES or inside or ev.speculative:
        return
    loop = "ts.tile.range" if ev.definition.kind == "kernel" else "ts.range"
    message = f"the loop becomes {copies} copies of its body, {made:,} operators in all, which takes long to compile;"
    ev.error("TS112", f"{message} {loop} loops when the {ev.definition.kind} runs", node.iter, severity="warning")


def _iteration(ev: Evaluator, node: ast.For | ast.While) -> Flow:
    """One iteration at compile time. A return in it also skips the other iterations, which is marked for branches."""
    ev.frame.rests.append(LoopMark())
    try:
        return ev.run(node.body)
    finally:
        ev.frame.rests.pop()


@evaluates(ast.With)
def with_(ev: Evaluator, node: ast.With) -> Flow:
    """What is computed under `ts.no_grad()` is constant for derivatives of what follows. A context that is not known
    lets its body through."""
    constant = False
    for item in node.items:
        context = ev.eval(item.context_expr)
        if context == NO_GRAD:
            constant = True
        elif not isinstance(context, Unknown):
            ev.error(
                "TS102",
                f"{type_name(context)} is not a context that a {ev.definition.kind} can enter",
                item.context_expr,
            )
        if item.optional_vars is not None:
            ev.assign(item.optional_vars, None if context == NO_GRAD else UNKNOWN)
    block, start = ev.block, len(ev.block.ops)
    flow = ev.run(node.body)
    if constant:  # at the end, as gradients that the body itself takes are derivatives of what is in it
        for op in block.ops[start:]:
            op.origin = replace(op.origin, constant=True)
    return flow


@evaluates(ast.Assert)
def assert_(ev: Evaluator, node: ast.Assert) -> Flow:
    asserts.assertion(ev, node)
    return Flow.NEXT


@evaluates(ast.Return)
def return_(ev: Evaluator, node: ast.Return) -> Flow:
    value = ev.eval(node.value) if node.value is not None else None
    span = ev.span(node.value if node.value is not None else node)
    if ev.frame.depth == 0:
        ev.item_spans = _item_spans(ev, node.value)
        value = ev.layer.returned(value, span, ev.returns)
        ev.record(span, value, kind="return")
    elif ev.frame.outer is None:
        ev.record(span, value, kind="return")
    ev.frame.returned, ev.frame.return_span = value, span
    return Flow.RETURN


def _item_spans(ev: Evaluator, value: ast.expr | None) -> list[Span]:
    """Where each item of a written tuple or dict stands."""
    if isinstance(value, ast.Dict) and None not in value.keys:
        return [ev.span(e) for e in value.values]
    return [ev.span(e) for e in value.elts] if isinstance(value, ast.Tuple) else []


@evaluates(ast.Raise)
def raise_(ev: Evaluator, node: ast.Raise) -> Flow:
    """A raise that is reached for certain is a mistake of the arguments, found now."""
    if ev.paths and not ev.speculative:
        ev.error(
            "TS102", "whether this is raised would depend on tensor elements; use ts.where or check it outside", node
        )
    elif not ev.speculative:
        _refuse(ev, node)
    ev.frame.returned, ev.frame.return_span = UNKNOWN, ev.span(node)
    return Flow.RETURN


def _refuse(ev: Evaluator, node: ast.Raise) -> None:
    """Reports what is raised. What Tessera's own functions raise is said at the line that called the first of them,
    with the code of the diagnostic that it contains."""
    said = [calls.said_by(ev, a) for a in node.exc.args] if isinstance(node.exc, ast.Call) else []
    found = next((s for s in said if isinstance(s, Diagnostic)), None)
    code, message = ("TS107", _raised(node.exc, said)) if found is None else (found.code, found.message)
    if found is None and (name := calls.own_function(ev)):
        code, message = "TS105", message.partition(": ")[2] or message
        message = message if message.startswith(name) else f"{name}: {message}"
    calls.say_outside(ev, code, message, ev.span(node), otherwise=None if found is None else found.span)


def _raised(exception: ast.expr | None, said: list[Any]) -> str:
    if isinstance(exception, ast.Call):
        text = ", ".join(str(s) for s in said if not isinstance(s, Unknown))
        return f"{ast.unparse(exception.func)}: {text}" if text else ast.unparse(exception.func)
    return ast.unparse(exception) if exception is not None else "raise"


@evaluates(ast.FunctionDef)
def function(ev: Evaluator, node: ast.FunctionDef) -> Flow:
    closure = Closure(node, ev.frame.definition, ev.frame, calls.defaults_of(ev, node))
    for decorator in node.decorator_list:
        ev.error("TS102", "a nested function cannot be decorated", decorator)
    ev.frame.names[node.name] = closure
    return Flow.NEXT


@evaluates(ast.Try, ast.TryStar)
def try_(ev: Evaluator, node: ast.Try) -> Flow:
    message = "try/except has no meaning in compiled code: nothing raises when it runs; move it out of the function"
    ev.error("TS102", message, ev.header(node))
    return ev.run(node.body)


@evaluates(ast.Delete)
def delete(ev: Evaluator, node: ast.Delete) -> Flow:
    for target in node.targets:
        owner = ev.eval(target.value) if isinstance(target, (ast.Subscript, ast.Attribute)) else None
        if isinstance(target, ast.Name):
            ev.frame.names.pop(target.id, None)
        elif isinstance(target, ast.Attribute) and isinstance(owner, Record) and not owner.outside:
            owner.members.pop(target.attr, None)
        elif isinstance(target, ast.Subscript) and isinstance(owner, (dict, list)):
            try:
                del owner[ev.eval(target.slice)]
            except Exception as e:
                ev.error("TS107", f"{type(e).__name__}: {e}", target)
        else:
            ev.error("TS102", "this cannot be deleted", target)
    return Flow.NEXT


@evaluates(Sample)
def sample(ev: Evaluator, node: Sample) -> Flow:
    ev.error("TS102", "`~` samples from a distribution, and this version of Tessera has no distributions", node)
    for target in node.targets:
        ev.assign(target, UNKNOWN)
    return Flow.NEXT


@evaluates(Broken)
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
    """There are no findings for a statement that is no longer there, and nothing is shown at its places."""
    kept = ev.findings, ev.pending, ev.frame.kept
    ev.findings, ev.pending, ev.frame.kept = Diagnostics(ev.definition.name), [], None
    try:
        return ev.run(node.was)
    finally:
        ev.findings, ev.pending, ev.frame.kept = kept


@evaluates(ast.Pass)
def pass_(ev: Evaluator, node: ast.Pass) -> Flow:
    return Flow.NEXT


@evaluates(ast.Break)
def break_(ev: Evaluator, node: ast.Break) -> Flow:
    return Flow.BREAK


@evaluates(ast.Continue)
def continue_(ev: Evaluator, node: ast.Continue) -> Flow:
    return Flow.CONTINUE


# assignment to names, tuples, attributes and subscripts


@method
def assign(ev: Evaluator, target: ast.expr, value: Any) -> None:
    match target:
        case ast.Name():
            ev.assign_name(target.id, value, target)
        case ast.Tuple() | ast.List():
            _unpack(ev, target, value)
        case ast.Subscript():
            _store_item(ev, target, value)
        case ast.Attribute():
            _store_attribute(ev, target, value)
        case ast.Starred():
            assign(ev, target.value, value)
        case _:
            ev.error("TS102", "this cannot be assigned to", target)


def _other_parts(value: Any, values: Sequence[Any], expected: str) -> str:
    """What to say of parts that are other than the author expects: those of one tensor are its rows, and PyTorch's
    `split` takes their size."""
    if isinstance(value, Value):
        return rows_given(
            expected, len(values), getattr(value.type, "rank", 0), type_name(value).removeprefix("a tensor ")
        )
    made = {v.op.name for v in values if isinstance(v, Value) and v.op is not None}
    hint = "; split takes the number of parts, as in NumPy: x.split(3, axis)" if made == {"graph.split"} else ""
    return f"{expected} values are expected here, {len(values)} {'is' if len(values) == 1 else 'are'} given{hint}"


def _unpack(ev: Evaluator, target: ast.Tuple | ast.List, value: Any) -> None:
    values = ev.iterate(target, value)
    targets = target.elts
    if values is None:
        for t in targets:
            starred = isinstance(t, ast.Starred)
            assign(ev, t, value.item if isinstance(value, Several) and not value.keyed and not starred else UNKNOWN)
        return
    star = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
    fits = len(values) == len(targets) if star is None else len(values) >= len(targets) - 1
    if not fits:
        expected = f"{len(targets)}" if star is None else f"at least {len(targets) - 1}"
        ev.error("TS105", _other_parts(value, values, expected), target)
        values = [UNKNOWN] * len(targets)
        star = None
    if star is not None:
        after = len(targets) - star - 1
        middle = values[star : len(values) - after]
        values = [*values[:star], middle, *values[len(values) - after :]]
    for t, v in zip(targets, values, strict=True):
        assign(ev, t, v)


def _store_item(ev: Evaluator, target: ast.Subscript, value: Any) -> None:
    owner, index = ev.eval(target.value), index_of(ev, target.slice)
    if isinstance(owner, Unknown) or has_unknown(index) or (ev.layer.owns(owner) and has_unknown(value)):
        undecided.unknown_store(ev, target)
        return
    if ev.layer.owns(owner):
        ev.layer.store(target, owner, index, value)
        return
    if not isinstance(owner, (list, dict)):
        ev.error("TS102", f"items of {type_name(owner)} cannot be assigned here", target)
        return
    if not is_static(index):
        what = "a list" if is_list(owner) else "a dict"
        message = f"{what} cannot be indexed by {type_name(index)}, known only when the program runs"
        ev.error("TS102", message, target)
        return
    if not ev.may_change(owner, target):
        return
    try:
        owner[index] = value
    except Exception as e:
        ev.error("TS107", f"{type(e).__name__}: {e}", target)
        return
    if is_collection(value) or is_dict(value):
        ev.held(target, value)


def _store_attribute(ev: Evaluator, target: ast.Attribute, value: Any) -> None:
    owner = ev.eval(target.value)
    if isinstance(owner, Record) and owner.is_state:
        states.change(ev, target, owner, value)
    elif isinstance(owner, Record) and not owner.outside:
        owner.members[target.attr] = value
    elif not isinstance(owner, Unknown):
        message = (
            "a function has no side effects: attributes of objects from outside cannot be set; return the new value"
        )
        ev.error("TS102", message, target)
