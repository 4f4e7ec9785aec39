"""Functions and methods that a file calls outside of programs, `loss(model, x, y)`, `model(x)` or
`ts.value_and_grad(loss)(model, x, y)`, for the arguments that its text makes: what editors show inside them, and the
errors that these calls would raise.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any
from weakref import WeakKeyDictionary

from tessera.compiler.frontend.analyse import analyse
from tessera.compiler.frontend.called.arguments import (
    AsCalled,
    Beside,
    CalledFunction,
    MadeArgument,
    Names,
    calls_in,
    computed,
    content,
    is_open,
    lines,
    of_open_sizes,
    with_classes_of,
)
from tessera.compiler.frontend.called.certain import calls_for_certain, has_one_value
from tessera.compiler.frontend.called.inside import CalledProgram, current
from tessera.compiler.frontend.module import TextScope, decorated_kind
from tessera.compiler.frontend.names.definition import Definition, Scope
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.signature import definition_signature
from tessera.compiler.frontend.names.transformed import TransformedRef
from tessera.compiler.frontend.names.values import UNKNOWN, ClassRef, Method, Record
from tessera.compiler.frontend.result import Analysis, ArgType, changed
from tessera.compiler.frontend.syntax.parse import Source
from tessera.errors import Diagnostic, Note, Span
from tessera.immutable import mutable
from tessera.language.annotations import TensorAnn

MOST = 2
"""calls of one function that are looked at"""
_GRADIENTS = frozenset({"grad", "value_and_grad"})
_READ: WeakKeyDictionary[ast.AST, frozenset[str]] = WeakKeyDictionary()
"""of statements and calls that have been asked about: the names that they read; none for statements without calls"""


@mutable
class PlainCall:
    """A call, the names that it sees, and what is called; None where it is nothing that an editor shows the inside of.
    `gradient`: the transformed function, where its gradient is what is called."""

    call: ast.Call
    names: Names
    statement: ast.stmt
    """at the top of the file, in which it stands"""
    function: Definition | None = None
    gradient: TransformedRef | None = None
    made: Mapping[str, MadeArgument] = field(default_factory=dict[str, MadeArgument])
    nodes: Mapping[str, ast.expr] = field(default_factory=dict[str, ast.expr])
    """the expressions that make them"""
    found: CalledFunction | None = None
    open_sizes: CalledProgram | None = None
    """the program for sizes that nothing is known of, once an error asks for it"""

    def follow(self) -> None:
        """Takes the lines where its arguments stand now, after some have come or gone above."""
        self.made = {n: self.names.made_as(m.type, self.nodes[n]) for n, m in self.made.items()}
        if self.found is not None:
            self.found.follow(self.made)

    @property
    def program(self) -> CalledProgram | None:
        """What is known of the function and of those that it calls."""
        if self.found is None:
            return None
        f = self.found.known
        return CalledProgram(f.analysis, f.made, f.sizes, own=self.found.whole is None)

    def findings(self, source: Source) -> list[Diagnostic]:
        """The errors of the program, where it is called for certain with what the text makes: in this file at their
        lines, others at the call. Of what Python runs, those of shapes alone: other things Python may do."""
        program = self.program
        if program is None or self.function is None or self.call not in calls_for_certain(self.statement):
            return []
        errors = [d for d in program.analysis.diagnostics if d.severity == "error"]
        if self.gradient is None:
            sure = all(d.code[:3] in ("TS2", "TS3") for d in errors)
            errors = [d for d in errors if sure and d.code.startswith("TS2")]
        nodes = [self.call.func, *(self.nodes[name] for name in self.made)]
        if not errors or not all(has_one_value(node, self.names) for node in nodes):
            return []
        always = self._of_any_sizes()
        errors = [d for d in errors if (d.code, program.moved(d.span)) in always]
        own, place = self._own if self.gradient is not None else None, source.span(self.call)
        found = [program.placed(d, source.file, place, own) for d in errors]
        return [d if d.span == place else replace(d, notes=(*d.notes, Note("called here", place))) for d in found]

    def _of_any_sizes(self) -> set[tuple[str, Span]]:
        """The errors, by code and place, whatever the sizes of named dims: the call may give others than the
        annotations name. None where an argument is not known."""
        if self.open_sizes is None:
            assert self.function is not None and self.found is not None
            parameters = (signature := definition_signature(self.function)).parameters
            given = {**of_open_sizes(signature), **{n: m.type for n, m in self.made.items()}}
            needed = {p.name for p in parameters if is_open(p) and p.default is None}
            needed |= {p.name for p in parameters if isinstance(p.annotation, TensorAnn) and p.annotation.shape}
            program = self.found.program or self.function
            tried = analyse(program, given, {}) if given.keys() >= needed else Analysis(program)
            self.open_sizes = CalledProgram(tried, own=self.gradient is None)
        return {(d.code, self.open_sizes.moved(d.span)) for d in self.open_sizes.analysis.diagnostics}

    @property
    def _own(self) -> Span:
        """Where the gradient's own line stands."""
        assert self.function is not None and isinstance(self.function.tree, ast.FunctionDef)
        return self.function.text.span(self.function.tree.body[0])


