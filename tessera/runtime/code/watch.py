"""What a function reads outside its own text, so that no stale kernel is ever used.

Starting from a function's bytecode, `reads` follows the globals and closure cells it names, the attributes it may take
from them, and the functions among them, whose own reads count as well. That is at least what compiling looked at. The
present values are part of the key of a compilation, and `Watch.unchanged` asks before each call whether they are still
the same: by identity for most, by content for lists, dicts and sets, which change in place. Arrays are passed at each
launch; only their shapes and dtypes are part of the key.
"""

from __future__ import annotations

import builtins
import os
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tessera import knobs
from tessera.compiler import extensions
from tessera.compiler.frontend.names.fingerprint import fingerprint
from tessera.language.dtypes import DType
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.code.cache import digest
from tessera.runtime.codegen import expression

DEPTH = 6
"""attributes of attributes of ... are followed this far"""
_PLAIN = (bool, int, float, complex, str, bytes, type(None), DType)
_CHANGING = (list, dict, set, bytearray)
_OPAQUE = ("tessera", "numpy", "math", "builtins", "typing", "torch", "jax", "cupy", "ml_dtypes")
"""modules whose content is fixed as far as programs are concerned"""


@dataclass(frozen=True, slots=True)
class Read:
    """One value read from outside. `path` names it alike in every process: "scale", "config.heads", "g.scale"."""

    path: str
    get: Callable[[], Any]
    value: Any
    kind: str
    """global, closure, argument, callee, attribute, item"""
    place: tuple[dict[str, Any], str] | None = None
    """the namespace and name it is read from, where it is a plain one: asking there is quicker than `get`"""

    @property
    def array(self) -> bool:
        return adapter_of(self.value) is not None

    def content(self) -> str:
        """A fingerprint of the present value."""
        return function_content(self.value) if is_function(self.value) else fingerprint(self.value)


MISSING = object()
_ENVIRONMENT: Any = getattr(os.environ, "_data", os.environ)  # looking beneath os.environ saves a microsecond a call
_SETTINGS = [
    os.environ.encodekey(k.variable) if hasattr(os.environ, "encodekey") else k.variable
    for k in (knobs.target, knobs.debug)
]
"""what a compilation depends on besides the program and its arguments"""


def settings() -> tuple[Any, ...]:
    """The present settings, for keys, and what has been registered from outside."""
    return (*(_ENVIRONMENT.get(key) for key in _SETTINGS), extensions.state())


def setting(knob: knobs.Knob[Any]) -> Callable[[], Any]:
    """What asks for the present text of a setting, as quickly as can be; the same object while nobody has set it."""
    key = os.environ.encodekey(knob.variable) if hasattr(os.environ, "encodekey") else knob.variable
    return lambda: _ENVIRONMENT.get(key)


def is_function(value: Any) -> bool:
    """Plain Python functions, and functions and kernels of Tessera."""
    return isinstance(python_function(value), types.FunctionType)


def python_function(value: Any) -> Any:
    """The function behind decorators."""
    seen = 0
    while hasattr(value, "__wrapped__") and seen < DEPTH:
        value, seen = value.__wrapped__, seen + 1
    return value.__func__ if isinstance(value, types.MethodType) else value


def function_content(value: Any) -> str:
    """A function's own text as far as compiling sees it: code, constants, defaults, annotations, decorator options."""
    function = python_function(value)
    code: types.CodeType = function.__code__
    parts = [
        code.co_qualname, code.co_firstlineno, code.co_code, _constants(code), code.co_names, code.co_varnames,
        fingerprint(function.__defaults__), fingerprint(function.__kwdefaults__),
        sorted((k, str(v)) for k, v in function.__annotations__.items()), fingerprint(getattr(value, "options", None)),
    ]  # fmt: skip
    return f"{code.co_qualname}#{digest(repr(parts))[:16]}"


def _constants(code: types.CodeType) -> tuple[Any, ...]:
    return tuple((c.co_code, _constants(c), c.co_names) if isinstance(c, types.CodeType) else c for c in code.co_consts)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and those of the functions and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def reads(function: Any, arguments: Mapping[str, Any] | None = None) -> list[Read]:
    """Everything that `function` may read from outside, in a fixed order. Missing names and builtins are left out.

    `arguments` are compile-time arguments by name: what functions and objects among them hold counts as well.
    """
    walk, python = _Walk(), python_function(function)
    walk.function(python, "", DEPTH)
    for name, value in (arguments or {}).items():
        if not isinstance(value, (*_PLAIN, *_CHANGING, tuple)):
            walk.add(Read(name, lambda value=value: value, value, "argument"), _names_of(python), DEPTH)
    return list(walk.found.values())


def _names_of(function: types.FunctionType) -> dict[str, None]:
    """Every global, attribute and method name in a function's code."""
    return dict.fromkeys(name for code in _codes(function.__code__) for name in code.co_names)


def _annotation_names(function: types.FunctionType) -> Iterator[str]:
    """Names inside annotations that are kept as text: sizes and aliases that shapes depend on."""
    for note in function.__annotations__.values():
        if isinstance(note, str):
            yield from "".join(c if c.isalnum() or c == "_" else " " for c in note).split()


