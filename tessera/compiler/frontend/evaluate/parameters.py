"""Parameters: from annotations and arguments to the values a body starts with.

The analysed function's own parameters become arguments of its op; those of an inlined function are the caller's values,
against which its annotations are checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from tessera.compiler.frontend.evaluate import states
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.names.binding import Equation, describe, equations, solve, value_equation
from tessera.compiler.frontend.names.constructor import value_set
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import read, represent
from tessera.compiler.frontend.names.signature import (
    Parameter,
    Signature,
    as_annotated,
    item_of,
    number_dim,
    signature_of,
    with_self,
)
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    ClassRef,
    Number,
    Record,
    Several,
    Static,
    is_dict,
    is_sequence,
    remade,
    unshared,
)
from tessera.compiler.frontend.result import ArgType
from tessera.compiler.ir.types import TensorType, shape_text
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Note, Span
from tessera.language import dims, dtypes
from tessera.language.annotations import (
    Annotation,
    ConstAnn,
    RecordAnn,
    ScalarAnn,
    SequenceAnn,
    TensorAnn,
    TileAnn,
    TupleAnn,
    UnknownAnn,
    holds_tensors,
)
from tessera.language.dims import Dim, Facts
from tessera.language.policies import Policy, PolicyError, unenforced
from tessera.language.records import is_record, members
from tessera.nearest import nearest

ABSENT = object()


def enter_definition(ev: Evaluator, arguments: Mapping[str, ArgType] | None, symbolic: bool) -> None:
    """Binds the analysed function's parameters and named sizes in its frame.

    With `symbolic`, parameters without an argument get values from their annotations; else their defaults.
    """
    d = ev.definition
    signature, findings = signature_of(d.tree, d.text, d.scope)
    if d.owner is not None:
        signature = with_self(signature, d.owner)
        ev.depend(d.owner.name, d.owner)
    for f in (*d.problems, *findings):
        ev.findings.add(f)
    ev.signature, ev.returns = signature, signature.returns
    _enforced(ev, signature)
    if not _open_dims_fit(ev, signature):
        arguments, symbolic = None, True  # the shapes of arguments would only repeat what is wrong
    record_reads(ev, signature, d.scope)
    env = _sizes(ev, signature, arguments or {}, symbolic)
    ev.dims = dict(signature.dims)
    sizes = {n: env.get(n, dims.symbol(n)) for n in signature.dims}
    ev.frame.dims |= sizes
    bad = bool(ev.findings.errors)  # then a size that is not bound is not known either
    ev.frame.names |= {n: UNKNOWN if bad and n not in env else d for n, d in sizes.items()}
    for p in signature.parameters:
        argument = arguments.get(p.name, ABSENT) if arguments is not None else ABSENT
        value = _value(ev, p, argument, env, not symbolic)
        ev.frame.names[p.name] = value
        ev.record(p.span, value, p.name, "param")
    ev.harmless = len(ev.undecided)


def _enforced(ev: Evaluator, signature: Signature) -> None:
    """Numerics that nothing enforces are refused (those of annotations where they are read). Kernels accumulate in the
    dtype that they compute in, or the one that `mma` is given."""
    d = ev.definition
    if why := unenforced(d.options.get("numerics")):
        ev.error("TS306", why, d.span)
    for p in signature.parameters if d.kind == "kernel" else ():
        dtype, policy = getattr(p.annotation, "dtype", None), policy_of(ev, p, ev.definition)
        if policy is not None and policy.accum is not None and dtype is not None and policy.accum != dtype.compute:
            message = f"{p.name} of a kernel accumulates in {dtype.compute}, not in {policy.accum}"
            ev.error("TS306", f"{message}; give mma the accumulator, or convert the tile before", p.span)
        if policy is not None and policy.compute is not None:
            message = f"@compute({policy.compute}) is not enforced in kernels: convert the tiles that mma is given"
            ev.error("TS306", f"{message}, and take it from {p.name}", p.span)
        if policy is not None and (policy.saturate or policy.loss_scale is not None):
            part = "@saturate" if policy.saturate else "@loss_scale"
            message = f"{part} is not enforced in kernels, which say themselves how they round"
            ev.error("TS306", f"{message}; hold values with ts.tile.minimum, or take it from {p.name}", p.span)


def _open_dims_fit(ev: Evaluator, signature: Signature) -> bool:
    """Whether `open_dims` names dims of annotations, and leaves no axis half open; what is wrong is reported."""
    d, before = ev.definition, len(ev.findings.errors)
    names = frozenset[str](d.options.get("open_dims", ()))
    numbers = {str(dim): p for p in signature.parameters if (dim := number_dim(p, signature.dims)) is not None}
    for name in sorted(names):
        if name not in signature.dims:
            close = nearest(name, list(signature.dims))
            hint = f"; did you mean {close!r}?" if close else ""
            ev.error("TS105", f"open_dims names {name!r}, which {d.name}'s annotations do not name{hint}", d.span)
        elif name in numbers:
            message = f"{name} is in open_dims, but {numbers[name].name} is known when {d.name} is compiled"
            ev.error("TS105", f"{message}; take it out of open_dims", numbers[name].span)
    for p in signature.parameters:
        for dim in getattr(p.annotation, "shape", None) or ():
            mixed = frozenset[str]() if dim is ... else dims.symbols(dim)
            if mixed & names and mixed - names:
                known = ", ".join(sorted(mixed - names))
                message = f"the axis {dim} of {p.name} has a dim that is open and one that is not ({known})"
                ev.error("TS105", f"{message}; add {known} to open_dims", p.span)
    return len(ev.findings.errors) == before


def record_reads(ev: Evaluator, signature: Signature, scope: Scope) -> None:
    """A name in an annotation is as much part of the result as one in the body; one that is missing may be there in
    the next text."""
    for name in signature.reads:
        ev.depend(name, read(scope, name))


def _sizes(ev: Evaluator, signature: Signature, arguments: Mapping[str, ArgType], symbolic: bool) -> dict[str, Dim]:
    """The sizes of named dims from the arguments' shapes, every contradiction reported at its annotation.

    With `symbolic`, numbers that are dims have the size that is fixed, else their default.
    """
    found: list[Equation] = []
    for p, argument in each_argument(signature, arguments):
        dim = number_dim(p, signature.dims)
        if symbolic and dim is not None and p.name not in arguments and p.default is not None:
            if dims.is_symbol(dim) and str(dim) in ev.sizes:
                ev.defaults[p.name] = ev.sizes[str(dim)]
            found += value_equation(p.name, dim, _default(ev, p))
        if isinstance(argument, TensorType):
            pairs = equations(p.name, p.annotation, argument.shape)
            if pairs is None:
                have = shape_text(argument.shape)
                ev.error("TS209", f"{p.name} has shape {have}, but its annotation is {p.annotation}", p.span)
            found += pairs or []
        elif isinstance(argument, Static):
            found += value_equation(p.name, dim, argument.value)
    env, conflicts, open_ = solve(found, ev.sizes, ev.facts)
    for c in conflicts:
        span = axis_span(signature, c.equation)
        code = "TS208" if c.first is not None and dims.is_symbol(c.equation.want) else "TS209"
        notes = (
            [Note(f"{c.equation.want} was bound by {c.first.place}", axis_span(signature, c.first))] if c.first else []
        )
        ev.error(code, describe(c), span, notes=notes)
    for want, have, place in open_:
        ev.checks.append(LaunchCheck(want, have, f"the size of {place}"))
    return env


def each_argument(signature: Signature, values: Mapping[str, Any]) -> Iterator[tuple[Parameter, Any]]:
    """The parameters with their arguments; of a tuple, list or dict of tensors each item, as a parameter `ws.0`."""
    for p in signature.parameters:
        yield from _parts(p, values.get(p.name))


def _parts(p: Parameter, value: Any) -> Iterator[tuple[Parameter, Any]]:
    nested = isinstance(p.annotation, (TupleAnn, SequenceAnn, RecordAnn))
    held = value.members if isinstance(value, Record) else value
    items = list(enumerate(held)) if is_sequence(held) else list(held.items()) if is_dict(held) else []
    if not nested or not items:
        yield p, value
        return
    for key, item in items:
        yield from _parts(item_of(p, key), item)


def axis_span(signature: Signature, e: Equation) -> Span:
    parameter = next(p for p in signature.parameters if p.name == e.name.partition(".")[0])
    spans: tuple[Span, ...] = getattr(parameter.annotation, "spans", ())
    wanted: Any = getattr(parameter.annotation, "shape", None)
    if e.axis is None or wanted is None or e.want not in wanted:
        return parameter.span
    found: int = wanted.index(e.want)
    return spans[found] if len(spans) == len(wanted) else parameter.span


def _value(ev: Evaluator, p: Parameter, argument: Any, env: Mapping[str, Dim], given: bool) -> Any:
    if p.variadic:
        return _variadic(ev, p, argument, env, given)
    if argument is None:
        return None
    if argument is not ABSENT:
        value = _argument(ev, p, argument)
        ev.keep_unchanged(value, copied=True)
        return value
    if p.default is not None and (given or p.static or not p.annotated):
        value = _default(ev, p)
        ev.keep_unchanged(value)
        return value
    if given and not p.annotated:
        ev.error("TS105", f"{ev.definition.name} needs {p.name!r}", p.span)
        return UNKNOWN
    return _symbolic(ev, p, env)


def _variadic(ev: Evaluator, p: Parameter, argument: Any, env: Mapping[str, Dim], given: bool) -> Any:
    if is_sequence(argument):
        return tuple(_argument(ev, item_of(p, i), a) for i, a in enumerate(argument))
    if is_dict(argument):
        return {k: _argument(ev, item_of(p, k), a) for k, a in argument.items()}
    if given:
        return () if p.variadic == "*" else {}
    if isinstance(p.annotation, SequenceAnn):
        return _symbolic(ev, p, env)
    return ev.undecide(f"the arguments that {p.variadic}{p.name} collects must be known", p.span)


def _argument(ev: Evaluator, p: Parameter, argument: Any, held: bool = False) -> Any:
    """An argument of `analyse`; tuples, lists and dicts of tensors become parameters one by one. `held`: by state,
    whose numbers lie in memory as its tensors do."""
    if isinstance(argument, Static):
        kept = as_annotated(p, argument.value)
        if kept is MISSING:
            return ev.error("TS304", f"{p.name} is {argument.value!r}, which {p.annotation} cannot hold", p.span)
        return unshared(represent(kept))
    if is_sequence(argument):
        return remade(argument, (_argument(ev, item_of(p, i), a, held) for i, a in enumerate(argument)))
    if is_dict(argument):
        return {k: _argument(ev, item_of(p, k), a, held) for k, a in argument.items()}
    if isinstance(argument, Record) or (is_record(argument) and not isinstance(argument, TensorType)):
        return _record(ev, p, argument, held)
    if not isinstance(argument, TensorType):
        return argument
    wanted = getattr(p.annotation, "dtype", None)
    if wanted is not None and wanted != argument.dtype and isinstance(p.annotation, (TensorAnn, TileAnn)):
        ev.error("TS304", f"{p.name} has elements of {argument.dtype}, but its annotation says {wanted}", p.span)
        return UNKNOWN
    passed = TensorType(argument.shape, argument.dtype, argument.policy or policy_of(ev, p, ev.definition))
    annotation = TensorAnn(None, None) if held and not isinstance(p.annotation, TensorAnn) else p.annotation
    return ev.layer.parameter(p.name, passed, annotation, p.span)


def _record(ev: Evaluator, p: Parameter, argument: Any, held: bool) -> Record:
    """`argument`: an object that holds types, or in a text what a constructor makes."""
    if isinstance(argument, Record):
        made, inner = replace(argument, members={}, outside=True), argument.members
    else:
        made, inner = Record(type(argument).__name__, {}, type(argument), outside=True), members(argument)
    held = held or made.is_state
    made.members = {n: _argument(ev, item_of(p, n), a, held) for n, a in inner.items()}
    return states.enter(ev, made, p.name, p.span)


def policy_of(ev: Evaluator, p: Parameter, definition: Definition) -> Policy | None:
    """The numerics of a parameter: its annotation's and the whole function's."""
    own: Policy | None = getattr(p.annotation, "policy", None)
    function: Policy | None = definition.options.get("numerics")
    if function is None or own is None:
        return own or function
    try:
        return own.merge(function)
    except PolicyError as e:
        ev.error("TS305", f"{p.name}'s annotation and the function's numerics disagree: {e.reason}", p.span)
        return own


def _default(ev: Evaluator, p: Parameter) -> Any:
    if p.name in ev.defaults:
        return ev.defaults[p.name]
    assert p.default is not None
    return ev.eval(p.default)


def _symbolic(ev: Evaluator, p: Parameter, env: Mapping[str, Dim]) -> Any:
    """A parameter by its annotation alone. Without a dtype, f32 is shown."""
    a = p.annotation
    if isinstance(a, (TensorAnn, TileAnn)):
        if a.shape is None or ... in a.shape:
            ev.undecide(f"the shape of {p.name} must be known", p.span)
        if a.shape is None:
            return UNKNOWN
        shape = tuple(dims.substitute(d, env) for size in a.shape for d in (_lead(ev) if size is ... else [size]))
        type = TensorType(shape, a.dtype or dtypes.f32, policy_of(ev, p, ev.definition))
        return ev.layer.parameter(p.name, type, a, p.span)
    if isinstance(a, ConstAnn):
        if a.dim is not None:
            return dims.substitute(a.dim, env)
        return _open(ev, p, {"int": int, "uint": int, "bool": bool}.get(a.dtype.kind, float) if a.dtype else int)
    if isinstance(a, ScalarAnn):
        if p.static:
            return _open(ev, p, bool if a.dtype.kind == "bool" else int)
        return ev.layer.parameter(p.name, TensorType((), a.dtype), a, p.span)
    if isinstance(a, UnknownAnn) and p.default is not None:
        return _default(ev, p)
    read_whole = not ev.live or not isinstance(a, RecordAnn) or a.named_tuple
    if isinstance(a, (TupleAnn, SequenceAnn, RecordAnn)) and holds_tensors(a) and read_whole:
        if not _closed(a, ev.live):
            ev.undecide(f"what {p.name} holds must be known", p.span)
        return _composite(ev, p, env)
    if isinstance(a, RecordAnn) and "." in p.name:  # a part of a model that holds numbers alone, such as Dropout
        return _composite(ev, p, env)
    return ev.undecide(f"the type of {p.name} must be known", p.span)


def _closed(a: Annotation, live: bool) -> bool:
    """Whether an annotation says what there is to pass. A dataclass of tensors is passed as one object, which calls
    compile for; a text shows what its fields are used for."""
    if isinstance(a, TupleAnn):
        return not a.optional and all(_closed(item, live) for item in a.items)
    if isinstance(a, RecordAnn):
        passed = not live or a.named_tuple
        return passed and not a.optional and all(_closed(f, live) for _, f in a.fields)
    if isinstance(a, ScalarAnn):
        return not live and not a.optional and a.dtype.is_float
    return isinstance(a, (TensorAnn, TileAnn)) and a.shape is not None and not a.optional


def _composite(ev: Evaluator, p: Parameter, env: Mapping[str, Dim]) -> Any:
    """What a tuple, list, dict or dataclass of tensors holds, by its annotation: enough to check what is made of it."""
    a = p.annotation

    def of(key: object, item: Annotation) -> Any:
        return _composite(ev, replace(p, name=f"{p.name}.{key}", annotation=item, default=None), env)

    if isinstance(a, TupleAnn):
        return tuple(of(i, item) for i, item in enumerate(a.items))
    if isinstance(a, SequenceAnn):
        return Several(of("item", a.item), a.keyed)
    if isinstance(a, RecordAnn) and a.named_tuple:
        return cast("Any", a.type)(*(of(i, f) for i, (_, f) in enumerate(a.fields)))
    if isinstance(a, RecordAnn):
        known = {n: _configured(a.type, n, f) for n, f in a.fields}
        held = {n: of(n, f) if known[n] is None else known[n] for n, f in a.fields}
        return states.enter(ev, Record(a.name, held, a.type, outside=True), p.name, p.span)
    return _symbolic(ev, p, env)


def _configured(cls: object, name: str, a: Annotation) -> Any:
    """A number, name or function that a dataclass holds: known when the program is compiled. In its text a float is its
    default, and a name or function what the constructor sets, if it says one."""
    if isinstance(a, UnknownAnn) and a.text.startswith("Callable") and isinstance(cls, ClassRef):
        made = cls.members.get("__init__")
        return made.defaults[name] if isinstance(made, Closure) and name in made.defaults else None
    if isinstance(a, UnknownAnn) and isinstance(cls, ClassRef):
        return value_set(cls, name)
    kind = a.dtype.kind if isinstance(a, ScalarAnn) and not a.optional else ""
    if kind == "int":
        return dims.symbol(f"?{name}")
    if kind != "float":
        return None
    default = cls.members.get(name) if isinstance(cls, ClassRef) else None
    return default if isinstance(default, float) else Number(float, name)


def _lead(ev: Evaluator) -> list[Dim]:
    """The axes that `...` stands for in this analysis: the same for all parameters, as batches and heads are."""
    return [dims.symbol("..." if ev.lead == 1 else f"...{i}") for i in range(ev.lead)]


def _open(ev: Evaluator, p: Parameter, kind: type) -> Any:
    """A compile-time number that is not known yet. An integer may be a size, so it is a symbol of the algebra."""
    if kind is int:
        return ev.sizes.get(p.name, dims.symbol(p.name))
    return Number(kind, p.name)


def facts_pairs(facts: Facts) -> dict[str, Any]:
    """The asserts in force as attributes of the op."""
    out: dict[str, Any] = {}
    if facts.divisible:
        out["divisible"] = tuple(facts.divisible)
    if facts.equal or facts.zero:
        rewritings = ((dims.symbol(n), d) for n, d in facts.equal.items())
        out["equal"] = (*rewritings, *((d, 0) for d in facts.zero))
    return out
