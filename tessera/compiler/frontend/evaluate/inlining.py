"""A call evaluated in place: a frame for the callee, its dims bound to the caller's sizes, recursion bounded."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.compiler.frontend import budget
from tessera.compiler.frontend.evaluate import suggested_fixes
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.parameters import axis_span, each_argument, policy_of, record_reads
from tessera.compiler.frontend.evaluate.returns import check, declared, named_notes
from tessera.compiler.frontend.names.binding import Conflict, Equation, describe, equations, solve, value_equation
from tessera.compiler.frontend.names.frame import Closure, Flow, Frame
from tessera.compiler.frontend.names.layers import LayerPlace, layer_in
from tessera.compiler.frontend.names.signature import (
    Parameter,
    as_annotated,
    definition_signature,
    fields_of,
    is_scalar,
    number_dim,
    signature_of,
)
from tessera.compiler.frontend.names.values import (
    CALLED,
    MISSING,
    UNKNOWN,
    ClassRef,
    Record,
    Unknown,
    has_unknown,
    is_dict,
    is_sequence,
    remade,
    type_name,
)
from tessera.compiler.frontend.result import ExprInfo, InnerCall
from tessera.compiler.frontend.syntax.assigned import assigned_names
from tessera.compiler.frontend.syntax.parse import source_of
from tessera.compiler.ir.core import Block, Value
from tessera.compiler.ir.types import TensorType, TileType, ViewType, shape_text
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Note, Span
from tessera.language import dims, dtypes
from tessera.language.annotations import (
    PYTHON_TYPES,
    Annotation,
    LiteralAnn,
    SequenceAnn,
    TensorAnn,
    TileAnn,
    TupleAnn,
    misheld,
)
from tessera.language.dims import Dim
from tessera.language.dtypes import DType
from tessera.language.policies import Policy, PolicyError
from tessera.tracebacks import OWN


def inline(ev: Evaluator, node: ast.AST, closure: Closure, bound: dict[str, Any], places: Mapping[str, ast.AST]) -> Any:
    """`places`: the nodes of the arguments, by parameter."""
    if closure.node in ev.endless:
        return UNKNOWN
    ev.ran_layers |= closure.name in CALLED
    if ev.frame.depth >= budget.CALLS:
        return _too_deep(ev, node, closure)
    frame = callee_frame(ev, node, closure)
    frame.names |= bound
    if isinstance(closure.node, ast.Lambda):
        with ev.inside(frame):
            return ev.eval(closure.node.body)
    sizes = enter_call(ev, closure, frame, node, places) if closure.frame is None else {}
    if sizes is None:
        return UNKNOWN
    if ev.definition.kind != "kernel" and not enter_policies(ev, closure, frame, node, places):
        return UNKNOWN
    if closure.decorated and not enter_scalars(ev, closure, frame, node, places):
        return UNKNOWN
    with ev.inside(frame):
        _keep_call(ev, closure, frame, bound)
        flow = ev.run(closure.node.body)
        value = ev.merged_returns(frame, flow is Flow.RETURN)
        ev.layer.ended(frame, closure.node, value)
        right = _returns(ev, closure, frame, sizes, value)
    if right and not has_unknown(value):
        return value
    return _as_declared(ev, node, closure, sizes, value if right else UNKNOWN)


def _as_declared(ev: Evaluator, node: ast.AST, closure: Closure, sizes: Mapping[str, Dim], value: Any) -> Any:
    """What is unknown of a result after a finding, as the callee's annotation has it: the caller's hints stay. `sizes`:
    those of the callee's dims that the arguments have told."""
    signature = definition_signature(closure.definition) if closure.frame is None else None
    if signature is None or ev.definition.kind == "kernel" or not ev.findings.errors:
        return value
    return _filled(value, declared(ev, signature.returns, sizes, ev.span(node)))


def _filled(value: Any, said: Any) -> Any:
    if isinstance(value, Unknown):
        return said
    if is_sequence(value) and is_sequence(said) and len(value) == len(said):
        return remade(value, map(_filled, value, said))
    return value


def _returns(ev: Evaluator, closure: Closure, frame: Frame, sizes: Mapping[str, Dim], value: Any) -> bool:
    """Whether what a function gives its caller is what it says that it returns, as far as the sizes of its dims are
    known. False after a finding."""
    signature = definition_signature(closure.definition) if closure.frame is None else None
    if signature is None or signature.returns is None:
        return True
    span = frame.return_span or closure.definition.span
    if ev.definition.kind != "kernel":
        if not _sized(signature.returns, sizes):
            return True
        return check(ev, value, signature.returns, signature.returns_span, span, "the return annotation")
    return check(ev, _as_types(ev, value), signature.returns, None, span, f"{closure.name}'s annotation")


