"""Answers about syntax trees, kept as long as the tree lives.

An editor makes new trees with every keystroke: a cache that holds its keys would keep all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
N = TypeVar("N", bound=ast.AST)
_MISSING: Any = object()


def by_node(answer: Callable[[N], T]) -> Callable[[N], T]:
    """Remembers what `answer` says of a node. The answer must not refer to the node itself, or neither would ever go;
    parts of the node it may hold."""
    known: WeakKeyDictionary[N, T] = WeakKeyDictionary()

    @wraps(answer)
    def remembered(node: N) -> T:
        found: Any = known.get(node, _MISSING)
        if found is _MISSING:
            found = known[node] = answer(node)
        return found

    return remembered
