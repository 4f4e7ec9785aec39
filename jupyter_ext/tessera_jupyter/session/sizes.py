"""The sizes that functions were called with, shown beside them in a page as `B=32 now`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from tessera.language.decorators import Decorated

_RESULT = re.compile(r"_+\d*")
"""the names that IPython gives to results of cells"""


class Called(TypedDict):
    """A function with its text in its cell, and the sizes at its last call. An edited text is another function."""

    name: str
    text: str
    sizes: dict[str, int]


def called(namespace: Mapping[str, Any]) -> list[Called]:
    """The functions and kernels of a namespace, and of its classes, for which the sizes of the last call are known."""
    out: list[Called] = []
    for _, program in named(namespace):
        launcher = vars(program).get("launcher")
        if launcher is not None and launcher.sizes:
            out.append({"name": program.name, "text": text_of(program), "sizes": dict(launcher.sizes)})
    return out


def text_of(program: Decorated[Any, Any]) -> str:
    """Its lines in its cell, decorators included."""
    definition = program.definition()
    last = definition.tree.end_lineno or definition.line
    return "\n".join(definition.text.lines[definition.line - 1 : last])


def named(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Decorated[Any, Any]]]:
    """The functions and kernels of a namespace and of its classes, each once, by the first name that people gave it."""
    values = [(name, value) for name, value in namespace.items() if not _RESULT.fullmatch(name)]
    classes = [(name, value) for name, value in values if isinstance(value, type)]
    inner = [(f"{owner}.{name}", value) for owner, cls in classes for name, value in vars(cls).items()]
    found: dict[int, tuple[str, Decorated[Any, Any]]] = {}
    for name, value in (*values, *inner):
        if isinstance(value, Decorated):
            found.setdefault(id(value), (name, value))
    yield from found.values()