def _sized(annotation: Annotation, sizes: Mapping[str, Dim]) -> bool:
    if isinstance(annotation, TupleAnn):
        return all(_sized(a, sizes) for a in annotation.items)
    if isinstance(annotation, SequenceAnn):
        return _sized(annotation.item, sizes)
    shape = getattr(annotation, "shape", None) or ()
    return all(dims.symbols(d) <= sizes.keys() for d in shape if isinstance(d, dims.Expr))


def _as_types(ev: Evaluator, value: Any) -> Any:
    """Blocks and lanes of a kernel as values of their types, which annotations speak of."""
    if is_sequence(value):
        return remade(value, (_as_types(ev, v) for v in value))
    type = ev.layer.type_of(value) if ev.layer.owns(value) and not isinstance(value, Value) else None
    return Value(type, Block(), 0) if isinstance(type, (TileType, ViewType)) else value


def callee_frame(ev: Evaluator, node: ast.AST, closure: Closure) -> Frame:
    outer = closure.frame
    kept = outer.kept if outer is not None and outer.kept is ev.frame.kept else _kept_of(ev, closure)
    return Frame(
        closure.name, closure.definition, outer=closure.frame, caller=ev.frame, call_span=ev.span(node),
        key=closure.node, locals=assigned_names(closure.node),
        kept=kept, depth=ev.frame.depth + 1,
        effect=str(closure.definition.options.get("effect", "")),
    )  # fmt: skip


def _kept_of(ev: Evaluator, closure: Closure) -> dict[Any, ExprInfo] | None:
    """Where the types of a function of the user's texts are kept, which an editor shows inside it."""
    shown = closure.frame is None and ev.definition.kind == "function" and not (ev.live or ev.as_python or ev.outside)
    if not shown or isinstance(closure.node, ast.Lambda) or closure.definition.file.startswith(OWN):
        return None
    return {} if len(ev.inner.get(closure.node, ())) < budget.SHOWN else None


def _keep_call(ev: Evaluator, closure: Closure, frame: Frame, bound: Mapping[str, Any]) -> None:
    """Keeps what an editor shows of a call: the types of its parameters, and the objects that it is given."""
    if closure.frame is None and frame.kept is not None:
        given = {n: v for n, v in bound.items() if isinstance(v, Record)}
        ev.inner.setdefault(closure.node, []).append(InnerCall(closure.definition, frame.kept.values(), given))
        for p in definition_signature(closure.definition).parameters:
            ev.record(p.span, frame.names.get(p.name), p.name, "param")


def _too_deep(ev: Evaluator, node: ast.AST, closure: Closure) -> Any:
    """Says where the recursion started instead of repeating the chain."""
    ev.endless.add(closure.node)  # or a function that calls itself twice would be gone through 2^24 times
    frame, times = ev.frame, 0
    while frame.caller is not None:
        times += frame.key is closure.node
        frame = frame.caller
    chain = ev.frame.chain()[-2:]
    if times > 1:
        message = f"{closure.name} calls itself more than {times} times; inlined calls must end at compile time"
    else:
        message = f"calls are nested more than {budget.CALLS} deep, and every one is inlined"
    saved, ev.frame = ev.frame, frame
    try:
        where = chain[-1].span if chain and chain[-1].span else saved.source.span(node)
        return ev.error("TS108", message, where, notes=(Note("this call never ends", saved.source.span(node)),))
    finally:
        ev.frame = saved


def enter_policies(ev: Evaluator, closure: Closure, frame: Frame, node: ast.AST, places: Mapping[str, ast.AST]) -> bool:
    """Numerics of the callee's parameters go with the tensors that it is given. False after a finding."""
    ok = True
    for p in definition_signature(closure.definition).parameters if closure.frame is None else ():
        if (policy := policy_of(ev, p, closure.definition)) is not None:
            at = places.get(p.name, node)
            try:
                frame.names[p.name] = _under(ev, frame.names.get(p.name), policy, ev.span(at))
            except PolicyError as e:
                ok = False
                rejected(ev, "TS305", f"{p.name} of {closure.name} and its arguments disagree: {e.reason}", p.span, at)
    return ok


