"""Annotations inside a function: a returned (or claimed) value against its own, in the words of the language's error
form, and annotations as values."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from typing import Any

from tessera.compiler.frontend.evaluate import suggested_fixes
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.binding import Equation, equations, solve
from tessera.compiler.frontend.names.signature import refused, resolve, size_text
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Builtin,
    Record,
    Unknown,
    has_unknown,
    is_dict,
    is_sequence,
    leaves,
    type_name,
)
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType, TileType, ViewType, shape_text
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Note, Span
from tessera.language import dims
from tessera.language.annotations import (
    Annotation,
    AnnotationError,
    RecordAnn,
    ScalarAnn,
    SequenceAnn,
    TensorAnn,
    TileAnn,
    TupleAnn,
    annotation_from_ast,
)
from tessera.language.dims import Dim, Expr
from tessera.language.policies import Policy, PolicyPart
from tessera.language.records import is_record, members

SHAPED = (TensorType, TileType, ViewType)


def check(
    ev: Evaluator, value: Any, annotation: Annotation | None, written: Span | None, span: Span, what: str
) -> bool:
    """Whether `value` is what `annotation` (at `written`) says; reports TS201 or TS303 at the value's origin."""
    if annotation is None or isinstance(value, Unknown):
        return True
    if isinstance(annotation, TupleAnn):
        return _check_tuple(ev, value, annotation, written, span, what)
    if isinstance(annotation, SequenceAnn):
        return _check_several(ev, value, annotation, written, span, what)
    if isinstance(annotation, RecordAnn):
        return _check_record(ev, value, annotation, written, span, what)
    if isinstance(annotation, (TensorAnn, TileAnn)):
        if value is None and annotation.optional:
            return True
        if not isinstance(value, Value) or not isinstance(value.type, SHAPED):
            return _wrong_kind(ev, value, annotation, written, span, what)
        return _check_tensor(ev, value, annotation, written, span, what)
    shaped = isinstance(value, Value) and isinstance(value.type, SHAPED) and bool(value.type.shape)
    if isinstance(annotation, ScalarAnn) and (shaped or is_sequence(value) or is_dict(value)):
        return _wrong_kind(ev, value, annotation, written, span, what)
    return True


def _check_tuple(ev: Evaluator, value: Any, annotation: TupleAnn, written: Span | None, span: Span, what: str) -> bool:
    if not is_sequence(value) or len(value) != len(annotation.items):
        if has_unknown(value) and not is_sequence(value):
            return True
        have = f"{len(value)} values" if is_sequence(value) else type_name(value)
        ev.error("TS201", f"Expected: {len(annotation.items)} values   ({what}{_at(written)})\nReceived: {have}", span)
        return False
    items = zip(value, annotation.items, _item_spans(ev, len(value), span), strict=True)
    wrong = [v for v, a, s in items if not check(ev, v, a, written, s, what)]
    return not wrong


def _check_several(
    ev: Evaluator, value: Any, annotation: SequenceAnn, written: Span | None, span: Span, what: str
) -> bool:
    if value is None and annotation.optional:
        return True
    if annotation.keyed and is_dict(value):
        items = list(value.values())
    elif is_sequence(value) and not annotation.keyed:
        items = list(value)
    else:
        return _wrong_kind(ev, value, annotation, written, span, what)
    spans = zip(items, _item_spans(ev, len(items), span), strict=True)
    wrong = [v for v, s in spans if not check(ev, v, annotation.item, written, s, what)]
    return not wrong


def _check_record(
    ev: Evaluator, value: Any, annotation: RecordAnn, written: Span | None, span: Span, what: str
) -> bool:
    """A dataclass or named tuple, field by field."""
    if value is None and annotation.optional:
        return True
    if isinstance(value, Value):
        return _wrong_kind(ev, value, annotation, written, span, what)
    if is_sequence(value):  # what a named tuple is
        held = dict(zip((n for n, _ in annotation.fields), value, strict=False))
    else:
        held = value.members if isinstance(value, Record) else members(value) if is_record(value) else {}
    tensors = {n: v for n, v in held.items() if all(isinstance(leaf, Value) for leaf in leaves(v))}
    said = [(n, a) for n, a in annotation.fields if n in tensors]
    wrong = [n for n, a in said if not check(ev, tensors[n], a, written, span, f"{what}, field {n}")]
    return not wrong


