"""What a module's text says about its names: imports, constants, functions and classes. Nothing is imported or run.

Constants are evaluated by the evaluator itself, in this scope, when they are first asked for.
"""

from __future__ import annotations

import ast
import builtins
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol, TypeGuard
from weakref import WeakKeyDictionary

from tessera.compiler.frontend.names import vocabulary
from tessera.compiler.frontend.names.definition import Definition, FileScope, Kind, Scope
from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import read
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    ClassRef,
    FileModule,
    Namespace,
    OutsideArray,
    Property,
    has_unknown,
    is_sequence,
)
from tessera.compiler.frontend.syntax.parse import Source, find_function, parse_module, source_of
from tessera.compiler.frontend.syntax.reparse import reread
from tessera.compiler.frontend.syntax.trees import Broken, first_line
from tessera.errors import CompileError, Diagnostic, TesseraError
from tessera.language.annotations import dotted_name
from tessera.language.transforms import PAIRED, RULES, file_of_rule, rule_as_jax_writes
from tessera.tracebacks import OWN

GIVEN_UP: WeakKeyDictionary[ast.expr, str] = WeakKeyDictionary()
"""constants that are not known, for computing them takes too long, and why"""
_NAMED_TUPLE = ("NamedTuple", "typing.NamedTuple")
_DATACLASS = ("dataclass", "dataclasses.dataclass", *_NAMED_TUPLE)


class Files(Protocol):
    """Where imported files are looked for."""

    def path(self, importer: str, name: str, level: int) -> str | None:
        """The file that `importer` means by `name`, after so many dots; of a package its folder."""
        ...

    def scope(self, path: str) -> FileScope:
        """The names of the file at a path."""
        ...


