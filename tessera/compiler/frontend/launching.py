"""A kernel called from a function: analysed for the sizes that the call gives it, and launched by one `graph.launch`.

The kernel's parameters are bound as those of an inlined function are. It is analysed in its own terms, so that what is
found in it reads as its text does; what comes out is then said in the caller's sizes. Tensors are values: where the
kernel stores to a parameter, the variable that was given for it holds the changed tensor from here on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from tessera.compiler.frontend.analysis import Analysis, ArgType
from tessera.compiler.frontend.inlining import callee_frame
from tessera.compiler.frontend.parameters import enter_call
from tessera.compiler.frontend.signature import Parameter, Signature, definition_signature
from tessera.compiler.frontend.values import (
    UNKNOWN,
    Closure,
    Number,
    Static,
    Unknown,
    has_unknown,
    is_dict,
    is_sequence,
    leaves,
    type_name,
)
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.launches import launching, stored
from tessera.compiler.ir.sizes import with_sizes
from tessera.compiler.ir.types import TensorType, Type, ViewType
from tessera.errors import Note
from tessera.language import dims
from tessera.language.annotations import Annotation, ConstAnn, ScalarAnn, TensorAnn, TupleAnn
from tessera.language.dims import Dim, Expr

if TYPE_CHECKING:
    from tessera.compiler.frontend.evaluator import Evaluator


tuned: ContextVar[Callable[[Any, Mapping[str, ArgType]], Mapping[str, Any]] | None] = ContextVar("tuned", default=None)
"""gives the configuration of a tuned kernel for such arguments, where a target is known; else it is the first one"""


class _Refused(Exception):
    """An argument does not fit, which has been said."""


@dataclass(slots=True)
class _Arguments:
    """The arguments of one call as the kernel's analysis takes them, in the kernel's own sizes.

    `sizes` leads back from those to the caller's; `operands` are the tensors and scalars, in the order in which they
    become the kernel's arguments, `names` the parameters that they are for.
    """

    ev: Evaluator
    kernel: Closure
    places: Mapping[str, ast.AST]
    sizes: dict[str, Dim]
    types: dict[str, ArgType] = field(default_factory=dict[str, ArgType])
    operands: list[Value] = field(default_factory=list[Value])
    names: list[str] = field(default_factory=list[str])
    bound: frozenset[str] = frozenset()

    def add(self, p: Parameter, value: Any) -> None:
        self.types[p.name] = self.inward(p, value, p.name)

    def inward(self, p: Parameter, value: Any, name: str) -> Any:
        """A value as an argument of the analysis. Raises _Refused."""
        if is_sequence(value) and any(isinstance(v, Value) for v in value):
            return type(value)(self.inward(p, v, f"{name}.{i}") for i, v in enumerate(value))
        if is_dict(value) and any(isinstance(v, Value) for v in value.values()):
            return {k: self.inward(p, v, f"{name}.{k}") for k, v in value.items()}
        if isinstance(p.annotation, ScalarAnn) and not p.static and value is not None:
            value = self.number(p, value, p.annotation)
        if isinstance(value, Value) and isinstance(value.type, TensorType):
            self.operands.append(value)
            self.names.append(name)
            return replace(value.type, shape=self.shape(p, value.type.shape))
        if value is None:
            return None
        if isinstance(value, Number):
            self.ev.undecide(f"{value.text} must be known", self.places.get(p.name, self.kernel.node))
            raise _Refused
        return Static(self.size(p.annotation.dim if isinstance(p.annotation, ConstAnn) else None, value))

    def number(self, p: Parameter, value: Any, wanted: ScalarAnn) -> Value:
        """A scalar argument as a rank-0 tensor of the dtype that the kernel wants."""
        at = self.places.get(p.name, self.kernel.node)
        like = TensorType((), wanted.dtype)
        given = self.ev.layer.lift(value, like, self.ev.span(at))
        kinds = ("bool", "uint", "int", "float", "complex")
        ok = given is not None and isinstance(given.type, TensorType) and not given.type.rank
        if not ok:
            self.refuse("TS105", p, f"a number of {wanted.dtype}, {type_name(value)} is given")
        assert given is not None and isinstance(given.type, TensorType)
        low = -wanted.dtype.maximum - 1 if wanted.dtype.kind == "int" else 0
        if wanted.dtype.is_integer and isinstance(value, int) and not low <= value <= wanted.dtype.maximum:
            self.refuse("TS304", p, f"a number of {wanted.dtype}, which cannot hold {value}")
        if kinds.index(given.type.dtype.kind) > kinds.index(wanted.dtype.kind):
            self.refuse("TS304", p, f"a number of {wanted.dtype}, one of {given.type.dtype} is given")
        with self.ev.builder.at(self.ev.span(at)):
            return cast("Any", self.ev.layer).emission.g.to(given, wanted.dtype)

    def refuse(self, code: str, p: Parameter, message: str) -> None:
        at = self.places.get(p.name, self.kernel.node)
        self.ev.error(code, f"{p.name} of {self.kernel.name} is {message}", at, notes=[Note("declared here", p.span)])
        raise _Refused

    def shape(self, p: Parameter, have: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The shape of an argument in the kernel's sizes: as it is annotated, with what is known put in."""
        wanted: list[Any] = list(getattr(p.annotation, "shape", None) or (...,))
        if ... in wanted:
            at = wanted.index(...)
            wanted[at : at + 1] = [None] * (len(have) - len(wanted) + 1)
        return tuple(self.size(want, d) for want, d in zip(wanted, have, strict=True))

    def size(self, want: Any, have: Any) -> Any:
        """One size: a number, the annotation's own, or a symbol of its own for what the annotation leaves open."""
        if isinstance(want, Expr) and dims.symbols(want) <= self.bound:
            return dims.substitute(want, {n: d for n, d in self.sizes.items() if isinstance(d, int)})
        if isinstance(want, int) and not isinstance(have, int):
            return want
        if not isinstance(have, Expr):
            return have
        known = next((n for n, d in self.sizes.items() if d == have and n not in self.bound), None)
        if known is None:
            taken = {*definition_signature(self.kernel.definition).dims, *self.sizes}
            known = str(have)
            while known in taken:
                known += "'"
            self.sizes[known] = have
        return dims.symbol(known)


