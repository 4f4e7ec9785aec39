"""The protocol's classes, each of them made when it is first used: making all takes longer than the rest of the start.

lsprotocol has some 550 classes for attrs to complete, which writes the methods of each as source text and compiles it.
A session uses about a hundred of them.
"""

from __future__ import annotations

import importlib
import sys
import threading
from typing import Any, TypeVar, dataclass_transform

import attrs

C = TypeVar("C", bound=type)
_define = attrs.define
_making = threading.RLock()


def load() -> None:
    """Imports lsprotocol.types; where something has done that before, all classes are made already."""
    if "lsprotocol.types" in sys.modules:
        return
    attrs.define = later  # type: ignore[assignment]  # in the eyes of that module
    try:
        importlib.import_module("lsprotocol.types")
    finally:
        attrs.define = _define
    from lsprotocol import _hooks  # slow: before load() it would make every class

    _hooks._resolved_forward_references = True  # or a converter would ask for the fields of all of them


@dataclass_transform(field_specifiers=(attrs.field,))
def later(cls: C) -> C:
    """As `attrs.define`, when the first object of the class is made or the list of its fields is asked for.

    The class stays the object that it is, so what is made of it has no slots.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        _make(cls)
        cls.__init__(self, *args, **kwargs)

    cls.__init__ = __init__
    cls.__attrs_attrs__ = _Fields(cls)
    return cls


class _Fields:
    """Stands where attrs puts a class's list of fields."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        _make(self._cls)
        return self._cls.__attrs_attrs__


def _make(cls: type) -> None:
    with _making:
        if isinstance(vars(cls)["__attrs_attrs__"], _Fields):
            _define(cls, init=True, slots=False)
            attrs.resolve_types(cls)
