"""Launches that stand one after the other in a script, a cell or a plain function, as one function that fuses them."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.fixes import apply
from tessera.compiler.frontend.incremental import FileAnalysis
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.signature import definition_signature, signature_of
from tessera.compiler.frontend.names.values import Builtin, Namespace, OperatorRef
from tessera.compiler.frontend.result import Analysis
from tessera.compiler.ir.core import Op, Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.levels import NoIR, schedule
from tessera.compiler.machines import predicted_machine
from tessera.editor import signatures
from tessera.editor.annotations import annotation, dtype_name, own_name
from tessera.editor.kinds import FUSE as KIND
from tessera.editor.names import parameters
from tessera.editor.open_file import OpenFile, Preferences
from tessera.editor.refactor import Offer, Selection, names_of
from tessera.editor.refactor.extract import assigned_first, in_order
from tessera.editor.refactor.fuse import KERNELS, between, group_ops, saved, size
from tessera.errors import Edit, Fix, Span
from tessera.language import dims, dtypes
from tessera.language.annotations import ScalarAnn, TensorAnn
from tessera.language.dims import Dim
from tessera.language.dtypes import DType

TITLE = "Fuse these launches"


class NotFused(Exception):
    """Why the launches stay as they are, for people."""


@dataclass(slots=True)
class _Lines:
    """Statements of one block; `top` is the statement of the file that they are or stand in."""

    document: OpenFile
    settings: Preferences
    top: ast.stmt
    statements: list[ast.stmt]
    types: dict[str, TensorType | DType] = field(default_factory=dict[str, "TensorType | DType"])
    """of names that come from outside: tensors, and numbers by their dtype"""
    used: set[str] = field(default_factory=set[str])
    """dims that have a meaning already"""

    @property
    def calls(self) -> list[ast.Call]:
        """Those of Tessera's functions, kernels and operators, in the order of the text."""
        found = [n for s in self.statements for n in ast.walk(s) if isinstance(n, ast.Call) and self.callee(n)]
        return sorted(found, key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0))

    def callee(self, call: ast.Call) -> OperatorRef | Closure | None:
        value = signatures.resolve(self.document.scope, ast.unparse(call.func))
        if isinstance(value, Closure):
            return value if signatures.is_decorated(value) else None
        return value if isinstance(value, OperatorRef) else None

    @property
    def given(self) -> list[str]:
        """What it reads from outside, without what the file's text says: functions, modules, numbers."""
        own = names_of([self.top], ast.Store) if isinstance(self.top, ast.FunctionDef) else set[str]()
        if isinstance(self.top, ast.FunctionDef):
            own |= {p.arg for p in parameters(self.top)}
        read = [n for n in in_order(self.statements) if not assigned_first(self.statements, n)]
        return [n for n in read if n in own or not _is_written(self.document.scope.lookup(n))]

    @property
    def results(self) -> list[str]:
        """What it assigns that is read elsewhere, and what its last statement assigns."""
        inside = {id(n) for s in self.statements for n in ast.walk(s)}
        around = self.top if isinstance(self.top, ast.FunctionDef) else self.document.scope.tree
        others = {n.id for n in ast.walk(around) if isinstance(n, ast.Name) and id(n) not in inside}
        last = _stored(self.statements[-1:])
        return [n for n in _stored(self.statements) if n in others or n in last]