def with_config(program: Closure, config: Mapping[str, Any]) -> Closure:
    """The kernel under other schedule parameters, and no longer tuned: `flash.with_config(BLOCK_M=128)`.

    What the text does not tell of them is as if it were not said.
    """
    options = {k: v for k, v in program.definition.options.items() if k != "autotune"}
    if not has_unknown(config):
        options["config"] = {**options.get("config", {}), **config}
    return replace(program, definition=replace(program.definition, options=options))


def launch(ev: Evaluator, node: ast.AST, kernel: Closure, bound: dict[str, Any], places: Mapping[str, ast.AST]) -> Any:
    """What the call of a kernel gives; `places` are the nodes of the arguments by parameter."""
    frame = callee_frame(ev, node, kernel)
    frame.names |= bound
    sizes = enter_call(ev, kernel, frame, node, places)
    if sizes is None:
        return UNKNOWN
    signature = definition_signature(kernel.definition)
    given = _Arguments(ev, kernel, places, dict(sizes), bound=frozenset(sizes))
    if has_unknown(bound) or any(isinstance(v, Unknown) for v in leaves(bound)):
        return _declared(ev, node, kernel, signature, sizes)
    try:
        for p in signature.parameters:
            given.add(p, bound.get(p.name))
    except _Refused:
        return _declared(ev, node, kernel, signature, sizes)
    analysis = _analysed(kernel, given.types)
    _depend(ev, kernel, analysis)
    if analysis.op is None:
        _blame(ev, node, kernel, analysis)
        return _declared(ev, node, kernel, signature, sizes)
    return _emit(ev, node, kernel, analysis, given, places)


def _analysed(kernel: Closure, types: Mapping[str, ArgType] | None) -> Analysis:
    from tessera.compiler.frontend.entry import run  # it evaluates functions, which come here

    definition, choose = kernel.definition, tuned.get()
    if choose is not None and types is not None and kernel.live is not None and "autotune" in definition.options:
        options = {**definition.options, "config": choose(kernel.live, types)}
        definition = replace(definition, options=options)
    return run(definition, types, {}, suggest=False)


def _depend(ev: Evaluator, kernel: Closure, analysis: Analysis) -> None:
    """What the kernel reads from outside is as much part of the result as what the function does."""
    own = kernel.definition.scope
    for name, was in analysis.dependencies:
        place = analysis.readers.get(name) or own
        known = name if ":" in name or own is ev.definition.scope else f"{kernel.definition.file}:{name}"
        if known not in ev.dependencies:
            ev.dependencies[known] = was
            if name in analysis.readers:
                ev.readers[known] = None if place is ev.definition.scope else place


def _blame(ev: Evaluator, node: ast.AST, kernel: Closure, analysis: Analysis) -> None:
    """Why the kernel gives no code. What is wrong with it by itself is said where it stands, and stops a call only."""
    errors = [d for d in analysis.diagnostics if d.severity == "error"]
    if not errors:
        why = next(iter(analysis.undecided), None)
        ev.undecide(f"{kernel.name}: {why.message if why else 'nothing is known of it'}", node)
    elif _analysed(kernel, None).ok:
        for d in errors:
            notes = (Note(f"in the kernel {kernel.name}", d.span), *d.notes)
            ev.error(d.code, f"{kernel.name} with these arguments: {d.message}", node, notes=notes)
    elif ev.live:
        for d in errors:
            ev.findings.add(d.with_notes(Note(f"{kernel.name} was called from {ev.frame.name}", ev.span(node))))
    else:
        ev.undecide(f"{kernel.name} has mistakes of its own", node)


