"""One function per kind of expression. Each takes the evaluator and the node, and returns the value."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, cast

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate import attributes, calls, operators, undecided
from tessera.compiler.frontend.evaluate.machine import Evaluator, evaluates, method
from tessera.compiler.frontend.evaluate.operators import COMPARISONS, SYMBOLS
from tessera.compiler.frontend.evaluate.returns import subscripted
from tessera.compiler.frontend.names.frame import Closure, Frame
from tessera.compiler.frontend.names.live import same
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    Counting,
    Number,
    Record,
    Several,
    Unknown,
    as_items,
    has_unknown,
    is_collection,
    is_dict,
    is_sequence,
    is_slice,
    is_static,
    type_name,
)
from tessera.compiler.frontend.syntax.trees import Gap
from tessera.language.dims import Expr


@evaluates(ast.Constant)
def constant(ev: Evaluator, node: ast.Constant) -> Any:
    return node.value


@evaluates(ast.Name)
def name(ev: Evaluator, node: ast.Name) -> Any:
    return ev.lookup(node)


@evaluates(ast.BinOp)
def binary(ev: Evaluator, node: ast.BinOp) -> Any:
    left, right = ev.eval(node.left), ev.eval(node.right)
    return ev.operate(node, SYMBOLS[type(node.op)], left, right)


@evaluates(ast.UnaryOp)
def unary(ev: Evaluator, node: ast.UnaryOp) -> Any:
    operand = ev.eval(node.operand)
    if not isinstance(node.op, ast.Not):
        return operators.unary(ev, node, SYMBOLS[type(node.op)], operand)
    return _inverse(ev, node.operand, operand)


def _inverse(ev: Evaluator, node: ast.expr, operand: Any) -> Any:
    """`not operand`"""
    if isinstance(operand, (Number, Expr)) and not ev.layer.owns(operand):
        return Number(bool, f"not {operand.text if isinstance(operand, Number) else operand}")
    if ev.layer.owns(operand):
        return ev.layer.logical(node, "not", [operand])
    truth = ev.decide(node, operand)
    return UNKNOWN if truth is None else not truth


@evaluates(ast.BoolOp)
def boolean(ev: Evaluator, node: ast.BoolOp) -> Any:
    """`and`/`or` with Python's short circuit as long as the operands are known."""
    stop, symbol = isinstance(node.op, ast.Or), "or" if isinstance(node.op, ast.Or) else "and"
    pending: list[Any] = []
    value: Any = not stop
    for item in node.values:
        value = ev.eval(item)
        truth = ev.decide(item, value)
        if truth is None:
            pending.append(value)
        elif truth is stop:
            if not pending or isinstance(value, bool):  # `tensor or True` is True whatever the tensor holds
                return value
            if any(map(ev.layer.owns, pending)):
                message = f"`{symbol}` of elements gives a bool, and never {type_name(value)}; choose with where"
                return ev.error("TS102", message, node)
            return UNKNOWN
    if not pending:
        return value
    if any(isinstance(v, Unknown) for v in pending):
        return UNKNOWN
    if any(map(ev.layer.owns, pending)):
        if len(pending) == 1 and ev.layer.owns(pending[0]):
            return pending[0]
        return ev.layer.logical(node, symbol, pending)
    return Number(bool, f" {symbol} ".join(getattr(v, "text", str(v)) for v in pending))


@evaluates(ast.Compare)
def compare(ev: Evaluator, node: ast.Compare) -> Any:
    """Chained comparisons: `a < b < c` is `a < b and b < c`, each operand evaluated once."""
    left: Any = ev.eval(node.left)
    results: list[Any] = []
    for op, item in zip(node.ops, node.comparators, strict=True):
        right = ev.eval(item)
        result = compare_pair(ev, node, SYMBOLS[type(op)], left, right)
        if result is False:
            return False
        results.append(result)
        left = right
    if len(results) == 1:
        return results[0]
    open_ = [r for r in results if r is not True]
    if any(isinstance(r, Unknown) for r in open_):
        return UNKNOWN
    if any(map(ev.layer.owns, open_)):
        return open_[0] if len(open_) == 1 else ev.layer.logical(node, "and", open_)
    return Number(bool, ast.unparse(node)) if open_ else True