def _stored(statements: Sequence[ast.stmt]) -> list[str]:
    """The names that statements assign, each once."""
    names = [n for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return list(dict.fromkeys(n.id for n in names))


def _is_written(value: object) -> bool:
    return isinstance(value, (Closure, Namespace, OperatorRef, Builtin, DType, bool, int, float, str))


def offers(document: OpenFile, selection: Selection, settings: Preferences) -> Iterator[Offer]:
    if selection.start == selection.end or not document.parses:
        return
    lines = next((f for s in document.scope.tree.body if (f := _selected(document, settings, s, [s], selection))), None)
    if lines is None or len(lines.calls) < 2:
        return
    try:
        title, edits = _fused(lines)
    except NotFused as e:
        yield Offer(TITLE, KIND, disabled=str(e))
    else:
        yield Offer(title, KIND, edits)


def _selected(
    document: OpenFile, settings: Preferences, top: ast.stmt, body: list[ast.stmt], selection: Selection
) -> _Lines | None:
    if body == [top]:
        module = document.scope.tree.body
        found = [s for s in module if selection.holds(document.source.span(s))]
        if top in found and top is found[0]:
            return _Lines(document, settings, top, found)
    else:
        found = [s for s in body if selection.holds(document.source.span(s))]
        if found:
            return _Lines(document, settings, top, found)
    for s in body:
        if isinstance(s, (ast.FunctionDef, ast.If, ast.With, ast.For)) and not getattr(s, "decorator_list", []):
            inner = _selected(document, settings, top, [*s.body, *getattr(s, "orelse", [])], selection)
            if inner is not None:
                return inner
    return None


def _fused(lines: _Lines) -> tuple[str, tuple[Edit, ...]]:
    """Raises NotFused."""
    _only_launches(lines)
    scope = lines.document.scope
    decorator = own_name(scope, "function", Builtin("tessera.function"))
    if decorator is None:
        raise NotFused("the file has no name for Tessera's module: import tessera as ts")
    given, results = lines.given, lines.results
    _types(lines, decorator)
    unknown = [n for n in given if n not in lines.types]
    if unknown:
        raise NotFused(f"the type of {unknown[0]} is unknown: no function that takes it annotates it")
    name = _name(lines)
    text = _function(lines, decorator, name, lines.statements, results)
    analysis = _analysed(lines, text, name)
    title = _gain(lines, analysis)
    edits = _edits(lines, text, f"{name}({', '.join(given)})", results)
    _refuse_new_errors(lines, edits)
    return title, edits


def _edits(lines: _Lines, text: str, call: str, results: list[str]) -> tuple[Edit, ...]:
    """The function above what the statements stand in, and its call in their place."""
    source, last = lines.document.source, lines.statements[-1]
    a, b = source.span(lines.statements[0]), source.span(last)
    made = f"return {call}" if isinstance(last, ast.Return) else f"{', '.join(results)} = {call}" if results else call
    top = lines.top.lineno
    above = source.lines[max(top - 3, 0) : top - 1]
    missing = next((2 - n for n, line in enumerate(reversed(above)) if line.strip()), 0) if top > 1 else 0
    definition = "\n" * missing + f"{text}\n\n\n"
    whole = replace(a, end_line=b.end_line, end_col=b.end_col)
    if lines.top is lines.statements[0]:
        return (Edit(whole, definition + made),)
    return Edit(Span(a.file, top, 1, top, 1), definition), Edit(whole, made)


def _only_launches(lines: _Lines) -> None:
    """Nothing may stand between that Python alone can do. Raises NotFused."""
    for s in lines.statements:
        if not isinstance(s, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr)):
            raise NotFused(f"`{ast.unparse(s).partition(chr(10))[0]}` stands between them, and runs in Python")
        for call in (n for n in ast.walk(s) if isinstance(n, ast.Call)):
            callee = lines.callee(call)
            if callee is None:
                raise NotFused(f"{ast.unparse(call.func)} is called between them, and runs in Python")
            if isinstance(callee, Closure) and _changes(callee):
                raise NotFused(
                    f"{callee.name} changes its arguments: inside a function, arrays outside would stay as they are"
                )
        targets = s.targets if isinstance(s, ast.Assign) else [getattr(s, "target", ast.Name(""))]
        if not all(isinstance(n, (ast.Name, ast.Tuple, ast.expr_context)) for t in targets for n in ast.walk(t)):
            raise NotFused(f"`{ast.unparse(s)}` changes an array in place before a later statement reads it")
        if isinstance(s, ast.Expr) and s is not lines.statements[-1]:
            raise NotFused(f"what `{ast.unparse(s)}` gives is not kept")