def _emit(
    ev: Evaluator, node: ast.AST, kernel: Closure, analysis: Analysis, given: _Arguments, places: Mapping[str, ast.AST]
) -> Any:
    for array, name in zip(analysis.captures, analysis.capture_names, strict=True):
        captured = ev.layer.adopt(name, array, node)
        assert isinstance(captured, Value)
        given.operands.append(captured)
        given.names.append("")
    assert analysis.op is not None
    func = with_sizes(analysis.op, given.sizes)
    _check_sizes(ev, node, kernel, analysis, given.sizes)
    args = func.region.block.args
    writes = cast("tuple[int, ...]", func.attrs["writes"])
    returns = cast("tuple[int, ...]", func.attrs["returns"])
    held = {i: _holder(ev, node, given, i, places) for i in writes if i < len(given.operands)}
    for i, name in held.items():
        twice = name and [held[j] for j in held].count(name) > 1
        if (name is None and i not in returns) or twice or not given.names[i]:
            _refuse_update(ev, node, kernel, given, i, places, bool(twice))
    types = [_tensor(args[i].type) for i in writes]
    span = ev.span(node)
    op = ev.builder.op("graph.launch", given.operands, types, regions=[launching(func, "graph", span)], span=span)
    ev.launches.append(op)
    results = dict(zip(stored(op), op.results, strict=True))
    for i, name in held.items():
        if name is not None:
            results[i].hint = name
            ev.frame.names[name] = results[i]
    values = tuple(results[i] for i in returns)
    return values if analysis.tuple_result else values[0] if values else None


def _tensor(type: Type) -> TensorType:
    assert isinstance(type, ViewType)
    return TensorType(type.shape, type.dtype)


def _check_sizes(ev: Evaluator, node: ast.AST, kernel: Closure, analysis: Analysis, sizes: Mapping[str, Dim]) -> None:
    """The kernel's asserts of sizes, as far as they are not known to hold."""
    for c in analysis.checks:
        left, right = dims.substitute(c.left, sizes), dims.substitute(c.right, sizes)
        answer = dims.compare(left, right, ev.facts)
        if answer == "no":
            ev.error("TS106", f"{kernel.name}: {c.why} is false: {left} is not {right}", node)
        elif answer == "unknown":
            ev.checks.append(replace(c, left=left, right=right, why=f"{kernel.name}: {c.why}"))


def _holder(ev: Evaluator, node: ast.AST, given: _Arguments, i: int, places: Mapping[str, ast.AST]) -> str | None:
    """The variable of the caller that was given for a parameter which the kernel stores to."""
    at = places.get(given.names[i])
    held = isinstance(at, ast.Name) and ev.frame.names.get(at.id) is given.operands[i]
    return at.id if held and isinstance(at, ast.Name) else None


def _refuse_update(
    ev: Evaluator, node: ast.AST, kernel: Closure, given: _Arguments, i: int, places: Mapping[str, ast.AST], twice: bool
) -> None:
    name = given.names[i]
    if twice:
        why = f"what stands for {name} also stands for another parameter that {kernel.name} stores to; give it a copy"
    elif name:
        why = f"{kernel.name} stores to {name}, and here no variable would hold what it stored; assign one before"
    else:
        why = f"{kernel.name} stores to an array from outside, which a function never changes; make it a parameter"
    ev.error("TS406", why, places.get(name, node))


# where the kernel gives no code


def _declared(ev: Evaluator, node: ast.AST, kernel: Closure, signature: Signature, sizes: Mapping[str, Dim]) -> Any:
    """What the kernel says it returns: enough to go on with, though there is nothing to run."""
    if not ev.undecided and not ev.findings.errors:
        ev.undecide(f"what {kernel.name} is given must be known", node)
    return _placeholder(ev, node, signature.returns, sizes)


def _placeholder(ev: Evaluator, node: ast.AST, a: Annotation | None, sizes: Mapping[str, Dim]) -> Any:
    if isinstance(a, TupleAnn):
        return tuple(_placeholder(ev, node, item, sizes) for item in a.items)
    if not isinstance(a, TensorAnn) or a.dtype is None or a.shape is None or ... in a.shape:
        return UNKNOWN
    shape = tuple(dims.substitute(d, sizes) for d in a.shape if d is not ...)
    if any(dims.symbols(d) - sizes.keys() for d in a.shape if isinstance(d, Expr)):
        return UNKNOWN
    return ev.layer.placeholder(TensorType(shape, a.dtype, a.policy), ev.span(node))
