"""Checks that a `@ts.distributed` function can be distributed, while typing and at its first call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tessera.compiler.frontend.names.definition import Definition
from tessera.compiler.frontend.names.signature import Parameter, definition_signature
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.graph.sharding import partition
from tessera.errors import Diagnostic, Span
from tessera.language import dims
from tessera.language.annotations import Annotation, ConstAnn, RecordAnn, SequenceAnn, TensorAnn, TupleAnn
from tessera.language.dims import Dim, Expr
from tessera.language.distribution import Distribution


def check_distribution(analysis: Analysis) -> Analysis:
    """The analysis with what stands against the distribution that its decorator asks for (TS801, TS802)."""
    said = analysis.definition.options.get("distributed")
    if not isinstance(said, Distribution):
        return analysis
    found = list(unsuitable(analysis.definition, said.over))
    if not found and analysis.op is not None:
        found = partition(analysis.op, said.over, analysis.checks).diagnostics(analysis.name)
    if not found:
        return analysis
    return replace(analysis, op=None, diagnostics=(*analysis.diagnostics, *found))


def unsuitable(definition: Definition, over: str) -> Iterator[Diagnostic]:
    """What in the parameters' annotations keeps a dim from being cut (TS802)."""
    parameters = definition_signature(definition).parameters
    held = [p for p in parameters if any(over in dims.symbols(d) for d in _inside(p.annotation))]
    for p in held:
        message = f"{p.name} holds tensors with an axis {over}, and only those that are parameters themselves are cut"
        yield _refusal(definition, f"{message}; give each of them a parameter", p.span)
    if not held and not any(axes_of(p, over) for p in parameters):
        names = dict.fromkeys(str(d) for p in parameters for d in _shape(p) if dims.is_symbol(d))
        hint = f"; its dims are {', '.join(names)}" if names else '; name its dims: x: Tensor["B", ...]'
        yield _refusal(definition, f"no parameter of {definition.name} has an axis {over}{hint}", definition.span)
    for p in parameters:
        for d in _shape(p):
            if over in dims.symbols(d) and not dims.is_symbol(d):
                message = f"which rows of {p.name} belong to one of {over} does not follow from {d}"
                yield _refusal(definition, f"{message}; give {over} an axis of its own, and reshape inside", p.span)
        if isinstance(p.annotation, ConstAnn) and over in dims.symbols(p.annotation.dim or 0):
            message = f"{p.name} is the size of {over}, which each part has another of"
            yield _refusal(definition, f"{message}; take it from a shape inside the function", p.span)


def axes_of(p: Parameter, over: str) -> list[int]:
    """Where in the annotated shape a dim is an axis of its own."""
    return [i for i, d in enumerate(_shape(p)) if dims.is_symbol(d) and str(d) == over]


def _shape(p: Parameter) -> list[Expr]:
    """The symbolic sizes of a tensor parameter's annotation."""
    shape = p.annotation.shape if isinstance(p.annotation, TensorAnn) else None
    return [d for d in shape or () if isinstance(d, Expr)]


def _inside(a: Annotation | None) -> Iterator[Dim]:
    """The sizes of the tensors in tuples, lists, dicts and dataclasses."""
    items = a.items if isinstance(a, TupleAnn) else [a.item] if isinstance(a, SequenceAnn) else []
    for item in (t for _, t in a.fields) if isinstance(a, RecordAnn) else items:
        yield from (d for d in item.shape or () if d is not ...) if isinstance(item, TensorAnn) else _inside(item)


def _refusal(definition: Definition, message: str, span: Span) -> Diagnostic:
    return Diagnostic("TS802", message, span, function=definition.name)