def _name(lines: _Lines) -> str:
    base = "_".join(dict.fromkeys(ast.unparse(c.func).rpartition(".")[2] for c in lines.calls))
    taken, n, name = set(lines.document.scope.names()) | names_of([lines.top], ast.Store), 2, base
    while name in taken:
        name, n = f"{base}_{n}", n + 1
    return name


def _function(lines: _Lines, decorator: str, name: str, statements: Sequence[ast.stmt], results: list[str]) -> str:
    scope, texts = lines.document.scope, list[str]()
    for n in (g for g in lines.given if g in lines.types):
        type = lines.types[n]
        said = dtype_name(scope, type) if isinstance(type, DType) else annotation(scope, type)
        texts.append(f"{n}: {said}" if said is not None else n)
    source = lines.document.source
    spans, body = [source.span(s) for s in statements], ""
    if spans:
        line = source.lines[spans[0].line - 1]
        indent = line[: len(line) - len(line.lstrip())]
        whole = replace(spans[0], end_line=spans[-1].end_line, end_col=spans[-1].end_col)
        body = textwrap.dedent(indent + source.segment(whole)) + "\n"
    if statements and isinstance(statements[-1], ast.Expr):
        value = source.segment(spans[-1])
        body = f"{body[: -len(value) - 1]}return {value}"
    elif not statements or not isinstance(statements[-1], ast.Return):
        body += f"return {', '.join(results)}"
    return f"@{decorator}\ndef {name}({', '.join(texts)}):\n{textwrap.indent(body.rstrip(), '    ')}"


def _analysed(lines: _Lines, text: str, name: str) -> Analysis:
    """Of a function with this text at the end of the file. Raises NotFused where it is not a program."""
    files = FileAnalysis(lines.document.file, modules=lines.document.modules)
    files.update(f"{lines.document.text.plain}\n\n\n{text}\n")
    found = next((a for a in files.analyses if a.name == name), None)
    if found is None or files.syntax_errors:
        raise NotFused("the selection is not a complete piece of program")
    return found


def _changes(callee: Closure) -> bool:
    """Whether it is a kernel that stores to its arguments."""
    op = analyse(callee.definition).op if callee.definition.kind == "kernel" else None
    count = len(definition_signature(callee.definition).parameters)
    return op is not None and any(i < count for i in cast("tuple[int, ...]", op.attrs["writes"]))


# what comes from outside


def _types(lines: _Lines, decorator: str) -> None:
    """What the arguments are, from the annotations of who takes them, call by call."""
    if isinstance(lines.top, ast.FunctionDef):
        signature = signature_of(lines.top, lines.document.source, lines.document.scope)[0]
        for p in signature.parameters:
            _declare(lines, p.name, p.annotation, {})
    for n, s in enumerate(lines.statements):
        for call in (c for c in lines.calls if any(c is x for x in ast.walk(s))):
            callee = lines.callee(call)
            if isinstance(callee, Closure):
                _bind(lines, call, callee, decorator, lines.statements[:n])


def _bind(lines: _Lines, call: ast.Call, callee: Closure, decorator: str, before: Sequence[ast.stmt]) -> None:
    """Sizes that are known from other arguments; what is left takes the callee's names for them."""
    wanted = definition_signature(callee.definition).parameters
    named = {p.name: p for p in wanted}
    pairs = [*zip(wanted, call.args, strict=False)]
    pairs += [(named[k.arg], k.value) for k in call.keywords if k.arg in named]
    fresh = [(p, a) for p, a in pairs if isinstance(a, ast.Name) and a.id in lines.given and a.id not in lines.types]
    env: dict[str, Dim] = {}
    for p, a in ((p, a) for p, a in pairs if fresh and getattr(p.annotation, "shape", None)):
        have = None if any(a is b for _, b in fresh) else _type(lines, decorator, before, a)
        shape: Any = getattr(p.annotation, "shape", ())
        for want, d in zip(shape, getattr(have, "shape", ()), strict=False):
            if want is not ... and dims.is_symbol(want):
                env.setdefault(str(want), d)
    for p, a in fresh:
        _declare(lines, a.id, p.annotation, env)