def plain_calls(
    scope: TextScope,
    before: Sequence[PlainCall],
    unchanged: Callable[[str, Scope], bool],
    made_alike: Callable[[str, Scope], bool],
) -> Iterator[PlainCall | None]:
    """The calls outside of programs, and None between two that are analysed. `before`: those of an earlier text of the
    file, which are taken where they still hold."""
    names = Names(scope, scope, scope.tree)
    known = {c.call: c for c in before}
    count: dict[Any, int] = {}
    for statement in scope.tree.body:
        if statement not in _READ:
            _READ[statement] = _read(statement) if any(map(_may_be_shown, ast.walk(statement))) else frozenset()
        if not _READ[statement] or isinstance(statement, ast.ClassDef) or _is_program(scope, statement):
            continue
        old = [c for c in before if c.statement is statement]
        if old and all(unchanged(name, old[0].names.file) for name in _READ[statement]):
            for call in old:
                call.follow()
            yield from old
            continue
        for call, inside in calls_in(ast.Module([statement], []), names):
            if not _may_be_shown(call) or inside.needs_arguments:
                continue
            found = _plain_call(call, inside, statement, known.get(call), made_alike)
            yield found
            if found.function is not None and count.setdefault(found.function.tree, 0) < MOST:
                count[found.function.tree] += 1
                yield None
                found.found = yield from _analysed(found, [c for c in before if c.function is not None])
                yield None


