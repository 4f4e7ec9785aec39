"""Live functions: where their text is, and what their free names are.

An editor's scope, of a file's text, answers in the same values: the evaluator does not know which one it has.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import tessera
from tessera.compiler.frontend.names.definition import Definition, Kind, Scope
from tessera.compiler.frontend.names.texts import live_module, text_of
from tessera.compiler.frontend.names.values import (
    MISSING,
    UNKNOWN,
    Builtin,
    ClassRef,
    Namespace,
    OperatorRef,
    Record,
    Unknown,
    is_named,
)
from tessera.compiler.frontend.names.vocabulary import PYTHON_BUILTINS, is_own_module, member, member_of
from tessera.compiler.frontend.syntax.parse import FunctionNode
from tessera.errors import CompileError, Diagnostic
from tessera.language.absent import ONLY_REFUSES
from tessera.language.decorators import Decorated
from tessera.tracebacks import is_outward

T = TypeVar("T")


_known: ContextVar[dict[int, tuple[Any, Any]] | None] = ContextVar("known", default=None)
"""what one analysis has read of live functions and their scopes: (the object, what was read), by the object's id"""


@contextmanager
def names_stay() -> Generator[None]:
    """One analysis, in which names mean the same from beginning to end: a function that is called again is not read
    again."""
    token = _known.set({}) if _known.get() is None else None
    try:
        yield
    finally:
        if token is not None:
            _known.reset(token)


def read_once(of: object, make: Callable[[], T]) -> T:
    """What `make` reads of a live object; kept within an analysis."""
    known = _known.get()
    if known is None:
        return make()
    if id(of) not in known:
        known[id(of)] = of, make()
    return known[id(of)][1]


def read(scope: Scope, dotted: str) -> Any:
    """The value of `name` or `name.attribute...` as it is now; MISSING where there is none."""
    head, *rest = dotted.split(".")
    value = scope.lookup(head)
    for name in rest:
        if value is MISSING or isinstance(value, Unknown):
            return value
        if isinstance(value, (ClassRef, Record)):
            value = value.members.get(name, MISSING)
        elif isinstance(value, Namespace):
            value = member_of(value, name)
        elif not scope.live:
            return UNKNOWN
        else:
            try:
                value = represent(getattr(value, name))
            except Exception:  # it is gone, or a property of the user's class fails
                return MISSING
    return value


class LiveScope:
    """Closure cells, module globals and builtins of a live function, read when they are asked for."""

    live = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self._cells: dict[str, Any] = {}
        code = getattr(function, "__code__", None)
        if code is not None:
            self._cells = dict(zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=True))
        self._globals: dict[str, Any] = getattr(function, "__globals__", {})

    @property
    def signatures(self) -> dict[Any, Any] | None:
        known = _known.get()
        return None if known is None else known.setdefault(id(self), (self, {}))[1]

    def lookup(self, name: str) -> Any:
        if name in self._cells:
            try:
                return represent(self._cells[name].cell_contents)
            except ValueError:  # a cell that is still empty
                return MISSING
        if name in self._globals:
            return represent(self._globals[name])
        if name in PYTHON_BUILTINS:
            return Builtin(name)
        return getattr(builtins, name, MISSING)

    def names(self) -> Iterable[str]:
        return [*self._cells, *self._globals, *PYTHON_BUILTINS]

    def edited(self, definition: Definition, text: str) -> Definition | None:
        return None  # other functions are live objects: they would have to run again


def represent(value: Any) -> Any:
    """A live object as the evaluator's value: Tessera's own modules and operators become names, as in a text."""
    if isinstance(value, ModuleType):
        name = str(vars(value).get("__tessera_namespace__", value.__name__))
        return Namespace(name) if is_own_module(name) else value
    operator = _attribute(value, "__tessera_operator__")
    if operator is not None:
        name = value.__tessera_operator__
        return OperatorRef(name if isinstance(name, str) else name.name)
    path = _attribute(value, "__tessera_builtin__")
    if isinstance(path, str) and not hasattr(value.__class__, "__array_namespace__"):  # of a tensor, its class has it
        return Builtin(path)
    module = getattr(value, "__module__", None)
    if isinstance(module, str) and module.startswith("tessera."):
        name = str(getattr(value, "__name__", ""))
        known = member("tessera", name)
        if isinstance(known, Builtin) and getattr(tessera, name, None) is value:  # `ts.optimizers.accumulate` is not
            return known
    if callable(value) and module == "builtins":
        name = getattr(value, "__name__", "")
        if name in PYTHON_BUILTINS and getattr(builtins, name, None) is value:
            return Builtin(name)
    return value


def same(left: Any, right: Any) -> bool:
    """`left is right`: what stands for a function or module by its name is made anew wherever it is named."""
    if not (is_named(left) or is_named(right)):
        return left is right
    left, right = represent(left), represent(right)
    return is_named(left) and is_named(right) and left == right


