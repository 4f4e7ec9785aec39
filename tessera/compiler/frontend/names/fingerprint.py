"""Content fingerprints of what a function reads from outside: the same content gives the same text in any process."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any, cast

from tessera.compiler.frontend.names.frame import Closure
from tessera.compiler.frontend.names.live import asked, run_by
from tessera.compiler.frontend.names.values import ClassRef, Record, is_collection, is_dict
from tessera.language.decorators import Decorated
from tessera.language.dims import Expr
from tessera.language.dtypes import DType

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Expr)
_FIXED = (str, bytes, tuple, range, frozenset)
DEPTH = 4
"""objects nested deeper than this are named by their type only"""


def changes(value: object) -> bool:
    """Whether it is a container whose items can be replaced: Python's own, and what is made of them."""
    return not isinstance(value, type) and _changes(type(value))


@lru_cache(maxsize=4096)
def _changes(kind: type) -> bool:
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] in sys.stdlib_module_names]
    return not issubclass(kind, _FIXED) and any(issubclass(base, Collection) for base in own)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def fingerprint(value: Any, depth: int = 0) -> str:
    """Plain values print themselves; containers their elements; functions hash their text; arrays say shape and dtype.

    An array's elements are passed at each launch and are not part of the compiled code, nor of this. An
    array inside another object counts by its identity.
    """
    if type(value) is int:
        return repr(value) if -(2**64) < value < 2**64 else hex(value)  # Python refuses thousands of decimal digits
    if isinstance(value, PLAIN):
        return repr(value)
    if depth > DEPTH:
        return type(value).__qualname__
    if is_collection(value):
        parts = [fingerprint(v, depth + 1) for v in value]
        parts = sorted(parts) if isinstance(value, (set, frozenset)) else parts
        return f"{type(value).__name__}({', '.join(parts)})"
    if is_dict(value):
        return (
            "{" + ", ".join(f"{fingerprint(k, depth + 1)}: {fingerprint(v, depth + 1)}" for k, v in value.items()) + "}"
        )
    if changes(value):
        held: Any = value
        return f"{_kind(held)}{fingerprint([*(held.items() if _is_mapping(held) else held)], depth + 1)}"
    if isinstance(value, Closure):
        return f"{value.name}#{_of_text(value)}"
    if isinstance(value, (ClassRef, Record)):
        held = _annotations(value) if isinstance(value, ClassRef) else {}
        return f"{type(value).__name__}{fingerprint(dict(value.members), depth + 1)}{held or ''}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    return _of_object(value, depth)


def _annotations(cls: ClassRef) -> dict[str, str]:
    """Of its fields and those of the classes above it."""
    found: dict[str, str] = {}
    for base in cls.bases:
        found |= _annotations(base)
    return found | {n: ast.unparse(a) for n, a in cls.annotations.items()}


def _of_object(value: Any, depth: int) -> str:
    shape, dtype = asked(value, "shape"), asked(value, "dtype")
    if isinstance(shape, (tuple, list)) and dtype is not None:  # a class or module has these names for other things
        sizes = cast("Sequence[Any]", shape)
        which = f" {id(value):#x}" if depth else ""  # inside of something else it is not read anew at each launch
        return f"{type(value).__name__}{tuple(sizes)} {dtype}{which}"
    if hasattr(cast("type[object]", type(value)), "__tessera_operator__"):  # a property of its class
        return f"operator {value.__name__}"
    wrapped = run_by(value)
    code = asked(wrapped, "__code__")
    if isinstance(code, CodeType):
        read = _decorated(value) + _free_values(wrapped, code, depth)
        return f"{wrapped.__qualname__}#{_digest(code.co_code, repr(_constants(code)).encode(), read.encode())}"
    kind = _kind(value)
    if isinstance(value, os.PathLike):  # its attributes are caches
        return f"{kind}({os.fspath(cast('os.PathLike[str]', value))!r})"
    members = _attributes(value)
    if members is not None:
        return f"{kind}{fingerprint(members, depth + 1)}"
    if named := _named(value):
        return kind + named
    return kind if type(value).__repr__ is object.__repr__ else repr(value)


def _decorated(value: Any) -> str:
    """How a decorated function differs from the one that it runs: `ts.grad(f)` from `f` and from `ts.grad(f, 1)`."""
    options = value.options if isinstance(value, Decorated) else {}
    return "".join(f"{n}={options[n]!r};" for n in _MEANING if n in options)


_MEANING = ("constant", "mode", "numerics", "transforms")
"""options that say what a function computes; those of its definition are part of what calls it"""


def _attributes(value: Any) -> dict[str, Any] | None:
    """What an object holds, in its dict and in slots; None where it has neither."""
    if isinstance(value, type):
        return None
    names = slots(value)
    own = getattr(value, "__dict__", None)
    if not names and not is_dict(own):
        return None
    return {n: getattr(value, n) for n in names if hasattr(value, n)} | (dict(own) if is_dict(own) else {})


def slots(value: Any) -> list[str]:
    """The names of an object's slots."""
    return [n for base in type(value).__mro__ for n in _slots(base)]


def _slots(cls: type) -> list[str]:
    """The names of a class's own slots, as attributes; those of Python are left out."""
    said: Any = cls.__dict__.get("__slots__", ())
    names = [said] if isinstance(said, str) else [*said]
    private = [f"_{cls.__name__.lstrip('_')}{n}" for n in names if n.startswith("__") and not n.endswith("__")]
    return [n for n in names if not n.startswith("__")] + private


def _kind(value: object) -> str:
    return type(value).__qualname__


def _free_values(function: Any, code: Any, depth: int) -> str:
    """What a function reads from outside, since it may be called at compile time."""
    outside = getattr(function, "__globals__", {})
    out = [f"{n}={fingerprint(outside[n], depth + 1)}" for n in code.co_names if n in outside]
    for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False):
        try:
            out.append(f"{name}={fingerprint(cell.cell_contents, depth + 1)}")
        except ValueError:  # still empty
            out.append(name)
    return ";".join(out)


def _named(value: Any) -> str:
    name = asked(value, "__qualname__") or asked(value, "path") or asked(value, "name")
    return f" {name}" if isinstance(name, str) else ""


def _constants(code: Any) -> tuple[Any, ...]:
    nested = tuple(_constants(c) if hasattr(c, "co_code") else c for c in code.co_consts)
    return (nested, code.co_names, code.co_varnames)


def _of_text(closure: Closure) -> str:
    """Of the lines that the function stands in: cheaper than its tree, and a comment is no harm. Of its decorators
    counts what they make of it."""
    lines, node = closure.definition.text.lines, closure.node
    given = [closure.definition.kind, *(fingerprint(closure.defaults[n], 1) for n in closure.defaults)]
    given += [fingerprint(dict(closure.definition.options), 1)] if closure.definition.options else []
    return _digest("\n".join([*lines[node.lineno - 1 : node.end_lineno], *given]).encode())


def _digest(*parts: bytes) -> str:
    h = hashlib.blake2b(digest_size=8)
    for p in parts:
        h.update(p)
    return h.hexdigest()
