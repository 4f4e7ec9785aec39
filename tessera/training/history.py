"""What a run logs: columns of numbers over its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import tessera as ts
from tessera.errors import Diagnostic, LaunchError
from tessera.nn import tree

_MISSING = float("nan")
"""a step that logged no number of a column; NaN that was logged is another object"""


class History:
    """Numbers by name and step. `history["loss"]` is an array of f64, NaN at steps that logged none; `history.steps`
    are its steps; iterating gives a dict for each, so that `pandas.DataFrame(history)` is a table."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._columns: dict[str, list[Any]] = {}
        self._read: dict[str, int] = {}
        """how many of a column's numbers are floats by now: results of a device are waited for when somebody looks"""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def keys(self) -> tuple[str, ...]:
        """The same, as a dict calls them."""
        return self.names

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> np.ndarray:
        return np.array(self._column(name), np.float64)

    def __iter__(self) -> Iterator[dict[str, float]]:
        columns = {name: self._column(name) for name in self._columns}
        for i, step in enumerate(self.steps):
            logged = {name: column[i] for name, column in columns.items()}
            yield {"step": step, **{name: value for name, value in logged.items() if not math.isnan(value)}}

    def __repr__(self) -> str:
        return f"<{len(self)} steps of {', '.join(self.names) or 'nothing'}>"

    def last(self, name: str) -> float:
        """The last number that a column was given; NaN where there is none."""
        return next((v for v in reversed(self._column(name)) if v is not _MISSING), math.nan)

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Logs numbers at a step: beside those that it has, if it is the last one; an earlier one begins anew there.

        Raises LaunchError TS105 for what is not a number.
        """
        demand_numbers(values)
        self.cut(step)
        if not self.steps or self.steps[-1] != step:
            self.steps.append(step)
        for name, value in values.items():
            column = self._columns.setdefault(name, [])
            del column[len(self.steps) - 1 :]
            column += [_MISSING] * (len(self.steps) - 1 - len(column))
            column.append(value)
            self._read[name] = min(self._read.get(name, 0), len(column) - 1)

    def cut(self, step: int) -> None:
        """Forgets all behind a step."""
        while self.steps and self.steps[-1] > step:
            self.steps.pop()
        for name, column in self._columns.items():
            del column[len(self.steps) :]
            self._read[name] = min(self._read.get(name, 0), len(column))

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, as a checkpoint keeps it."""
        return {"step": np.array(self.steps, np.int64), **{f"of {name}": self[name] for name in self._columns}}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> History:
        found = cls()
        found.steps = [int(s) for s in ts.asarray(arrays["step"]).numpy()]
        columns = {n.removeprefix("of "): ts.asarray(a).tolist() for n, a in arrays.items() if n != "step"}
        columns = {n: [_MISSING if math.isnan(v) else v for v in column] for n, column in columns.items()}
        found._columns = columns
        found._read = {name: len(column) for name, column in columns.items()}
        return found

    def _column(self, name: str) -> list[float]:
        """A column whose numbers have been read, one for each step."""
        column = self._columns[name]
        for i in range(self._read[name], len(column)):
            column[i] = number(column[i])
        column += [_MISSING] * (len(self.steps) - len(column))
        self._read[name] = len(column)
        return column


def demand_numbers(values: Mapping[str, Any]) -> None:
    """Raises LaunchError TS105 for what is not a number: text, None, arrays of several elements."""
    for name, value in values.items():
        alone = tree.is_array(value) and math.prod(value.shape) == 1
        if not isinstance(value, (int, float, np.number)) and not alone:
            raise LaunchError(Diagnostic("TS105", f"log takes numbers by name: {name!r} is {_kind(value)}"))


def number(value: Any) -> float:
    """A number or an array of one element as a float. Waits for the device that computes it."""
    if isinstance(value, (int, float)):
        return float(value)
    return float(ts.asarray(value).item())


def _kind(value: Any) -> str:
    return f"an array of shape {list(value.shape)}" if tree.is_array(value) else repr(value)
