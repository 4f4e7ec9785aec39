"""The arrays that a notebook's kernel holds and the sizes that functions were called with, as its client tells of them
in the notebook's metadata. Whoever wrote the notebook wrote that as well: what cannot be understood is passed over, and
texts are cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from tessera.compiler.frontend.names.values import OutsideArray
from tessera.language import dtypes

LONGEST = 400
"""characters of one text about elements"""


@dataclass(frozen=True, slots=True)
class LiveArray:
    """`cell`: the number of the run that bound the name; `changed`: that of a later run which changed its elements.
    `elements`: see tessera_jupyter/session/elements.py."""

    type: OutsideArray
    cell: int | None = None
    changed: int | None = None
    elements: Mapping[str, str | int] = field(default_factory=dict[str, str | int])

    def brief(self) -> str:
        """What stands beside an assignment; "" where nothing is known of the elements."""
        text = self._text("values") or ", ".join(self._figures())
        read = self._count("read")
        if text and read:
            text = f"in {read:,} of {self.size:,}: {text}"
        return f"since [{self.changed}]: {text}" if text and self.changed is not None else text

    def details(self) -> Iterator[str]:
        """Sentences for a person who asks."""
        if self.cell is not None:
            changed = f", changed by [{self.changed}]" if self.changed is not None else ""
            yield f"in the kernel now, bound by [{self.cell}]{changed}"
        else:
            yield "in the kernel now"
        shown = self._text("values") or self._text("first")
        if shown:
            yield shown
        figures = ", ".join(self._figures())
        if figures:
            yield figures
        read = self._count("read")
        if read:
            yield f"read: {read:,} of {self.size:,} elements"
        if self._text("unread"):
            yield f"the elements are not read: {self._text('unread')}"

    @property
    def size(self) -> int:
        size = 1
        for n in self.type.shape:
            size *= n
        return size

    def _figures(self) -> Iterator[str]:
        if "true" in self.elements:
            yield f"{self._count('true'):,} of {self._count('read') or self.size:,} true"
        of = "|.| " if self.elements.get("complex") else ""
        for key, word in (("least", "min"), ("most", "max"), ("mean", "mean")):
            if text := self._text(key):
                yield f"{of}{word} {text}"
        for key, word in (("nan", "NaN"), ("inf", "inf")):
            if count := self._count(key):
                yield f"{count:,} {word}"

    def _text(self, key: str) -> str:
        found = self.elements.get(key)
        return " ".join(found.split())[:LONGEST] if isinstance(found, str) else ""

    def _count(self, key: str) -> int:
        found = self.elements.get(key)
        return found if isinstance(found, int) else 0


@dataclass(frozen=True, slots=True)
class LastCall:
    """A function as its lines stood in its cell, and the sizes that its dims had at its last call."""

    name: str
    lines: tuple[str, ...]
    sizes: Mapping[str, int]

    def text(self, names: Iterable[str] | None = None) -> str:
        """`B=32, S=128 now`"""
        return f"{', '.join(f'{name}={self.sizes[name]}' for name in names or self.sizes)} now"


@dataclass(frozen=True, slots=True)
class LiveArrays:
    """All arrays of the kernel by name. `cells`: the text of cells that bound some, by the number of their run, as far
    as they ran. `called`: the functions that have been called."""

    arrays: Mapping[str, LiveArray] = field(default_factory=dict[str, LiveArray])
    cells: Mapping[int, str] = field(default_factory=dict[int, str])
    called: tuple[LastCall, ...] = ()

    @property
    def types(self) -> dict[str, OutsideArray]:
        return {name: array.type for name, array in self.arrays.items()}


def read(metadata: Any) -> LiveArrays | None:
    """What metadata tells, `{"tessera": {"arrays": {"W": {"shape": [4, 8], "dtype": "f32"}}}}`; None where it tells of
    no arrays."""
    try:
        told = metadata["tessera"]
        arrays = {name: _array(each) for name, each in told["arrays"].items()}
        texts = cast("dict[object, object]", told.get("cells") or {})
        cells = {int(str(number)): str(text) for number, text in texts.items()}
        called = tuple(map(_call, told.get("called") or ()))
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    return LiveArrays({name: array for name, array in arrays.items() if array is not None}, cells, called)


def _call(told: Any) -> LastCall:
    sizes = {str(name): int(size) for name, size in told["sizes"].items()}
    return LastCall(str(told["name"]), tuple(str(told["text"]).split("\n")), sizes)


def _array(told: Any) -> LiveArray | None:
    shape, dtype = tuple(map(int, told["shape"])), dtypes.named(told["dtype"])
    if dtype is None:
        return None
    cell, changed, elements = (told.get(key) for key in ("cell", "changed", "elements"))
    given = cast("dict[object, object]", elements) if isinstance(elements, dict) else {}
    known = {str(key): value for key, value in given.items() if isinstance(value, (str, int))}
    return LiveArray(OutsideArray(shape, dtype), _number(cell), _number(changed), known)


def _number(told: Any) -> int | None:
    return told if isinstance(told, int) else None
