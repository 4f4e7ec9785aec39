"""The values that a function may read from outside, found from its bytecode.

`reads` starts from the globals and closure cells that a function names and goes on until nothing new is found: the
functions among them, whose own reads count as well, the classes, and what code can take from objects. Functions hand
objects on to others, so an object is asked for every attribute that any of them names; a module only for the names that
stand beside its own. That is at least what compiling looked at.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from functools import lru_cache
from typing import Any

from tessera.compiler.frontend.names.fingerprint import changes, fingerprint, slots
from tessera.compiler.frontend.names.live import run_by
from tessera.immutable import immutable, mutable
from tessera.language.dtypes import DType
from tessera.language.records import is_record, members
from tessera.language.transforms import RULES
from tessera.runtime.arrays.libraries import adapter_of
from tessera.runtime.code.cache import digest

LIMIT = 20_000
"""reads that are followed; of a program with more of them, no other process takes the code"""
PLAIN = (bool, int, float, complex, str, bytes, type(None), DType)
MISSING = object()
_LIBRARIES = ("tessera", "numpy", "torch", "jax", "cupy", "ml_dtypes")
"""whose modules, classes and objects are fixed as far as programs are concerned"""
_LAYERS = ("tessera.nn.", "tessera.optimizers.")
"""whose objects hold what users train"""
_UNCALLED = frozenset({"__repr__", "__setattr__", "__delattr__", "__hash__", "__del__", "__init_subclass__"})
"""no program calls these when it is compiled"""
_SLOTS = (types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType)
"""methods of Python's own classes"""
_REFLECTS = frozenset({"getattr", "hasattr", "vars", "dir", "attrgetter", "methodcaller", "__dict__"})
"""names that ask objects for names which the code does not show"""
_DEEPEST = 16
"""modules in modules: they may hold each other"""


@immutable
class Read:
    """One value read from outside. `path` names it alike in every process: "scale", "config.heads", "g.scale"."""

    path: str
    get: Callable[[], Any]
    value: Any
    kind: str
    """global, closure, argument, callee, attribute, item"""
    owner: Any = None
    """what it is read from: a namespace by `name`, a cell, an object by its attribute `name`; asking there is quicker
    than `get`, and the same as long as the reads that lead there are"""
    name: str = ""

    @property
    def array(self) -> bool:
        return adapter_of(self.value) is not None

    @property
    def again(self) -> Callable[[], Any]:
        """`get` for callers that know that the path to the owner has not changed."""
        if isinstance(self.owner, dict):
            return functools.partial(self.owner.get, self.name)
        return functools.partial(getattr, self.owner, self.name) if self.name else self.get

    def content(self) -> str:
        """A fingerprint of the present value."""
        if isinstance(self.value, types.CodeType):
            return digest(repr(_code_content(self.value)))[:16]
        return function_content(self.value) if is_function(self.value) else fingerprint(self.value)


@immutable
class OwnNames(Read):
    """Which names an object or a module has of its own: one that appears hides a method of the class, or a builtin,
    and changes what `hasattr` says. `owner` is the object, or the dict of the module."""

    among: frozenset[str] | None = None
    """None: all"""


def is_function(value: Any) -> bool:
    """Plain Python functions, and functions and kernels of Tessera."""
    return not isinstance(value, PLAIN) and isinstance(python_function(value), types.FunctionType)


def python_function(value: Any) -> Any:
    """The function that a call runs."""
    value = run_by(value)
    return value.__func__ if isinstance(value, types.MethodType) else value


def code_of(value: Any) -> tuple[Any, ...]:
    """What can be replaced of the Python function behind a decorated one."""
    function = python_function(value)
    return function.__code__, function.__defaults__, dict(function.__kwdefaults__ or {})


def function_content(value: Any) -> str:
    """A function's own text as far as compiling sees it: code, constants, defaults, annotations, decorator options."""
    function = python_function(value)
    code: types.CodeType = function.__code__
    parts = [
        *_code_content(code),
        fingerprint(function.__defaults__), fingerprint(function.__kwdefaults__),
        sorted((k, str(v)) for k, v in function.__annotations__.items()), fingerprint(getattr(value, "options", None)),
    ]  # fmt: skip
    return f"{code.co_qualname}#{digest(repr(parts))[:16]}"