def _item_spans(ev: Evaluator, count: int, span: Span) -> list[Span]:
    """Where the items of the returned expression stand; what is nested in one of them stands where that does."""
    found, ev.item_spans = ev.item_spans, []
    return found if len(found) == count else [span] * count


def _wrong_kind(ev: Evaluator, value: Any, annotation: Annotation, written: Span | None, span: Span, what: str) -> bool:
    if isinstance(value, (bool, int, float, Expr)) and getattr(annotation, "shape", None) == ():
        return True
    received = _tensor_text(value) if isinstance(value, Value) and isinstance(value.type, SHAPED) else type_name(value)
    ev.error("TS201", f"Expected: {annotation}   ({what}{_at(written)})\nReceived: {received}", span)
    return False


def _check_tensor(
    ev: Evaluator, value: Value, annotation: TensorAnn | TileAnn, written: Span | None, span: Span, what: str
) -> bool:
    type: Any = value.type
    where = origin(ev, value, span)
    if annotation.dtype is not None and annotation.dtype != type.dtype:
        message = f"Expected: {annotation}   ({what}{_at(written)})\nReceived: {_tensor_text(value)}"
        hint = f"\nConvert it with cast(..., {annotation.dtype})"
        before = len(ev.findings.items)
        ev.error("TS303", message + hint, where, label=f"has dtype {type.dtype}")
        if len(ev.findings.items) > before:
            ev.pending.append((before, suggested_fixes.cast_to(ev, where, annotation.dtype)))
        return False
    if (part := _unheld(type, annotation.policy)) is not None:
        text = f"{part} stands in {what}, and the value is computed without it"
        ev.error("TS306", f"{text}: say it of a parameter that the value comes from", written or where)
        return False
    pairs = equations("the result", annotation, type.shape)
    wrong = _mismatch(ev, pairs) if pairs is not None else ()
    if wrong is None:
        return True
    expected = str(annotation)
    received = f"Tensor[{size_text(type.shape)}]"
    if annotation.dtype is not None:
        received = _tensor_text(value)
    notes = [Note(f"for example {wrong[1]}")] if wrong and wrong[1] else []
    if free := _bound_by_nothing(ev, annotation, written):
        notes = [Note(f"no parameter binds {', '.join(free)}: annotate the parameters with these dims")]
    notes += bound_notes(ev, [type])
    message = f"Expected: {expected}   ({what}{_at(written)})\nReceived: {received}"
    before = len(ev.findings.items)
    ev.error("TS201", message, where, label=f"has shape {shape_text(type.shape)}", notes=notes)
    if len(ev.findings.items) > before:
        candidates = [*suggested_fixes.keepdim(ev, [value]), *suggested_fixes.reshaped(ev, where, type, annotation)]
        ev.pending.append((before, candidates + suggested_fixes.other_axis(ev, value, annotation)))
    return False


def _bound_by_nothing(ev: Evaluator, annotation: TensorAnn | TileAnn, written: Span | None) -> list[str]:
    """Dims of a return annotation that no parameter's annotation has."""
    names = {n for d in annotation.shape or () if d is not ... for n in dims.symbols(d)}
    places = {n: ev.dims[n] for n in sorted(names) if n in ev.dims}
    return [n for n, at in places.items() if written is not None and written.contains(at.line, at.col)]


def declared(
    ev: Evaluator,
    annotation: Annotation | None,
    sizes: Mapping[str, Dim],
    span: Span,
    lead: tuple[Dim, ...] | None = None,
) -> Any:
    """A value of the type that a callee says it returns: enough to go on with where it gives none. UNKNOWN, or with
    unknown parts, where the type is open under these sizes of its dims; `lead`: the axes that `...` stands for."""
    if isinstance(annotation, TupleAnn):
        return tuple(declared(ev, a, sizes, span, lead) for a in annotation.items)
    if not isinstance(annotation, TensorAnn) or annotation.dtype is None or annotation.shape is None:
        return UNKNOWN
    shape = list[Dim]()
    for size in annotation.shape:
        if (size is ... and lead is None) or (isinstance(size, Expr) and dims.symbols(size) - sizes.keys()):
            return UNKNOWN
        shape += lead or () if size is ... else (dims.substitute(size, sizes),)
    return ev.layer.placeholder(TensorType(tuple(shape), annotation.dtype, annotation.policy), span)