def _under(ev: Evaluator, value: Any, policy: Policy, span: Span) -> Any:
    """All tensors in a value with these numerics as well; state stays what its owner holds. Raises PolicyError."""
    if isinstance(value, Value) and isinstance(value.type, TensorType):
        return ev.layer.under(value, policy, span)
    if is_sequence(value):
        return remade(value, [_under(ev, v, policy, span) for v in value])
    if is_dict(value):
        return {k: _under(ev, v, policy, span) for k, v in value.items()}
    if isinstance(value, Record) and not value.is_state:
        return replace(value, members={n: _under(ev, v, policy, span) for n, v in value.members.items()})
    return value


# Arguments of scalar parameters inside a program: of the dtype that is annotated, as they are at a launch.

_KINDS = ("bool", "uint", "int", "float", "complex")
"""of numbers: each goes into those behind it"""


class Unfit(Exception):
    """The argument is not a number that the dtype holds. `message` follows the parameter's name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def scalar(ev: Evaluator, value: Any, wanted: DType, at: ast.AST) -> Value:
    """A number, a size or a value of one element (in kernels of one for each lane) as one of `wanted`. Raises Unfit."""
    if isinstance(value, (bool, int, float, complex)):
        kept = dtypes.number(value, wanted)
        if kept is None:
            raise Unfit("TS304", f"a number of {wanted}, which cannot hold {value}")
        value = kept
    span = ev.span(at)
    given = ev.layer.number(value, wanted, span)
    if given is None:
        raise Unfit("TS105", f"a number of {wanted}, {type_name(value)} is given")
    assert isinstance(given.type, (TensorType, TileType))
    have = given.type.dtype
    if _KINDS.index(have.kind) > _KINDS.index(wanted.kind):
        raise Unfit("TS304", f"a number of {wanted}, one of {have} is given")
    if isinstance(value, Value) and wanted.is_integer and have.maximum > wanted.maximum:
        message = f"one of {have} is given, which may not fit; write .to({wanted}) if it does"
        raise Unfit("TS304", f"a number of {wanted}, {message}")
    return ev.layer.converted(given, wanted, span)


def _enter_static(ev: Evaluator, closure: Closure, frame: Frame, p: Parameter, at: ast.AST) -> bool:
    """A number or text that is known at compile time, as it is annotated. Sizes and tensors are another's business."""
    value = frame.names.get(p.name)
    kept = as_annotated(p, value) if isinstance(value, (bool, int, float, complex, str, bytes)) else value
    if kept is MISSING:
        literal = isinstance(p.annotation, LiteralAnn)
        why = f"not {value!r}" if literal else f"which cannot hold {value}"
        message = f"{p.name} of {closure.name} is {p.annotation}, {why}"
        rejected(ev, "TS105" if literal else "TS304", message, p.span, at)
        kept = UNKNOWN
    frame.names[p.name] = kept
    return kept is not UNKNOWN


def enter_scalars(ev: Evaluator, closure: Closure, frame: Frame, node: ast.AST, places: Mapping[str, ast.AST]) -> bool:
    """Converts the scalar arguments of an inlined program. False after a finding."""
    ok = True
    for p in definition_signature(closure.definition).parameters:
        value, at = frame.names.get(p.name), places.get(p.name, node)
        absent = value is None and (getattr(p.annotation, "optional", False) or p.default is not None)
        if isinstance(value, Unknown) or absent:
            continue
        if not is_scalar(p):
            ok &= _enter_static(ev, closure, frame, p, at)
            continue
        try:
            frame.names[p.name] = scalar(ev, value, p.annotation.dtype, at)  # type: ignore[union-attr]
        except Unfit as e:
            frame.names[p.name], ok = UNKNOWN, False
            rejected(ev, e.code, f"{p.name} of {closure.name} is {e.message}", p.span, at)
    return ok


def _enter_numbers(ev: Evaluator, closure: Closure, frame: Frame, p: Parameter, at: ast.AST) -> bool:
    """A number for a tensor without axes, which is one wherever the function is called. False after a finding."""
    value = frame.names.get(p.name)
    of_rank_0 = isinstance(p.annotation, TensorAnn) and p.annotation.shape == () and not p.variadic
    if not of_rank_0 or ev.definition.kind == "kernel" or not isinstance(value, (bool, int, float, complex)):
        return True
    wanted = getattr(p.annotation, "dtype", None) or dtypes.weak(value, None)
    if wanted is None:
        return True
    try:
        frame.names[p.name] = scalar(ev, value, wanted, at)
    except Unfit as e:
        frame.names[p.name] = UNKNOWN
        rejected(ev, e.code, f"{p.name} of {closure.name} is {e.message}", p.span, at)
        return False
    return True