def _read(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _is_program(scope: TextScope, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.FunctionDef) and decorated_kind(scope, statement) is not None


def _may_be_shown(node: ast.AST) -> bool:
    """Whether a variable or a function of the file may be called here, told without evaluating anything."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Call):
        return _is_gradient(function)
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and not hasattr(builtins, function.id)


def _is_gradient(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _GRADIENTS


def _plain_call(
    call: ast.Call, names: Names, statement: ast.stmt, old: PlainCall | None, made_alike: Callable[[str, Scope], bool]
) -> PlainCall:
    if call not in _READ:
        _READ[call] = _read(call)
    found = PlainCall(call, names, statement)
    unmoved = old is not None and old.names.file.text.count("\n") == names.file.text.count("\n")
    kept = frozenset(n for n in _READ[call] if old is not None and unmoved and names.renews(old.names, n, made_alike))
    if old is not None and old.function is None and kept == _READ[call]:
        return found
    if not _is_worth_it(call.func, names):
        return found
    value = names.value(call.func)
    function, owner, gradient = _called(value)
    if function is None:
        return found
    nodes = _arguments(call, function, owner is not None)
    if owner is not None:
        at = call.func
        nodes["self"] = at.value if isinstance(value, Method) and isinstance(at, ast.Attribute) else at
    given: dict[str, MadeArgument] = {}
    for name, node in nodes.items():
        was = old.made.get(name) if old is not None and _read(node) <= kept else None
        again = with_classes_of(names.file, was.type) if was is not None else None
        made = names.made(node) if was is None else names.made_as(again, node)
        if made is not None:
            given[name] = made
    found.function, found.gradient, found.made, found.nodes = function, gradient, given, nodes
    return found


def _is_worth_it(function: ast.expr, names: Names) -> bool:
    """Whether evaluating what is called may give a function of the file, an object's method or a gradient."""
    if isinstance(function, ast.Call):
        return True
    first = function
    while isinstance(first, ast.Attribute):
        first = first.value
    value = names.meaning(first) if isinstance(first, ast.Name) else UNKNOWN
    return isinstance(value, (Record, TransformedRef)) or (isinstance(value, Closure) and first is function)


def _called(value: Any) -> tuple[Definition | None, Record | None, TransformedRef | None]:
    """The function that a value is when it is called, the object whose method it is, and the gradient of it."""
    gradient = value if isinstance(value, TransformedRef) and value.transform.name in _GRADIENTS else None
    function: Any = gradient.function if gradient is not None else value
    owner: Any = function if isinstance(function, Record) else getattr(function, "owner", None)
    if isinstance(owner, Record) and isinstance(owner.cls, ClassRef) and gradient is None:
        members = owner.cls.members
        name = function.name if isinstance(function, Method) else "forward" if "forward" in members else "__call__"
        function = members.get(name)
    else:
        owner = None
    if not isinstance(function, Closure) or function.frame is not None or function.definition.kind != "function":
        return None, None, None
    return (function.definition, owner, gradient) if isinstance(function.node, ast.FunctionDef) else (None, None, None)


def _arguments(call: ast.Call, function: Definition, is_method: bool) -> dict[str, ast.expr]:
    """By parameter whose type the annotations do not tell, the argument."""
    parameters = definition_signature(function).parameters[int(is_method) :]
    if any(isinstance(a, ast.Starred) for a in call.args):
        return {}
    given = dict(zip((p.name for p in parameters), call.args, strict=False))
    given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
    return {p.name: given[p.name] for p in parameters if p.name in given and is_open(p)}


def _analysed(call: PlainCall, before: Sequence[PlainCall]) -> Generator[None, None, CalledFunction | None]:
    """None where nothing is known of the arguments beyond their annotations."""
    assert call.function is not None
    signature = definition_signature(call.function)
    if not any(isinstance(m.type, Record) for m in call.made.values()):
        return None  # numbers alone may mean long loops
    for old in before:
        assert old.function is not None
        same = old.function.name == call.function.name and (old.gradient is None) == (call.gradient is None)
        if old.found is None or not same or lines(old.function) != lines(call.function):
            continue
        was = old.found.known
        if content(old.made) == content(call.made) and not changed(was.analysis, call.function.scope):
            analysis = current(was.analysis, call.names.file)
            if analysis is not None:
                if call.gradient is None:
                    analysis = replace(analysis, definition=replace(analysis.definition, tree=call.function.tree))
                now = replace(was, analysis=analysis, made=call.made)
                return CalledFunction(now, old.found.program, now if old.found.whole is not None else None)
    yield
    given: dict[str, ArgType] = {n: m.type for n, m in call.made.items()}
    likely = next((c.found.forward.sizes for c in before if c.found is not None and c.call is call.call), None)
    analysis, sizes = computed(call.function, signature, given, likely)
    program = _gradient_of(call.function, call.gradient) if call.gradient is not None else None
    return CalledFunction(AsCalled(analysis, sizes, call.made), program)


def _gradient_of(function: Definition, gradient: TransformedRef) -> Definition:
    """The call of the gradient as a definition that stands where the function does, with its parameters."""
    original = function.tree
    assert isinstance(original, ast.FunctionDef)
    a = original.args
    given: list[ast.expr] = [ast.Name(p.arg, ast.Load()) for p in (*a.posonlyargs, *a.args)]
    named = [ast.keyword(p.arg, ast.Name(p.arg, ast.Load())) for p in a.kwonlyargs]
    body = ast.Return(ast.Call(ast.Name("<gradient>", ast.Load()), given, named))
    for node in ast.walk(body):
        ast.copy_location(node, original.body[0])
    tree = ast.copy_location(ast.FunctionDef(original.name, a, [body], [], None), original)
    return replace(function, tree=tree, scope=Beside(function.scope, {"<gradient>": gradient}))