def _code_content(code: types.CodeType) -> tuple[Any, ...]:
    names = code.co_names, code.co_varnames
    return code.co_qualname, code.co_firstlineno, code.co_code, _constants(code), *names


def _constants(code: types.CodeType) -> tuple[Any, ...]:
    return tuple((c.co_code, _constants(c), c.co_names) if isinstance(c, types.CodeType) else c for c in code.co_consts)


def reads(function: Any, arguments: Mapping[str, Any] | None = None, dims: Collection[str] = frozenset()) -> list[Read]:
    """Everything that `function` may read from outside, in a fixed order. Missing names and builtins are left out, and
    the `dims` of its annotations, which hide what has their names outside.

    `arguments` are compile-time arguments by name: what functions and objects among them hold counts as well.
    """
    walk = _Walk()
    walk.function(python_function(function), "", dims)
    walk.rules(function, "")
    for name, value in (arguments or {}).items():
        if not isinstance(value, PLAIN) and not changes(value) and type(value) is not tuple:
            walk.add(Read(name, lambda value=value: value, value, "argument"), {})
    walk.run()
    return list(walk.found.values())


@mutable
class _Object:
    """An object or class whose attributes count, and how many of the names it has been asked for."""

    value: Any
    get: Callable[[], Any]
    path: str
    asked: int = 0
    opened: bool = False
    methods: set[str] = field(default_factory=set[str])
    """those that code names, which an attribute of the object's own would hide"""


@mutable
class _Names:
    """What code names: globals, and attributes; of modules it says which global each attribute belongs to."""

    globals: dict[str, None] = field(default_factory=dict[str, None])
    attributes: dict[str, None] = field(default_factory=dict[str, None])
    of: dict[str, dict[str, None]] = field(default_factory=dict[str, dict[str, None]])


@lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> _Names:
    """The names of a code object, and of those of the functions and comprehensions inside it."""
    out = _Names()
    for each in _codes(code):
        owner = ""
        for step in dis.get_instructions(each):
            name = str(step.argval)
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
                owner = name
                if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    out.globals[name] = None
            elif step.opcode in dis.hasname and not step.opname.startswith(("IMPORT", "STORE", "DELETE")):
                out.attributes[name] = None
                if owner:
                    out.of.setdefault(owner, {})[name] = None  # also of a module in a module: ts.nn.relu
            elif step.opname != "CACHE":
                owner = ""
    return out


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _annotation_names(function: types.FunctionType) -> Iterator[str]:
    """Names inside annotations that are kept as text: sizes and aliases that shapes depend on."""
    for note in function.__annotations__.values():
        if isinstance(note, str):
            yield from "".join(c if c.isalnum() or c == "_" else " " for c in note).split()