def compare_pair(ev: Evaluator, node: ast.AST, symbol: str, left: Any, right: Any) -> Any:
    if symbol in COMPARISONS:
        return ev.operate(node, symbol, left, right)
    if symbol in ("is", "is not"):
        if isinstance(left, Unknown) or isinstance(right, Unknown):
            return UNKNOWN
        return same(left, right) is (symbol == "is")
    return _contains(ev, node, symbol == "in", left, right)


def _contains(ev: Evaluator, node: ast.AST, positive: bool, item: Any, container: Any) -> Any:
    if isinstance(item, Unknown) or isinstance(container, Unknown):
        return UNKNOWN
    symbolic = isinstance(item, (Expr, Number)) and not ev.layer.owns(item)
    if symbolic and isinstance(container, range):
        return Number(bool, ast.unparse(node))
    if (symbolic and (is_collection(container) or is_dict(container))) or (
        is_sequence(container) and not is_static(container)
    ):
        answers = [ev.operate(node, "==", item, c) for c in container]
        if any(a is True for a in answers):
            return positive
        if all(a is False for a in answers):
            return not positive
        known = all(isinstance(a, (bool, Number)) for a in answers)
        return Number(bool, ast.unparse(node)) if known else UNKNOWN
    if isinstance(container, Record):
        found = ev.special(node, container, "contains", item)
        if found is not MISSING:
            return found if positive else _inverse(ev, cast("ast.expr", node), found)
        container = iterate(ev, node, container)
        return UNKNOWN if container is None else _contains(ev, node, positive, item, container)
    if ev.layer.owns(container) or ev.layer.owns(item):
        return ev.error(
            "TS102", f"`in` does not take {type_name(container)}; compare with == and reduce with any()", node
        )
    try:
        return (item in container) is positive
    except Exception as e:
        return ev.error("TS107", f"{type(e).__name__}: {e}", node)


@evaluates(ast.IfExp)
def conditional(ev: Evaluator, node: ast.IfExp) -> Any:
    test = ev.eval(node.test)
    if ev.layer.owns(test):
        return ev.layer.choose(node, test)
    truth = ev.decide(node.test, test)
    if truth is not None:
        return ev.eval(node.body if truth else node.orelse)
    return undecided.either_value(ev, node, test)


@evaluates(ast.Attribute)
def attribute(ev: Evaluator, node: ast.Attribute) -> Any:
    return attributes.attribute(ev, node, ev.eval(node.value), node.attr)


@evaluates(ast.Subscript)
def subscript(ev: Evaluator, node: ast.Subscript) -> Any:
    value = ev.eval(node.value)
    if isinstance(value, Builtin):
        return subscripted(ev, node, value)
    return subscript_value(ev, node, value, index_of(ev, node.slice))


def index_of(ev: Evaluator, node: ast.expr) -> Any:
    """The value between the brackets."""
    return tuple(items(ev, node.elts)) if isinstance(node, ast.Tuple) else ev.eval(node)


def subscript_value(ev: Evaluator, node: ast.AST, value: Any, index: Any) -> Any:
    value = as_items(value)
    if isinstance(value, Unknown):
        return value.item if isinstance(value, Several) and not is_slice(index) else UNKNOWN
    if ev.layer.owns(value):
        return UNKNOWN if has_unknown(index) else ev.layer.subscript(node, value, index)
    if has_unknown(index):
        return UNKNOWN
    if isinstance(value, Record):
        found = ev.special(node, value, "getitem", index)
        wrong = f"{type_name(value)} has no __getitem__, so it takes no index"
        return ev.error("TS105", wrong, node) if found is MISSING else found
    if not is_static(index) and isinstance(value, (list, tuple, str, dict)):
        return _abstract_index(ev, node, value, index)
    try:
        return calls.adopt(ev, node, value[index])
    except Exception as e:
        return ev.error("TS107", f"{type(e).__name__}: {e}", node)


