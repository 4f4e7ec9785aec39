"""`isinstance` and `hasattr` of instances of classes, live ones and those of a text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tessera.compiler.frontend.names.values import UNKNOWN, Builtin, ClassRef, Record


def is_instance(record: Record, kinds: Iterable[Any]) -> Any:
    """UNKNOWN where a class above may be one whose text is not known."""
    cls, wanted = record.cls, tuple(kinds)
    if isinstance(cls, type):
        return issubclass(cls, tuple(k for k in wanted if isinstance(k, type)))
    if not isinstance(cls, ClassRef):
        return UNKNOWN
    classes = [cls]
    for one in classes:
        classes += one.bases
    if any(_same(c, k) for c in classes for k in wanted) or (cls.named_tuple and tuple in wanted):
        return True
    known = all(isinstance(k, type) or (cls.makes_data and isinstance(k, (ClassRef, Builtin))) for k in wanted)
    return False if known else UNKNOWN


def _same(cls: ClassRef, wanted: Any) -> bool:
    return cls is wanted or (isinstance(wanted, ClassRef) and (cls.name, cls.scope) == (wanted.name, wanted.scope))


def has_attribute(record: Record, name: str) -> bool:
    cls = record.cls
    return name in record.members or (name in cls.members if isinstance(cls, ClassRef) else hasattr(cls, name))