def _type(lines: _Lines, decorator: str, before: Sequence[ast.stmt], value: ast.expr) -> object:
    """The type of an argument behind these statements."""
    if isinstance(value, ast.Name) and value.id in lines.types:
        return lines.types[value.id]
    text = _function(lines, decorator, "fused_so_far", before, [f"({ast.unparse(value)})"])
    found = _analysed(lines, text, "fused_so_far")
    return next((e.type for e in found.expressions if e.kind == "return"), None)


def _declare(lines: _Lines, name: str, said: object, env: dict[str, Dim]) -> None:
    if isinstance(said, ScalarAnn):
        lines.types[name] = said.dtype
    if not isinstance(said, TensorAnn) or said.shape is None or ... in said.shape:
        return
    shape = tuple(d for d in said.shape if d is not ...)
    for symbol in sorted({s for d in shape for s in dims.symbols(d)} - env.keys()):
        free = next(s for s in (symbol, *(f"{symbol}{n}" for n in range(2, 99))) if s not in lines.used)
        lines.used.add(free)
        env[symbol] = dims.symbol(free)
    lines.types[name] = TensorType(tuple(dims.substitute(d, env) for d in shape), said.dtype or dtypes.f32, said.policy)


# what it saves


def _gain(lines: _Lines, analysis: Analysis) -> str:
    """The title, with how many kernels there are then, and what that saves. Raises NotFused where it saves none."""
    errors = [d for d in analysis.diagnostics if d.severity == "error"] or list(analysis.undecided)
    if errors:
        raise NotFused(errors[0].message.partition("\n")[0])
    target, sizes = predicted_machine(lines.settings.target), lines.settings.dims
    before = sum(_kernels(lines, c) for c in lines.calls)
    try:
        func = schedule(analysis, sizes, target)
    except NoIR as e:
        raise NotFused(str(e)) from None
    groups = [g for g in func.walk() if g.name in KERNELS]
    if len(groups) >= before:
        pair = next(((a, b) for a in groups for b in groups if a is not b and set(a.results) & set(b.operands)), None)
        why = "none needs another's result: there is nothing to keep out of memory"
        raise NotFused(between(analysis.definition.text, *pair) if pair else why)
    kept: Dim = 0
    for r in (r for g in groups if g.name == "schedule.group" for o in group_ops(g) for r in o.results):
        inside = [u for u in r.users if u.name.startswith("graph.")]
        if inside and _passes(lines, r, inside):
            kept = kept + size(r) * (len(inside) + (len(inside) == len(r.users)))
    kernels = f"{before} kernels become {len(groups)}" if len(groups) > 1 else f"{before} kernels become one"
    return f"{TITLE}: {kernels}{saved(kept, before - len(groups), lines.settings)}"


def _passes(lines: _Lines, value: Value, users: Sequence[Op]) -> bool:
    """Whether it is what one launch gives another: it has a name, or is used in another function's text."""
    if value.hint in _stored(lines.statements):
        return True
    assert value.op is not None
    homes = [lines.document.function_at(op.span.line) for op in (value.op, *users)]
    return len(lines.calls) > len(lines.statements) and any(home is not homes[0] for home in homes)


def _kernels(lines: _Lines, call: ast.Call) -> int:
    """How many a call launches by itself."""
    callee = lines.callee(call)
    if not isinstance(callee, Closure) or callee.definition.kind == "kernel":
        return 1
    try:
        func = schedule(analyse(callee.definition), lines.settings.dims, predicted_machine(lines.settings.target))
    except NoIR:
        return 1
    return sum(op.name in KERNELS for op in func.walk())


def _refuse_new_errors(lines: _Lines, edits: tuple[Edit, ...]) -> None:
    """Raises NotFused where the file would have a mistake that it has not."""
    files = FileAnalysis(lines.document.file, modules=lines.document.modules)
    files.update(apply(lines.document.text.plain, Fix("", edits)))
    before = {(d.code, d.message) for d in lines.document.diagnostics}
    wrong = [d for d in files.diagnostics if d.severity == "error" and (d.code, d.message) not in before]
    if wrong:
        raise NotFused(wrong[0].message.partition("\n")[0])
