"""What the evaluator is run over: a definition, each way its optional parameters may be given, with the fixes that are
tried; and a constant of a module."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from itertools import product
from typing import Any

from tessera.compiler.frontend import budget, fixes
from tessera.compiler.frontend.checks import check_values
from tessera.compiler.frontend.checks.ignored import without_ignored
from tessera.compiler.frontend.evaluate.machine import Evaluator, Layer
from tessera.compiler.frontend.evaluate.parameters import enter_definition
from tessera.compiler.frontend.function.results import structure_of
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.frame import Flow
from tessera.compiler.frontend.names.live import names_stay
from tessera.compiler.frontend.names.signature import Signature, definition_signature
from tessera.compiler.frontend.names.values import UNKNOWN, has_unknown
from tessera.compiler.frontend.result import Analysis, ArgType, ExprInfo
from tessera.compiler.structure import Kept
from tessera.errors import Diagnostic, Note
from tessera.immutable import immutable
from tessera.language.annotations import TensorAnn, TileAnn
from tessera.language.dims import DimError
from tessera.signals import raised_by_handler

OTHER_LEADS = (2, 3, 4)
"""numbers of axes that `...` is tried with where one axis is a mistake"""
ANY_RANK = Note("`...` was tried as 1 to 4 axes")
VARIANTS = 8
"""ways to give the optional parameters that are all tried; beyond it, each of them alone"""


@immutable
class Variant:
    """`absent`: optional tensors that are None; `defaults`: boolean parameters with other values than written; `lead`:
    how many axes `...` stands for."""

    absent: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    lead: int = 1

    def text(self) -> str:
        said = [f"{n} is None" for n in sorted(self.absent)] + [f"{n} is {v}" for n, v in self.defaults.items()]
        return " and ".join(said)


@names_stay()
def run(
    definition: Definition, arguments: Mapping[str, ArgType] | None, dims: Mapping[str, int], suggest: bool = True
) -> Analysis:
    """The analysis; with `suggest`, fixes are tried and offered."""
    variants = [Variant()] if arguments is not None else _variants(definition_signature(definition))
    found = [_of_any_rank(definition, arguments, dims, variants[0])]
    if _exhausted(found[0][0]):
        variants = variants[:1]
    found += [_of_any_rank(definition, arguments, dims, v) for v in variants[1:]]
    analysis, pending = found[0] if len(found) == 1 else _joined(variants, found)
    if "distributed" in definition.options:
        from tessera.compiler.frontend.distribution import check_distribution  # slow: most functions run on one device

        analysis = check_distribution(analysis)
    if not suggest:
        return analysis
    shown, pending = without_ignored(definition, analysis.diagnostics, pending)

    def again(changed: Definition) -> list[Diagnostic]:
        return list(run(changed, arguments, dims, suggest=False).diagnostics)

    mended = fixes.tried(definition, shown, pending, again)
    return replace(analysis, diagnostics=tuple(mended))


def of_kernel(definition: Definition, arguments: Mapping[str, ArgType] | None) -> Analysis:
    """The analysis of a kernel that a function calls: without fixes, which are offered where the kernel stands."""
    return run(definition, arguments, {}, suggest=False)


def _variants(signature: Signature) -> list[Variant]:
    """Optional tensors present and absent, boolean options on and off."""
    choices: list[tuple[Variant, ...]] = []
    for p in signature.parameters:
        if isinstance(p.annotation, (TensorAnn, TileAnn)) and p.annotation.optional:
            choices.append((Variant(), Variant(frozenset({p.name}))))
        elif p.static and isinstance(p.default, ast.Constant) and isinstance(p.default.value, bool):
            choices.append((Variant(), Variant(defaults={p.name: not p.default.value})))
    if 2 ** len(choices) <= VARIANTS:
        return [_union(c) for c in product(*choices)]
    return [Variant(), *(c[1] for c in choices)]


def _union(parts: tuple[Variant, ...]) -> Variant:
    absent = frozenset[str]().union(*(p.absent for p in parts))
    return Variant(absent, {n: v for p in parts for n, v in p.defaults.items()})


def _joined(variants: list[Variant], found: list[tuple[Analysis, fixes.Pending]]) -> tuple[Analysis, fixes.Pending]:
    """All parameters given is what the IR and the hints are of; findings of the other ways say which way."""
    first, pending = found[0][0], list(found[0][1])
    diagnostics = list(first.diagnostics)
    infos = {_place_of(e): e for e in first.expressions}
    seen = {(d.code, d.span, d.message) for d in diagnostics}
    dependencies, readers = dict(first.dependencies), first.readers
    for variant, (other, waiting) in zip(variants[1:], found[1:], strict=True):
        candidates = dict(waiting)
        for i, d in enumerate(other.diagnostics):
            if (d.code, d.span, d.message) not in seen:
                seen.add((d.code, d.span, d.message))
                pending.append((len(diagnostics), candidates.get(i, [])))
                diagnostics.append(d.with_notes(Note(f"when {variant.text()}")))
        for e in other.expressions:
            infos.setdefault(_place_of(e), e)
        dependencies = {**dict(other.dependencies), **dependencies}
        readers = {**other.readers, **readers}
    op = first.op if not any(d.severity == "error" for d in diagnostics) else None
    joined = replace(
        first,
        op=op,
        diagnostics=tuple(diagnostics),
        expressions=list(infos.values()),
        dependencies=tuple(dependencies.items()),
        readers=readers,
    )
    return joined, pending


def _place_of(e: ExprInfo) -> tuple[int, int, int, int, str]:
    return e.span.line, e.span.col, e.span.end_line, e.span.end_col, e.kind


def layer_of(definition: Definition) -> Callable[[Evaluator], Layer]:
    if definition.kind == "kernel":
        from tessera.compiler.frontend.kernel.layer import KernelLayer  # slow: most programs have no kernels

        return KernelLayer
    from tessera.compiler.frontend.function.layer import FunctionLayer  # slow: a file may have kernels only

    return FunctionLayer


def _of_any_rank(
    definition: Definition, arguments: Mapping[str, ArgType] | None, dims: Mapping[str, int], variant: Variant
) -> tuple[Analysis, fixes.Pending]:
    """The analysis. What `...` stands for is open: a mistake counts if there is one for every number of axes."""
    first, pending = _evaluate(definition, arguments, dims, variant)
    if first.ok or _exhausted(first) or arguments is not None or not _open_rank(definition):
        return first, pending
    wrong = {(d.code, d.span) for d in first.diagnostics if d.severity == "error"}
    for lead in OTHER_LEADS:
        other = _evaluate(definition, arguments, dims, replace(variant, lead=lead))
        if other[0].ok:
            return other
        wrong &= {(d.code, d.span) for d in other[0].diagnostics}
    kept = [i for i, d in enumerate(first.diagnostics) if d.severity != "error" or (d.code, d.span) in wrong]
    said = [d.with_notes(ANY_RANK) if d.severity == "error" else d for d in first.diagnostics]
    return replace(first, diagnostics=tuple(said[i] for i in kept)), fixes.renumbered(pending, kept)


def _exhausted(analysis: Analysis) -> bool:
    """Whether other ways would take as long again, and end in the same."""
    return any(d.code == "TS111" for d in analysis.diagnostics)


def _open_rank(definition: Definition) -> bool:
    annotations = (p.annotation for p in definition_signature(definition).parameters)
    return any(isinstance(a, (TensorAnn, TileAnn)) and a.shape is not None and ... in a.shape for a in annotations)


def _evaluate(
    definition: Definition, arguments: Mapping[str, ArgType] | None, dims: Mapping[str, int], variant: Variant
) -> tuple[Analysis, fixes.Pending]:
    if variant.absent:
        arguments = {**dict.fromkeys(variant.absent), **(arguments or {})}
    analysis, ev = _settled(definition, arguments, dims, variant, Evaluator)
    return analysis, ev.pending


@names_stay()
def settled(definition: Definition, machine: type[Evaluator]) -> tuple[Analysis, Evaluator]:
    """The analysis of a definition by its annotations, and the evaluator that it comes from."""
    return _settled(definition, None, {}, Variant(), machine)


def _settled(
    definition: Definition, arguments: Mapping[str, ArgType] | None, dims: Mapping[str, int], variant: Variant,
    machine: type[Evaluator],
) -> tuple[Analysis, Evaluator]:  # fmt: skip
    analysis, ev = _attempt(definition, arguments, dims, variant, layer_of(definition), machine)
    last = ev
    while not _exhausted(analysis) and (other := last.layer.again()) is not None:
        second, last = _attempt(definition, arguments, dims, variant, other, machine)
        if second.ok or analysis.ok or last.layer.closer:
            analysis, ev = second, last
    return analysis, ev


def _attempt(
    definition: Definition, arguments: Mapping[str, ArgType] | None, dims: Mapping[str, int], variant: Variant,
    layer: Callable[[Evaluator], Layer], machine: type[Evaluator],
) -> tuple[Analysis, Evaluator]:  # fmt: skip
    ev = machine(definition, layer, dims, of_kernel)
    ev.defaults, ev.lead = dict(variant.defaults), variant.lead
    op = None
    try:
        value = _body(ev, arguments, symbolic=arguments is None or bool(variant.absent))
        if not ev.findings.errors and not ev.incomplete:  # undecided or not: a layer may have more to find
            op = ev.layer.finish(value)
        check_values(ev)
        nothing = value is None and bool(ev.states)  # of a function that changes state; a kernel's is another
        structure = Kept(None) if nothing and definition.kind == "function" else structure_of(value)
    except budget.ExhaustedError:
        structure = None  # the finding says where
    except DimError as e:
        ev.bad_size(e, definition.tree)
        structure = None
    except RecursionError:
        ev.error("TS102", f"{definition.name} is nested too deeply to be analysed", definition.span)
        structure = None
    except Exception as e:  # a fault of ours must not take the editor or the session down
        if raised_by_handler(e):
            raise
        ev.error("TS900", f"{type(e).__name__}: {e}", definition.span, notes=[Note(_place(e))])
        structure = None
    op = op if not ev.findings.errors and not ev.undecided else None
    analysis = Analysis(
        definition, op, tuple(ev.layer.params()), tuple(ev.layer.captures), tuple(ev.findings.items),
        list(ev.infos.values()),
        tuple(dict.fromkeys(ev.checks)), ev.dims, tuple(ev.dependencies.items()), tuple(ev.undecided), structure,
        tuple(ev.layer.capture_names()), ev.readers, tuple(ev.launches), arguments,
        (ev.block, *ev.tried), tuple(c for each in ev.inner.values() for c in each),
        tuple(ev.pulled),
    )  # fmt: skip
    return analysis, ev


def _body(ev: Evaluator, arguments: Mapping[str, ArgType] | None, symbolic: bool) -> Any:
    enter_definition(ev, arguments, symbolic)
    tree = ev.definition.tree
    if isinstance(tree, ast.Lambda):
        value = ev.eval(tree.body)
        return ev.layer.returned(value, ev.frame.source.span(tree.body), None)
    flow = ev.run(tree.body)
    if flow is Flow.RETURN:
        value = ev.merged_returns(ev.frame, True)
        ev.layer.ended(ev.frame, tree, value)
        return value
    if ev.incomplete:
        return UNKNOWN  # the return may be what does not parse
    ev.layer.ended(ev.frame, tree, None)
    if not _is_declaration(tree):
        if ev.frame.parted and ev.findings.errors:
            return UNKNOWN  # it says where what it computes is lost
        return ev.layer.returned(None, ev.definition.span, ev.returns)
    message = f"{ev.definition.name} is only declared: its body is `...`; write what it computes there"
    return ev.undecide(message, ev.definition.span, "TS102")


def _is_declaration(tree: ast.FunctionDef) -> bool:
    """`def f(...): ...`, perhaps with a docstring: it says what something is, and not yet what it does."""
    constants = [s.value.value for s in tree.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
    return len(constants) == len(tree.body) and constants[-1] is ...


def _place(e: Exception) -> str:
    trace = e.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "no place is known"
    return f"raised in {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


class _NoConstantError(BaseException):
    """Raised in computing what cannot be a constant of a module; no Exception, for these are findings there."""


class _ConstantLayer(Layer):
    """Owns nothing: constants of a module are ordinary Python, and what needs tensors is none of them."""

    def call(self, node: ast.AST, callee: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise _NoConstantError

    def owns(self, value: Any) -> bool:
        return False

    def type_of(self, value: Any) -> Any:
        return None


def constant(
    file: str, text: str, scope: Scope, node: ast.expr, tensors: bool = False
) -> tuple[Any, Diagnostic | None, bool]:
    """The value of an expression at module level, UNKNOWN where it is not a constant of the text; what was found in
    computing it: TS111 where that takes too long, else the first error; and whether a layer was called. `tensors`: also
    of what holds tensors, which stand for their types."""
    tree = ast.copy_location(ast.Lambda(ast.arguments([], [], None, [], [], None, []), node), node)
    definition = Definition("function", "<module>", file, node.lineno, tree, text, scope)
    layer = layer_of(definition) if tensors else _ConstantLayer
    ev = Evaluator(definition, layer, {}, of_kernel, budget.CONSTANT_STEPS)
    ev.outside = True
    try:
        value = ev.eval(node)
    except (Exception, _NoConstantError):  # a constant that cannot be computed is not known, which is not a finding
        value = UNKNOWN
    found = ev.findings.items
    said = next(
        (d for d in reversed(found) if d.code == "TS111"), next((d for d in found if d.severity == "error"), None)
    )
    return UNKNOWN if found or has_unknown(value) else value, said, ev.ran_layers