def _attribute(value: Any, name: str) -> Any:
    """`getattr_static`, at once for functions, classes, and objects of Tessera without such an attribute, which most
    names of a program mean."""
    kind = cast("Any", type(value))
    if kind is FunctionType:
        return value.__dict__.get(name)
    if kind is type:
        return next((base.__dict__[name] for base in value.__mro__ if name in base.__dict__), None)
    if isinstance(value, Decorated) and name not in vars(value) and not any(name in b.__dict__ for b in kind.__mro__):
        return None
    return inspect.getattr_static(value, name, None)


def asked(value: Any, name: str) -> Any:
    """An attribute, or None: the `__getattr__` of a user's class raises what it likes."""
    kind = cast("Any", type(value))
    try:
        if not getattr(getattr(kind, "__getattr__", None), ONLY_REFUSES, False):
            return getattr(value, name, None)
        return kind.__getattribute__(value, name)
    except Exception:
        return None


_TIMED = "define it in a cell of its own, and time the call"
_UNREAD = {
    "<timed exec>": _TIMED,
    "<magic-timeit>": _TIMED,
    "<stdin>": "define it in a file, or in IPython",
    "<string>": "define it in a file, or in a cell of its own",
}
"""Texts that Python or IPython runs without keeping them, and what to do instead."""


def unavailable(name: str, why: str) -> CompileError:
    return CompileError(Diagnostic("TS109", f"{name} cannot be compiled: {why}", function=name))


def run_by(function: Any) -> Any:
    """The Python function that a call of `function` runs. One that a decorator has made (`functools.wraps`) is itself
    what runs."""
    if asked(function, "__wrapped__") is None:
        return function
    try:
        return inspect.unwrap(function, stop=lambda f: isinstance(f, FunctionType) and not is_outward(f))
    except Exception:  # objects that wrap each other in a circle, or whose `__getattr__` raises what it likes
        return function


def live_definition(
    function: Callable[..., Any], kind: Kind = "function", options: Mapping[str, Any] | None = None
) -> Definition:
    """The definition behind a live Python function. Raises CompileError (TS109) if its source is not available."""
    function = run_by(function)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    if code is None:
        raise unavailable(name, "it is not a Python function")
    found = text_of(code, getattr(function, "__globals__", {}))
    if found is None:
        raise unavailable(name, f"{code.co_filename} has changed since it was imported")
    text, code = found
    if not text:
        advice = "; " + _UNREAD[code.co_filename] if code.co_filename in _UNREAD else ""
        raise unavailable(name, f"its source text ({code.co_filename}) cannot be read{advice}")
    tree, notes = live_module(text, code.co_filename)
    line = code.co_firstlineno
    if code.co_name == "<lambda>":
        node = _lambda(_lambdas_by_line(tree).get(line, []), code, name)
    else:
        node = next((f for f in _functions_by_line(tree).get(line, []) if f.name == code.co_name), None)
    if node is None or not _same_parameters(node, code):
        raise unavailable(name, f"{code.co_filename} has changed since it was imported")
    return Definition(
        kind, name, code.co_filename, code.co_firstlineno, node, text, LiveScope(function), notes, options or {}
    )


@lru_cache(maxsize=64)
def _functions_by_line(tree: ast.Module) -> dict[int, list[ast.FunctionDef]]:
    """A live module's functions by the lines that they begin at, decorators included; outer ones before inner ones.

    Kept with the tree: a module may have thousands of functions, and each is looked for when it is called first. They
    stand among statements: expressions, which are most of a tree, are not looked at.
    """
    found: dict[int, list[ast.FunctionDef]] = {}
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # grows meanwhile
        for block in _BLOCKS:
            nodes += getattr(node, block, ())
        if isinstance(node, ast.FunctionDef):
            for line in {node.lineno, *(d.lineno for d in node.decorator_list)}:
                found.setdefault(line, []).append(node)
    return found


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""the fields of statements that hold others"""


@lru_cache(maxsize=64)
def _lambdas_by_line(tree: ast.Module) -> dict[int, list[ast.Lambda]]:
    """The same of lambdas."""
    found: dict[int, list[ast.Lambda]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            found.setdefault(node.lineno, []).append(node)
    return found


def _lambda(on_line: Sequence[ast.Lambda], code: CodeType, name: str) -> ast.Lambda | None:
    """The lambda that `code` was compiled from: of several on one line, the innermost whose body holds all of the code.

    Raises CompileError TS109 where that cannot be told (python -X no_debug_ranges).
    """
    if len(on_line) < 2:
        return on_line[0] if on_line else None
    # Instructions that belong to no expression have no columns, or empty ones.
    places = [(line, a, end, b) for line, end, a, b in code.co_positions() if line and end and a is not None and a != b]
    found = [n for n in on_line if all(_contains(n.body, *place) for place in places)] if places else []
    if not found:
        raise unavailable(name, "several lambdas stand on its line; give it a name with def, or a line of its own")
    return found[-1]  # the outer ones stand first


def _contains(node: ast.expr, line: int, column: int, end_line: int, end_column: int | None) -> bool:
    start, end = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return start <= (line, column) and (end_line, end_column or 0) <= end


def _same_parameters(node: FunctionNode, code: CodeType) -> bool:
    """A cheap sign that the text is still the one that was compiled."""
    a = node.args
    names = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    return tuple(names) == code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