class _Walk:
    def __init__(self) -> None:
        self.found: dict[str, Read] = {}
        self.functions: dict[int, types.FunctionType] = {}
        self.objects: dict[int, _Object] = {}
        self.opened: set[int] = set()
        """containers whose items have been followed"""
        self.builtins: dict[int, tuple[str, frozenset[str]]] = {}
        """names of builtins that code means, by the module that could hide them: their path, and they"""
        self.names: dict[str, None] = {}
        """every attribute that some code takes from what may be an object"""

    def run(self) -> None:
        """Asks every object for every name until there is nothing new; for all that it has where names are computed."""
        going = True
        while going:
            going = False
            names = list(self.names)
            for each in list(self.objects.values()):
                for name in names[each.asked :]:
                    going = True
                    self.attribute(each, name)
                each.asked = len(names)
                if not each.opened and not self.names.keys().isdisjoint(_REFLECTS):
                    going = each.opened = True
                    self.whole(each)
            going = going or len(self.names) > len(names)
        for each in self.objects.values():
            if each.methods and not each.opened and hasattr(each.value, "__dict__"):
                self.own_names(each.value, each.path, frozenset(each.methods))

    def whole(self, each: _Object) -> None:
        """All that an object holds: code asks it for names that it computes."""
        own = getattr(each.value, "__dict__", None)
        if own is not None:
            self.own_names(each.value, each.path)
        for name in (*(own or ()), *slots(each.value)):
            if not _is_special(name):
                self.attribute(each, name)

    def own_names(self, owner: Any, path: str, among: frozenset[str] | None = None) -> None:
        get = functools.partial(own_names, owner, among)
        path = f"{path} (names)"
        self.found[path] = OwnNames(path, get, get(), "names", owner, "", among)

    def function(self, function: types.FunctionType, prefix: str, hidden: Collection[str] = frozenset()) -> None:
        if id(function) in self.functions or len(self.found) > LIMIT:
            return
        self.functions[id(function)] = function
        names, scope = _names(function.__code__), function.__globals__
        self.code(function, prefix)
        fixed: set[str] = set()
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for owner, taken in names.of.items():
            value = _cell_getter(cells[owner])() if owner in cells else scope.get(owner)
            if isinstance(value, types.ModuleType) and _is_fixed(value.__name__):
                fixed |= taken.keys()
        self.names |= {n: None for n in names.attributes if n not in fixed and not _is_special(n)}
        for name, cell in cells.items():
            if name in hidden:
                continue
            get = _cell_getter(cell)
            self.add(Read(f"{prefix}{name}", get, get(), "closure", cell, "cell_contents"), names.of.get(name, {}))
        missing = {n for n in names.globals if n not in scope and n not in hidden and hasattr(builtins, n)}
        if missing:
            path, before = self.builtins.get(id(scope), (f"builtins of {prefix or 'this function'}", frozenset()))
            self.builtins[id(scope)] = path, before | missing
            self.own_names(scope, path, before | missing)
        self.names |= {n: None for n in (*names.globals, *names.attributes) if n in _REFLECTS}
        annotated = dict.fromkeys(sorted(_annotation_names(function)))
        for name in names.globals | annotated:
            if name in scope and name not in hidden:
                get = _global_getter(scope, name)
                taken = names.of.get(name, {}) | annotated
                self.add(Read(f"{prefix}{name}", get, scope[name], "global", scope, name), taken)

    def code(self, function: types.FunctionType, prefix: str) -> None:
        """The code itself, which IPython's autoreload replaces in place, and the values of parameters that no call
        gives."""
        if function.__code__.co_filename == "<string>":  # made by `dataclass`
            return
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            value = getattr(function, name)
            if value is not None:
                get = _attribute_getter(lambda: function, name)
                self.add(Read(f"{prefix}{name}", get, value, "attribute", function, name), {})

    def add(self, read: Read, names: Mapping[str, None]) -> None:
        """Notes a read, and what can be reached from its value. `names`: what a module is asked for."""
        value, path, get = read.value, read.path, read.get
        if path in self.found or value is MISSING:
            return
        function = is_function(value)
        self.found[path] = replace(read, kind="callee") if function else read
        if len(self.found) == LIMIT:
            self.found["..."] = Read("...", lambda: None, os.urandom(8).hex(), "argument")
        if len(self.found) > LIMIT or isinstance(value, (*PLAIN, types.CodeType)) or read.array:
            return
        if isinstance(value, (list, tuple, dict)) or is_record(value):
            if id(value) in self.opened:  # they may hold themselves
                return
            self.opened.add(id(value))
        if function:
            self.callee(value, path)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self.add(Read(f"{path}.{name}", _attribute_getter(get, name), getattr(value, name), "attribute"), {})
        elif isinstance(value, types.ModuleType):
            if not _is_fixed(value.__name__) and path.count(".") < _DEEPEST:
                for name in names:
                    self.member(value, get, path, name, names)
        elif isinstance(value, (list, tuple, dict)):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                if not isinstance(item, PLAIN):
                    self.add(Read(f"{path}.{key}", _index_getter(get, key), item, "item"), {})
            if type(value) not in (list, tuple, dict):
                self.object(value, get, path)
        elif is_record(value) and type(value).__module__.startswith(_LAYERS):
            for name in members(value):  # its code is fixed, what it holds is not
                self.member(value, get, path, name, {})
        else:
            foreign = _is_foreign(type(value))
            if not foreign:
                self.object(value, get, path)
            if foreign or _answers(type(value)):
                for name in names:
                    self.member(value, get, path, name, {})

    def callee(self, value: Any, path: str) -> None:
        inner = python_function(value)
        if _is_fixed(getattr(inner, "__module__", None)):
            return
        if isinstance(value, types.MethodType):
            self.object(value.__self__, lambda: value.__self__, path)
        self.function(inner, f"{path}.")
        self.rules(value, f"{path}.")

    def rules(self, value: Any, prefix: str) -> None:
        """The derivatives that a user wrote for a function or kernel: @f.vjp."""
        options: dict[str, Any] = getattr(value, "options", None) or {}
        for name in [r for r in RULES if r in options]:
            self.add(Read(f"{prefix}{name}", _global_getter(options, name), options[name], "callee", options, name), {})

    def object(self, value: Any, get: Callable[[], Any], path: str) -> None:
        """An object's own attributes count, and what its class has; of a class, what the classes above it have."""
        kind = value if isinstance(value, type) else type(value)
        known = id(value) in self.objects or _is_library(kind.__module__)
        if known or isinstance(value, _SLOTS) or (value is kind and _is_fixed(kind.__module__)):
            return
        self.objects[id(value)] = _Object(value, get, path)
        inherits = any(map(_is_library, (base.__module__ for base in kind.__mro__)))
        if value is not kind and not _is_fixed(kind.__module__):
            of = f"{path}.__class__"
            self.found[of] = Read(of, _attribute_getter(get, "__class__"), kind, "attribute", value, "__class__")
        for base in kind.__mro__:
            if _is_fixed(base.__module__):
                continue
            self.objects.setdefault(id(base), _Object(base, lambda base=base: base, f"{path}.{base.__name__}"))
            for name, found in list(vars(base).items()):
                called = inherits or (_is_special(name) and name not in _UNCALLED)  # a library's code may name it
                if called and isinstance(found, types.FunctionType):
                    at = _attribute_getter(lambda base=base: base, name)
                    self.add(Read(f"{path}.{base.__name__}.{name}", at, found, "attribute", base, name), {})

    def attribute(self, owner: _Object, name: str) -> None:
        """An attribute of an object that is its own: what its class has belongs to the class."""
        value, kind = owner.value, type(owner.value)
        if isinstance(value, type):
            if name in vars(value):
                found = vars(value)[name]
                if isinstance(found, property):
                    get = _attribute_getter(_attribute_getter(owner.get, name), "fget")
                    self.add(Read(f"{owner.path}.{name}.fget", get, found.fget, "attribute"), {})
                self.member(value, owner.get, owner.path, name, {})
            return
        above = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), MISSING)
        method = isinstance(above, (types.FunctionType, staticmethod, classmethod))
        own = name in getattr(value, "__dict__", ())
        if method and not own:
            owner.methods.add(name)
        if own or not (method or above is MISSING):
            self.member(value, owner.get, owner.path, name, {})

    def member(self, value: Any, get: Callable[[], Any], path: str, name: str, names: Mapping[str, None]) -> None:
        item = _attribute(value, name)
        if item is not MISSING and not isinstance(item, (types.BuiltinFunctionType, *_SLOTS)):
            self.add(Read(f"{path}.{name}", _attribute_getter(get, name), item, "attribute", value, name), names)


