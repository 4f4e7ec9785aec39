"""Sent to the page after each cell: the sizes of dims at the last call of each function, `B=32 now` beside it, and the
shapes of arrays by name, for hints in functions that read them. No elements, no code.

A message is whole: what it does not name is not there now. It goes over a comm of its own that is closed at
once, so that a page which is loaded again, or a kernel that starts again, has nothing to keep in step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from IPython.core.interactiveshell import InteractiveShell

from tessera.language import dtypes
from tessera.language.decorators import Decorated

TARGET = "tessera.sizes"


MOST = 1000
"""arrays that are told of, the newest"""


class Array(TypedDict):
    shape: list[int]
    dtype: str


class Called(TypedDict):
    """A function as it stands in its cell, and the sizes at its last call. An edited text is another function."""

    name: str
    text: str
    sizes: dict[str, int]


def tell(shell: InteractiveShell) -> None:
    """Sends what has been called to the page; does nothing outside a kernel."""
    if getattr(shell, "kernel", None) is None:
        return
    from comm import create_comm  # optional: ipykernel brings it

    data = {"called": called(shell.user_ns), "arrays": arrays(shell.user_ns)}
    create_comm(target_name=TARGET, data=data).close()


def arrays(namespace: Mapping[str, Any]) -> dict[str, Array]:
    """The names of arrays that functions can read, with shape and dtype."""
    found: dict[str, Array] = {}
    for name, value in list(namespace.items()):
        if name.startswith("_") or isinstance(value, type) or not hasattr(type(value), "__dlpack__"):
            continue
        shape, dtype = getattr(value, "shape", None), dtypes.of(getattr(value, "dtype", None))
        if dtype is not None and isinstance(shape, tuple) and (shape or hasattr(value, "__setitem__")):
            found[name] = {"shape": [int(n) for n in shape], "dtype": str(dtype)}
    return dict(list(found.items())[-MOST:])


def called(namespace: Mapping[str, Any]) -> list[Called]:
    """The functions and kernels of a namespace, those of its classes too, whose last call has told sizes."""
    out: list[Called] = []
    for program in _programs(namespace):
        launcher = vars(program).get("launcher")
        if launcher is not None and launcher.sizes:
            definition = program.definition()
            last = definition.tree.end_lineno or definition.line
            lines = definition.text.lines[definition.line - 1 : last]
            out.append({"name": program.name, "text": "\n".join(lines), "sizes": dict(launcher.sizes)})
    return out


def _programs(namespace: Mapping[str, Any]) -> Iterator[Decorated[Any, Any]]:
    values = list(namespace.values())
    inner = [v for value in values if isinstance(value, type) for v in vars(value).values()]
    yield from {id(v): v for v in (*values, *inner) if isinstance(v, Decorated)}.values()