def _abstract_index(ev: Evaluator, node: ast.AST, value: Any, index: Any) -> Any:
    if isinstance(index, (Expr, Number)) or is_slice(index):
        return ev.undecide(f"the index {getattr(index, 'text', index)} must be known", node)
    return ev.error(
        "TS102", f"{type_name(value)} cannot be indexed by {type_name(index)}, known only when the program runs", node
    )


@evaluates(ast.Slice)
def slice_(ev: Evaluator, node: ast.Slice) -> Any:
    return slice(*(ev.eval(part) if part is not None else None for part in (node.lower, node.upper, node.step)))


@method
def items(ev: Evaluator, nodes: list[ast.expr]) -> list[Any]:
    """The elements of a display or argument list, with `*iterable` spread out."""
    out: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            spread = iterate(ev, node.value, ev.eval(node.value))
            out += [UNKNOWN] if spread is None else spread
        else:
            out.append(ev.eval(node))
    return out


@evaluates(ast.Tuple)
def tuple_(ev: Evaluator, node: ast.Tuple) -> Any:
    return _display(ev, node, tuple(items(ev, node.elts)))


@evaluates(ast.List)
def list_(ev: Evaluator, node: ast.List) -> Any:
    return _display(ev, node, items(ev, node.elts))


def _display(ev: Evaluator, node: ast.AST, value: Any) -> Any:
    """A container that is written out. `[a, a]` doubles what `a` holds."""
    held = value.values() if is_dict(value) else value
    return ev.weighed(node, value) if any(map(_is_container, held)) else value


def _is_container(value: Any) -> bool:
    return is_collection(value) or is_dict(value)


@evaluates(ast.Set)
def set_(ev: Evaluator, node: ast.Set) -> Any:
    found = items(ev, node.elts)
    if has_unknown(found):
        return UNKNOWN
    try:
        return set(found)
    except TypeError as e:
        return ev.error("TS107", f"TypeError: {e}", node)


@evaluates(ast.Dict)
def dict_(ev: Evaluator, node: ast.Dict) -> Any:
    out: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        item = ev.eval(value)
        if key is None:
            if not is_dict(item):
                return (
                    UNKNOWN
                    if isinstance(item, Unknown)
                    else ev.error("TS105", f"** needs a dict, not {type_name(item)}", value)
                )
            out.update(item)
            continue
        k = ev.eval(key)
        if isinstance(k, Unknown):
            return UNKNOWN
        try:
            out[k] = item
        except TypeError as e:
            return ev.error("TS107", f"TypeError: {e}", key)
    return _display(ev, node, out)


@method
def iterate(ev: Evaluator, node: ast.AST, value: Any) -> list[Any] | None:
    """The items of an iterable whose number is known now; None (after a finding, unless it is unknown) otherwise."""
    if isinstance(value, (Unknown, Counting)):
        return None
    value = as_items(value)
    if is_sequence(value):
        ev.steps += len(value)
        return [calls.adopt(ev, node, v) for v in value]
    if ev.layer.owns(value):
        return ev.layer.iterate(node, value)
    if isinstance(value, (Expr, Number)):
        ev.error("TS105", f"{type_name(value)} cannot be iterated; did you mean range({value})?", node)
        return None
    if isinstance(value, Record):
        found = ev.special(node, value, "iter")
        if found is MISSING:
            ev.error("TS105", f"{type_name(value)} cannot be iterated", node)
            return None
        return iterate(ev, node, found)
    try:
        iterator: Iterator[Any] = iter(value)
    except TypeError:
        hint = "; call what returns nothing on a line of its own" if value is None else ""
        ev.error("TS105", f"{type_name(value)} cannot be iterated{hint}", node)
        return None
    out: list[Any] = []
    for item in iterator:
        out.append(calls.adopt(ev, node, item))
        if len(out) > budget.ITEMS:
            ev.error("TS111", f"more than {budget.ITEMS} items at compile time; loop with ts.range(...)", node)
            return None
    ev.steps += len(out)
    return out