def own_names(owner: Any, among: frozenset[str] | None) -> str:
    """The names that an object, or the dict of a module, has of its own."""
    held: dict[str, Any] = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
    return ",".join(held if among is None else sorted(among & held.keys()))


def _is_foreign(kind: type) -> bool:
    """Whether a class is of an installed package, whose objects may hold all of it. Those of Tessera are its own."""
    package = kind.__module__.partition(".")[0]
    return _is_installed(package) and package not in sys.stdlib_module_names and package not in _LIBRARIES


def _answers(kind: type) -> bool:
    """Whether its objects make up attributes when they are asked: they are asked for those alone that code names
    beside them."""
    return hasattr(kind, "__getattr__")


def _is_special(name: str) -> bool:
    """Whether Python knows a name: `__call__` is called without being named."""
    return name.startswith("__") and name.endswith("__")


def _is_library(module: str | None) -> bool:
    return (module or "").partition(".")[0] in _LIBRARIES


def _is_fixed(module: str | None) -> bool:
    """Whether a module's code is not part of the program: that of libraries, of Python, and of what is installed."""
    return _is_library(module) or _is_installed((module or "").partition(".")[0])


@lru_cache(maxsize=4096)
def _is_installed(package: str) -> bool:
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return package in sys.stdlib_module_names or "site-packages" in file or "dist-packages" in file


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
