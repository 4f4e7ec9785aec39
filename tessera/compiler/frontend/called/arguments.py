"""A function as its file calls it: the arguments for parameters whose annotations do not determine their types.

A constructor makes a model, and the constructor's text says the sizes of all its members. It is evaluated like the text
of a function; nothing is imported or run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, TypeAlias

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.evaluate.parameters import each_argument
from tessera.compiler.frontend.module import TextScope
from tessera.compiler.frontend.names import binding
from tessera.compiler.frontend.names.binding import equations
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.compiler.frontend.names.live import read
from tessera.compiler.frontend.names.signature import Parameter, Signature, definition_signature
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    ClassRef,
    Record,
    Static,
    Unknown,
    is_dict,
    is_sequence,
    remade,
)
from tessera.compiler.frontend.result import Analysis, ArgType, changed
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.compiler.unit import LaunchCheck
from tessera.errors import Diagnostic
from tessera.immutable import immutable, mutable
from tessera.language import dims
from tessera.language.annotations import ConstAnn, RecordAnn, ScalarAnn, TensorAnn, TileAnn, dotted_name
from tessera.language.dims import Dim, Expr, substitute, symbol
from tessera.language.dtypes import f32

Assigned: TypeAlias = "tuple[ast.expr, int | None]"
"""the expression that a name is given, or which item of it"""


@immutable
class MadeArgument:
    """An argument that the text makes: its type, the expression that makes it, and the line of the expression."""

    type: ArgType
    text: str
    line: int


@immutable
class AsCalled:
    """`made`: by parameter, the arguments that the text makes. `sizes`: the sizes of named dims that these arguments
    require."""

    analysis: Analysis
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    made: Mapping[str, MadeArgument] = field(default_factory=dict[str, MadeArgument])


@mutable
class CalledFunction:
    """A function for the arguments that the text makes. `program`: what takes its gradient, if anything does. That
    takes longer: `whole` is None until it is asked for."""

    forward: AsCalled
    program: Definition | None = None
    whole: AsCalled | None = None

    @property
    def waits(self) -> bool:
        return self.program is not None and self.whole is None

    def derive(self) -> None:
        """Takes the gradient."""
        if self.program is not None and self.whole is None:
            given: dict[str, ArgType] = {n: m.type for n, m in self.forward.made.items()}
            self.whole = replace(self.forward, analysis=analyse(self.program, given, self.forward.sizes))

    @property
    def known(self) -> AsCalled:
        return self.whole or self.forward

    def follow(self, made: Mapping[str, MadeArgument]) -> None:
        """Takes the arguments as they stand now."""
        self.forward = replace(self.forward, made=made)
        self.whole = replace(self.whole, made=made) if self.whole is not None else None


def called(analysis: Analysis, before: AsCalled | None = None) -> AsCalled:
    """The analysis with the arguments that the file's text makes; unchanged where it needs none, or the text makes
    none. `before`: the result for an earlier text of the file, which is returned where it still holds."""
    if not analysis.undecided or not analysis.ok:
        return AsCalled(analysis)
    made = arguments(analysis.definition)
    if not made:
        return AsCalled(analysis)
    if before is not None and _same(before, analysis.definition, made):
        return before
    signature = definition_signature(analysis.definition)
    if any(not p.annotated and p.default is None and p.name not in made for p in signature.parameters):
        known = {p.span for p in signature.parameters if p.name in made}
        undecided = tuple(d for d in analysis.undecided if d.span not in known)
        return AsCalled(replace(analysis, undecided=undecided), made=made)
    given = {n: m.type for n, m in made.items()}
    return AsCalled(*computed(analysis.definition, signature, given), made)


def _same(before: AsCalled, now: Definition, made: Mapping[str, MadeArgument]) -> bool:
    """Whether the function, the names that it reads and its arguments are all unchanged."""
    was = before.analysis.definition
    unmoved = was.line == now.line and was.options == now.options and lines(was) == lines(now)
    return unmoved and content(before.made) == content(made) and not changed(before.analysis, now.scope)


def lines(definition: Definition) -> list[str]:
    return definition.text.lines[definition.line - 1 : definition.tree.end_lineno]


def content(made: Mapping[str, MadeArgument]) -> Any:
    """The part of the arguments that decides the analysis, to be compared; classes are compared by their text."""
    texts: dict[int, str] = {}

    def of(value: Any) -> Any:
        if isinstance(value, Record):
            if id(value.cls) not in texts:
                texts[id(value.cls)] = fingerprint(value.cls)
            return texts[id(value.cls)], {n: of(v) for n, v in value.members.items()}
        if is_sequence(value):
            return tuple(map(of, value))
        if isinstance(value, Static):
            return fingerprint(value.value)
        return {k: of(v) for k, v in value.items()} if is_dict(value) else value

    return {n: of(m.type) for n, m in made.items()}


def computed(
    definition: Definition, signature: Signature, given: Mapping[str, ArgType], likely: Mapping[str, int] | None = None
) -> tuple[Analysis, dict[str, int]]:
    """The analysis of a function for these arguments, and the sizes of named dims that they decide. `likely`: those
    that they decided before.

    Mostly the names of the annotations stand as they are. Otherwise the function is analysed for tensors of open sizes,
    and the checks of these sizes at launch are solved for them."""
    pairs = [
        e for p, a in each_argument(signature, given) if isinstance(a, TensorType)
        for e in equations(p.name, p.annotation, a.shape) or ()
    ]  # fmt: skip
    solved = binding.solve(pairs, {}, dims.Facts())[0]  # of the classes' own dims
    held = {n: size for n, size in solved.items() if isinstance(size, int) and n in signature.dims}
    if not likely or likely == held:
        found = analyse(definition, given, held)
        if not signature.dims or (found.ok and not found.undecided and not any(_decided(found.checks))):
            return found, held
    tried = analyse(definition, {**of_open_sizes(signature), **given})
    found, _ = dims.solve(_decided(tried.checks))
    every = {**held, **{n.removeprefix("?"): size for n, size in found.items()}}
    sizes = {n: size for n, size in every.items() if n in signature.dims}
    return analyse(definition, given, sizes), sizes


def of_open_sizes(signature: Signature) -> dict[str, ArgType]:
    """Tensors for the annotations of named dims, of sizes that nothing is known of, by parameter: none for those of any
    rank."""
    open_ = {name: symbol(f"?{name}") for name in signature.dims}
    return {
        p.name: TensorType(
            tuple(substitute(d, open_) for d in p.annotation.shape if d is not ...), p.annotation.dtype or f32
        )
        for p in signature.parameters
        if isinstance(p.annotation, TensorAnn) and p.annotation.shape and ... not in p.annotation.shape
    }


def _decided(checks: Iterable[LaunchCheck]) -> Iterator[tuple[str, Dim, int]]:
    """The checks that determine a size."""
    for c in checks:
        size, dim = (c.left, c.right) if isinstance(c.left, int) else (c.right, c.left)
        if isinstance(dim, Expr) and isinstance(size, int):
            yield c.why, dim, size


def arguments(definition: Definition) -> dict[str, MadeArgument]:
    """By parameter, the argument of a call in the file; where no call determines it, an object of the annotated class
    that the file constructs, or that a variable of the parameter's name holds."""
    scope = definition.scope
    if not isinstance(scope, TextScope) or definition.owner is not None:
        return {}
    wanted = {p.name: p for p in definition_signature(definition).parameters if is_open(p)}
    found: dict[str, MadeArgument] = {}
    names = [p.name for p in definition_signature(definition).parameters if not p.variadic]
    for call, inside in calls(scope) if wanted else ():
        if isinstance(call.func, ast.Name) and call.func.id == definition.name:
            given = {**dict(zip(names, call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
            for name in [n for n in wanted if n not in found]:
                made = inside.made(given[name]) if name in given else None
                if made is not None:
                    found[name] = made
    classes = {
        n: p.annotation.type for n, p in wanted.items() if n not in found and isinstance(p.annotation, RecordAnn)
    }
    for call, inside in calls(scope) if classes else ():
        for name, cls in classes.items():
            if name not in found and inside.meaning(call.func) is cls:
                made = inside.made(call)
                if made is not None:
                    found[name] = made
    for inside in _functions(scope) if classes.keys() - found.keys() else ():
        for name in [n for n in classes if n not in found and n in inside.bound]:
            made = inside.made(ast.copy_location(ast.Name(name, ast.Load()), inside.bound[name][0][0]))
            if made is not None and isinstance(made.type, Record) and made.type.cls is classes[name]:
                found[name] = made
    return {n: found[n] for n in wanted if n in found}


def is_open(p: Parameter) -> bool:
    return not p.variadic and not isinstance(p.annotation, (TensorAnn, TileAnn, ScalarAnn, ConstAnn))


def calls(scope: TextScope) -> Iterator[tuple[ast.Call, Names]]:
    """All calls of a file, and the names that each sees."""
    yield from calls_in(scope.tree, Names(scope, scope, scope.tree))


def _functions(scope: TextScope) -> Iterator[Names]:
    """The names of each function of a file."""
    yield from dict.fromkeys(names for _, names in calls(scope))


def calls_in(node: ast.AST, names: Names) -> Iterator[tuple[ast.Call, Names]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield from calls_in(child, Names(names.file, names, child))
            continue
        if isinstance(child, ast.Call):
            yield child, names
        yield from calls_in(child, names)


class Names:
    """The names in scope of an expression, evaluated when they are looked up.

    A name that is assigned at several places has the first value that is known: an update returns a model with the
    structure of its argument. The value of a parameter is its default.
    """

    live = False

    def __init__(self, file: TextScope, outer: Scope, node: ast.Module | ast.FunctionDef) -> None:
        self.file, self.outer, self.node = file, outer, node
        self.signatures: dict[Any, Any] = {}
        self._values: dict[str, Any] = {}
        self._texts: dict[str, ast.expr] = {}
        self._bound: dict[str, list[Assigned]] | None = None
        self._errors: dict[ast.expr, Diagnostic] = {}
        self._renewed: dict[str, bool] = {}
        """of names that have been asked about, whether they are as they were in an earlier text"""

    @property
    def needs_arguments(self) -> bool:
        """Whether what its names mean is known only when the function around it is called."""
        a = self.node.args if isinstance(self.node, ast.FunctionDef) else None
        outer = isinstance(self.outer, Names) and self.outer.needs_arguments
        given = a is not None and (len(a.posonlyargs) + len(a.args) > len(a.defaults) or None in a.kw_defaults)
        return outer or given

    @property
    def bound(self) -> dict[str, list[Assigned]]:
        """The values that are assigned to each name, in order."""
        if self._bound is None:
            self._bound = {}
            for node in _statements(self.node.body):
                _bind(node, self._bound)
        return self._bound

    def lookup(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        outer = self.outer.lookup(name) if isinstance(self.node, ast.Module) else MISSING
        if outer is not MISSING and outer is not UNKNOWN:
            return outer
        candidates = self._candidates(name)
        if not candidates:
            return self.outer.lookup(name)
        self._values[name] = UNKNOWN  # while it is evaluated: a value that depends on itself is unknown
        for node, item in candidates:
            value = self.value(node)
            if item is not None:
                value = value[item] if is_sequence(value) and item < len(value) else UNKNOWN
            if value is not UNKNOWN:
                self._values[name], self._texts[name] = value, node
                break
        return self._values[name]

    def renews(self, old: Names, name: str, unchanged: Callable[[str, Scope], bool]) -> bool:
        """Whether a name has the value that it had in an earlier text, which is then taken over. What is assigned to
        it behind the expression that gave the value is of no account."""
        if name in self._renewed:
            return self._renewed[name]
        text = old._texts.get(name)
        if text is None:
            if isinstance(old.outer, Names) and isinstance(self.outer, Names):
                same = name not in old.bound and self.outer.renews(old.outer, name, unchanged)
            else:
                same = unchanged(name, old.file)
            return self._renewed.setdefault(name, same)
        self._renewed[name] = False  # while it is looked into
        was, now = old._candidates(name), self._candidates(name)
        tried = 1 + next(i for i, (node, _) in enumerate(was) if node is text)
        same = len(now) >= tried and all(a[0] is b[0] and a[1] == b[1] for a, b in zip(was[:tried], now, strict=False))
        read = {n.id for node, _ in was[:tried] for n in ast.walk(node) if isinstance(n, ast.Name)}
        same = same and all(self.renews(old, n, unchanged) for n in read)
        if same:
            self._values[name], self._texts[name] = with_classes_of(self.file, old._values[name]), text
            self.file.ran_layers |= old.file.ran_layers
        self._renewed[name] = same
        return same

    def _candidates(self, name: str) -> list[Assigned]:
        default = self._default(name)
        return [*([(default, None)] if default is not None else ()), *self.bound.get(name, ())]

    def _default(self, name: str) -> ast.expr | None:
        if not isinstance(self.node, ast.FunctionDef):
            return None
        a = self.node.args
        positional = [*a.posonlyargs, *a.args]
        pairs = [*zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True)]
        return next((d for p, d in (*pairs, *zip(a.kwonlyargs, a.kw_defaults, strict=True)) if p.arg == name), None)

    def names(self) -> list[str]:
        return [*self.bound, *self.outer.names()]

    def edited(self, definition: Definition, text: str) -> Definition | None:
        return None

    def meaning(self, node: ast.expr) -> Any:
        """What a dotted name means; UNKNOWN for any other expression."""
        dotted = dotted_name(node)
        return read(self, dotted) if dotted else UNKNOWN

    def made(self, node: ast.expr) -> MadeArgument | None:
        """The argument that an expression makes; None where the text does not determine it."""
        value = self.value(node)
        return None if isinstance(value, Unknown) else self.made_as(typed(value), node)

    def made_as(self, type: ArgType, node: ast.expr) -> MadeArgument:
        """An argument of this type, with the place of the expression that makes it."""
        while isinstance(node, ast.Name) and node.id in self._texts:
            node = self._texts[node.id]
        return MadeArgument(type, ast.unparse(node), node.lineno)

    def value(self, node: ast.expr) -> Any:
        from tessera.compiler.frontend.evaluation import constant  # slow: 0.2 s before a server's first answer

        value, said, ran = constant(self.file.file, self.file.text, self, node, tensors=True)
        self.file.ran_layers |= ran
        if said is not None:
            self._errors[node] = said
        return value

    def error(self, node: ast.expr) -> Diagnostic | None:
        """What is wrong in making the value of an expression, or of the name that it is, once that was asked for."""
        made = [value for value, _ in self.bound.get(node.id, ())] if isinstance(node, ast.Name) else [node]
        return next((self._errors[each] for each in made if each in self._errors), None)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body and of the blocks in it, in order, without those of functions and classes."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for inner in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, inner, []))


def _bind(node: ast.stmt, bound: dict[str, list[Assigned]]) -> None:
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            targets = [target]
        case _:
            return
    for target in targets:
        if isinstance(target, ast.Name):
            bound.setdefault(target.id, []).append((value, None))
        elif isinstance(target, ast.Tuple):
            parts = value.elts if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts) else None
            for i, item in enumerate(target.elts):
                if isinstance(item, ast.Name):
                    bound.setdefault(item.id, []).append((parts[i], None) if parts is not None else (value, i))


def with_classes_of(scope: TextScope, value: Any) -> Any:
    """A value that an earlier text of a file made, with the classes as they are now, if any has changed: methods that
    its constructors have not run may be."""
    known: dict[int, Any] = {}
    renewed = False

    def of(v: Any) -> Any:
        nonlocal renewed
        if isinstance(v, Record):
            if id(v) not in known:
                cls = v.cls
                if isinstance(cls, ClassRef) and isinstance(was := cls.scope, TextScope) and was.file == scope.file:
                    now = scope.lookup(cls.name)
                    renewed |= scope.bound.get(cls.name) is not was.bound.get(cls.name)
                    cls = now if isinstance(now, ClassRef) else cls
                known[id(v)] = made = replace(v, members={}, cls=cls)  # objects may hold each other
                made.members.update({n: of(m) for n, m in v.members.items()})
            return known[id(v)]
        if is_sequence(v):
            return remade(v, map(of, v))
        return {k: of(m) for k, m in v.items()} if is_dict(v) else v

    found = of(value)
    return found if renewed else value


def typed(value: Any) -> Any:
    """A value that the text makes, as an argument of `analyse`."""
    if isinstance(value, Value):
        return value.type
    if isinstance(value, Record):
        return replace(value, members={n: typed(v) for n, v in value.members.items()}, outside=True)
    if is_sequence(value):
        return remade(value, map(typed, value))
    return {k: typed(v) for k, v in value.items()} if is_dict(value) else Static(value)


class Beside:
    """Further names beside those of a scope."""

    live = False

    def __init__(self, scope: Scope, known: Mapping[str, Any]) -> None:
        self._scope, self._known = scope, known
        self.signatures: dict[Any, Any] = {}

    def lookup(self, name: str) -> Any:
        return self._known[name] if name in self._known else self._scope.lookup(name)

    def names(self) -> Iterable[str]:
        return self._scope.names()

    def edited(self, definition: Definition, text: str) -> Definition | None:
        return None
