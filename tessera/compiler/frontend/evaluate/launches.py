"""A kernel called from a function: analysed for the sizes of the call, and launched by one `graph.launch`.

The kernel's parameters are bound as those of an inlined function are. It is analysed in its own terms, so that what is
found in it reads as its text does; what comes out is then said in the caller's sizes. Tensors are values: where the
kernel stores to a parameter, the variable that was given for it holds the changed tensor from here on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any, cast

from tessera.compiler.frontend.evaluate.inlining import Unfit, callee_frame, enter_call, scalar
from tessera.compiler.frontend.evaluate.machine import Evaluator
from tessera.compiler.frontend.evaluate.returns import declared
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.signature import Parameter, Signature, definition_signature, is_scalar
from tessera.compiler.frontend.names.values import (
    UNKNOWN,
    Number,
    Static,
    Unknown,
    has_unknown,
    is_dict,
    is_sequence,
    leaves,
    remade,
    type_name,
)
from tessera.compiler.frontend.result import Analysis, ArgType
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.launches import launching
from tessera.compiler.ir.rewriter import with_sizes
from tessera.compiler.ir.types import TensorType, Type, ViewType
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Note
from tessera.immutable import mutable
from tessera.language import dims
from tessera.language.annotations import ConstAnn, TupleAnn
from tessera.language.dims import Dim, Expr
from tessera.language.policies import Policy

tuned: ContextVar[Callable[[Any, Mapping[str, ArgType]], Mapping[str, Any]] | None] = ContextVar("tuned", default=None)
"""gives the configuration of a tuned kernel for such arguments, where a target is known; else it is the first one"""


class _Refused(Exception):
    """An argument does not fit, which has been said."""


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
    return _Call(ev, node, kernel, places, definition_signature(kernel.definition), sizes, dict(sizes)).run(bound)


@mutable
class _Call:
    """One call. `bound` are the kernel's dims in the caller's sizes; `sizes` has those and, under names of their own,
    whatever else the kernel's analysis needs symbols for. `operands` are the tensors and scalars in the order in which
    they become the kernel's arguments, `names` the parameters that they are for."""

    ev: Evaluator
    node: ast.AST
    kernel: Closure
    places: Mapping[str, ast.AST]
    signature: Signature
    bound: Mapping[str, Dim]
    sizes: dict[str, Dim]
    operands: list[Value] = field(default_factory=list[Value])
    names: list[str] = field(default_factory=list[str])
    lead: tuple[Dim, ...] | None = None
    """what `...` stands for, where the kernel has it"""

    def run(self, values: Mapping[str, Any]) -> Any:
        self.lead = next(
            (d for p in self.signature.parameters if (d := _lead(p, values.get(p.name))) is not None), None
        )
        if any(isinstance(v, Unknown) for v in leaves(dict(values))):
            return self.declared()
        types: dict[str, ArgType] = {}
        for p in self.signature.parameters:
            with suppress(_Refused):
                types[p.name] = self.argument(p, values.get(p.name), p.name)
        if len(types) < len(self.signature.parameters):
            return self.declared()
        analysis = self.analysed(types)
        self.depend(analysis)
        if analysis.op is None:
            self.blame(analysis)
            return self.declared()
        return self.emit(analysis, analysis.op)

    # arguments, as the kernel's analysis takes them

    def argument(self, p: Parameter, value: Any, name: str) -> Any:
        """Raises _Refused."""
        if is_sequence(value) and any(isinstance(v, Value) for v in value):
            return remade(value, (self.argument(p, v, f"{name}.{i}") for i, v in enumerate(value)))
        if is_dict(value) and any(isinstance(v, Value) for v in value.values()):
            return {k: self.argument(p, v, f"{name}.{k}") for k, v in value.items()}
        if is_scalar(p) and value is not None:
            try:
                value = scalar(self.ev, value, p.annotation.dtype, self.place(p.name))  # type: ignore[union-attr]
            except Unfit as e:
                raise self.refused(e.code, p, e.message) from None
        if isinstance(value, Value) and isinstance(value.type, TensorType):
            self.operands.append(value)
            self.names.append(name)
            return replace(value.type, shape=self.shape(p, value.type.shape))
        if value is None:
            return None
        if isinstance(value, Number):
            self.ev.undecide(f"{value.text} must be known", self.place(p.name))
            raise _Refused
        if any(isinstance(v, Value) for v in leaves(value)):
            raise self.refused("TS105", p, f"given {type_name(value)}; give it the tensors inside, or a tuple of them")
        return Static(self.size(p.annotation.dim if isinstance(p.annotation, ConstAnn) else None, value))

    def refused(self, code: str, p: Parameter, message: str) -> _Refused:
        note = Note("declared here", p.span)
        self.ev.error(code, f"{p.name} of {self.kernel.name} is {message}", self.place(p.name), notes=[note])
        return _Refused()

    def place(self, parameter: str) -> ast.AST:
        return self.places.get(parameter, self.node)

    def shape(self, p: Parameter, have: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The shape of an argument in the kernel's sizes: as it is annotated, with what is known put in."""
        wanted: list[Any] = list(getattr(p.annotation, "shape", None) or (...,))
        if ... in wanted:
            at = wanted.index(...)
            wanted[at : at + 1] = [None] * (len(have) - len(wanted) + 1)
        return tuple(self.size(want, d) for want, d in zip(wanted, have, strict=True))

    def size(self, want: Any, have: Any) -> Any:
        """One size: a number, the annotation's own, or a symbol of its own for what the annotation leaves open."""
        if isinstance(want, Expr) and dims.symbols(want) <= self.bound.keys():
            return dims.substitute(want, {n: d for n, d in self.sizes.items() if isinstance(d, int)})
        if isinstance(want, int) and not isinstance(have, int):
            return want
        if not isinstance(have, Expr):
            return have
        known = next((n for n, d in self.sizes.items() if d == have and n not in self.bound), str(have))
        if self.sizes.get(known) != have or known in self.bound:
            while known in self.sizes or known in self.signature.dims:
                known += "'"
            self.sizes[known] = have
        return dims.symbol(known)

    # the kernel

    def analysed(self, types: Mapping[str, ArgType] | None) -> Analysis:
        definition, choose = self.kernel.definition, tuned.get()
        if choose is not None and types is not None and self.kernel.live and "autotune" in definition.options:
            options = {**definition.options, "config": choose(self.kernel.live, types)}
            definition = replace(definition, options=options)
        return self.ev.analyse(definition, types)

    def depend(self, analysis: Analysis) -> None:
        """What the kernel reads from outside is as much part of the result as what the function does."""
        ev, own = self.ev, self.kernel.definition.scope
        for name, was in analysis.dependencies:
            known = name if ":" in name or own is ev.definition.scope else f"{self.kernel.definition.file}:{name}"
            if known not in ev.dependencies:
                ev.dependencies[known] = was
                if name in analysis.readers:
                    place = analysis.readers[name] or own
                    ev.readers[known] = None if place is ev.definition.scope else place

    def blame(self, analysis: Analysis) -> None:
        """Why the kernel gives no code. What is wrong with it by itself is said where it stands, and stops a call
        only."""
        ev, name = self.ev, self.kernel.name
        errors = [d for d in analysis.diagnostics if d.severity == "error"]
        if not errors:
            why = next(iter(analysis.undecided), None)
            ev.undecide(f"{name}: {why.message if why else 'nothing is known of it'}", self.node)
        elif self.analysed(None).ok:
            for d in errors:
                notes = (Note(f"in the kernel {name}", d.span), *d.notes)
                ev.error(d.code, f"{name} with these arguments: {d.message}", self.node, notes=notes)
        elif ev.live:
            for d in errors:
                ev.findings.add(d.with_notes(Note(f"{name} was called from {ev.frame.name}", ev.span(self.node))))
        else:
            ev.undecide(f"{name} has errors of its own", self.node)

    # the launch

    def emit(self, analysis: Analysis, func: Op) -> Any:
        ev, span = self.ev, self.ev.span(self.node)
        for array, name in zip(analysis.captures, analysis.capture_names, strict=True):
            captured = ev.layer.adopt(name, array, self.node)
            assert isinstance(captured, Value)
            self.operands.append(captured)
            self.names.append("")
        region = launching(with_sizes(func, self.sizes), "graph", span)
        self.check(analysis)
        writes = cast("tuple[int, ...]", func.attrs["writes"])
        returns = cast("tuple[int, ...]", func.attrs["returns"])
        held = self.holders([i for i in writes if i < len(self.operands)], returns)
        policies = self.policies(returns)
        types = [_tensor(func.region.block.args[i].type, policies.get(i)) for i in writes]
        op = ev.builder.op("graph.launch", self.operands, types, regions=[region], span=span)
        ev.launches.append(op)
        results = dict(zip(writes, op.results, strict=True))
        for i, variable in held.items():
            results[i].hint = variable
            ev.frame.names[variable] = results[i]
        values = tuple(results[i] for i in returns)
        return values if analysis.structure is not None else values[0] if values else None

    def check(self, analysis: Analysis) -> None:
        """The kernel's asserts of sizes, as far as they are not known to hold."""
        ev, name = self.ev, self.kernel.name
        for c in analysis.checks:
            left, right = dims.substitute(c.left, self.sizes), dims.substitute(c.right, self.sizes)
            answer = dims.compare(left, right, ev.facts)
            if answer == "no":
                ev.error("TS106", f"{name}: {c.why} is false: {left} is not {right}", self.node)
            elif answer == "unknown":
                ev.checks.append(LaunchCheck(left, right, f"{name}: {c.why}"))

    def holders(self, stored: list[int], returns: tuple[int, ...]) -> dict[int, str]:
        """The caller's variables that were given for what the kernel stores to: they hold it from here on."""
        out: dict[int, str] = {}
        at = {i: self.places.get(self.names[i]) for i in stored}
        given = [n.id for n in at.values() if isinstance(n, ast.Name)]
        for i, n in at.items():
            name, kernel = self.names[i], self.kernel.name
            mine = isinstance(n, ast.Name) and self.ev.frame.names.get(n.id) is self.operands[i]
            if not name:
                why = f"{kernel} stores to an array from outside, which a function never changes; make it a parameter"
            elif isinstance(n, ast.Name) and given.count(n.id) > 1:
                why = f"{n.id} also stands for another parameter that {kernel} stores to; give one of them a copy"
            elif isinstance(n, ast.Name) and mine:
                out[i] = n.id
                continue
            elif i in returns:
                continue
            elif isinstance(n, ast.Name) and self.around(n.id):
                why = f"{kernel} stores to {name}, and {n.id} is a variable of the code around; call {kernel} there"
            else:
                why = f"{kernel} stores to {name}, and here no variable would hold what it stored; assign one before"
            self.ev.error("TS406", why, n or self.node)
        return out

    def around(self, variable: str) -> bool:
        """Whether it is one of the function around a comprehension or an inner function, and not of this frame."""
        frame = self.ev.frame
        while variable not in frame.names and frame.outer is not None:
            frame = frame.outer
        return frame is not self.ev.frame and variable in frame.names

    def policies(self, returns: tuple[int, ...]) -> dict[int, Policy | None]:
        """Of the kernel's arguments: as they are given, and as what it returns is annotated."""
        said = self.signature.returns
        annotations = said.items if isinstance(said, TupleAnn) else (said,)
        out: dict[int, Any] = {i: getattr(v.type, "policy", None) for i, v in enumerate(self.operands)}
        return out | {i: getattr(a, "policy", None) for i, a in zip(returns, annotations, strict=False)}

    # where the kernel gives no code

    def declared(self) -> Any:
        """What the kernel says it returns: enough to go on with, though there is nothing to run."""
        if not self.ev.undecided and not self.ev.findings.errors:
            self.ev.undecide(f"the arguments of {self.kernel.name} must be known", self.node)
        return declared(self.ev, self.signature.returns, self.bound, self.ev.span(self.node), self.lead)


def _lead(p: Parameter, value: Any) -> tuple[Dim, ...] | None:
    """The axes that `...` of a parameter stands for."""
    wanted = getattr(p.annotation, "shape", None) or ()
    if ... not in wanted or not isinstance(value, Value) or not isinstance(value.type, TensorType):
        return None
    at, spare = wanted.index(...), len(value.type.shape) - len(wanted) + 1
    return value.type.shape[at : at + spare]


def _tensor(type: Type, policy: Policy | None) -> TensorType:
    assert isinstance(type, ViewType)
    return TensorType(type.shape, type.dtype, policy)