def enter_call(
    ev: Evaluator, closure: Closure, frame: Frame, node: ast.AST, places: Mapping[str, ast.AST]
) -> dict[str, Dim] | None:
    """Binds the callee's named sizes to the caller's and checks its annotations. None: the call makes no sense.

    `places`: the nodes of the arguments, by parameter, for findings.
    """
    definition = closure.definition
    source = source_of(definition.file, definition.source)
    signature, _ = signature_of(closure.node, source, definition.scope)
    with ev.inside(frame):
        record_reads(ev, signature, definition.scope)
    found = list[Equation]()
    ok = all(_enter_numbers(ev, closure, frame, p, places.get(p.name, node)) for p in signature.parameters)
    ok &= all(_of_fields(ev, p, closure, frame.names.get(p.name), node, found) for p in signature.parameters[:1])
    ok &= all(_held(ev, closure, p, frame.names.get(p.name), places.get(p.name, node)) for p in signature.parameters)
    for p, value in each_argument(signature, frame.names) if ok else ():
        at = places.get(p.name.partition(".")[0], node)
        type = _shaped(ev, value)
        if type is not None and isinstance(p.annotation, (TensorAnn, TileAnn)):
            whole = isinstance(type, ViewType) and isinstance(p.annotation, TileAnn)  # of it a block, as it is used
            pairs = [] if whole else equations(p.name, p.annotation, type.shape)
            if pairs is None:
                message = (
                    f"{p.name} of {closure.name} is {p.annotation}, {_noun(type)} {shape_text(type.shape)} is given"
                )
                rejected(ev, "TS209", message, p.span, at)
                ok = False
            found += pairs or []
            ok = _same_dtype(ev, closure, p, type, at) and ok
        else:
            if isinstance(type, TileType) and is_scalar(p):  # a number, or one for each element
                ok = _same_kind(ev, closure, p, type, at) and ok
            found += value_equation(p.name, number_dim(p, signature.dims), value)
            ok = _fits(ev, closure, p, value, at) and ok
    env, conflicts, open_ = solve(found, {}, ev.facts)
    once = {(c.equation.name, c.equation.want, c.equation.have): c for c in reversed(conflicts)}
    for c in reversed(once.values()):  # a square matrix is wrong once, not along each axis
        code = "TS208" if c.first is not None and dims.is_symbol(c.equation.want) else "TS209"
        by, of = c.equation.name.partition(".")[0], c.first.name.partition(".")[0] if c.first is not None else ""
        at, bound = places.get(by, node), list[Note]()
        if c.first is not None and of in places.keys() - {by}:
            bound.append(Note(f"{c.equation.want} was bound here, by {c.first.place}", ev.span(places[of])))
        layer = layer_in(ev.frame, frame) if closure.name in CALLED else None
        bound += layer.notes if layer is not None else ()
        rejected(ev, code, _unfit(closure, frame, c, layer), axis_span(signature, c.equation), at, c, bound)
        ok = False
    for want, have, place in open_:
        ev.checks.append(LaunchCheck(want, have, f"{closure.name}: {place}"))
    frame.dims = {n: env.get(n, dims.symbol(n)) for n in signature.dims}
    for name, size in frame.dims.items():
        frame.names.setdefault(name, size)
    return env if ok else None


def _unfit(closure: Closure, frame: Frame, c: Conflict, layer: LayerPlace | None) -> str:
    """`model[1]: Linear(30, 5) expects 30 features, got 20`; of what is no layer, its name and sizes."""
    e = c.equation
    if layer is None:
        return f"{closure.name}: {describe(c)}"
    value = frame.names.get(e.name)
    rank = value.type.rank if isinstance(value, Value) and isinstance(value.type, TensorType) else None
    of_own = c.first is not None and c.first.name.startswith("self.")
    if c.first is not None and of_own and rank is not None and e.axis == rank - 1:
        return f"{layer} expects {c.first.have} features, got {e.have}"
    return f"{layer}: {describe(c)}"


def _of_fields(ev: Evaluator, p: Parameter, closure: Closure, value: Any, node: ast.AST, found: list[Equation]) -> bool:
    """Adds the sizes that a method's `self` has, by the annotations of its class. False after a finding."""
    if p.annotated or not isinstance(value, Record) or not _is_method(closure, value.cls):
        return True
    ok = True
    tensors = {n: v.type for n, v in value.members.items() if isinstance(v, Value) and isinstance(v.type, TensorType)}
    for name, annotation in fields_of(value.cls, tuple(tensors)):
        pairs = equations(f"{p.name}.{name}", annotation, tensors[name].shape) if name in tensors else []
        if pairs is None:
            have = f"a tensor {shape_text(tensors[name].shape)} is held"
            rejected(ev, "TS209", f"{p.name}.{name} of {closure.name} is {annotation}, {have}", p.span, node)
            ok = False
        found += pairs or []
    return ok


