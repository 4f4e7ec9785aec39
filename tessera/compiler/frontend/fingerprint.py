"""Content fingerprints of what a function reads from outside: the same content gives the same text in any process."""

from __future__ import annotations

import ast
import hashlib
from functools import lru_cache
from types import ModuleType
from typing import Any

from tessera.compiler.frontend.values import ClassRef, Closure, Record
from tessera.language.dims import Expr
from tessera.language.dtypes import DType

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Expr)
DEPTH = 4
"""objects nested deeper than this are named by their type only"""


def fingerprint(value: Any, depth: int = 0) -> str:
    """Plain values print themselves; containers their elements; functions hash their text; arrays say shape and dtype.

    An array's elements are passed at each launch and are no part of the compiled code, so they are no part of this.
    """
    if isinstance(value, PLAIN):
        return repr(value)
    if depth > DEPTH:
        return type(value).__qualname__
    if isinstance(value, (list, tuple, set, frozenset)):
        parts = [fingerprint(v, depth + 1) for v in value]
        parts = sorted(parts) if isinstance(value, (set, frozenset)) else parts
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{fingerprint(k, depth + 1)}: {fingerprint(v, depth + 1)}" for k, v in value.items()) + "}"
    if isinstance(value, Closure):
        return f"{value.name}#{_of_tree(value.node)}"
    if isinstance(value, (ClassRef, Record)):
        return f"{type(value).__name__}{fingerprint(dict(value.members), depth + 1)}"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    return _of_object(value, depth)


def _of_object(value: Any, depth: int) -> str:
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{type(value).__name__}{tuple(shape)} {dtype}"
    wrapped = getattr(value, "__wrapped__", value)
    code = getattr(wrapped, "__code__", None)
    if code is not None:
        return f"{wrapped.__qualname__}#{_digest(code.co_code, repr(_constants(code)).encode())}"
    members = getattr(value, "__dict__", None)
    if isinstance(members, dict) and not isinstance(value, type):
        return f"{type(value).__qualname__}{fingerprint(dict(members), depth + 1)}"
    return str(value) if hasattr(type(value), "__tessera_fingerprint__") else type(value).__qualname__ + _named(value)


def _named(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "path", None) or getattr(value, "name", None)
    return f" {name}" if isinstance(name, str) else ""


def _constants(code: Any) -> tuple[Any, ...]:
    nested = tuple(_constants(c) if hasattr(c, "co_code") else c for c in code.co_consts)
    return (nested, code.co_names, code.co_varnames)


@lru_cache(maxsize=1024)
def _of_tree(node: ast.AST) -> str:
    return _digest(ast.dump(node).encode())


def _digest(*parts: bytes) -> str:
    h = hashlib.blake2b(digest_size=8)
    for p in parts:
        h.update(p)
    return h.hexdigest()