class TextScope:
    """Top-level names of one module. The last binding of a name counts, as it does after the module has run."""

    live = False

    def __init__(
        self, file: str, text: str, tree: ast.Module, modules: Files | None = None, known_as: Scope | None = None,
        arrays: Mapping[str, OutsideArray] | None = None,
    ) -> None:  # fmt: skip
        """`modules`: where imported files are looked for. `known_as`: what stands for this scope in the definitions of
        its functions, where that outlives it. `arrays`: those that names have where the file was run; its text does
        not tell."""
        self.file, self.text, self.tree = file, text, tree
        self._modules, self._known_as, self.arrays = modules, known_as or self, arrays or {}
        self.bound: dict[str, ast.AST] = {}
        self.binders: dict[str, list[ast.AST]] = {}
        """all statements that bind a name, in order"""
        self._values: dict[str, Any] = {}
        self._open: set[tuple[str, int]] = set()
        """names that are being evaluated, and on which thread"""
        self._definitions: dict[ast.FunctionDef, Definition] = {}
        self.signatures: dict[Any, Any] = {}
        self._rules: dict[tuple[str, str], ast.FunctionDef] = {}
        """the derivatives of functions that a user wrote: `@f.vjp`"""
        self._paired: dict[tuple[str, str], ast.Call] = {}
        """those in JAX's manner, `f.defvjp(forward, backward)`, by function and option"""
        self._derived: dict[str, str] = {}
        """for kernels whose derivative is derived, the kernel that it is derived from: `f.vjp(f.backward())`"""
        self.imports: dict[str, FileScope] = {}
        """the files that were looked into, by path"""
        self.stars: list[tuple[str, int]] = []
        self.ran_layers = False
        """whether something that the text makes outside of programs rests on layers, not on constructors alone"""
        for node in _statements(tree.body):
            self._bind(node)

    @cached_property
    def functions(self) -> dict[ast.FunctionDef, None]:
        """Those of the module and of its classes, in order."""
        bodies = (node.body if isinstance(node, ast.ClassDef) else [node] for node in self.tree.body)
        return {node: None for body in bodies for node in body if isinstance(node, ast.FunctionDef)}

    def _is_bound(self, name: str, node: ast.stmt) -> None:
        self.bound[name] = node
        self.binders.setdefault(name, []).append(node)

    def _bind(self, node: ast.stmt) -> None:
        match node:
            case ast.Import(names=names):
                for alias in names:
                    self._is_bound(alias.asname or alias.name.partition(".")[0], node)
            case ast.ImportFrom(names=names):
                for alias in names:
                    if alias.name == "*":
                        self.stars.append((node.module or "", node.level))
                    else:
                        self._is_bound(alias.asname or alias.name, node)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                self._is_bound(name, node)
                for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                    match decorator:
                        case ast.Attribute(value=ast.Name(id=function), attr="vjp" | "jvp" as rule):
                            self._rules[function, rule] = node  # type: ignore[assignment]
                        case ast.Attribute(value=ast.Name(id=function), attr="defjvp"):
                            self._paired[function, "jvp"] = ast.Call(decorator, [ast.Name(name)], [])
                        case _:
                            pass
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=function), attr="vjp"),
                    args=[
                        ast.Call(func=ast.Attribute(value=ast.Name(id=kernel), attr="backward"), args=[], keywords=[])
                    ],
                )
            ):
                self._derived[function] = kernel
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=function), attr=method)) as call) if (
                method in PAIRED
            ):
                self._paired[function, PAIRED[method]] = call
            case ast.Assign(targets=targets):
                for target in targets:
                    for name in _names(target):
                        self._is_bound(name, node)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
                self._is_bound(name, node)
            case ast.AugAssign() | ast.For() | ast.With():
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        self._is_bound(inner.id, node)
            case Broken():
                for name in node.binds | (node.mentions - self.bound.keys()):
                    self._is_bound(name, node)
                for was in node.was:
                    self._bind(was)
            case _:
                pass

    def names(self) -> Iterable[str]:
        return [*self.bound, *vocabulary.PYTHON_BUILTINS]

    def edited(self, definition: Definition, text: str) -> Definition | None:
        try:
            found = reread(self.tree, self.text, text, self.file)
            tree, notes = found if found is not None else parse_module(text, self.file)
        except CompileError:
            return None
        around = [n for n in tree.body if first_line(n) <= definition.line <= (n.end_lineno or n.lineno)]
        node = find_function(ast.Module(around, []), definition.line, definition.name)
        if not isinstance(node, ast.FunctionDef):
            return None
        scope = TextScope(self.file, text, tree, self._modules)
        options, problems = decorator_options(scope, node, source_of(self.file, text))
        return replace(definition, tree=node, source=text, notes=notes, scope=scope, options=options, problems=problems)

    def lookup(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        node = self.bound.get(name)
        if node is None:
            return self.arrays.get(name) or self._unbound(name)
        opened = (name, threading.get_ident())  # where an editor has set one analysis aside, another may ask as well
        if opened in self._open:
            return UNKNOWN  # a constant defined by itself
        self._open.add(opened)
        try:
            value = self._evaluate(name, node)
            self._values[name] = value = self.arrays.get(name, UNKNOWN) if value is UNKNOWN else value
        finally:
            self._open.discard(opened)
        return value

    def _unbound(self, name: str) -> Any:
        if name in vocabulary.PYTHON_BUILTINS:
            return Builtin(name)
        self._values[name] = MISSING  # while others are asked that may take all names of this file
        try:
            for module, level in self.stars:
                file = self._file(module, level)
                if file is not None:
                    found = MISSING if name.startswith("_") else file.scope.member(name)
                else:
                    found = vocabulary.member(module, name) if not level else UNKNOWN
                if found is not MISSING:
                    return found
        finally:
            del self._values[name]
        return UNKNOWN if hasattr(builtins, name) or name in ("__name__", "__file__", "__doc__") else MISSING

    def _evaluate(self, name: str, node: ast.AST) -> Any:
        match node:
            case ast.Import(names=names):
                alias = next(a for a in names if name in (a.asname, a.name.partition(".")[0]))
                path = alias.name if alias.asname else name
                return self._file(path, 0) or Namespace(path)
            case ast.ImportFrom(names=names):
                alias = next(a for a in names if name in (a.asname, a.name))
                return self._imported(node.module or "", node.level, alias.name)
            case ast.FunctionDef():
                return self._function(node)
            case ast.ClassDef():
                return self._class(node)
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self.constant(value)
            case ast.Assign(targets=targets, value=value):
                return self._unpacked(name, targets, value)
            case _:
                return UNKNOWN

    def _file(self, module: str, level: int) -> FileModule | None:
        """The file of the workspace that is imported by this name."""
        if self._modules is None:
            return None
        path = self._modules.path(self.file, module, level)
        if path is None:
            return None
        self.imports[path] = scope = self._modules.scope(path)
        return FileModule(module, scope)

    def is_file(self, module: str) -> bool:
        """Whether a file of the workspace is imported by this name."""
        return self._file(module, 0) is not None

    def _imported(self, module: str, level: int, name: str) -> Any:
        """`from module import name`; what a file is not seen to bind may be bound otherwise."""
        file = self._file(module, level)
        if file is not None:
            found = file.scope.member(name)
            return UNKNOWN if found is MISSING else found
        return imported(module, name) if not level else UNKNOWN

    def _function(self, node: ast.FunctionDef) -> Any:
        kind, own = decorated_kind(self, node), ("fitted",) if self.file.startswith(OWN) else ()
        if kind is None and any(
            dotted_name(d) not in ("staticmethod", "inline", *own) and _own_name(self, d) != "tile.helper"
            for d in node.decorator_list
            if not isinstance(d, ast.Attribute) or d.attr not in (*RULES, "defjvp")  # those give the rule itself
        ):
            return UNKNOWN
        return Closure(node, self.definition(node, kind or "function"), None, _Defaults(self, node))

    def _rule(self, node: ast.FunctionDef) -> Closure:
        return Closure(node, self.definition(node, "function"), None, _Defaults(self, node))

    def _backward(self, kernel: str) -> dict[str, Any]:
        """The rule that is derived from the text of a kernel; none where that is not possible."""
        from tessera.compiler.frontend.backward.text import derived  # slow: few files derive one

        node = self.bound.get(kernel)
        if not isinstance(node, ast.FunctionDef) or decorated_kind(self, node) != "kernel":
            return {}
        options, _ = decorator_options(self, node, source_of(self.file, self.text))
        line = first_line(node)
        try:
            found = derived(Definition("kernel", kernel, self.file, line, node, self.text, self._known_as, (), options))
        except Exception:  # what is not derived has no rule, and a fault of ours must not take the editor down
            return {}
        return {"vjp": _Behind(f"<backward of {kernel}>", found.text, self).lookup(found.rule)}

    def _of_pairs(self, node: ast.FunctionDef, fixed: Sequence[int]) -> dict[str, Any]:
        """The rules of a function that are written in JAX's manner."""
        found: dict[str, Any] = {}
        for rule in RULES:
            call = self._paired.get((node.name, rule))
            if call is not None and len(call.args) == (2 if rule == "vjp" else 1):
                count = len([*node.args.posonlyargs, *node.args.args])
                text = rule_as_jax_writes(f"def{rule}", [*map(ast.unparse, call.args)], count, fixed)
                found[rule] = _Behind(file_of_rule(node.name, text), text, self).lookup("_rule")
        return found

    def definition(self, node: ast.FunctionDef, kind: Kind) -> Definition:
        found = self._definitions.get(node)
        if found is None:
            line, source = first_line(node), source_of(self.file, self.text)
            options, problems = decorator_options(self, node, source)
            own = self.bound.get(node.name) is node
            rules = {r: self._rules[node.name, r] for r in RULES if own and (node.name, r) in self._rules}
            if rules:
                options = {**options, **{r: self._rule(n) for r, n in rules.items()}}
            elif own and any((node.name, r) in self._paired for r in RULES):
                options = {**options, **self._of_pairs(node, options.get("nondiff", ()))}
            elif own and kind == "kernel" and node.name in self._derived:
                options = {**options, **self._backward(self._derived[node.name])}
            found = Definition(kind, node.name, self.file, line, node, self.text, self._known_as, (), options, problems)
            self._definitions[node] = found
        return found

    def _class(self, node: ast.ClassDef) -> Any:
        members: dict[str, Any] = {}
        buffers, static, by_name = set[str](), set[str](), set[str]()
        fields: list[str] = []
        decorators = {
            dotted_name(d.func if isinstance(d, ast.Call) else d) for d in (*node.decorator_list, *node.bases)
        }
        above = [read(self, dotted_name(base)) if dotted_name(base) else UNKNOWN for base in node.bases]
        makes_data = any(isinstance(b, ClassRef) and b.makes_data for b in above)
        data = makes_data or not decorators.isdisjoint(_DATACLASS)
        for base in above:
            if isinstance(base, ClassRef):
                members |= base.members
                buffers |= base.buffers
                static |= base.static
                by_name |= base.by_name
                fields += base.fields
            elif makes_data:
                return UNKNOWN
        body: list[ast.stmt] = []
        for s in node.body:
            if isinstance(s, Broken) and not s.was:  # it may say what these are
                members |= dict.fromkeys(s.mentions, UNKNOWN)
            body += s.was if isinstance(s, Broken) else [s]
        for s in body:
            match s:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=said, value=value):
                    kind = dotted_name(said.value if isinstance(said, ast.Subscript) else said)
                    if kind.rpartition(".")[2] != "ClassVar":
                        fields.append(name)
                    if isinstance(value, ast.Call) and _is_buffer(read(self, dotted_name(value.func) or "?")):
                        buffers.add(name)
                    if _is_field(value):
                        options = {k.arg: k.value for k in value.keywords}
                        by_name |= (
                            {name} if self.constant(options.get("kw_only", ast.Constant(False))) is True else set()
                        )
                        value = options.get("default", value if "default_factory" in options else None)
                    if value is not None:
                        members[name] = self.constant(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    members[name] = self.constant(value)
                case ast.FunctionDef(name=name, decorator_list=[ast.Name("property")]):
                    members[name] = Property(Closure(s, self.definition(s, "function"), None, _Defaults(self, s)))
                case ast.FunctionDef(name=name):
                    members[name] = self._function(s)
                    static.discard(name)
                    if any(dotted_name(d) == "staticmethod" for d in s.decorator_list):
                        static.add(name)
                case _:
                    pass
        if node.bases and not data:
            return UNKNOWN
        adds = any(isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) for s in body)
        own = any(isinstance(s, ast.FunctionDef) and s.name == "__init__" for s in body)
        if data and not own and (adds or not makes_data):
            members.pop("__init__", None)  # it gets one for its own fields, which sets those of its bases too
        named = any(dotted_name(base) in _NAMED_TUPLE for base in node.bases)
        annotations = {
            s.target.id: s.annotation
            for s in body
            if data and isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and s.target.id in fields
        }
        makes_data = makes_data or any(d.endswith("dataclass_transform") for d in decorators)
        every = tuple(dict.fromkeys(fields)) if data else ()
        bases = tuple(b for b in above if isinstance(b, ClassRef))
        return ClassRef(
            node.name, members, every, annotations, self, named, makes_data, bases, frozenset(buffers),
            frozenset(static), data, frozenset(by_name),
        )  # fmt: skip

    def _unpacked(self, name: str, targets: list[ast.expr], value: ast.expr) -> Any:
        """`B, S = 8, 128`"""
        found = self.constant(value)
        for target in targets:
            if isinstance(target, ast.Name) and target.id == name:
                return found
            if isinstance(target, ast.Tuple) and is_sequence(found) and len(found) == len(target.elts):
                for t, v in zip(target.elts, found, strict=True):
                    if isinstance(t, ast.Name) and t.id == name:
                        return v
        return UNKNOWN

    def constant(self, node: ast.expr) -> Any:
        """The value of an expression at module level; UNKNOWN where it is not a constant of the text."""
        if isinstance(node, ast.Constant):
            return node.value
        from tessera.compiler.frontend.evaluation import constant  # slow: 0.2 s before a language server's first answer

        value, said, ran = constant(self.file, self.text, self, node)
        self.ran_layers |= ran
        if said is not None and said.code == "TS111":
            GIVEN_UP[node] = said.message
        return value


