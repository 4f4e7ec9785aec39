"""The arrays that names of a notebook have now, for hints: shape, dtype, a little of the elements, and the cell that
bound the name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict
from weakref import ref

from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

from tessera.compiler.frontend.syntax.parse import parse
from tessera.editor.assignments import last_assignments
from tessera.language import dtypes
from tessera_jupyter.session.elements import ElementTexts, elements

MOST = 1000
"""arrays that are reported: the newest"""
BUDGET = 0.02
"""seconds of work after a cell for the elements of all arrays, those of cells that ran last first. Time in which other
programs had the processor does not count: else hints of a busy machine would come and go."""
LONGEST = 50_000
"""characters of a cell; of a longer one nothing stands beside its assignments"""


class Array(TypedDict):
    """`cell`: the number of the run of the cell that bound the name; absent where that was before Tessera was loaded.
    `changed`: that of a later cell after which the same array had other elements."""

    shape: list[int]
    dtype: str
    cell: NotRequired[int]
    changed: NotRequired[int]
    elements: NotRequired[ElementTexts]


class Told(TypedDict):
    """`cells`: the text of cells that bound arrays, by the number of their run, as far as they ran."""

    arrays: dict[str, Array]
    cells: dict[int, str]


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


@dataclass(slots=True)
class _Bound:
    """The array that a name had last. `seen`: its elements then."""

    array: Callable[[], Any]
    cell: int | None
    changed: int | None = None
    seen: ElementTexts | None = None


@dataclass(slots=True)
class BoundArrays:
    """Follows a namespace from cell to cell."""

    namespace: Mapping[str, Any]
    _bound: dict[str, _Bound] = field(init=False)
    _texts: dict[int, str] = field(default_factory=dict[int, str])

    def __post_init__(self) -> None:
        self._bound = {name: _Bound(_weakly(self.namespace[name]), None) for name in arrays(self.namespace)}

    def ran(self, shell: InteractiveShell, result: ExecutionResult) -> None:
        """To be called after each cell. A cell without a number, as an editor's question is, binds nothing."""
        number, text = result.execution_count, result.info.raw_cell
        if number is None:
            return
        named = set(_names(shell, text))
        before, self._bound = self._bound, {}
        for name in arrays(self.namespace):
            old, array = before.get(name), self.namespace[name]
            same = old is not None and old.array() is array and name not in named
            self._bound[name] = old if same else _Bound(_weakly(array), number)
        if any(b.cell == number for b in self._bound.values()) and len(text) <= LONGEST:
            self._texts[number] = _as_far_as_it_ran(shell, text, result.error_in_exec)

    def told(self, number: int | None = None) -> Told:
        """All arrays as they are now, `number` being that of the cell that ran last."""
        found = arrays(self.namespace)
        until = time.thread_time() + BUDGET
        for name in sorted(found, key=lambda name: self._cell(name) or 0, reverse=True):
            bound = self._bound.get(name)
            if bound is None or bound.cell is None:
                continue
            found[name]["cell"] = bound.cell
            if time.thread_time() < until:
                now = elements(self.namespace[name])
                if bound.seen not in (None, now) and number is not None and number != bound.cell:
                    bound.changed = number
                bound.seen = found[name]["elements"] = now
            if bound.changed is not None:
                found[name]["changed"] = bound.changed
        live = {a["cell"] for a in found.values() if "cell" in a}
        self._texts = {number: text for number, text in self._texts.items() if number in live}
        return {"arrays": found, "cells": dict(self._texts)}

    def _cell(self, name: str) -> int | None:
        return self._bound[name].cell if name in self._bound else None


def _weakly(array: Any) -> Callable[[], Any]:
    """Does not keep the array alive. One that cannot be followed so counts as new after each cell."""
    try:
        return ref(array)
    except TypeError:
        return lambda: None


def _names(shell: InteractiveShell, text: str) -> Iterator[str]:
    """What the text of a cell binds, be it to the array that the name had before."""
    first, _, rest = text.lstrip().partition("\n")
    plain = rest if first.startswith("%%tessera") else shell.transform_cell(text)
    tree = parse(plain, "<cell>").tree
    return iter(last_assignments(tree.body) if tree is not None else ())


def _as_far_as_it_ran(shell: InteractiveShell, text: str, error: BaseException | None) -> str:
    """The lines above the one that raised."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_name == "<module>" and frame.f_globals is shell.user_ns:
            return "\n".join(text.split("\n")[: trace.tb_lineno - 1])
        trace = trace.tb_next
    return text if error is None else ""