def _is_method(closure: Closure, cls: Any) -> bool:
    if isinstance(cls, ClassRef):
        found = cls.members.get(closure.name)
        return isinstance(found, Closure) and found.node is closure.node
    wanted = getattr(closure.live, "__wrapped__", closure.live)
    bases: tuple[type, ...] = getattr(cls, "__mro__", ())
    given: list[Any] = [vars(base).get(closure.name) for base in bases]
    return wanted is not None and any(getattr(f, "__wrapped__", f) is wanted for f in given)


def _shaped(ev: Evaluator, value: Any) -> TensorType | TileType | ViewType | None:
    """The type of a tensor, or in a kernel of a tile or of a parameter."""
    type: Any = value.type if isinstance(value, Value) else None
    if ev.definition.kind == "kernel" and ev.layer.owns(value):
        type = ev.layer.type_of(value)
    return type if isinstance(type, (TensorType, TileType, ViewType)) else None


def _noun(type: TensorType | TileType | ViewType) -> str:
    return "a tile" if isinstance(type, TileType) else "a tensor"


def _same_dtype(
    ev: Evaluator, closure: Closure, p: Parameter, type: TensorType | TileType | ViewType, node: ast.AST
) -> bool:
    wanted = getattr(p.annotation, "dtype", None)
    if wanted is None or wanted == type.dtype:
        return True
    message = f"{p.name} of {closure.name} holds {wanted}, {_noun(type)} of {type.dtype} is given"
    fixes = suggested_fixes.argument_cast(ev, node, wanted)
    notes = [Note("declared here", p.span)]
    ev.error("TS304", f"{message}\nConvert it with cast(..., {wanted})", node, notes=notes, fixes=fixes)
    return False


def _same_kind(ev: Evaluator, closure: Closure, p: Parameter, type: TileType, node: ast.AST) -> bool:
    """As `_same_dtype`, but `float` and its likes are any width of their kind."""
    wanted: Any = getattr(p.annotation, "dtype", None)
    any_width = wanted in PYTHON_TYPES.values() and wanted.kind == type.dtype.kind
    return any_width or _same_dtype(ev, closure, p, type, node)


def _held(ev: Evaluator, closure: Closure, p: Parameter, value: Any, node: ast.AST) -> bool:
    """One tensor where a list of them is annotated, or a dict where a list is."""
    kind = "sequence" if is_sequence(value) else "dict" if is_dict(value) else "tensor" if ev.layer.owns(value) else ""
    wanted = misheld(p.annotation, kind)
    if wanted and not p.variadic:
        rejected(ev, "TS105", f"{p.name} of {closure.name} is {wanted}, {type_name(value)} is given", p.span, node)
        return False
    return True


def _fits(ev: Evaluator, closure: Closure, p: Parameter, value: Any, node: ast.AST) -> bool:
    """A tensor where a compile-time value is needed, or the other way round."""
    if isinstance(value, Unknown):
        return True
    tensor = isinstance(p.annotation, TensorAnn)
    if tensor and value is None and (p.annotation.optional or p.default is not None):
        return True
    if tensor and not ev.layer.owns(value):
        rejected(ev, "TS105", f"{p.name} of {closure.name} is a tensor, {type_name(value)} is given", p.span, node)
        return False
    if p.static and ev.layer.owns(value):
        rejected(
            ev,
            "TS105",
            f"{p.name} of {closure.name} must be known at compile time, {type_name(value)} is given",
            p.span,
            node,
        )
        return False
    return True


def rejected(
    ev: Evaluator, code: str, message: str, declared: Span, node: ast.AST, conflict: Conflict | None = None,
    further: Sequence[Note] = (),
) -> None:  # fmt: skip
    """Reports an argument at its place in the call, with the place where its parameter is declared."""
    notes = [*further, Note("declared here", declared)]
    if conflict is not None:
        sizes = dims.counterexample(conflict.expected, conflict.equation.have, ev.facts)
        if sizes:
            notes.append(Note("for example " + ", ".join(f"{n}={v}" for n, v in sizes.items())))
        notes += named_notes(ev, dims.symbols(conflict.expected) | dims.symbols(conflict.equation.have))
    ev.error(code, message, node, notes=notes)