def _is_field(value: ast.expr | None) -> TypeGuard[ast.Call]:
    """`dataclasses.field(...)`."""
    return isinstance(value, ast.Call) and dotted_name(value.func) in ("field", "dataclasses.field")


def _is_buffer(value: Any) -> bool:
    """Whether it is `ts.nn.buffer`."""
    return isinstance(value, Closure) and value is vocabulary.member("tessera.nn", "buffer")


class _Behind(TextScope):
    """A text that was derived from another one, whose names it has beside its own."""

    def __init__(self, file: str, text: str, before: TextScope) -> None:
        super().__init__(file, text, parse_module(text, file)[0])
        self._before = before

    def _unbound(self, name: str) -> Any:
        return self._before.lookup(name)


class _Defaults(dict[str, Any]):
    """Default values of a function of the file, evaluated when they are asked for."""

    def __init__(self, scope: TextScope, node: ast.FunctionDef) -> None:
        a = node.args
        positional = [*a.posonlyargs, *a.args]
        pairs = [*zip(positional[len(positional) - len(a.defaults) :], a.defaults, strict=True)]
        pairs += [(p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
        super().__init__({p.arg: d for p, d in pairs})
        self._scope = scope

    def __getitem__(self, name: str) -> Any:
        return self._scope.constant(super().__getitem__(name))


def imported(module: str, name: str) -> Any:
    """`from module import name`; what Tessera does not have inside functions (its profiler, say) is merely unknown."""
    found = vocabulary.member(module, name)
    if found is not MISSING:
        return found
    return Namespace(f"{module}.{name}") if f"{module}.{name}" in ("tessera.tile", "tessera.nn") else UNKNOWN


def decorated_kind(scope: TextScope, node: ast.FunctionDef) -> Kind | None:
    """Which of Tessera's layers a function's decorators put it in, through whatever name they were imported."""
    for decorator in node.decorator_list:
        name = _own_name(scope, decorator).partition(".")[0]
        if name in vocabulary.KERNEL_DECORATORS:
            return "kernel"
        if name in vocabulary.FUNCTION_DECORATORS:
            return "function"
    names = [_own_name(scope, d).partition(".")[0] for d in node.decorator_list]
    return "function" if any(name in vocabulary.FURTHER_DECORATORS for name in names) else None


def _own_name(scope: TextScope, decorator: ast.expr) -> str:
    """What a decorator is called in Tessera, however it was imported: "function", "kernel.autotune"; else ""."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    head, _, rest = dotted_name(target).partition(".")
    value = scope.lookup(head) if head else None
    path = value.path if isinstance(value, (Namespace, Builtin)) else ""
    return f"{path}.{rest}".removeprefix("tessera.").strip(".") if path.startswith("tessera") else ""


def decorator_options(
    scope: TextScope, node: ast.FunctionDef, source: Source
) -> tuple[Mapping[str, Any], tuple[Diagnostic, ...]]:
    """What the decorators' keywords say, as the decorators themselves understand them (they run nothing)."""
    if not any(isinstance(d, ast.Call) or _own_name(scope, d) == "distributed" for d in node.decorator_list):
        return {}, ()
    from tessera.language import decorators, distribution  # slow: 8 ms of a language server's start

    def stand_in() -> None: ...

    made: Any = stand_in
    problems: list[Diagnostic] = []
    for decorator in reversed(node.decorator_list):
        name = _own_name(scope, decorator)
        known: Any = distribution if name == "distributed" else decorators
        for part in name.split("."):
            known = getattr(known, part, None)
        if not callable(known):
            continue
        try:
            made = _decorate(scope, decorator, known, made, known is decorators.kernel)
        except TesseraError as e:
            problems += [replace(d, span=source.span(decorator), function=node.name) for d in e.diagnostics]
        except TypeError as e:
            problems.append(Diagnostic("TS105", str(e), source.span(decorator), function=node.name))
    return getattr(made, "options", {}), tuple(problems)


def _decorate(scope: TextScope, decorator: ast.expr, known: Any, function: Any, configured: bool) -> Any:
    """`configured`: its keywords are parameters of a schedule, which exist though the text may not tell values."""
    if not isinstance(decorator, ast.Call):
        return known(function)
    args = [scope.constant(a) for a in decorator.args]
    keywords = {k.arg: scope.constant(k.value) for k in decorator.keywords if k.arg}
    if (
        getattr(known, "__name__", "") == "distributed"
    ):  # which devices is known when it runs; over which dim is written here
        args = [None if has_unknown(a) else a for a in args[:1]] + args[1:]
        keywords = {k: v for k, v in keywords.items() if k != "mesh" or not has_unknown(v)}
    if any(map(has_unknown, args if configured else [*args, *keywords.values()])):
        return function  # a value that the text does not tell: as if it were not said
    return known(*args, **keywords)(function)


def _names(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):  # not those of `c[i] = ...`
            yield node.id


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, also those inside `if` and `try`."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            yield from _statements([*(s for h in node.handlers for s in h.body), *node.body, *node.orelse])
        else:
            yield node
