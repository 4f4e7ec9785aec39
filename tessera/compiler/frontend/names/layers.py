"""Which layer of a model something is about: `model.blocks[2].mlp[0]: Linear(30, 5)`.

The callers of a layer hold the model in their variables. The outermost one that does names it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tessera.compiler.frontend.names.frame import Frame
from tessera.compiler.frontend.names.values import ClassRef, Record, is_dict, is_sequence
from tessera.compiler.ir.core import Value
from tessera.compiler.ir.types import TensorType
from tessera.language.records import is_record, members
from tessera.tracebacks import OWN

LONGEST = 1_000
"""items of a list that may be layers; a longer one is data"""


def layer_named(layer: Any, frames: Iterable[Mapping[str, Any]]) -> str:
    """The layer by its path in a model, if that goes through a row of layers; else "". `frames`: the variables of its
    callers, the outermost first."""
    for names in frames:
        models = ((n, v) for n, v in names.items() if n.isidentifier() and _members(v) is not None)
        path = _path(layer, models)
        if path:
            return f"{path}: {described(layer)}" if "[" in path else ""
    return ""


def layer_in(frame: Frame, called: Frame | None = None) -> str:
    """The same of the method that is evaluated in a frame, or is `called` from there."""
    frames, inner = list[Frame](), called or frame
    while "self" not in inner.names and inner.caller is not None:
        inner = inner.caller
    layer, outer = inner.names.get("self"), frame
    while outer.caller is not None:
        frames.append(outer)
        outer = outer.caller
    if not isinstance(layer, Record):
        return ""
    return layer_named(layer, (f.names for f in (outer, *reversed(frames)) if not f.source.file.startswith(OWN)))


def described(layer: Any) -> str:
    """`Linear(30, 5)`: its class, and the sizes of its weight."""
    held = _members(layer) or {}
    weight = held.get("weight")
    shape: Any = getattr(weight.type if isinstance(weight, Value) else weight, "shape", ())
    sizes = [str(n) for n in shape] if len(shape) <= 2 and all(isinstance(n, int) for n in shape) else []
    name = layer.type_name if isinstance(layer, Record) else type(layer).__name__
    return f"{name}({', '.join(sizes)})" if sizes else name


def _path(wanted: Any, models: Iterable[tuple[str, Any]]) -> str:
    """The shortest path from one of the models; "" where there is none."""
    waiting, seen = deque(models), set[int]()
    while waiting:
        path, value = waiting.popleft()
        if value is wanted:
            return path
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend((path + step, v) for step, v in _parts(value))
    return ""


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    held = _members(value)
    if held is not None:
        row = held.get("layers") if _has_items(value) else None
        yield from _parts(row)
        yield from ((f".{n}", v) for n, v in held.items() if v is not row or row is None)
    elif is_sequence(value) and len(value) <= LONGEST:
        yield from ((f"[{i}]", v) for i, v in enumerate(value))
    elif is_dict(value) and len(value) <= LONGEST:
        yield from ((f"[{k!r}]", v) for k, v in value.items())


def _members(value: Any) -> Mapping[str, Any] | None:
    """What an object holds by name; None for what is not an object of a dataclass."""
    if isinstance(value, Record):
        return value.members
    if isinstance(value, (type, Value, TensorType)) or not is_record(value):
        return None
    return members(value)


def _has_items(value: Any) -> bool:
    """Whether `value[0]` is its first layer."""
    cls: Any = value.cls if isinstance(value, Record) else value.__class__
    return "__getitem__" in cls.members if isinstance(cls, ClassRef) else hasattr(cls, "__getitem__")