class _Walk:
    """Follows what code may read. `names` are those that the code at hand may take from a value."""

    def __init__(self) -> None:
        self.found: dict[str, Read] = {}
        self.seen: set[types.CodeType] = set()

    def function(self, function: types.FunctionType, prefix: str, depth: int) -> None:
        if function.__code__ in self.seen or depth == 0:
            return
        self.seen.add(function.__code__)
        names, scope = _names_of(function), function.__globals__
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            get = _cell_getter(cell)
            self.add(Read(f"{prefix}{name}", get, get(), "closure"), names, depth)
        annotated = dict.fromkeys(sorted(_annotation_names(function)))
        for name in names | annotated:
            if name in scope:
                get = _global_getter(scope, name)
                self.add(Read(f"{prefix}{name}", get, scope[name], "global", (scope, name)), names, depth)

    def add(self, read: Read, names: dict[str, None], depth: int) -> None:
        """Notes a read, and what can be reached from its value."""
        value, path, get = read.value, read.path, read.get
        if path in self.found or value is MISSING:
            return
        self.found[path] = replace(read, kind="callee") if is_function(value) else read
        if depth == 0 or isinstance(value, (*_PLAIN, type)) or read.array:
            return
        if is_function(value):
            self.callee(value, path, depth)
        elif isinstance(value, (list, tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if not isinstance(item, _PLAIN):
                    self.add(Read(f"{path}.{key}", _index_getter(get, key), item, "item"), names, depth - 1)
        elif not _opaque(value.__name__ if isinstance(value, types.ModuleType) else type(value).__module__):
            self.attributes(value, get, path, names, depth)

    def callee(self, value: Any, path: str, depth: int) -> None:
        inner = python_function(value)
        if _opaque(getattr(inner, "__module__", None)):
            return
        if isinstance(value, types.MethodType):
            owner = value.__self__
            self.attributes(owner, lambda: owner, path, _names_of(inner), depth)
        self.function(inner, f"{path}.", depth - 1)

    def attributes(self, value: Any, get: Callable[[], Any], path: str, names: dict[str, None], depth: int) -> None:
        for name in names:
            item = _attribute(value, name)
            if item is not MISSING and not isinstance(item, types.BuiltinFunctionType):
                self.add(Read(f"{path}.{name}", _attribute_getter(get, name), item, "attribute"), names, depth - 1)


def _opaque(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _OPAQUE


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, MISSING)
    except Exception:  # a property of the user's that fails is the compiler's to report
        return MISSING


def _global_getter(scope: dict[str, Any], name: str) -> Callable[[], Any]:
    return lambda: scope.get(name, MISSING)


def _cell_getter(cell: types.CellType) -> Callable[[], Any]:
    def get() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # still empty
            return MISSING

    return get


def _index_getter(get: Callable[[], Any], index: Any) -> Callable[[], Any]:
    def item() -> Any:
        try:
            return get()[index]
        except (LookupError, TypeError):
            return MISSING

    return item


def _attribute_getter(get: Callable[[], Any], name: str) -> Callable[[], Any]:
    return lambda: _attribute(get(), name)


class Watch:
    """The reads of one compilation."""

    def __init__(self, found: list[Read]) -> None:
        self.reads = found
        self.by_path = {r.path: r for r in found}
        self._same = [
            r
            for r in found
            if not (
                r.array or isinstance(r.value, (*_CHANGING, types.MethodType)) or r.kind == "argument" or _builtin(r)
            )
        ]
        # a bound method is a new object each time it is asked for; the function behind it is not
        self._methods = [(r, python_function(r.value)) for r in found if isinstance(r.value, types.MethodType)]
        self._content = [(r, r.content()) for r in found if isinstance(r.value, _CHANGING)]
        self._arrays = [(r, _array_key(r.value)) for r in found if r.array]

    def fields(self) -> dict[str, str]:
        """The content of every read by name, for keys and for `why_recompiled`."""
        return {f"{r.kind} {r.path}": r.content() for r in self.reads}

    def path_of(self, array: Any) -> str | None:
        """The path of an array among the reads; None where it was made on the way."""
        return next((r.path for r, _ in self._arrays if r.value is array), None)

    def unchanged(self) -> bool:
        """Whether a call may go on with what was compiled."""
        for r in self._same:
            value = r.get()
            if value is not r.value and not (isinstance(value, _PLAIN) and _equal(value, r.value)):
                return False
        for r, function in self._methods:
            if python_function(r.get()) is not function:
                return False
        for r, content in self._content:
            if fingerprint(r.get()) != content:
                return False
        return self.arrays_unchanged()

    def arrays_unchanged(self) -> bool:
        """Whether the arrays that are read still have the shapes and dtypes they had."""
        return all(_array_key(r.get()) == key for r, key in self._arrays)

    def guard(self) -> Callable[[], bool]:
        """`unchanged`, and the environment as it was: as quick as it can be.

        Plain globals and settings are compared by identity in one generated expression; only where that fails, or
        where something else is read, is every read looked at.
        """
        names: dict[str, Any] = {"slow": self._slow_guard(), "env": _ENVIRONMENT}
        parts: list[str] = []
        for i, key in enumerate(_SETTINGS):
            names |= {f"key{i}": key, f"set{i}": _ENVIRONMENT.get(key)}
            parts.append(f"env.get(key{i}) is set{i}")
        for i, r in enumerate(self._same):
            if r.place is None:
                continue
            names |= {f"get{i}": r.place[0].get, f"name{i}": r.place[1], f"seen{i}": r.value}
            parts.append(f"get{i}(name{i}) is seen{i}")
        rest = self._content or self._arrays or self._methods or any(r.place is None for r in self._same)
        joined = " and ".join(parts)
        return expression("lambda: slow()" if rest else f"lambda: ({joined}) or slow()", names)

    def _slow_guard(self) -> Callable[[], bool]:
        then = settings()
        return lambda: settings() == then and self.unchanged()


def _builtin(r: Read) -> bool:
    return getattr(builtins, r.path, MISSING) is r.value


def _array_key(value: Any) -> Any:
    adapter = adapter_of(value)
    return (type(value), adapter.key(value)) if adapter is not None else None


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and (a == b) and repr(a) == repr(b)  # 0.0 and -0.0 are different constants