@evaluates(ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
def comprehension(ev: Evaluator, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Any:
    outer = ev.frame
    frame = Frame(outer.name, outer.definition, outer=outer, caller=outer.caller, call_span=outer.call_span,
                  key=outer.key, kept=outer.kept, depth=outer.depth)  # fmt: skip
    found: list[Any] = []
    with ev.inside(frame):
        known = _generate(ev, node, 0, found)
    if not known:
        return Several(found[0]) if len(found) == 1 and isinstance(node, ast.ListComp) else UNKNOWN
    made = dict(found) if isinstance(node, ast.DictComp) else set(found) if isinstance(node, ast.SetComp) else found
    return _display(ev, node, made)


def _generate(ev: Evaluator, node: Any, depth: int, found: list[Any]) -> bool:
    if depth == len(node.generators):
        found.append((ev.eval(node.key), ev.eval(node.value)) if isinstance(node, ast.DictComp) else ev.eval(node.elt))
        ev.steps += 1
        if len(found) > budget.ITEMS:
            ev.error("TS111", f"more than {budget.ITEMS} items at compile time; loop with ts.range(...)", node)
            return False
        return True
    generator: ast.comprehension = node.generators[depth]
    iterable = ev.eval(generator.iter)
    if isinstance(iterable, (Counting, Several)) and not generator.ifs and not isinstance(node, ast.DictComp):
        if isinstance(iterable, Counting):
            ev.undecide("how many items this makes must be known when it is compiled", generator.iter)
        facts, ev.facts = ev.facts, ev.facts.copy()
        undecided.step(ev, generator.target, iterable)
        _generate(ev, node, depth + 1, found)
        ev.facts = facts
        return False
    values = iterate(ev, generator.iter, iterable)
    if values is None:
        return False
    for value in values:
        ev.assign(generator.target, value)
        keep: bool | None = True
        for test in generator.ifs:
            truth = ev.eval(test)
            keep = ev.decide(test, truth)
            if keep is None and ev.layer.owns(truth):
                ev.error("TS102", "a comprehension's condition must be known at compile time", test)
            if not keep:
                break
        if keep is None:
            return False
        if keep and not _generate(ev, node, depth + 1, found):
            return False
    return True


@evaluates(ast.Lambda)
def lambda_(ev: Evaluator, node: ast.Lambda) -> Any:
    return Closure(node, ev.frame.definition, ev.frame, calls.defaults_of(ev, node))


@evaluates(ast.NamedExpr)
def walrus(ev: Evaluator, node: ast.NamedExpr) -> Any:
    value = ev.eval(node.value)
    ev.assign_name(node.target.id, value, node.target)
    return value


@evaluates(ast.Starred)
def starred(ev: Evaluator, node: ast.Starred) -> Any:
    return ev.error("TS102", "a starred expression has no meaning here", node)


@evaluates(ast.JoinedStr)
def joined(ev: Evaluator, node: ast.JoinedStr) -> Any:
    parts = [ev.eval(v) for v in node.values]
    return UNKNOWN if has_unknown(parts) else ev.weighed(node, "".join(map(str, parts)))


@evaluates(ast.FormattedValue)
def formatted(ev: Evaluator, node: ast.FormattedValue) -> Any:
    value = ev.eval(node.value)
    spec = ev.eval(node.format_spec) if node.format_spec is not None else ""
    if has_unknown((value, spec)):
        return UNKNOWN
    if ev.layer.owns(value) or isinstance(value, Number):
        return f"<{type_name(value)}>"
    if budget.format_explodes(str(spec)):
        return ev.too_large(node, "the format")
    convert: dict[int, Callable[[Any], str]] = {ord("r"): repr, ord("s"): str, ord("a"): ascii}
    try:
        value = convert[node.conversion](value) if node.conversion in convert else value
        return ev.weighed(node, format(str(value) if isinstance(value, Expr) else value, spec))
    except Exception as e:
        return ev.error("TS107", f"{type(e).__name__}: {e}", node)


@evaluates(Gap)
def gap(ev: Evaluator, node: Gap) -> Any:
    ev.cannot_parse(node)
    return ev.eval(node.was) if ev.definition.recalled and node.was is not None else UNKNOWN