def _unheld(type: Any, policy: Policy | None) -> PolicyPart | None:
    """What an annotation says of how the value was computed, and its type does not."""
    have: Policy = getattr(type, "policy", None) or Policy()
    parts = policy.parts() if policy is not None else []
    return next((p for p in parts if p.name in ("saturate", "loss_scale") and getattr(have, p.name) != p.value), None)


def _mismatch(ev: Evaluator, pairs: list[Equation]) -> tuple[Equation, str] | None:
    """The first axis that differs, with sizes for which it does. What is open until launch becomes a check."""
    env, conflicts, open_ = solve(pairs, ev.frame.dims, ev.facts)
    if not conflicts:
        for want, have, place in open_:
            ev.checks.append(LaunchCheck(want, have, f"the annotation of {place}"))
        ev.frame.dims |= {n: d for n, d in env.items() if n not in ev.frame.dims and n in ev.dims}
        return None
    c = conflicts[0]
    sizes = dims.counterexample(c.expected, c.equation.have, ev.facts) or {}
    text = ", ".join(f"{n}={v}" for n, v in sizes.items())
    if text:
        values = (dims.evaluate(c.expected, sizes), dims.evaluate(c.equation.have, sizes))
        text += f": axis {c.equation.axis} has size {values[1]} instead of {values[0]}"
    return c.equation, text


def origin(ev: Evaluator, value: Value, span: Span) -> Span:
    """Where the value was made: the expression assigned to the returned name rather than the name."""
    op = value.op
    if op is None or op.span.file != span.file or op.span.line > span.line or ev.definition.kind == "kernel":
        return span
    top, end = ev.definition.tree.lineno, ev.definition.tree.end_lineno or op.span.line
    return op.span if top <= op.span.line <= end and not op.regions else span


def bound_notes(ev: Evaluator, types: list[Any]) -> list[Note]:
    """Where each named size of the types was bound."""
    return named_notes(ev, {n for t in types for d in getattr(t, "shape", ()) for n in dims.symbols(d)})


def named_notes(ev: Evaluator, names: Set[str]) -> list[Note]:
    return [Note(f"{n} is bound here", ev.dims[n]) for n in sorted(names) if n in ev.dims and ev.dims[n].line]


def _tensor_text(value: Value) -> str:
    type: Any = value.type
    return f"Tensor[{size_text(type.shape)}{', ' if type.shape else ''}{type.dtype}]"


def _at(written: Span | None) -> str:
    return f", {written.file}:{written.line}" if written is not None and written.line else ""


def subscripted(ev: Evaluator, node: ast.Subscript, builtin: Builtin) -> Any:
    """`Batch = ts.Tensor["B", "D"]`: an annotation as a value; any other subscripted builtin says nothing."""
    if builtin.path not in {f"tessera.{n}" for n in vocabulary.ANNOTATIONS}:
        return UNKNOWN
    scope = ev.frame.scope
    try:
        found = annotation_from_ast(node, lambda n: resolve(scope, n), ev.span)
    except AnnotationError as e:
        for d in e.diagnostics:
            ev.findings.add(d)
        return UNKNOWN
    for d in refused(found, ev.span(node)):
        ev.findings.add(d)
    return found


def claimed(ev: Evaluator, node: ast.AnnAssign) -> Annotation | None:
    """The annotation of a variable; None where it is wrong, which has been said."""
    frame = ev.frame
    try:
        found = annotation_from_ast(node.annotation, lambda n: resolve(frame.scope, n), ev.span, tuple(frame.dims))
    except AnnotationError as e:
        for d in e.diagnostics:
            ev.findings.add(d)
        return None
    for d in refused(found, ev.span(node.annotation)):
        ev.findings.add(d)
    return found


def check_claim(ev: Evaluator, node: ast.AnnAssign, value: Any) -> None:
    """`y: Tensor["B", "D"] = ...`: the value must have the type that is claimed."""
    found = claimed(ev, node)
    if found is not None:
        name = node.target.id if isinstance(node.target, ast.Name) else "the value"
        check(ev, value, found, ev.span(node.annotation), ev.span(node.value or node), f"the annotation of {name}")
